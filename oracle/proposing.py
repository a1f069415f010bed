"""Proposing: drafting a tree from a table of draft laws, in the three ways that verifiers know."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from oracle.discrete import Row, inverse_cdf, mass, without
from oracle.errors import BadInput
from oracle.types import DraftTable, ProposalCase, Proposals
from oracle.validation import as_array, law_of, parents, proposal_of, reals, seed_of

Prefix = tuple[int, ...]


def propose(case: ProposalCase) -> Proposals:
    """Draft `case.trials` trees, node by node, and say from which row the children of each node came.

    "iid": every child from the row of its parent. "without_replacement": from that row renormalised without
    the tokens of earlier siblings. "point": the children are the most probable tokens in sibling order (lower
    id first), the rows confidences. Rows of leaves are unread: they hold what the table has there, unvalidated,
    or zeros where it has no V real numbers. Without trials no row is read; the length of the root's is V.
    Raises `BadInput`, also where siblings that have to differ outnumber the support. Source: EAGLE-1, static
    tree; EAGLE-2 §4.
    """
    if not isinstance(case, ProposalCase):
        raise BadInput("case", (), "a case is an oracle.types.ProposalCase", type(case).__name__)
    proposal = proposal_of(case.proposal, "case.proposal")
    if isinstance(case.trials, bool) or not isinstance(case.trials, (int, np.integer)) or not 0 <= case.trials < 2**31:
        raise BadInput("case.trials", (), "is a number of trials below 2**31", case.trials)
    above = parents(case.parent, "case.parent")
    table = _Table(case.table, proposal == "point")
    generator = np.random.default_rng(seed_of(case.seed))
    tokens = np.zeros((case.trials, len(above)), dtype=np.int64)
    rows = np.zeros((case.trials, len(above) + 1, table.vocabulary))
    for trial in range(case.trials):
        prefixes: list[Prefix] = [()]  # of the root, then of each node
        for i, parent in enumerate(above):
            prefix = prefixes[parent + 1]
            earlier = [int(tokens[trial, j]) for j in range(i) if above[j] == parent]
            coin = generator.random()
            tokens[trial, i] = _draft(table.row(prefix), earlier, proposal, coin, i)
            prefixes.append((*prefix, int(tokens[trial, i])))
        for node, prefix in enumerate(prefixes):
            rows[trial, node] = table.row(prefix) if node - 1 in above else table.unread(prefix)
    return Proposals(tokens, rows)


def _draft(row: Row, earlier: list[int], proposal: str, coin: float, node: int) -> int:
    """The token of a node whose siblings before it drew `earlier`."""
    if proposal == "iid":
        return inverse_cdf(row, coin)
    left = row
    if proposal == "point":
        left = [0.0 if v in earlier else p for v, p in enumerate(row)]
    else:
        for token in earlier:
            left = without(left, token)
    if not mass(left) > 0:
        raise BadInput("case.parent", (node,), f"siblings of a {proposal!r} proposal stay within the support")
    return left.index(max(left)) if proposal == "point" else inverse_cdf(left, coin)


class _Table:
    """A draft table of either form; a row is validated when it is read, V is the length of the root's."""

    def __init__(self, table: DraftTable, may_omit_mass: bool) -> None:
        self._may_omit_mass = may_omit_mass
        self._rows: Mapping[Prefix, object] | None = table if isinstance(table, Mapping) else None
        self._layers: list[object] = []
        if not isinstance(table, Mapping):
            try:
                self._layers = list(table)
            except TypeError:
                rule = "is a sequence of layers, or a mapping from prefixes to rows"
                raise BadInput("case.table", (), rule, type(table).__name__) from None
        root = self._found(())
        field, index = self._place(())
        if root.ndim != 1 or not len(root):
            raise BadInput(field, index, "is a vector of V real numbers", root.shape)
        self.vocabulary = len(root)

    def row(self, prefix: Prefix) -> Row:
        """The law that is drafted from after `prefix`."""
        field, index = self._place(prefix)
        return law_of(self._found(prefix), field, index, self.vocabulary, self._may_omit_mass)

    def unread(self, prefix: Prefix) -> np.ndarray:
        """The row of a leaf as it stands; zeros where the table has no V real numbers for it."""
        try:
            row = reals(self._found(prefix))
        except BadInput:
            row = None
        return row if row is not None and row.shape == (self.vocabulary,) else np.zeros(self.vocabulary)

    def _place(self, prefix: Prefix) -> tuple[str, tuple[int, ...]]:
        """Field and index of a row: `case.table[(0, 1)]` of a mapping, `case.table[2][0][1]` in layers."""
        return (f"case.table[{prefix}]", ()) if self._rows is not None else ("case.table", (len(prefix), *prefix))

    def _found(self, prefix: Prefix) -> np.ndarray:
        """What the table has after `prefix`, as an array of any shape."""
        if self._rows is not None:
            field, index = self._place(prefix)
            if prefix not in self._rows:
                raise BadInput(field, index, "the table has a row for each prefix that is drafted from")
            return as_array(self._rows[prefix], field)
        depth = len(prefix)
        if depth >= len(self._layers):
            raise BadInput("case.table", (depth,), "the table has a row for each prefix that is drafted from")
        layer = self._layers[depth]
        if not isinstance(layer, np.ndarray):
            layer = self._layers[depth] = as_array(layer, "case.table", (depth,))
        if depth and layer.shape != (self.vocabulary,) * (depth + 1):
            raise BadInput("case.table", (depth,), "layer l has shape [V] * l + [V]", layer.shape)
        found: np.ndarray = layer[prefix] if depth else layer
        return found
