"""The golden vectors of losses, with their answers at fifty digits and the bound of an implementation's roundings.

What is published is the mpmath road's answer, rounded once. The road in decimals has to round to the same numbers, up
to what its differences are off, and the oracle to lie within its own roundings of them.

The bound of a case is that of `tolerance.Counter`, to first order: with a unit so small that γ(n) = nu, every number
of more than eight significant bits rounded on its way in (no dtype holds fewer), smooth-L1's slope moving by 1/β
everywhere, and what falls below a dtype's smallest normal number, which is at most u/8, lost. It is doubled for what
second order adds: γ(n) ≤ 2nu where nu ≤ ½. The largest bound of the loss, its parts and its gradient is the case's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adapters.faulty import training as faulty_training
from adapters.interface import DTYPES
from conformance.fixtures import digits
from conformance.fixtures.golden import Answer, Golden
from conformance.losses import golden_cases
from conformance.losses.golden_rollouts import ROLLOUTS
from conformance.losses.judge import TRAINED, agree
from conformance.losses.replaying import REFUSED_OR_NOT_FINITE
from conformance.losses.tolerance import Counter, number
from conformance.roads import digits_losses
from conformance.roads import losses as road
from conformance.verdicts import HarnessError
from oracle import losses as oracle
from oracle import training
from oracle.errors import BadInput
from oracle.types import LossResult

FLAGS = golden_cases.FLAGS
GOLDEN: tuple[Golden, ...] = (*golden_cases.LOSSES, *ROLLOUTS)
_STEP = "a training step is judged by the states before and after it, which an implementation makes itself"
UNTOUCHED: Mapping[str, str] = {
    "LOSSES-104": "the same case twice is no data of a case",
    "LOSSES-1101": "what an implementation declares is told by its answers to many cases",
    **{f"LOSSES-{clause}": _STEP for clause in range(1201, 1207)},
}
UNSHOWN: Mapping[str, str] = {
    "GradientOverTheLogits": "a second backward over the same graph is no part of an answer in data",
    **{
        name: _STEP
        for name, kind in vars(faulty_training).items()
        if isinstance(kind, type) and issubclass(kind, faulty_training.Trainer) and hasattr(kind, "refutes")
    },
}
SECOND_ORDER = 2.0
NEAR, DOUBLE = 1e-35, 2.0**-52
"""How far the decimals' gradient may be off: a difference, absolutely, and where it is rounded to a float twice."""


class FirstOrder(Counter):
    """Counts roundings as if there were no dtype that they could add up in: bounds are multiples of `UNIT`."""

    UNIT = 2.0**-100
    BITS: int = 8

    def __init__(self, case: Any) -> None:
        self.case, self.unit, self.tiny = case, self.UNIT, self.UNIT / 8

    def holds(self, value: float) -> bool:
        return bool((math.frexp(value)[0] * 2**self.BITS).is_integer())

    def slope(self, row: road.Row) -> np.ndarray:
        found = super().slope(row)
        if row.residual:
            found = found + np.array(self._residual(row)) / self.case.beta / len(row.residual)
        return found


def answer(golden: Golden) -> Answer:
    """What every road says. Raises `HarnessError` where they disagree."""
    case = golden.arguments["case"]
    if golden.operation == "draft_to_target":
        return _map(case)
    if golden.operation == "state_gradient":
        reached = np.array(road.state_gradient(case), dtype=bool)
        if not np.array_equal(reached, training.state_gradient(case)):
            raise HarnessError("the oracle and the second road disagree about what a gradient reaches")
        return Answer(reached, ("oracle", "graph"))
    if "LOSSES-903" in golden.clauses:
        return _no_number(golden.operation, case)
    return _loss(golden.operation, case, "float64" in golden.flags)


def _loss(operation: str, case: Any, float64_alone: bool) -> Answer:
    right: road.Loss = getattr(road, operation)(case)
    agree(operation, case, slopes=all(row.slope for _, row in right.rows()))

    def rounded(places: int) -> list[np.ndarray]:
        found = digits_losses.loss(operation, case, places)
        held = [math.nan if x is None else digits.nearest(x) for x in (found.value, *found.parts)]
        return [np.array(held), digits.floats(found.gradient)]

    values, gradient = digits.settled(rounded)
    parts = [part.value for part in right.parts] if right.shows_parts else []
    expected = [number(x) for x in (right.value, *parts)]
    written = [None if x is None else float(v) for x, v in zip(expected, values.tolist())]
    if len(values) != len(expected) or written != expected:
        raise HarnessError(f"{operation}: mpmath gives {values.tolist()}, the decimals {expected}")
    differences = _gradient(right)
    free, off = np.isnan(gradient), np.abs(gradient - differences)
    if (np.isnan(differences) != free).any() or not (free | (off <= NEAR + DOUBLE * np.abs(gradient))).all():
        raise HarnessError(f"{operation}: mpmath's gradient is {np.nanmax(off)} away from the decimals'")
    if not float64_alone and not all(Counter(case, dtype).decidable(lambda: right) for dtype in DTYPES):
        raise HarnessError("a narrow dtype does not decide which tokens or rows count: the case is for float64 alone")
    finite = [np.array([v for v in written if v is not None and math.isfinite(v)]), gradient[~free]]
    result = LossResult(written[0], {TRAINED[operation]: gradient}, tuple(written[1:]))
    return Answer(result, ("oracle", "mpmath", "decimals"), "rounding", digits.limits(bound(case, right), finite))


def _gradient(right: road.Loss) -> np.ndarray:
    """Of the decimals; NaN in the rows whose loss is infinite, where it is not specified."""
    found = np.zeros(right.shape)
    if all(row.slope for _, row in right.rows()):
        return right.gradient()
    for weight, row in right.rows():
        found[row.index] += np.array([float(weight * slope) for slope in row.slope] or math.nan)
    return found


def bound(case: Any, right: road.Loss) -> float:
    """How far an entry of an answer may be off, in units of roundoff."""
    found = FirstOrder(case).bounds(right, True)
    scalars = [x for x in (found.value, *(found.parts if right.shows_parts else ())) if x is not None]
    gradient = np.zeros(0) if found.gradient is None else found.gradient
    largest = max([x for x in scalars if math.isfinite(x)] + gradient[np.isfinite(gradient)].tolist(), default=0.0)
    return SECOND_ORDER * largest / FirstOrder.UNIT


def _no_number(operation: str, case: Any) -> Answer:
    """A NaN or +inf stands in a row that counts, and the oracle refuses it."""
    if not golden_cases.spoilt(operation, case):
        raise HarnessError("every number that counts is one")
    try:
        getattr(oracle, operation)(case)
    except BadInput:
        return Answer(REFUSED_OR_NOT_FINITE, ("oracle", "scan"), "relation")
    raise HarnessError("the oracle takes what is no number")


def _map(case: Any) -> Answer:
    expected = road.draft_to_target(case)
    try:
        found = oracle.draft_to_target(case)
    except BadInput as error:
        if expected is not None:
            raise HarnessError(f"the second road maps to {expected}, and the oracle refuses: {error}") from None
        return Answer(error.field, ("oracle", "integers"), "refusal")
    if found.tolist() != expected:
        raise HarnessError(f"the oracle maps to {found.tolist()}, the second road to {expected}")
    return Answer(found, ("oracle", "integers"))
