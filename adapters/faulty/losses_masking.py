"""Losses with one fault each: what is not supervised, what is no number, and large or narrow numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.faulty.loss_steps import Array, Losses, Term
from oracle.types import LossResult, RolloutLossCase


def bfloat16(values: Array) -> Array:
    """The nearest numbers of eight bits; ties away from zero."""
    mantissa, exponent = np.frexp(values)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(values), np.ldexp(np.round(mantissa * 256) / 256, exponent), values)


# ---- masking


class MultipliesByTheMask(Losses):
    """Multiplies the losses of all rows by the mask, so that NaN in a masked row leaks."""

    refutes = "LOSSES-901"

    @classmethod
    def regression(cls, predicted: Array, target: Array, rows: Array, beta: float) -> Term:
        value, grad = super().regression(predicted, target, rows, beta)
        return _leaking(value, rows, predicted - target), grad

    @classmethod
    def distilled(cls, draft: Array, target: Array, rows: Array, k: int | None) -> Term:
        value, grad = super().distilled(draft, target, rows, k)
        return _leaking(value, rows, draft, target), grad

    @classmethod
    def rollout_step(cls, case: RolloutLossCase, s: int, ids: Array) -> Term:
        value, grad = super().rollout_step(case, s, ids)
        rows = cls.chosen(case.supervise[s])
        return _leaking(value, rows, case.draft_logits[s], case.target_logits[s]), grad


class GradientOfMaskedRowsLeaks(Losses):
    """Multiplies the gradient of every row by the mask: zero times NaN."""

    refutes = "LOSSES-901"

    @classmethod
    def regression(cls, predicted: Array, target: Array, rows: Array, beta: float) -> Term:
        value, grad = super().regression(predicted, target, rows, beta)
        with np.errstate(invalid="ignore"):
            return value, grad + 0 * (predicted - target)


class RefusesNaNAnywhere(Losses):
    """Refuses a NaN in a row that is not supervised."""

    refutes = "LOSSES-901"

    @classmethod
    def pick(cls, values: Array, rows: Array) -> Array:
        if np.isnan(values).any():
            raise ValueError("a NaN")
        return super().pick(values, rows)


class ZeroWhereNothingIsSupervised(Losses):
    """Returns 0 where no row is supervised."""

    refutes = "LOSSES-902"

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        return super().result(0.0 if value is None else value, name, grad, parts)


class ZeroByZero(Losses):
    """Divides zero by zero where no row is supervised (radixark/miles#2796)."""

    refutes = "LOSSES-902"

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        return super().result(np.nan if value is None else value, name, grad, parts)


class GradientOfNothingIsNoNumber(Losses):
    """Has a gradient of NaN where no row is supervised."""

    refutes = "LOSSES-902"

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        return super().result(value, name, np.full(grad.shape, np.nan) if value is None else grad, parts)


class NaNBecomesZero(Losses):
    """Puts 0 in the place of NaN."""

    refutes = "LOSSES-903"

    @classmethod
    def pick(cls, values: Array, rows: Array) -> Array:
        return super().pick(np.where(np.isnan(values), 0.0, values), rows)


class SkipsRowsOfNaN(Losses):
    """Leaves rows without a number out of the mean."""

    refutes = "LOSSES-903"

    @classmethod
    def distilled(cls, draft: Array, target: Array, rows: Array, k: int | None) -> Term:
        sound = [r for r in rows if not np.isnan(draft[r]).any() and not (draft[r] == np.inf).any()]
        return super().distilled(draft, target, np.array(sound, dtype=np.int64), k)


class ClampsEmptyBlocks(Losses):
    """Counts one row at least in each block of eight (radixark/miles#2796)."""

    refutes = "LOSSES-904"

    @classmethod
    def divisor(cls, rows: Array, count: int) -> float:
        return sum(max(1, int(((rows >= start) & (rows < start + 8)).sum())) for start in range(0, count, 8))


class TrimsPadding(Losses):
    """Cuts trailing rows that are not supervised off in blocks of eight before it counts all rows."""

    refutes = "LOSSES-905"

    @classmethod
    def rollout_divisor(cls, case: RolloutLossCase, s: int, counted: int) -> float:
        if case.denominator != "rows":
            return super().rollout_divisor(case, s, counted)
        count = len(case.supervise[s])
        trailing = count - 1 - int(np.flatnonzero(case.supervise[s])[-1])
        return count - trailing // 8 * 8


class SkipsAMapOfEqualWidths(Losses):
    """Leaves the map out where both vocabularies are as wide (alibaba/rtp-llm#1311)."""

    refutes = "LOSSES-906"

    @classmethod
    def ids(cls, case: RolloutLossCase) -> Array:
        ids = super().ids(case)
        return np.arange(len(ids)) if len(ids) == case.target_logits.shape[2] else ids


class SortsTheMap(Losses):
    """Gathers the target's logits by a mask, so in ascending order."""

    refutes = "LOSSES-906"

    @classmethod
    def ids(cls, case: RolloutLossCase) -> Array:
        return np.sort(super().ids(case))


# ---- large and narrow numbers


class LogOfTheSoftmax(Losses):
    """Takes the logarithm of a softmax, which underflows."""

    refutes = "LOSSES-1001"

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(np.exp(super().log_softmax(logits)))


class KeepsTheMaximum(Losses):
    """Exponentiates the logits as they are."""

    refutes = "LOSSES-1001"

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found: Array = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return found


class ClampsLogits(Losses):
    """Clamps logits to ±50."""

    refutes = "LOSSES-1001"

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        return super().log_softmax(np.where(np.isneginf(logits), logits, np.clip(logits, -50, 50)))


class FloorUnderProbabilities(Losses):
    """Never lets a probability of the drafter go below the smallest normal number of float32."""

    refutes = "LOSSES-1001"

    @classmethod
    def crossed(cls, p: Array, log_q: Array) -> Array:
        return super().crossed(p, np.where(np.isneginf(log_q), log_q, np.maximum(log_q, np.log(2.0**-126))))


class StaysInTheInputsPrecision(Losses):
    """Takes the softmax of logits that bfloat16 holds in bfloat16."""

    refutes = "LOSSES-1002"

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        found = super().log_softmax(logits)
        return bfloat16(found) if np.array_equal(bfloat16(logits), logits) else found


class MeanOfMeans(Losses):
    """Takes the mean of the means of blocks of 64 rows, the last one shorter than the others."""

    refutes = "LOSSES-1003"

    @classmethod
    def mean(cls, losses: Array, rows: Array, count: int) -> float:
        blocks = [losses[start : start + 64] for start in range(0, len(losses), 64)]
        whole = super().mean(losses, rows, count)
        return whole if len(blocks) < 2 else float(np.mean([block.mean() for block in blocks]))


class HalfPrecisionOfManyRows(Losses):
    """Adds blocks of 64 rows in float16."""

    refutes = "LOSSES-1003"

    @classmethod
    def mean(cls, losses: Array, rows: Array, count: int) -> float:
        blocks = [losses[start : start + 64].sum() for start in range(0, len(losses), 64)]
        total = blocks[0]
        for block in blocks[1:]:
            total = float(np.float16(total + block))
        return float(total) / cls.divisor(rows, count)


def _leaking(value: float | None, rows: Array, *inputs: Array) -> float | None:
    """The value plus zero times what the masked rows hold."""
    if value is None:
        return None
    with np.errstate(invalid="ignore"):
        return value + float(sum((np.delete(array, rows, axis=0) * 0).sum() for array in inputs))
