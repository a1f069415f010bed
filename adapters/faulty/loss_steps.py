"""A right implementation of losses, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, on whole arrays, so that a fault is read in full where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from adapters.interface import Arithmetic, Declaration
from oracle.types import (
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    HassLossCase,
    LossResult,
    RegressionCase,
    RolloutLossCase,
    StateGradientCase,
    TopKCase,
)

Array = Any
"""An array of NumPy."""
Term = tuple[float | None, Array]
"""A loss, None where no row counts, and its gradient."""


class Losses:
    """Right losses. p is the target's law, q the drafter's."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    """In a fault: the clause that it breaks, the lowest one that the suite refutes."""

    def __init_subclass__(cls, dtype: str = "float64", conventions: dict[str, str] | None = None) -> None:
        super().__init_subclass__()
        arithmetic = Arithmetic(dtype=dtype)
        cost = {"rollout_loss": 2e-4, "hass_loss": 2e-4, "eagle1_loss": 1e-4}
        cls.DECLARATION = Declaration(
            cls.__name__, "1", conventions=conventions or {}, arithmetic=arithmetic, cost=cost
        )

    # ---- operations

    @classmethod
    def feature_regression(cls, case: RegressionCase) -> LossResult:
        value, grad = cls.regression(case.predicted, case.target, cls.chosen(case.supervise), case.beta)
        return cls.result(value, "predicted", grad, ())

    @classmethod
    def soft_cross_entropy(cls, case: DistillCase) -> LossResult:
        return cls.distillation(case, None)

    @classmethod
    def topk_distillation(cls, case: TopKCase) -> LossResult:
        return cls.distillation(case, case.k)

    @classmethod
    def distillation(cls, case: DistillCase | TopKCase, k: int | None) -> LossResult:
        rows = cls.chosen(case.supervise)
        value, grad = cls.distilled(case.draft_logits, case.target_logits, rows, k)
        return cls.result(value, "draft_logits", grad, ())

    @classmethod
    def eagle1_loss(cls, case: Eagle1Case) -> LossResult:
        rows = cls.chosen(case.supervise)
        terms = [
            cls.regression(case.predicted, case.target, rows, case.beta),
            cls.through_head(case.predicted, case.target, case.head, rows, None),
        ]
        weights = cls.eagle1_weights(case)
        value, grad = cls.weighted(weights, terms)
        parts = cls.eagle1_parts([part for part, _ in terms], weights)
        return cls.result(value, "predicted", grad, parts)

    @classmethod
    def hass_loss(cls, case: HassLossCase) -> LossResult:
        steps = [cls.hass_step(case, s) for s in range(len(case.predicted))]
        parts = [part for part, _ in steps]
        return cls.result(cls.hass_total(parts), "predicted", cls.hass_gradient([g for _, g in steps]), tuple(parts))

    @classmethod
    def rollout_loss(cls, case: RolloutLossCase) -> LossResult:
        ids, weights = cls.ids(case), cls.step_weights(case)
        steps = [cls.rollout_step(case, s, ids) for s in range(len(case.draft_logits))]
        parts = [part for part, _ in steps]
        shared = len(parts) if case.reduction == "mean" else 1
        value = cls.total(parts, weights)
        grad = cls.rollout_gradient(case, [g for _, g in steps], weights) / shared
        return cls.result(None if value is None else value / shared, "draft_logits", grad, tuple(parts))

    @classmethod
    def draft_to_target(cls, case: DraftMapCase) -> Array:
        ids = cls.absolute(case)
        cls.check_map(ids, case)
        return ids

    @classmethod
    def state_gradient(cls, case: StateGradientCase) -> Array:
        step, state = np.ogrid[: case.steps, : case.steps]
        reached: Array = state <= step if case.gradient == "flows" else state == step
        return reached

    # ---- an answer

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        return LossResult(value, {name: grad}, parts)

    # ---- rows and means

    @classmethod
    def chosen(cls, supervise: Array) -> Array:
        return np.flatnonzero(supervise)

    @classmethod
    def pick(cls, values: Array, rows: Array) -> Array:
        """The rows that count; what is no number is refused."""
        found = values[rows]
        if np.isnan(found).any() or (found == np.inf).any():
            raise ValueError("a row that counts holds what is no number")
        return found

    @classmethod
    def mean(cls, losses: Array, rows: Array, count: int) -> float:
        """Of the losses of rows, `count` of them in all."""
        return float(losses.sum() / cls.divisor(rows, count))

    @classmethod
    def divisor(cls, rows: Array, count: int) -> float:
        return len(rows)

    # ---- regression

    @classmethod
    def regression(cls, predicted: Array, target: Array, rows: Array, beta: float) -> Term:
        grad = np.zeros(predicted.shape)
        if not len(rows):
            return None, grad
        residual = cls.pick(predicted, rows) - cls.pick(target, rows)
        width = predicted.shape[1]
        value = cls.mean(cls.smooth_l1(residual, beta).sum(axis=1) / width, rows, len(predicted))
        grad[rows] = cls.regression_slope(residual, beta) / width / cls.divisor(rows, len(predicted))
        return value, grad

    @classmethod
    def smooth_l1(cls, residual: Array, beta: float) -> Array:
        size = np.abs(residual)
        return np.where(size < beta, size**2 / (2 * beta), size - beta / 2)

    @classmethod
    def regression_slope(cls, residual: Array, beta: float) -> Array:
        return np.clip(residual / beta, -1, 1)

    # ---- distillation

    @classmethod
    def distilled(cls, draft: Array, target: Array, rows: Array, k: int | None) -> Term:
        grad = np.zeros(draft.shape)
        if not len(rows):
            return None, grad
        wanted, asked = cls.pick(target, rows), cls.pick(draft, rows)
        p = cls.law(wanted)
        kept = None if k is None else cls.top(wanted, asked, k)
        if kept is not None:
            p = cls.on_the_set(p, kept)
        log_q = cls.draft_log_law(asked, kept)
        value = cls.mean(cls.crossed(p, log_q), rows, len(draft))
        slope = cls.crossed_slope(p, log_q) if kept is None else cls.top_slope(p, log_q, kept)
        grad[rows] = slope / cls.divisor(rows, len(draft))
        return value, grad

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        shifted = logits - logits.max(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            found: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        return found

    @classmethod
    def law(cls, logits: Array) -> Array:
        return np.exp(cls.log_softmax(logits))

    @classmethod
    def draft_log_law(cls, logits: Array, kept: Array | None) -> Array:
        return cls.log_softmax(logits)

    @classmethod
    def crossed(cls, p: Array, log_q: Array) -> Array:
        """−Σ p log q of each row."""
        terms = np.zeros(p.shape)
        np.multiply(-p, log_q, out=terms, where=p > 0)
        found: Array = terms.sum(axis=-1)
        return found

    @classmethod
    def crossed_slope(cls, p: Array, log_q: Array) -> Array:
        slope: Array = np.exp(log_q) * p.sum(axis=-1, keepdims=True) - p
        return slope

    # ---- top-K

    @classmethod
    def top(cls, target: Array, draft: Array, k: int) -> Array:
        """Which tokens are in the set, row by row."""
        order = np.argsort(-target, axis=1, kind="stable")
        kept = np.zeros(target.shape, dtype=bool)
        np.put_along_axis(kept, order[:, : cls.size(k, target.shape[1])], True, axis=1)
        return kept

    @classmethod
    def size(cls, k: int, vocabulary: int) -> int:
        return min(k, vocabulary)

    @classmethod
    def on_the_set(cls, p: Array, kept: Array) -> Array:
        return np.where(kept, p, 0.0)

    @classmethod
    def top_slope(cls, p: Array, log_q: Array, kept: Array) -> Array:
        return cls.crossed_slope(p, log_q)

    # ---- sums

    @classmethod
    def through_head(cls, predicted: Array, target: Array, head: Array, rows: Array, k: int | None) -> Term:
        draft, wanted = np.zeros((len(predicted), len(head))), np.zeros((len(predicted), len(head)))
        draft[rows], wanted[rows] = cls.pick(predicted, rows) @ head.T, cls.pick(target, rows) @ head.T
        value, grad = cls.distilled(draft, wanted, rows, k)
        return value, cls.back_through_head(grad, head)

    @classmethod
    def back_through_head(cls, grad: Array, head: Array) -> Array:
        return grad @ head

    @classmethod
    def total(cls, parts: Sequence[float | None], weights: Sequence[float]) -> float | None:
        counted = [(w, part) for w, part in zip(weights, parts) if part is not None]
        return sum((w * part for w, part in counted if w != 0), 0.0) if counted else None

    @classmethod
    def weighted(cls, weights: Sequence[float], terms: Sequence[Term]) -> Term:
        value = cls.total([part for part, _ in terms], weights)
        return value, cls.weighted_gradient(weights, [grad for _, grad in terms])

    @classmethod
    def weighted_gradient(cls, weights: Sequence[float], grads: Sequence[Array]) -> Array:
        found: Array = sum((w * grad for w, grad in zip(weights, grads)), np.zeros(grads[0].shape))
        return found

    @classmethod
    def eagle1_weights(cls, case: Eagle1Case) -> tuple[float, ...]:
        return case.regression_weight, case.classification_weight

    @classmethod
    def eagle1_parts(cls, parts: Sequence[float | None], weights: Sequence[float]) -> tuple[float | None, ...]:
        return tuple(parts)

    @classmethod
    def hass_step(cls, case: HassLossCase, s: int) -> Term:
        rows, predicted = cls.hass_rows(case, s), case.predicted[s]
        return cls.weighted(
            cls.hass_weights(case),
            [
                cls.regression(predicted, case.target, rows, case.beta),
                cls.through_head(predicted, case.target, case.head, rows, None),
                cls.through_head(predicted, case.target, case.head, rows, case.k),
            ],
        )

    @classmethod
    def hass_rows(cls, case: HassLossCase, s: int) -> Array:
        return cls.chosen(case.supervise[s])

    @classmethod
    def hass_weights(cls, case: HassLossCase) -> tuple[float, ...]:
        return case.regression_weight, case.classification_weight, case.topk_weight

    @classmethod
    def hass_total(cls, parts: Sequence[float | None]) -> float | None:
        return cls.total(parts, [1.0] * len(parts))

    @classmethod
    def hass_gradient(cls, grads: Sequence[Array]) -> Array:
        return np.stack(grads)

    # ---- rollouts

    @classmethod
    def ids(cls, case: RolloutLossCase) -> Array:
        return np.arange(case.draft_logits.shape[2]) if case.draft_to_target is None else case.draft_to_target

    @classmethod
    def step_weights(cls, case: RolloutLossCase) -> list[float]:
        steps = len(case.draft_logits)
        return [0.8**s for s in range(steps)] if case.step_weights is None else list(case.step_weights)

    @classmethod
    def rollout_step(cls, case: RolloutLossCase, s: int, ids: Array) -> Term:
        grad = np.zeros(case.draft_logits.shape[1:])
        rows = cls.chosen(case.supervise[s])
        full = cls.pick(case.target_logits[s], rows)
        draft = cls.pick(case.draft_logits[s], rows)
        counted = cls.counted(full, draft, ids, case)
        if not counted.any():
            return cls.nothing(), grad
        rows, full, draft = rows[counted], full[counted], draft[counted]
        p = cls.restricted(full, ids, case.restricted_target)
        log_q = cls.rollout_log_law(draft, ids, full.shape[1])
        losses = cls.diverging(p, log_q, full, case)
        over = cls.rollout_divisor(case, s, len(rows)) + cls.epsilon(case, s)
        grad[rows] = cls.rollout_slope(p, log_q) / over
        return float(losses.sum() / over), grad

    @classmethod
    def nothing(cls) -> float | None:
        """The part of a step that counts no row."""
        return None

    @classmethod
    def counted(cls, full: Array, draft: Array, ids: Array, case: RolloutLossCase) -> Array:
        """Which supervised rows count."""
        some = np.isfinite(full[:, ids]).any(axis=1)
        return some & cls.gate(full, draft, ids) if case.gate == "argmax" else some

    @classmethod
    def gate(cls, full: Array, draft: Array, ids: Array) -> Array:
        return np.isin(full.argmax(axis=1), ids)

    @classmethod
    def restricted(cls, full: Array, ids: Array, kind: str) -> Array:
        return cls.law(full)[:, ids] if kind == "raw" else cls.law(full[:, ids])

    @classmethod
    def rollout_log_law(cls, draft: Array, ids: Array, vocabulary: int) -> Array:
        return cls.log_softmax(draft)

    @classmethod
    def diverging(cls, p: Array, log_q: Array, full: Array, case: RolloutLossCase) -> Array:
        return cls.crossed(p, log_q) - (cls.entropy(p, full) if case.divergence == "kl" else 0.0)

    @classmethod
    def entropy(cls, p: Array, full: Array) -> Array:
        return cls.crossed(p, np.log(np.where(p > 0, p, 1.0)))

    @classmethod
    def rollout_divisor(cls, case: RolloutLossCase, s: int, counted: int) -> float:
        mask = case.supervise[s]
        return {"supervised": counted, "mask": int(mask.sum()), "rows": len(mask)}[case.denominator]

    @classmethod
    def epsilon(cls, case: RolloutLossCase, s: int) -> float:
        return case.denominator_epsilon

    @classmethod
    def rollout_slope(cls, p: Array, log_q: Array) -> Array:
        return cls.crossed_slope(p, log_q)

    @classmethod
    def rollout_gradient(cls, case: RolloutLossCase, grads: Sequence[Array], weights: Sequence[float]) -> Array:
        return np.stack([w * grad for w, grad in zip(weights, grads)])

    # ---- maps

    @classmethod
    def absolute(cls, case: DraftMapCase) -> Array:
        return case.d2t + np.arange(len(case.d2t)) if case.convention == "offset" else case.d2t.copy()

    @classmethod
    def check_map(cls, ids: Array, case: DraftMapCase) -> None:
        if len(np.unique(ids)) < len(ids) or (ids < 0).any():
            raise ValueError("d2t: target ids are distinct and not negative")
        if case.t2d is not None and not np.array_equal(np.flatnonzero(case.t2d), np.sort(ids)):
            raise ValueError("t2d marks the ids that d2t maps to")
