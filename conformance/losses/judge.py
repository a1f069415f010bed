"""Asking for a loss and judging it: the second road's value, part or gradient, and what a dtype may make of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from conformance import draw
from conformance.check import Check
from conformance.compare import plain
from conformance.handout import copy
from conformance.losses.tolerance import Counter, number
from conformance.roads import losses as road
from conformance.verdicts import ClauseViolation, HarnessError
from oracle import losses as oracle

TRAINED: Mapping[str, str] = {
    "feature_regression": "predicted",
    "soft_cross_entropy": "draft_logits",
    "eagle1_loss": "predicted",
    "topk_distillation": "draft_logits",
    "hass_loss": "predicted",
    "rollout_loss": "draft_logits",
}
"""Operation → its trained input."""
OPERATIONS = tuple(TRAINED)
FEW = 60
"""Drawn cases whose gradient a check judges, at most: differences in sixty digits are slow."""
ENOUGH = 25
"""Drawn cases of a check that judges values, at least."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What an implementation returned; its gradient and parts are read where they are judged."""

    result: Any
    value: float | None

    def parts(self, count: int) -> list[float | None]:
        """The parts, `count` of them; raises `ClauseViolation`."""
        found = list(getattr(self.result, "parts", ()))
        if len(found) != count:
            raise ClauseViolation(f"{{clause}} asks for {count} parts; the implementation gives {len(found)}")
        return [real(part, f"parts[{i}]") for i, part in enumerate(found)]

    def gradient(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """The gradient of the trained input, float64; raises `ClauseViolation`."""
        found = getattr(self.result, "grad", None)
        if not isinstance(found, Mapping) or name not in found:
            told = sorted(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
            raise ClauseViolation(f"the gradient names {told}; {name} is trained")
        array = plain(found[name], f"grad[{name!r}]")
        if array.shape != shape or array.dtype.kind not in "fiu":
            raise ClauseViolation(f"grad[{name!r}] is {array.dtype} {list(array.shape)}; {name} is {list(shape)}")
        return array.astype(np.float64)


def few(check: Check) -> int:
    """How many drawn cases a check of gradients runs on."""
    return min(check.profile.examples, FEW)


def some(check: Check) -> int:
    """How many drawn cases a check runs on where many a check draws such cases: two fifths of the profile's."""
    return max(min(check.profile.examples, ENOUGH), check.profile.examples * 2 // 5)


def ask(check: Check, operation: str, case: Any) -> Answer:
    """The implementation's answer; `ClauseViolation` where it is no `LossResult`."""
    return read(check.call(operation, copy(case)))


def read(result: Any) -> Answer:
    """A `LossResult`, its value a number; raises `ClauseViolation`."""
    if not hasattr(result, "value"):
        raise ClauseViolation(f"the result is a {type(result).__name__}, not a LossResult with value, grad and parts")
    return Answer(result, real(result.value, "value"))


def real(value: Any, where: str) -> float | None:
    """A real number or None; raises `ClauseViolation`."""
    if value is None:
        return None
    array = plain(value, where)
    if array.ndim or array.dtype.kind not in "fiu":
        raise ClauseViolation(f"{where} is {array.dtype} {list(array.shape)}, not one real number")
    return float(array)


# ---- the expected side


def by_road(check: Check, operation: str, case: Any, slopes: bool = False) -> road.Loss:
    """The second road's loss under what is declared; the oracle has to agree with it on its own conventions."""
    found = _road(operation, case, slopes, over(check, operation))
    if not check.is_oracle:
        agree(operation, case, slopes)
    return found


def over(check: Check, operation: str) -> road.Over:
    """What the means of `operation` divide by; a rollout has it in its case."""
    if operation == "rollout_loss":
        return road.SUPERVISED
    epsilon = float(check.convention("denominator_epsilon", "0"))
    return road.Over(check.convention("denominator", "supervised"), epsilon)


def _road(operation: str, case: Any, slopes: bool, divisor: road.Over) -> road.Loss:
    function: Callable[..., road.Loss] = getattr(road, operation)
    return function(case, slopes) if operation == "rollout_loss" else function(case, slopes, divisor)


def agree(operation: str, case: Any, slopes: bool) -> None:
    """`HarnessError` unless the oracle and the second road agree on the case."""
    right, ours = _road(operation, case, slopes, road.SUPERVISED), getattr(oracle, operation)(case)
    bounds = Counter(case, "float64").bounds(right, slopes)
    pairs = [(right.value, ours.value, bounds.value)]
    if right.shows_parts:
        pairs += list(zip([part.value for part in right.parts], ours.parts, bounds.parts))
    for expected, found, allowed in pairs:
        if not close(number(expected), found, allowed):
            raise HarnessError(f"{operation}: the oracle gives {found}, the second road {number(expected)}")
    if slopes and bounds.gradient is not None:
        off = np.abs(ours.grad[right.trained] - right.gradient())
        if not (off <= bounds.gradient).all():
            raise HarnessError(f"{operation}: the oracle's gradient is {off.max()} away from the second road's")


def bounded(check: Check, allowed: float | None) -> bool:
    """Whether the declared dtype bounds a value at all; counted where it does not."""
    finite = allowed is None or math.isfinite(allowed)
    check.decided(finite)
    return finite


def close(expected: float | None, found: float | None, allowed: float | None) -> bool:
    """Whether two values are one within `allowed`; None is None alone."""
    if expected is None or found is None or allowed is None:
        return expected is None and found is None
    return expected == found or abs(expected - found) <= allowed


# ---- judging


def value(check: Check, operation: str, case: Any) -> None:
    """Judge the loss; raises `ClauseViolation`."""
    answer = ask(check, operation, case)
    _value(check, case, answer, by_road(check, operation, case))


def parts(check: Check, operation: str, case: Any) -> None:
    """Judge the parts, one after the other; raises `ClauseViolation`."""
    answer = ask(check, operation, case)
    _parts(check, case, answer, by_road(check, operation, case))


def gradient(check: Check, operation: str, case: Any) -> None:
    """Judge the gradient; raises `ClauseViolation`."""
    answer = ask(check, operation, case)
    _gradient(check, case, answer, by_road(check, operation, case, slopes=True))


def whole(check: Check, operation: str, case: Any, with_parts: bool = True) -> None:
    """Judge one answer: its gradient, that nothing in it is NaN, its parts, its loss; raises `ClauseViolation`.

    The loss comes last: a loss of 0 where none is asked for hides nothing else.
    """
    answer = ask(check, operation, case)
    right = by_road(check, operation, case, slopes=True)
    _gradient(check, case, answer, right)
    numbers(answer)
    if with_parts and right.shows_parts:
        _parts(check, case, answer, right)
    _value(check, case, answer, right)


def numbers(answer: Answer) -> None:
    """`ClauseViolation` where the loss or a part is NaN."""
    shown_parts = list(getattr(answer.result, "parts", ()))
    found = {"value": answer.value} | {f"parts[{i}]": real(x, f"parts[{i}]") for i, x in enumerate(shown_parts)}
    for where, number_or_none in found.items():
        if number_or_none is not None and math.isnan(number_or_none):
            raise ClauseViolation(f"{where} is NaN")


def _value(check: Check, case: Any, answer: Answer, right: road.Loss) -> None:
    if decides(check, case, right):
        bounds = Counter(case, check.arithmetic.dtype).bounds(right, False)
        if bounded(check, bounds.value):
            judge(right.value, answer.value, bounds.value, lambda: _worked(right))


def _parts(check: Check, case: Any, answer: Answer, right: road.Loss) -> None:
    found = answer.parts(len(right.parts))
    if decides(check, case, right):
        bounds = Counter(case, check.arithmetic.dtype).bounds(right, False)
        for i, (part, allowed) in enumerate(zip(right.parts, bounds.parts)):
            judge(part.value, found[i], allowed, lambda part=part, i=i: f"parts[{i}]: {_rows(part)}")  # type: ignore[misc]


def _gradient(check: Check, case: Any, answer: Answer, right: road.Loss) -> None:
    found = answer.gradient(right.trained, right.shape)
    if not decides(check, case, right):
        return
    expected = right.gradient()
    allowed = Counter(case, check.arithmetic.dtype).bounds(right, True).gradient
    assert allowed is not None
    for row in {index[:-1] for index in np.ndindex(right.shape)}:
        check.decided(bool(np.isfinite(allowed[row]).all()))
    for index in np.ndindex(right.shape):
        if not abs(found[index] - expected[index]) <= allowed[index]:
            here, wanted = float(found[index]), float(expected[index])
            raise ClauseViolation(
                f"{place(index[:-1])}: {{clause}} gives the gradient {draw.row(expected[index[:-1]])}; the "
                f"implementation gives {draw.row(found[index[:-1]])}: entry {index[-1]} is {here:.9g} in the place of "
                f"{wanted:.9g}{_times(wanted, here)}, and its arithmetic allows a difference of {allowed[index]:.2g}"
            )


def decides(check: Check, case: Any, right: road.Loss) -> bool:
    """Whether the declared dtype decides every top-K set and gate of the case; counted where it does not."""
    decidable = Counter(case, check.arithmetic.dtype).decidable(lambda: right)
    check.decided(decidable)
    return decidable


def judge(expected: Any, found: float | None, allowed: float | None, worked: Callable[[], str]) -> None:
    """`ClauseViolation` unless `found` is `expected` within `allowed`."""
    wanted = number(expected)
    if close(wanted, found, allowed):
        return
    told = f"{worked()}: {{clause}} gives {shown(wanted)}; the implementation gives {shown(found)}"
    if wanted is not None and found is not None and allowed is not None:
        told += f"{_times(wanted, found)}, and its arithmetic allows a difference of {allowed:.2g}"
    raise ClauseViolation(told)


# ---- words


def shown(found: float | None) -> str:
    return "None" if found is None else f"{found:.9g}"


def place(index: tuple[int, ...]) -> str:
    """A row of one step, or of many."""
    return f"row {index[0]}" if len(index) == 1 else f"step {index[0]}, row {index[1]}"


def _times(expected: float, found: float) -> str:
    """A hint: faults are often a factor."""
    if not math.isfinite(found) or expected == 0 or found == 0:
        return ""
    return f" ({found / expected:.4g} times that)"


def _worked(right: road.Loss) -> str:
    parts = [(f"{draw.number(part.weight)} · " if part.weight != 1 else "") + _rows(part) for part in right.parts]
    return "; ".join(parts)


def _rows(part: road.Part) -> str:
    """The arithmetic of a part: rows, denominators, weights."""
    terms = []
    for term in part.terms:
        rows = ", ".join(f"{place(row.index)} loses {draw.number(row.value)}" for row in term.rows[:4])
        more = f" and {len(term.rows) - 4} more" if len(term.rows) > 4 else ""
        by = "" if term.weight == 1 else f", by {draw.number(term.weight)}"
        terms.append(f"{rows}{more}, over {draw.number(term.denominator)}{by}" if term.rows else "no row counts")
    return "; ".join(terms)
