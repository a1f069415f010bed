"""Losses with one fault each that shows at an edge: a masked token, an empty step, a size that is rarely reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.loss_steps import Array, Losses, Term
from oracle.types import DistillCase, HassLossCase, LossResult, RolloutLossCase, TopKCase

# ---- a second backward


class GradientOverTheLogits(Losses):
    """Its backward writes the gradient over the law that it kept, and a second one starts from there."""

    refutes = "LOSSES-104"

    @classmethod
    def distillation(cls, case: DistillCase | TopKCase, k: int | None) -> LossResult:
        found = super().distillation(case, k)
        rows, grad = cls.chosen(case.supervise), found.grad["draft_logits"]
        again = grad.copy()
        again[rows] = (grad[rows] - cls.law(case.target_logits[rows])) / max(1, len(rows))
        return LossResult(found.value, found.grad, found.parts, {"draft_logits": again})


# ---- masked tokens


class MultipliesOutsideOfTheSet(Losses):
    """Multiplies what lies outside of the top-K set by zero, an infinite logarithm included."""

    refutes = "LOSSES-303"

    @classmethod
    def distilled(cls, draft: Array, target: Array, rows: Array, k: int | None) -> Term:
        value, grad = super().distilled(draft, target, rows, k)
        if value is None or k is None:
            return value, grad
        with np.errstate(invalid="ignore"):
            return value + float((0 * cls.log_softmax(draft[rows])).sum()), grad


class CeilingOnALogarithm(Losses):
    """Lets no token of a top-K set cost more than a large number."""

    refutes = "LOSSES-303"

    @classmethod
    def draft_log_law(cls, logits: Array, kept: Array | None) -> Array:
        found = super().draft_log_law(logits, kept)
        return found if kept is None else np.maximum(found, -1e30)


class MultipliesMaskedDraftTokens(Losses):
    """Multiplies, in a rollout, a probability of zero by a logarithm of −inf."""

    refutes = "LOSSES-303"

    @classmethod
    def diverging(cls, p: Array, log_q: Array, full: Array, case: RolloutLossCase) -> Array:
        found: Array = super().diverging(p, log_q, full, case)
        with np.errstate(invalid="ignore"):
            return np.where(np.isnan(p * log_q).any(axis=1), np.nan, found)


class CeilingOnADraftToken(Losses):
    """Lets no draft token of a rollout cost more than a large number."""

    refutes = "LOSSES-303"

    @classmethod
    def rollout_log_law(cls, draft: Array, ids: Array, vocabulary: int) -> Array:
        return np.maximum(super().rollout_log_law(draft, ids, vocabulary), -1e30)


# ---- sizes


class AtMostEightTokens(Losses):
    """Keeps eight tokens at most, as a buffer was once allocated."""

    refutes = "LOSSES-501"

    @classmethod
    def size(cls, k: int, vocabulary: int) -> int:
        return super().size(k, vocabulary) if vocabulary < 24 else min(k, 8)


class HassKeepsEightTokens(Losses):
    """Keeps eight tokens at most in HASS's loss."""

    refutes = "LOSSES-602"

    @classmethod
    def hass_step(cls, case: HassLossCase, s: int) -> Term:
        return super().hass_step(HassLossCase(**{**vars(case), "k": min(case.k, 8)}), s)


class ThreeStepsOfHass(Losses):
    """Adds the first three steps of HASS, and no more."""

    refutes = "LOSSES-601"

    @classmethod
    def hass_total(cls, parts: Sequence[float | None]) -> float | None:
        return super().hass_total(parts[:3])


class ThreeWeights(Losses):
    """Has three weights written down, and takes the last one for every further step."""

    refutes = "LOSSES-702"

    @classmethod
    def step_weights(cls, case: RolloutLossCase) -> list[float]:
        weights = super().step_weights(case)
        return weights[:3] + [weights[2] for _ in weights[3:]]


# ---- ties


class HassBreaksTiesUpwards(Losses):
    """Keeps, in HASS's loss, the higher ids among tied tokens."""

    refutes = "LOSSES-502"

    @classmethod
    def hass_loss(cls, case: HassLossCase) -> LossResult:
        return super().hass_loss(HassLossCase(**{**vars(case), "head": case.head[::-1]}))


# ---- what adds nothing


class MeanOverTheStepsThatCount(Losses):
    """Takes the mean over the steps that count a row, not over all."""

    refutes = "LOSSES-708"

    @classmethod
    def rollout_loss(cls, case: RolloutLossCase) -> LossResult:
        found = super().rollout_loss(case)
        counted = sum(part is not None for part in found.parts)
        if case.reduction != "mean" or found.value is None:
            return found
        more = len(found.parts) / counted
        return LossResult(found.value * more, {name: grad * more for name, grad in found.grad.items()}, found.parts)


class AnEmptyStepChangesTheMask(Losses):
    """Divides by all rows, where the rows of the mask are asked for, once a step supervises nothing."""

    refutes = "LOSSES-708"

    @classmethod
    def rollout_divisor(cls, case: RolloutLossCase, s: int, counted: int) -> float:
        empty = not case.supervise.any(axis=1).all()
        return (
            len(case.supervise[s])
            if empty and case.denominator == "mask"
            else super().rollout_divisor(case, s, counted)
        )


class AnEmptyRowIsInTheMean(Losses):
    """Lets a row of nothing but −inf through its gate, as token 0 is the first of the largest, and learns nothing."""

    refutes = "LOSSES-711"

    @classmethod
    def rollout_step(cls, case: RolloutLossCase, s: int, ids: Array) -> Term:
        value, grad = super().rollout_step(case, s, ids)
        empty = np.isneginf(case.target_logits[s]).all(axis=1) & case.supervise[s]
        return (value, grad) if value is None or case.gate == "none" or not empty.any() else (np.nan, grad)


# ---- large numbers


class EntropyOfAnImpossibleToken(Losses):
    """Takes p log p for the entropy where p is 0, too."""

    refutes = "LOSSES-1001"

    @classmethod
    def entropy(cls, p: Array, full: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Array = -(p * np.log(p)).sum(axis=-1)
        return found


class RawLawWithoutAShift(Losses):
    """Exponentiates the target's logits as they are where its mass is not renormalised."""

    refutes = "LOSSES-1001"

    @classmethod
    def restricted(cls, full: Array, ids: Array, kind: str) -> Array:
        if kind != "raw":
            return super().restricted(full, ids, kind)
        with np.errstate(over="ignore", invalid="ignore"):
            powers: Any = np.exp(full)
            return np.asarray((powers / powers.sum(axis=1, keepdims=True))[:, ids])
