"""What the checks of acceptance run on: batches, table models, and cases worth keeping by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np

from conformance import draw
from conformance.acceptance import warp_cases
from conformance.casefile import storable
from oracle.acceptance import CaseView, verify_sampled
from oracle.law import emitted_law, target_law
from oracle.types import Coins, VerifyCase

Prefix = tuple[int, ...]


@storable
@dataclass(frozen=True, eq=False)
class Batch:
    """One call: its cases, with the coins of `verify_sampled` or the seed of `verify_random`."""

    cases: tuple[VerifyCase, ...]
    coins: tuple[Coins, ...] | None = None
    seed: int | None = None

    def drawn(self) -> str:
        repeated = len({id(case) for case in self.cases}) == 1 and len(self.cases) > 1
        shown = self.cases[:1] if repeated else self.cases
        lines = [draw.batch(shown, self.coins)]
        if repeated:
            lines.append(f"  the same case {len(self.cases)} times in one call")
        if self.seed is not None and self.coins is None:
            lines.append(f"  seed {self.seed}")
        return "\n".join(lines)

    def validate(self) -> None:
        """Every row and every coin that a walk could read. Raises `BadInput`."""
        for i, case in enumerate(self.cases):
            view = CaseView(case, f"cases[{i}]")
            for node in range(-1, view.size):
                view.target(node)
                if case.proposal != "point" and view.children(node):
                    view.draft(node)
        if self.coins is not None:
            verify_sampled(self.cases, self.coins)


@storable
@dataclass(frozen=True, eq=False)
class TableModel:
    """A target and a drafter as tables: prefix of tokens → law of the next one, in exact rationals.

    `parent` is the shape of the draft tree, parent[i] < i, −1 = child of the root.
    """

    parent: tuple[int, ...]
    proposal: str
    target: Mapping[Prefix, Sequence[Fraction]]
    draft: Mapping[Prefix, Sequence[Fraction]]

    def drawn(self) -> str:
        shape = f"chains of {self.nodes} drafts" if self.is_chain else f"trees with the parents {list(self.parent)}"
        lines = [f"{shape}, proposal {self.proposal}; target p and draft q by prefix:"]
        for prefix, row in self.target.items():
            if len(prefix) < 2:
                after = f"after {' '.join(map(str, prefix))}" if prefix else "at the root"
                lines.append(f"  {after}: p = {draw.row(row)}  q = {draw.row(self.draft[prefix])}")
        return "\n".join([*lines, "  (longer prefixes are in the case file)"])

    def validate(self) -> None:
        """Every row of the target within reach, and of the drafter's. Raises `BadInput`."""
        emitted_law(self.target, self.draft, self.parent, self.proposal)
        target_law(self.target, self.depth + 1)

    @property
    def vocabulary(self) -> int:
        return len(self.target[()])

    @property
    def nodes(self) -> int:
        return len(self.parent)

    @property
    def depth(self) -> int:
        return max((len(self.ancestors(i)) for i in range(self.nodes)), default=0)

    @property
    def is_chain(self) -> bool:
        return self.parent == tuple(range(-1, self.nodes - 1))

    def ancestors(self, node: int) -> tuple[int, ...]:
        """The nodes from below the root down to `node`, itself included."""
        return () if node == -1 else (*self.ancestors(self.parent[node]), node)

    def prefix(self, tokens: Sequence[int], node: int) -> Prefix:
        """The tokens on the way to `node`."""
        return tuple(tokens[i] for i in self.ancestors(node))

    def case(self, tokens: Sequence[int]) -> VerifyCase:
        """The tree with these drafts, with fresh float64 rows."""
        drafted = tuple(tokens)
        if drafted not in self._cases:
            self._cases[drafted] = self._case(drafted)
        return copy(self._cases[drafted])

    @cached_property
    def _cases(self) -> dict[Prefix, VerifyCase]:
        return {}

    def _case(self, tokens: Prefix) -> VerifyCase:
        prefixes = [self.prefix(tokens, node) for node in range(-1, self.nodes)]
        return VerifyCase(
            parent=np.array(self.parent, dtype=np.int64),
            token=np.array(tokens, dtype=np.int64),
            target_probs=floats([self.target[prefix] for prefix in prefixes]),
            proposal=self.proposal,
            draft_probs=None if self.proposal == "point" else floats([self.draft[prefix] for prefix in prefixes]),
        )

    @cached_property
    def float_law(self) -> Callable[[str, Prefix], tuple[float, ...]]:
        """("target" or "next", prefix) → that law in floats, for trials by the ten thousand."""

        @cache
        def law(which: str, tokens: Prefix) -> tuple[float, ...]:
            return tuple(map(float, self.target[tokens] if which == "target" else self.next_law(tokens)))

        return law

    def next_law(self, tokens: Prefix) -> Sequence[Fraction]:
        """The law of the next node's token, given the tokens of the nodes before it."""
        node = len(tokens)
        row = self.draft[self.prefix(tokens, self.parent[node])]
        earlier = [tokens[i] for i in range(node) if self.parent[i] == self.parent[node]]
        if self.proposal == "iid":
            return row
        left = [Fraction(0) if v in earlier else p for v, p in enumerate(row)]
        if self.proposal == "point":
            best = min(range(len(row)), key=lambda v: (-left[v], v))
            return [Fraction(int(v == best)) for v in range(len(row))]
        return [p / sum(left) for p in left]

    def drafted(self) -> Iterator[tuple[Prefix, Fraction]]:
        """Every assignment of tokens to nodes that the drafter may propose, with its probability."""
        pending: list[tuple[Prefix, Fraction]] = [((), Fraction(1))]
        while pending:
            tokens, weight = pending.pop()
            if len(tokens) == self.nodes:
                yield tokens, weight
                continue
            pending.extend(((*tokens, v), weight * p) for v, p in enumerate(self.next_law(tokens)) if p)


@storable
@dataclass(frozen=True, eq=False)
class RaggedModels:
    """Models whose rounds share one call, turn by turn."""

    models: tuple[TableModel, ...]

    def validate(self) -> None:
        """All models. Raises `BadInput`."""
        for model in self.models:
            model.validate()

    def drawn(self) -> str:
        return "\n".join(f"member {i}: {model.drawn()}" for i, model in enumerate(self.models))


def chain(
    tokens: Sequence[int],
    target: Sequence[Sequence[Any]],
    draft: Sequence[Sequence[Any]] | None,
    proposal: str,
) -> VerifyCase:
    """A chain of drafts with its rows as float64 arrays of their own."""
    return VerifyCase(
        parent=np.arange(-1, len(tokens) - 1, dtype=np.int64),
        token=np.array(tokens, dtype=np.int64),
        target_probs=floats(target),
        proposal=proposal,
        draft_probs=None if draft is None else floats(draft),
    )


def floats(rows: Sequence[Sequence[Any]]) -> np.ndarray:
    return np.array([[float(v) for v in row] for row in rows], dtype=np.float64)


def coins(accept: Sequence[float], frontier: float) -> Coins:
    return Coins(np.array(accept, dtype=np.float64), frontier)


def copy(case: VerifyCase) -> VerifyCase:
    """The same case in arrays of its own, so that a callee that writes spoils nothing."""
    return VerifyCase(
        case.parent.copy(),
        case.token.copy(),
        case.target_probs.copy(),
        case.proposal,
        None if case.draft_probs is None else case.draft_probs.copy(),
    )


LAST_COIN = 1 - 2.0**-24
"""The largest coin below one that every dtype of a generator can hold."""


def one(case: VerifyCase, accept: Sequence[float], frontier: float) -> Batch:
    return Batch((case,), (coins(accept, frontier),))


WITNESSES: Mapping[str, Any] = {
    # the draft's token 1 cannot come from the target; zero is the only coin that an inclusive test lets through
    "impossible_draft_at_coin_zero": one(
        chain([1], [[0.25, 0.0, 0.75], [0.5, 0.25, 0.25]], [[0.125, 0.625, 0.25], [0.25, 0.5, 0.25]], "iid"),
        [0.0],
        0.5,
    ),
    # the formula u·q < p needs no division: q = 0 < p is accepted
    "draft_of_no_draft_mass": one(
        chain([2], [[0.25, 0.25, 0.5], [0.125, 0.5, 0.375]], [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25]], "iid"),
        [0.5],
        0.25,
    ),
    # p and q differ by one unit in the last place and the coin falls between: nothing is left to draw from
    "no_residual_left": one(
        chain(
            [1],
            [[0.0, 0.5, 0.25, 0.25, 0.0], [0.125, 0.5, 0.125, 0.125, 0.125]],
            [[0.0, 0.5 + 2.0**-53, 0.25, 0.25, 0.0], [0.5, 0.125, 0.125, 0.125, 0.125]],
            "iid",
        ),
        [1 - 2.0**-53],
        0.625,
    ),
    # the same, one unit in the last place apart, for implementations that pass both rows through a softmax
    "no_residual_left_behind_a_softmax": one(
        chain(
            [1],
            [[0.6911915983223466, 0.30880840167765344], [0.25, 0.75]],
            [[0.6911915983223466, 0.3088084016776535], [0.5, 0.5]],
            "iid",
        ),
        [1 - 2.0**-53],
        0.5,
    ),
    # p = q, and float32 rounds the two differently: what it then draws from is empty
    "no_residual_left_in_float32": one(
        chain(
            [1],
            [
                [0.0, 0.9788071809989038, 0.019014278822406774, 0.0021785401786893178],
                [0.25, 0.25, 0.375, 0.125],
            ],
            [
                [0.0, 0.9788071809989038, 0.019014278822406774, 0.0021785401786893178],
                [0.125, 0.5, 0.25, 0.125],
            ],
            "iid",
        ),
        [1 - 2.0**-53],
        0.5,
    ),
    "nan_at_the_root": one(
        chain([1, 0], [[np.nan] * 3, [0.5, 0.25, 0.25], [0.125, 0.5, 0.375]], None, "point"), [0.25, 0.5], 0.5
    ),
    "no_drafts": one(chain([], [[0.25, 0.5, 0.25]], None, "point"), [], 0.5),
    # the row after the padding has another support, so a walk that steps over the padding shows; the entry
    # before the row of the padding is 1, so that reading it as index −1 of a flat array accepts
    "padded_draft": one(
        chain([2, -1], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], None, "point"), [0.25, 0.25], 0.5
    ),
    # read as an index, −1 is the last token, which the row at its parent makes the likely one
    "padding_read_as_the_last_token": one(
        chain([2, -1], [[0.0, 0.125, 0.875]] * 2 + [[0.75, 0.25, 0.0]], [[0.25, 0.25, 0.5]] * 3, "iid"),
        [0.0, 0.0],
        0.5,
    ),
    "padded_sampled_draft": one(
        chain(
            [2, -1],
            [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
            [[0.25, 0.25, 0.5], [0.25, 0.5, 0.25], [0.25, 0.5, 0.25]],
            "iid",
        ),
        [0.25, 0.25],
        0.5,
    ),
    # the rows of the target are sound; the row that the draft was drawn from is not
    "nan_in_the_draft_row": one(
        chain([1], [[0.5, 0.25, 0.25], [0.25, 0.125, 0.625]], [[np.nan] * 3, [0.5, 0.25, 0.25]], "iid"), [0.25], 0.5
    ),
    # p and q lie on both sides of the middle between two float32 numbers, so float32 moves them one unit apart;
    # the last token, which an empty residual may fall through to, has no mass
    "no_residual_left_across_a_step_of_float32": one(
        chain(
            [0],
            [[0.5 + 2.0**-25 - 2.0**-40, 0.25, 0.25 - 2.0**-25 + 2.0**-40, 0.0], [0.125, 0.5, 0.25, 0.125]],
            [[0.5 + 2.0**-25 + 2.0**-40, 0.25, 0.25 - 2.0**-25 - 2.0**-40, 0.0], [0.25, 0.125, 0.5, 0.125]],
            "iid",
        ),
        [LAST_COIN],
        0.625,
    ),
    # p = q exactly: logarithms in float32 are too coarse to see that the last coin is below one
    "no_residual_left_to_logarithms": one(
        chain([1], [[0.0, 0.125, 0.875], [0.5, 0.25, 0.25]], [[0.0, 0.125, 0.875], [0.25, 0.25, 0.5]], "iid"),
        [LAST_COIN],
        0.5,
    ),
    **warp_cases.WITNESSES,
}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them.

Each is a `Batch`, those of warping a `WarpCase`.
"""
