"""Right losses that look different: another precision, formula, order of a sum, or kind of number.

`--impl=adapters.harmless.losses:Name` names any of them; the suite must not refute one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adapters.faulty.loss_steps import Array, Losses
from adapters.interface import Declaration, NotApplicable
from oracle.types import LossResult, RolloutLossCase


class PlainLosses(Losses):
    """The steps that the faults are made from, none of them changed."""


class Float32Losses(Losses, dtype="float32"):
    """Computes in float32, and says so."""

    @classmethod
    def pick(cls, values: Array, rows: Array) -> Array:
        return super().pick(values, rows).astype(np.float32)

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        narrow: Any = None if value is None else np.float32(value)
        return LossResult(narrow, {name: grad.astype(np.float32)}, tuple(parts))


class SortedSums(Losses):
    """Adds rows in the order of their size, exactly, and terms of a row from the last token to the first."""

    @classmethod
    def mean(cls, losses: Array, rows: Array, count: int) -> float:
        return math.fsum(sorted(losses.tolist())) / cls.divisor(rows, count)

    @classmethod
    def crossed(cls, p: Array, log_q: Array) -> Array:
        return super().crossed(p[..., ::-1], log_q[..., ::-1])


class ShiftedByTheMean(Losses):
    """Shifts logits by the middle of their range, where that is near."""

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        finite = np.where(np.isfinite(logits), logits, 0.0)
        if np.abs(finite).max(initial=0.0) > 100:
            return super().log_softmax(logits)
        middle = finite.mean(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            found: Array = logits - middle - np.log(np.exp(logits - middle).sum(axis=-1, keepdims=True))
        return found


class WholeRowsFirst(Losses):
    """Makes the target's law over its vocabulary first, and renormalises it on the draft's afterwards."""

    @classmethod
    def restricted(cls, full: Array, ids: Array, kind: str) -> Array:
        log_p = cls.log_softmax(full)[:, ids]
        return np.exp(log_p if kind == "raw" else cls.log_softmax(log_p))


class ArraysOfNothing(Losses):
    """Returns its losses as arrays without dimensions."""

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        boxed = [None if part is None else np.array(part) for part in (value, *parts)]
        return LossResult(boxed[0], {name: np.asfortranarray(grad)}, tuple(boxed[1:]))  # type: ignore[arg-type]


class Settled(
    Losses,
    conventions={
        "denominator": "mask",
        "denominator_epsilon": "1e-05",
        "restricted_target": "renormalised",
        "gate": "none",
        "divergence": "kl",
        "reduction": "sum",
        "step_decay": "0.9",
        "draft_map": "offset",
        "rollout_gradient": "flows",
    },
):
    """Has settled every convention, and declares them; it refuses what asks for others."""

    @classmethod
    def divisor(cls, rows: Array, count: int) -> float:
        return len(rows) + 1e-5

    @classmethod
    def rollout_loss(cls, case: RolloutLossCase) -> LossResult:
        asked = (case.denominator, case.restricted_target, case.gate, case.divergence, case.reduction)
        if asked != ("mask", "renormalised", "none", "kl", "sum") or case.denominator_epsilon != 1e-5:
            raise NotApplicable("its conventions are settled")
        if case.step_weights is None or not np.allclose(
            case.step_weights, [0.9**s for s in range(len(case.supervise))]
        ):
            raise NotApplicable("its decay is 0.9")
        return super().rollout_loss(case)


class OnlyBehindTheGate(Losses):
    """Has no rollout without the gate, and shows a second backward."""

    @classmethod
    def rollout_loss(cls, case: RolloutLossCase) -> LossResult:
        if case.gate != "argmax":
            raise NotApplicable("its rows pass the gate")
        found = super().rollout_loss(case)
        return LossResult(found.value, found.grad, found.parts, {name: x.copy() for name, x in found.grad.items()})


class OnlyRegression:
    """Knows the feature loss and nothing else."""

    DECLARATION = Declaration("OnlyRegression", "1")
    feature_regression = PlainLosses.feature_regression
