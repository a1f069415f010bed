"""What the checks of losses run on: cases by operation, and cases worth keeping by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from conformance import draw
from conformance.casefile import storable
from conformance.check import Check
from conformance.losses import drawing as drawing  # its drawers register themselves
from conformance.losses import strategies
from conformance.losses.conventions import Settled, fields, settled, surroundings
from oracle import losses
from oracle.training import state_gradient
from oracle.types import (
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    HassLossCase,
    RegressionCase,
    RolloutLossCase,
    StateGradientCase,
    TopKCase,
)

_STRATEGIES: Mapping[str, Callable[[bool], st.SearchStrategy[Any]]] = {
    "feature_regression": strategies.regressions,
    "soft_cross_entropy": strategies.distillations,
    "eagle1_loss": strategies.eagle1s,
    "topk_distillation": strategies.topks,
    "hass_loss": strategies.hasses,
}


def drawn(check: Check, operation: str, mixed: bool = False) -> st.SearchStrategy[Any]:
    """Plain cases of an operation, under what the implementation has settled."""
    if operation == "rollout_loss":
        return strategies.rollouts(settled(check), mixed)
    return _STRATEGIES[operation](mixed)


def floats(values: Sequence[Any]) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def true(*shape: int) -> np.ndarray:
    return np.ones(shape, dtype=bool)


def odd(values: Sequence[Any]) -> np.ndarray:
    """Numbers that bfloat16 does not hold: what it makes of those that it holds is a clause of its own."""
    return floats(values) + 2.0**-10


INF = float("inf")

RESIDUALS = [
    # [0.5, 2] are [0.125, 1.5], and not the [0.25, 4] of a squared error
    RegressionCase(floats([[0.5, 2.0]]), floats([[0.0, 0.0]]), true(1)),
    # at beta the two branches meet
    RegressionCase(floats([[1.25, -0.75, 0.25]]), floats([[0.75, -0.25, 0.25]]), true(1), 0.5),
    RegressionCase(floats([[3.0, -1.0], [0.25, 0.5]]), floats([[0.0, 0.0], [0.5, -2.5]]), true(2), 2.0),
]
MASKED_LOGITS = [
    # masked on both sides: 0 · (−inf) costs nothing
    DistillCase(odd([[1.5, -INF, 0.25, -0.5]]), odd([[0.5, -INF, 1.25, -1.0]]), true(1)),
    # masked by the target alone, in one row of two
    DistillCase(odd([[0.5, 1.25, -0.75], [0.25, -1.0, 2.0]]), odd([[1.5, -INF, 0.75], [0.5, 1.75, -0.25]]), true(2)),
    # masked by the drafter alone: a token of the target is impossible to it
    DistillCase(odd([[0.5, -INF, -0.75], [0.25, -1.0, 2.0]]), odd([[1.5, 0.25, 0.75], [0.5, 1.75, -0.25]]), true(2)),
]
MASKED_TOPS = [
    # masked by the drafter outside of the set
    TopKCase(odd([[0.5, -INF, 1.25, -1.0]]), odd([[1.5, -0.75, 0.25, -0.5]]), true(1), 2),
    # masked on both sides beside a plain row, in a set of every token
    TopKCase(
        odd([[1.5, -INF, 0.25, -0.5], [0.5, 1.25, -0.75, 2.0]]),
        odd([[0.5, -INF, 1.25, -1.0], [1.5, 0.25, 0.75, -0.5]]),
        true(2),
        4,
    ),
    # impossible in the second row alone; the third does not count
    TopKCase(
        odd([[0.5, 1.25, -0.75], [0.25, -INF, 2.0], [-1.25, 0.5, 1.0]]),
        odd([[1.5, -INF, 0.75], [0.5, 1.75, -0.25], [0.25, 2.0, 1.0]]),
        np.array([True, True, False]),
        3,
    ),
]
TIED_LOGITS = [
    TopKCase(odd([[0.25, 2.0, -1.5, 0.5]]), odd([[1.0, 0.5, 1.0, 1.0]]), true(1), 1),
    TopKCase(odd([[0.25, 2.0, -1.5, 0.5]]), odd([[1.0, 0.5, 1.0, 1.0]]), true(1), 2),
    TopKCase(
        odd([[1.5, 0.25, -0.5, 2.0, 0.75], [-0.25, 1.25, 0.5, 0.0, -2.0]]),
        odd([[0.5, 0.5, 1.5, 0.5, -1.0], [0.25, 0.25, 0.25, 0.25, 0.25]]),
        true(2),
        3,
    ),
]
_TIES = floats([[1.0, 0.5], [-0.5, 1.25], [1.0, -1.5], [1.0, 2.25]])
"""A head whose rows differ, and whose logits of a feature along its first axis do not."""
TIED_HEADS = [HassLossCase(floats([[[0.75, 1.5]]]), floats([[2.0, 0.0]]), _TIES, true(1, 1), k) for k in (1, 2)] + [
    HassLossCase(floats([[[0.5, -1.25]], [[1.5, 0.75]]]), floats([[-1.0, 0.0]]), _TIES, true(2, 1), 2)
]
ABOVE_THE_VOCABULARY = [
    TopKCase(odd([[0.25, 2.0, -1.5]]), odd([[1.0, 0.5, -0.5]]), true(1), 4),
    TopKCase(
        odd([[0.5, -1.25, 2.0, 0.75], [1.5, 0.25, -0.5, 0.0]]),
        odd([[1.0, 0.5, -0.5, 1.75], [0.25, -2.0, 1.25, 0.5]]),
        np.array([True, False]),
        2**40,
    ),
]


def masked_rollouts(given: Settled) -> list[RolloutLossCase]:
    """A token of the first row masked on both sides in both steps; then one of the second row impossible, in one."""
    draft = odd([[[0.5, -INF, 1.25, -1.0], [0.25, 1.5, -0.5, 0.75]], [[1.25, -INF, 0.5, 2.0], [-0.25, 0.5, 1.0, -1.5]]])
    target = odd(
        [[[1.5, -INF, 0.75, -0.25], [0.75, -1.0, 1.25, 0.5]], [[0.5, -INF, 1.75, 0.25], [2.0, 0.25, -0.5, 1.0]]]
    )
    impossible = draft.copy()
    impossible[1, 1, 2] = -INF
    return [RolloutLossCase(found, target, true(2, 2), **fields(given, 2, {})) for found in (draft, impossible)]


# ---- extremes

EDGE_LOGITS = [
    (odd([[1e4, -1e4, 0.5]]), odd([[-1e4, 1e4, 0.25]])),
    (odd([[-1e4, -1e4 + 4, -1e4 + 2, -1e4 - 4]]), odd([[1e4, 1e4 - 4, 1e4 + 4, 1e4 - 8]])),
    # one-hot, its token the likeliest and the least likely
    (odd([[2.0, -1.0, 0.5], [0.25, 1.5, -2.0]]), odd([[-INF, 0.0, -INF], [-INF, 0.75, -INF]])),
    # masses that underflow, in float32 and in float64, on both sides
    (odd([[0.5, -120.0, 0.25], [0.0, -800.0, 0.75]]), odd([[-120.0, 1.5, 0.5], [1.25, 0.0, -800.0]])),
    (odd([[88.0, 89.0, 90.0, 91.0]]), odd([[-90.0, -89.0, -91.0, -88.0]])),
    (odd([[720.0, 710.0]]), odd([[-740.0, -745.0]])),
]
"""Rows of the draft and of the target."""


ALONE = ("divergence", "restricted_target", "gate", "denominator")
"""Conventions that act on one row or one step."""


def edges(operation: str, given: Settled) -> list[Any]:
    """Extreme numbers, empty supervision in one step, a gate that closes, k above the vocabulary."""
    if operation == "feature_regression":
        large = RegressionCase(floats([[1e4, -1e4], [0.5, 3e4]]), floats([[-1e4, 1e4], [0.5, -3e4]]), true(2))
        small = RegressionCase(floats([[2.0**-70, 0.0, -(2.0**-60)]]), floats([[0.0, 0.0, 2.0**-60]]), true(1), 2.0**-3)
        return [large, small]
    if operation == "soft_cross_entropy":
        return [DistillCase(draft, target, true(len(draft))) for draft, target in EDGE_LOGITS]
    if operation == "topk_distillation":
        found = [TopKCase(draft, target, true(len(draft)), k) for draft, target in EDGE_LOGITS for k in (1, 2, 64)]
        return found
    head = floats([[64.0, -0.5], [-64.0, 0.25], [0.5, 96.0]])
    far, near = floats([[128.0, -96.0], [-64.0, 0.5]]), floats([[-128.0, 96.0], [0.25, 80.0]])
    if operation == "eagle1_loss":
        return [Eagle1Case(far, near, head, true(2)), Eagle1Case(near, far, head, np.array([False, True]))]
    if operation == "hass_loss":
        supervise = np.array([[True, False], [False, False], [True, True]])
        return [HassLossCase(np.stack([far, near, near[::-1]]), near / 2, head, supervise, k) for k in (1, 2, 7)]
    return [
        case
        for asked in surroundings(given, ALONE)
        for case in [*(_edge(draft, target, asked) for draft, target in EDGE_LOGITS), *rollout_edges(asked)]
    ]


def _edge(draft: np.ndarray, target: np.ndarray, given: Settled) -> RolloutLossCase:
    return RolloutLossCase(draft[None], target[None], true(1, len(draft)), **fields(given, 1, {}))


def rollout_edges(given: Settled) -> list[RolloutLossCase]:
    """Behind a map: everything unmapped is likelier, a step without supervision, a gate that closes every row."""
    draft = odd([[[0.5, -1.25], [2.0, 0.25], [-0.5, 1.5]], [[1.0, 0.5], [-1.5, 0.25], [0.75, 2.5]]])
    target = odd(
        [
            [[0.25, 1.5, -0.5, 9000.0], [1.0, 2.5, -2.0, 0.5], [0.5, 0.25, 3.0, -1.0]],
            [[2.0, 0.5, 0.25, 1.0], [0.75, -0.5, 1.25, 1.5], [5000.0, -5000.0, 0.0, -1.5]],
        ]
    )
    ids = np.array([1, 2])
    supervise = np.array([[True, True, False], [False, False, False]])
    closed = np.array([[True, False, False], [True, True, True]])
    return [
        RolloutLossCase(draft, target, flags, draft_to_target=ids, **fields(given, 2, {}))
        for flags in (supervise, closed)
    ]


# ---- conventions

_DRAFT = odd([[[0.5, -0.25], [0.25, 0.75], [-0.5, 0.5]], [[-0.75, 0.25], [0.5, -0.5], [0.25, 1.0]]])
_DRAFT = np.concatenate([_DRAFT, odd([[[1.25, -0.5], [-0.25, 0.5], [0.75, -1.0]]])])
_TARGET = odd(
    [
        [[0.25, 1.5, -0.5], [1.75, 0.5, 0.25], [0.5, 0.25, 1.25]],  # the second is behind the gate
        [[-0.5, 0.25, 1.0], [0.75, 2.0, -0.25], [1.5, 0.5, 0.75]],  # the third is
        [[0.25, -0.75, 1.5], [2.25, 0.25, 0.5], [0.75, 1.75, -1.0]],  # the second is
    ]
)
_SUPERVISE = np.array([[True, True, False], [True, False, True], [True, True, True]])
SEPARATING = RolloutLossCase(_DRAFT, _TARGET, _SUPERVISE, draft_to_target=np.array([1, 2]))
"""Rows that count, that a gate closes, and that are not supervised; mass outside the draft vocabulary; three steps."""
SMALL = RolloutLossCase(floats([[[-1.75, 2.25]]]), floats([[[2.0, -1.5]]]), true(1, 1))
"""One row of small logits and a large loss: float32 tells an epsilon of 10⁻⁵ apart."""


def tied_gate(given: Settled, ids: list[int]) -> RolloutLossCase:
    """Largest logits at tokens 1 and 2, beside a row that is open."""
    draft = np.array([[[-0.5, 1.25], [2.0, 0.25], [-0.75, 1.5]]])
    target = np.array([[[0.5, 1.5, 1.5, -0.25], [0.25, 0.75, 2.0, 2.0], [1.25, 1.0, 1.25, 0.5]]])
    given_fields = fields(given, 1, {})
    return RolloutLossCase(draft, target, true(1, 3), draft_to_target=np.array(ids), **given_fields)


def impossible_behind_a_zero(given: Settled) -> RolloutLossCase:
    """A step of zero weight whose loss is infinite."""
    draft = np.array([[[0.5, -np.inf, 1.0], [0.25, 1.5, -0.5]], [[1.25, 0.5, -1.0], [2.0, -0.25, 0.5]]]) + 2.0**-10
    target = np.array([[[0.5, 1.5, -0.25], [0.75, 2.0, 0.25]], [[1.0, -0.5, 0.25], [0.5, 1.75, -1.5]]]) + 2.0**-10
    return RolloutLossCase(draft, target, true(2, 2), **fields(given, 2, {"step_weights": (0.0, 1.5)}))


def beside_an_empty_step(given: Settled) -> RolloutLossCase:
    """Three steps; in the second one no row is supervised."""
    supervise = SEPARATING.supervise.copy()
    supervise[1] = np.False_
    return dataclasses.replace(SEPARATING, supervise=supervise, **fields(given, 3, {}))


def empty_laws(given: Settled) -> list[RolloutLossCase]:
    """In a step with other rows, one without a target logit on the draft vocabulary, or without any."""
    found = []
    for gone in ([1, 2], [0, 1, 2]):
        target = SEPARATING.target_logits.copy()
        target[2, 0, gone] = -np.inf
        found.append(dataclasses.replace(SEPARATING, target_logits=target, **fields(given, 3, {})))
    return found


# ---- maps

NO_MAPS: Sequence[tuple[list[int], list[int] | None, int]] = [
    ([1, 3, 3], None, 5),  # two draft ids stand for one token
    ([1, 3, 3], [1, 3], 5),
    ([1, 2, 5], [1, 2], 5),  # outside of the vocabulary
    ([-1, 2], [2], 4),
    ([1, 2], [1, 3], 5),  # t2d marks another token, one more, one less
    ([1, 3], [1, 2, 3], 5),
    ([1, 2, 4], [1, 4], 6),
]
"""Target ids, what t2d marks, the vocabulary."""


def broken(ids: list[int], marked: list[int] | None, vocabulary: int, convention: str) -> DraftMapCase:
    """A map that is none."""
    made = strategies.map_of(np.array(ids), convention, None)
    t2d = None if marked is None else np.isin(np.arange(vocabulary), marked)
    return DraftMapCase(made.d2t, t2d, convention)


# ---- the whole contract

Case = RegressionCase | DistillCase | Eagle1Case | TopKCase | HassLossCase | RolloutLossCase


@storable
@dataclass(frozen=True, eq=False)
class Pair:
    """A case, and one that has to lose as much, or as much by a known ratio."""

    cases: tuple[Case, ...]
    order: tuple[int, ...] = ()
    """Of the draft vocabulary in the second case, where that is what differs."""

    def drawn(self) -> str:
        return "\n".join(f"case {i}: {draw.drawn(case)}" for i, case in enumerate(self.cases))

    def validate(self) -> None:
        """Both cases. Raises `BadInput`."""
        for case in self.cases:
            validate(case)


WITNESSES: Mapping[str, Any] = {
    "residuals_on_both_sides_of_beta": RESIDUALS[0],
    "masked_on_both_sides": MASKED_LOGITS[0],
    "masked_by_the_target": MASKED_LOGITS[1],
    "masked_by_the_drafter": MASKED_LOGITS[2],
    "tied_logits": TIED_LOGITS[0],
    "k_above_the_vocabulary": ABOVE_THE_VOCABULARY[0],
}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them."""

_OPERATIONS: Mapping[type, Callable[[Any], object]] = {
    RegressionCase: losses.feature_regression,
    DistillCase: losses.soft_cross_entropy,
    Eagle1Case: losses.eagle1_loss,
    TopKCase: losses.topk_distillation,
    HassLossCase: losses.hass_loss,
    RolloutLossCase: losses.rollout_loss,
    DraftMapCase: losses.draft_to_target,
    StateGradientCase: state_gradient,
}


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if type(case) in _OPERATIONS:
        _OPERATIONS[type(case)](case)
