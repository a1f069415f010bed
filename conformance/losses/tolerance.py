"""How far a loss and its gradient may lie off, counted from the roundoff u of the declared dtype.

γ(n) = nu/(1 − nu) bounds n roundings. A number that the dtype does not hold carries one rounding from the start.
A log-probability over V logits of size at most S carries γ(V + 8 + 4S): V for the sum, 8 for exp, log and
subtractions, and up to 4S since logits are rounded and shifted by their maximum, or not shifted; the logits' own
error comes on top, twice. A logit made by a head carries γ(d + 3)·Σ|h||x|. A probability has as a relative error what
its logarithm has as an absolute one. A law on a draft vocabulary may come from a softmax over the target's, divided
by its mass, and so carries the double of that. Sums of n terms carry γ(n) of their absolute sum. A residual carries
one rounding, and smooth-L1 passes it on at most as it is. What is below the smallest normal number may come out as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from adapters.interface import DTYPES
from conformance.roads import losses as road
from oracle.types import HassLossCase, RolloutLossCase, TopKCase

TINY: Mapping[str, float] = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}
"""Smallest normal number of a dtype."""
ROAD = 1e-35
"""What a central difference of the second road may be off."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of the value, of each part and of each entry of the gradient. None stands beside a value of None."""

    value: float | None
    parts: tuple[float | None, ...]
    gradient: np.ndarray | None


class Counter:
    """Counts the roundings of one case in one dtype."""

    def __init__(self, case: Any, dtype: str) -> None:
        self.case, self.unit, self.tiny = case, DTYPES[dtype], TINY[dtype]

    def bounds(self, loss: road.Loss, slopes: bool) -> Bounds:
        """Of the whole loss; the gradient's only where the rows have slopes."""
        return Bounds(self._value(loss), tuple(map(self._part, loss.parts)), self._gradient(loss) if slopes else None)

    # ---- sums of rows

    def _value(self, loss: road.Loss) -> float | None:
        if loss.value is None:
            return None
        rows = [(abs(float(weight)), row) for weight, row in loss.rows()]
        return self._sum([(w * self.row(row), w * float(row.value)) for w, row in rows], len(loss.parts) + 10)

    def _part(self, part: road.Part) -> float | None:
        if part.value is None:
            return None
        rows = []
        for term in part.terms:
            if term.weight != 0:
                rows += [(abs(float(term.weight / term.denominator)), row) for row in term.rows]
        return self._sum([(w * self.row(row), w * float(row.value)) for w, row in rows], len(part.terms) + 10)

    def _sum(self, pairs: Sequence[tuple[float, float]], more: int) -> float:
        size = math.fsum(abs(value) for _, value in pairs if math.isfinite(value))
        return math.fsum(bound for bound, _ in pairs) + self.gamma(len(pairs) + more) * size + self.tiny

    def _gradient(self, loss: road.Loss) -> np.ndarray:
        found = np.full(loss.shape, self.tiny + ROAD)
        for weight, row in loss.rows():
            if row.slope:
                scale = abs(float(weight))
                slope = np.abs([float(x) for x in row.slope])
                found[row.index] += scale * (self.slope(row) + self.gamma(12) * slope)
            else:
                found[row.index] = math.inf  # the gradient of an infinite loss is not specified
        return found

    # ---- one row

    def row(self, row: road.Row) -> float:
        """Of the row's loss, before any mean."""
        if row.residual:
            size, width = [abs(float(r)) for r in row.residual], len(row.residual)
            passed = math.fsum(self._residual(row)) + self.gamma(2) * math.fsum(size)
            return passed / width + self.gamma(width + 6) * float(row.value)
        if not row.value.is_finite():
            return 0.0
        p, log_q, target, draft = self._laws(row)
        held = p > 0
        crossed, mass = float((p[held] * -log_q[held]).sum()), float(p.sum())
        summed = self.gamma(len(p) + 2)
        bound = crossed * (target + summed) + mass * draft * (1 + target)
        if getattr(self.case, "divergence", "") == "kl":
            entropy = float(np.abs(p[held] * np.log(p[held])).sum())
            bound += entropy * (target + summed) + mass * target
        lost = float(np.abs(log_q[np.isfinite(log_q)]).max(initial=0.0)) + 1
        return bound + self.tiny * len(p) * lost

    def slope(self, row: road.Row) -> np.ndarray:
        """Of each of the row's derivatives."""
        if row.residual:
            beta, width = self.case.beta, len(row.residual)
            found = []
            for r, off, slope in zip(row.residual, self._residual(row), row.slope):
                bent = off / beta / width if abs(float(r)) < beta + off else 0.0
                found.append(bent + self.gamma(6) * abs(float(slope)))
            return np.array(found)
        p, log_q, target, draft = self._laws(row)
        if not math.isfinite(target + draft):
            return np.full(len(row.slope), math.inf)  # and not NaN, times a probability of 0
        q, mass = np.exp(log_q), float(p.sum())
        logits = mass * q * (target + draft + self.gamma(len(p) + 4)) + p * (target + self.gamma(4)) + self.tiny
        head = getattr(self.case, "head", None)
        if head is None:
            return np.asarray(logits)
        size = mass * q + p
        return np.asarray((logits + self.gamma(len(q) + 3) * size) @ np.abs(head))

    def _laws(self, row: road.Row) -> tuple[np.ndarray, np.ndarray, float, float]:
        """p, log q, the relative error of p and the absolute one of log q."""
        p, log_q = np.array([float(x) for x in row.p]), np.array([float(x) for x in row.log_q])
        made = self._logits(row)
        target, draft = (self._log_law(x, off) for x, off in zip((row.target, row.draft), made))
        return p, log_q, target * (2 if isinstance(self.case, RolloutLossCase) else 1), draft

    def _log_law(self, logits: road.Numbers, off: float) -> float:
        size = max((abs(float(x)) for x in logits if x.is_finite()), default=0.0)
        return self.gamma(len(logits) + 8 + 4 * size) + 2 * off

    def _logits(self, row: road.Row) -> tuple[float, float]:
        """How far a logit of the target, and one of the draft, is off."""
        head = getattr(self.case, "head", None)
        if head is None:
            return self.cast([float(x) for x in row.target]), self.cast([float(x) for x in row.draft])
        features = self.case.target[row.index[-1]], self.case.predicted[row.index]
        target, draft = (self._headed(head * x) for x in features)
        return target, draft

    def _headed(self, products: np.ndarray) -> float:
        """How far a logit is off that sums a row of these; not at all where there is nothing to round."""
        if (np.count_nonzero(products, axis=1) <= 1).all() and all(map(self.holds, products[products != 0].tolist())):
            return 0.0
        return self.gamma(products.shape[1] + 3) * float(np.abs(products).sum(axis=1).max())

    def _residual(self, row: road.Row) -> list[float]:
        """How far each residual is off."""
        pairs = zip(row.residual, self.case.predicted[row.index], self.case.target[row.index[-1]])
        return [self.unit * abs(float(r)) + self.cast([x]) + self.cast([y]) for r, x, y in pairs]

    # ---- arithmetic

    def gamma(self, roundings: float) -> float:
        """The bound of so many roundings; infinite where they may add up to half of a number."""
        return roundings * self.unit / (1 - roundings * self.unit) if roundings * self.unit < 0.5 else math.inf

    def cast(self, values: Sequence[float]) -> float:
        """The largest error that the dtype makes of holding the values."""
        off = [abs(x) * self.unit for x in values if math.isfinite(x) and not self.holds(x)]
        return max(off, default=0.0)

    def holds(self, value: float) -> bool:
        """Whether the dtype holds the value (its exponent range aside)."""
        return (math.frexp(value)[0] / self.unit).is_integer()

    # ---- decisions

    def decidable(self, loss: Callable[[], road.Loss]) -> bool:
        """Whether no top-K set and no gate turns on less than the logits are off."""
        if isinstance(self.case, RolloutLossCase):
            return self._gates()
        if isinstance(self.case, (TopKCase, HassLossCase)):
            rows = [row for part in loss().parts for term in part.terms for row in term.rows if not row.residual]
            return all(self._cut([float(x) for x in row.target], self._logits(row)[0]) for row in rows)
        return True

    def _cut(self, logits: Sequence[float], off: float) -> bool:
        ranked = sorted(logits, reverse=True)
        return off == 0 or self.case.k >= len(ranked) or ranked[self.case.k - 1] - ranked[self.case.k] > 2 * off

    def _gates(self) -> bool:
        ids = self.case.draft_to_target
        if self.case.gate == "none" or ids is None:
            return True
        for row in self.case.target_logits[self.case.supervise]:
            off = self.cast(row.tolist())
            inside, outside = row[ids], np.delete(row, ids)
            if off > 0 and len(outside) and abs(float(inside.max()) - float(outside.max())) <= 2 * off:
                return False
        return True


def number(value: Decimal | None) -> float | None:
    """In floats."""
    return None if value is None else float(value)
