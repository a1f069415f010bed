"""The third road to the losses: mpmath, at as many digits as are asked for, with gradients in closed form.

The oracle computes in floats; `roads/losses.py` in decimals, with gradients by differences. Here every number is an
mpf, so that what is published is rounded once. A law is a softmax as it is written, exponentials over their sum, and
a gradient is read off the derivative of log-sum-exp. mpmath is imported where it is needed: what is published is
computed in this project's own environment alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.types import (
    DistillCase,
    Eagle1Case,
    HassLossCase,
    RegressionCase,
    RolloutLossCase,
    TopKCase,
)

Number = Any
"""An mpf."""
Vector = list[Number]
Term = tuple[Number | None, np.ndarray]
"""A mean and its gradient, an array of mpf; None where no row counts."""


@dataclass(frozen=True)
class Loss:
    """value and parts: mpf, or None where no row counts. gradient: mpf in the shape of the trained input."""

    value: Number | None
    gradient: np.ndarray
    parts: tuple[Number | None, ...] = ()


def loss(operation: str, case: Any, digits: int) -> Loss:
    """What `operation` gives for the case."""
    found: Loss = getattr(_Losses(digits), operation)(case)
    return found


class _Losses:
    """The losses, in one context of so many digits."""

    def __init__(self, digits: int) -> None:
        import mpmath

        self.mp = mpmath.MPContext()
        self.mp.dps = digits

    # ---- operations

    def feature_regression(self, case: RegressionCase) -> Loss:
        return Loss(*self.regression(case.predicted, case.target, case.supervise, case.beta))

    def soft_cross_entropy(self, case: DistillCase) -> Loss:
        return Loss(*self.distilled(case.draft_logits, case.target_logits, case.supervise, None))

    def topk_distillation(self, case: TopKCase) -> Loss:
        return Loss(*self.distilled(case.draft_logits, case.target_logits, case.supervise, case.k))

    def eagle1_loss(self, case: Eagle1Case) -> Loss:
        terms = [
            self.regression(case.predicted, case.target, case.supervise, case.beta),
            self.headed(case.predicted, case.target, case.head, case.supervise, None),
        ]
        value, gradient = self.summed([case.regression_weight, case.classification_weight], terms)
        return Loss(value, gradient, tuple(part for part, _ in terms))

    def hass_loss(self, case: HassLossCase) -> Loss:
        weights = [case.regression_weight, case.classification_weight, case.topk_weight]
        steps = []
        for predicted, supervise in zip(case.predicted, case.supervise):
            terms = [self.regression(predicted, case.target, supervise, case.beta)]
            terms += [self.headed(predicted, case.target, case.head, supervise, k) for k in (None, case.k)]
            steps.append(self.summed(weights, terms))
        parts = tuple(part for part, _ in steps)
        counted = [part for part in parts if part is not None]
        gradient = np.array([gradient for _, gradient in steps], dtype=object).reshape(case.predicted.shape)
        return Loss(sum(counted, self.mp.mpf(0)) if counted else None, gradient, parts)

    def rollout_loss(self, case: RolloutLossCase) -> Loss:
        mpf = self.mp.mpf
        steps, _, width = case.draft_logits.shape
        ids = list(range(width)) if case.draft_to_target is None else np.asarray(case.draft_to_target).tolist()
        if case.step_weights is None:
            weights = [(mpf(4) / 5) ** s for s in range(steps)]
        else:
            weights = [mpf(float(w)) for w in case.step_weights]
        gradient = self.zeros(case.draft_logits.shape)
        parts: list[Number | None] = []
        total, any_step = mpf(0), False
        share = mpf(1) / (steps if case.reduction == "mean" else 1)
        for s in range(steps):
            found = [(r, row) for r in np.flatnonzero(case.supervise[s]) if (row := self.restricted(case, s, r, ids))]
            if not found:
                parts.append(None)
                continue
            size = {"supervised": len(found), "mask": int(case.supervise[s].sum()), "rows": len(case.supervise[s])}
            over = size[case.denominator] + mpf(float(case.denominator_epsilon))
            parts.append(sum((value for _, (value, _) in found), mpf(0)) / over)
            any_step = True
            if weights[s] == 0:
                continue
            total += share * weights[s] * parts[s]
            for r, (_, slope) in found:
                gradient[s, r] = [share * weights[s] * x / over for x in slope]
        return Loss(total if any_step else None, gradient, tuple(parts))

    # ---- means

    def regression(self, predicted: np.ndarray, target: np.ndarray, supervise: np.ndarray, beta: float) -> Term:
        """Smooth-L1 over supervised rows and all features."""
        rows, width, gradient = np.flatnonzero(supervise), self.mp.mpf(float(beta)), self.zeros(predicted.shape)
        total = self.mp.mpf(0)
        count = len(rows) * predicted.shape[1]
        for r in rows:
            for i, (x, y) in enumerate(zip(self.numbers(predicted[r]), self.numbers(target[r]))):
                residual = x - y
                inside = abs(residual) < width
                total += residual**2 / (2 * width) if inside else abs(residual) - width / 2
                gradient[r, i] = (residual / width if inside else self.mp.sign(residual)) / count
        return (total / count if count else None), gradient

    def distilled(self, draft: np.ndarray, target: np.ndarray, supervise: np.ndarray, k: int | None) -> Term:
        """Cross-entropy over supervised rows of logits, on the whole vocabulary or on the k likeliest tokens."""
        made = [(self.numbers(draft[r]), self.numbers(target[r])) if on else None for r, on in enumerate(supervise)]
        return self.crossed(made, draft.shape, k)

    def headed(
        self, predicted: np.ndarray, target: np.ndarray, head: np.ndarray, supervise: np.ndarray, k: int | None
    ) -> Term:
        """`distilled` behind a head, and its gradient with respect to the features."""
        matrix = [self.numbers(row) for row in head]

        def through(feature: np.ndarray) -> Vector:
            return [self.mp.fdot(row, self.numbers(feature)) for row in matrix]

        made = [(through(predicted[r]), through(target[r])) if on else None for r, on in enumerate(supervise)]
        value, slopes = self.crossed(made, (len(predicted), len(head)), k)
        gradient = self.zeros(predicted.shape)
        for r, i in np.ndindex(predicted.shape):
            gradient[r, i] = self.mp.fdot(slopes[r], [row[i] for row in matrix])
        return value, gradient

    def crossed(self, made: Sequence[tuple[Vector, Vector] | None], shape: tuple[int, ...], k: int | None) -> Term:
        gradient, total, count = self.zeros(shape), self.mp.mpf(0), sum(pair is not None for pair in made)
        for r, pair in enumerate(made):
            if pair is None:
                continue
            draft, target = pair
            law = self.softmax(target)
            if k is not None:
                ranked = sorted(range(len(target)), key=lambda v: (-target[v], v))
                law = [law[v] if v in ranked[:k] else self.mp.mpf(0) for v in range(len(law))]
            value, slope = self.row(law, draft)
            total += value
            gradient[r] = [x / count for x in slope]
        return (total / count if count else None), gradient

    def summed(self, weights: Sequence[float], terms: Sequence[Term]) -> Term:
        """By their weights; a weight of zero drops its term."""
        gradient, total, counted = terms[0][1] * 0, self.mp.mpf(0), False
        for weight, (value, slope) in zip(weights, terms):
            counted = counted or value is not None
            if value is not None and weight != 0:
                total += self.mp.mpf(float(weight)) * value
                gradient = gradient + slope * self.mp.mpf(float(weight))
        return (total if counted else None), gradient

    # ---- one row

    def restricted(self, case: RolloutLossCase, s: int, r: int, ids: Sequence[int]) -> tuple[Number, Vector] | None:
        """A row of a rollout: its divergence and derivatives, or None where it does not count."""
        full = self.numbers(case.target_logits[s, r])
        best = min(range(len(full)), key=lambda v: (-full[v], v))
        if (case.gate == "argmax" and best not in ids) or all(self.mp.isinf(full[v]) for v in ids):
            return None
        if case.restricted_target == "raw":
            whole = self.softmax(full)
            law = [whole[v] for v in ids]
        else:
            law = self.softmax([full[v] for v in ids])
        value, slope = self.row(law, self.numbers(case.draft_logits[s, r]))
        if case.divergence == "kl":
            value += sum((p * self.mp.log(p) for p in law if p > 0), self.mp.mpf(0))
        return value, slope

    def row(self, law: Vector, draft: Vector) -> tuple[Number, Vector]:
        """Σp · log Σexp(draft) − Σ p · draft, and its derivatives Σp · softmax(draft) − p."""
        if any(p > 0 and self.mp.isinf(x) for p, x in zip(law, draft)):
            return self.mp.inf, [self.mp.nan] * len(law)  # the gradient of an infinite loss is not specified
        mass = sum(law, self.mp.mpf(0))
        norm = self.mp.log(sum((self.mp.exp(x) for x in draft), self.mp.mpf(0)))
        value = sum((p * (norm - x) for p, x in zip(law, draft) if p > 0), self.mp.mpf(0))
        return value, [mass * q - p for q, p in zip(self.softmax(draft), law)]

    def softmax(self, logits: Vector) -> Vector:
        powers = [self.mp.exp(x) for x in logits]
        total = sum(powers, self.mp.mpf(0))
        return [power / total for power in powers]

    # ---- numbers

    def numbers(self, values: Any) -> Vector:
        """Of floats, exactly."""
        return [self.mp.mpf(float(x)) for x in values]

    def zeros(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.mp.mpf(0), dtype=object)
