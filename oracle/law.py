"""The law that a verifier emits, in exact rationals, by following every branch of its walk.

Drafts are drawn as late as the walk allows: per_node draws a child when it tests it, per_parent and
sample_and_match draw all siblings below a node that they visit, block draws its chain. What is below a node that
is never visited costs nothing, so large trees stay within reach. The losslessness theorem is then an equality of
dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from oracle.discrete import Row, without
from oracle.enumeration import Run, branches
from oracle.errors import BadInput
from oracle.validation import parents, proposal_of
from oracle.walks import ROOT, walk_of

Table = Mapping[tuple[int, ...], Sequence[Fraction]]
"""Prefix of tokens after the root → law of the next token; rows of V Fractions."""

Sequences = dict[tuple[int, ...], Fraction]
"""Token sequence → probability."""

Arrange = Callable[[Sequence[int], Sequence[Fraction]], Sequence[int]]
"""What a builder does to drawn siblings: their tokens and their row → which of them stay, in which order."""

Choose = Callable[[Sequence[Fraction]], int]


def target_law(target: Table, length: int) -> Sequences:
    """The target's own law of its next `length` tokens: the product of its rows."""
    law: Sequences = {(): Fraction(1)}
    for _ in range(length):
        law = {
            (*prefix, v): weight * probability
            for prefix, weight in law.items()
            for v, probability in enumerate(_row(target, prefix, "target"))
            if weight * probability > 0
        }
    return law


def emitted_law(
    target: Table,
    draft: Table,
    parent: Sequence[int],
    proposal: str,
    scheme: str = "per_node",
    arrange: Arrange | None = None,
) -> Sequences:
    """The law of what one round publishes (accepted tokens, then the frontier), of varying length.

    `parent` is the shape of the draft tree, [n] with parent[i] < i; the drafts come from `draft` as
    `proposal` says ("point": the most probable tokens in sibling order), the coins are spent as `scheme`
    says. `arrange` re-sorts or prunes the siblings between the draw and the verification; for sampled
    proposals that is lossy (`by_value`, `best_of`). Raises `BadInput`.
    """
    law: Sequences = {}
    for weight, tokens in _runs(target, draft, parent, proposal, scheme, arrange):
        law[tokens] = law.get(tokens, Fraction(0)) + weight
    return law


def completed(law: Sequences, target: Table, length: int) -> Sequences:
    """`law` continued from the target up to `length` tokens (longer ones are cut)."""
    whole: Sequences = {}
    for tokens, weight in law.items():
        partial = {tokens[:length]: weight}
        while len(next(iter(partial))) < length:
            partial = {
                (*prefix, v): w * probability
                for prefix, w in partial.items()
                for v, probability in enumerate(_row(target, prefix, "target"))
                if probability > 0
            }
        for sequence, w in partial.items():
            whole[sequence] = whole.get(sequence, Fraction(0)) + w
    return whole


def is_lossless(
    target: Table,
    draft: Table,
    parent: Sequence[int],
    proposal: str,
    length: int,
    scheme: str = "per_node",
    arrange: Arrange | None = None,
) -> bool:
    """Whether the completed law of one round equals the target's own: equal, not close."""
    emitted = emitted_law(target, draft, parent, proposal, scheme, arrange)
    return completed(emitted, target, length) == target_law(target, length)


def accepted_depth_law(
    target: Table, draft: Table, parent: Sequence[int], proposal: str, scheme: str = "per_node"
) -> list[Fraction]:
    """P(exactly k drafts are accepted) for k = 0 … depth of the tree."""
    law = [Fraction(0)] * (_depth(parents(parent, "parent")) + 1)
    for weight, tokens in _runs(target, draft, parent, proposal, scheme):
        law[len(tokens) - 1] += weight
    return law


def by_value(tokens: Sequence[int], row: Sequence[Fraction]) -> list[int]:
    """Siblings from the most probable to the least: harmless for point proposals, lossy for drawn ones."""
    return sorted(range(len(tokens)), key=lambda i: (-row[tokens[i]], tokens[i], i))


def best_of(keep: int) -> Arrange:
    """The `keep` most probable siblings, in draw order: harmless for point proposals, lossy for drawn ones."""
    return lambda tokens, row: sorted(by_value(tokens, row)[:keep])


def _runs(
    target: Table,
    draft: Table,
    parent: Sequence[int],
    proposal: str,
    scheme: str,
    arrange: Arrange | None = None,
) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    """Every run of the walk with its probability and the tokens it publishes.

    Drafts are drawn when they are first looked at.
    """
    proposal_of(proposal, "proposal")
    walk = walk_of(scheme)
    above = parents(parent, "parent")

    def program(run: Run) -> tuple[int, ...]:
        view = _TableView(target, draft, above, proposal, run.choose, arrange)
        decision = walk(view, run)
        return (*(view.drawn[node] for node in decision.path), decision.frontier)

    yield from branches(program)


class _TableView:
    """A request whose drafts are drawn from a table when they are first looked at."""

    parent_field = "parent"

    def __init__(
        self,
        target: Table,
        draft: Table,
        parent: Sequence[int],
        proposal: str,
        choose: Choose,
        arrange: Arrange | None,
    ) -> None:
        self.proposal = proposal
        self._arrange = arrange
        self._arranged: dict[int, list[int]] = {}
        self.drawn: dict[int, int] = {}
        self._target, self._draft, self._parent, self._choose = target, draft, parent, choose
        self._width: int | None = None  # of the first row read

    def children(self, node: int) -> list[int]:
        if self._arrange is None:
            return self._planned(node)
        if node not in self._arranged:
            planned = self._planned(node)
            stay = self._arrange(self._draw(node), self.draft(node)) if planned else ()
            self._arranged[node] = [planned[i] for i in stay]
        return self._arranged[node]

    def token(self, child: int, law: Row | None) -> int:
        if child not in self.drawn:
            if law is not None and not any(law):
                raise BadInput("parent", (child,), "siblings drawn without replacement stay within the support")
            self.drawn[child] = self._most_probable(child) if law is None else self._choose(law)
        return self.drawn[child]

    def tokens(self, node: int) -> list[int]:
        self._draw(node)
        return [self.drawn[child] for child in self.children(node)]

    def _planned(self, node: int) -> list[int]:
        return [i for i, above in enumerate(self._parent) if above == node]

    def _draw(self, node: int) -> list[int]:
        """The children's tokens, drawn one after the other."""
        children = self._planned(node)
        law = self.draft(node) if children and self.proposal != "point" else None
        found = []
        for child in children:
            found.append(self.token(child, law))
            if law is not None and self.proposal == "without_replacement":
                law = without(law, found[-1])
        return found

    def target(self, node: int) -> Row:
        return self._row(self._target, node, "target")

    def draft(self, node: int) -> Row:
        return self._row(self._draft, node, "draft")

    def _row(self, table: Table, node: int, field: str) -> Row:
        prefix = self._prefix(node)
        row = list(_row(table, prefix, field))
        self._width = self._width or len(row)
        if len(row) != self._width:
            raise BadInput(
                f"{field}[{prefix}]", (), f"target and draft rows have one width, here {self._width}", len(row)
            )
        return row

    def _most_probable(self, child: int) -> int:
        node = self._parent[child]
        row = self.draft(node)
        ranked = sorted((v for v in range(len(row)) if row[v] > 0), key=lambda v: (-row[v], v))
        rank = self._planned(node).index(child)
        if rank >= len(ranked):
            raise BadInput("parent", (child,), "point proposals stay within the support of their row")
        return ranked[rank]

    def _prefix(self, node: int) -> tuple[int, ...]:
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self.drawn[node])
            node = self._parent[node]
        return tuple(reversed(tokens))


def _depth(parent: Sequence[int]) -> int:
    depths = {ROOT: 0}
    for i, node in enumerate(parent):
        depths[i] = depths[node] + 1
    return max(depths.values())


def _row(table: Table, prefix: tuple[int, ...], field: str) -> Sequence[Fraction]:
    if not isinstance(table, Mapping) or prefix not in table:
        raise BadInput(field, (), f"a table has a row for each prefix that is reached, here {prefix}")
    row = table[prefix]
    rule = "a table row holds non-negative Fractions that sum to exactly one"
    if not isinstance(row, Iterable):
        raise BadInput(f"{field}[{prefix}]", (), rule, type(row).__name__)
    if any(not isinstance(v, Fraction) or v < 0 for v in row) or sum(row) != 1:
        raise BadInput(f"{field}[{prefix}]", (), rule, tuple(row))
    return row
