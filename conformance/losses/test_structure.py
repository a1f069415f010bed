"""The form of an answer: a number, a gradient of what is trained, and nothing beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.check import Check, Raised
from conformance.handout import copy, written
from conformance.losses import judge
from conformance.losses.cases import drawn
from conformance.verdicts import ClauseViolation, Inapplicable


@pytest.mark.clauses("LOSSES-101")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_a_loss_is_one_number(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: Any) -> None:
        found = judge.ask(check, operation, case).value
        if found is None or not math.isfinite(found):
            raise ClauseViolation(f"rows count and nothing is extreme; {{clause}} asks for a number, not {found}")

    check.for_all(drawn(check, operation), body, judge.some(check))


@pytest.mark.clauses("LOSSES-102")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_the_gradient_is_of_the_trained_input_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: Any) -> None:
        name = judge.TRAINED[operation]
        answer = judge.ask(check, operation, case)
        found = answer.gradient(name, getattr(case, name).shape)
        if not np.isfinite(found).all():
            raise ClauseViolation(f"grad[{name!r}] holds what is no number, and nothing in the case is extreme")
        grad = answer.result.grad
        others = sorted(str(key) for key in grad if key != name) if isinstance(grad, Mapping) else []
        if others:
            raise ClauseViolation(f"the gradient names {', '.join(others)}, too: {name} alone is trained")

    check.for_all(drawn(check, operation), body, judge.some(check))


@pytest.mark.clauses("LOSSES-103")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_the_arrays_are_left_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: Any) -> None:
        handed = copy(case)
        try:
            check.call(operation, handed)
        except Raised as error:
            raise Inapplicable(f"{operation} raised, which other clauses judge: {error.reason}") from None
        for name in written(case, handed):
            before, after = (np.asarray(getattr(one, name)).tolist() for one in (case, handed))
            raise ClauseViolation(f"{name} was {before} and is {after}")

    check.for_all(drawn(check, operation, mixed=True), body, judge.some(check))


@pytest.mark.clauses("LOSSES-104")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_the_same_case_gives_the_same_answer(check: Check, operation: str) -> None:
    check.require(operation)
    name = judge.TRAINED[operation]

    def body(case: Any) -> None:
        backward_twice(judge.ask(check, operation, case), name, getattr(case, name).shape)
        first, again = (_answer(check, operation, case, name) for _ in range(2))
        if first != again:
            told = ", with another gradient" if first[0] == again[0] else ""
            raise ClauseViolation(f"first the loss {first[0]}, again {again[0]}{told}")

    check.for_all(drawn(check, operation), body, judge.some(check))


def backward_twice(answer: judge.Answer, name: str, shape: tuple[int, ...]) -> None:
    """`ClauseViolation` where the implementation shows a second backward over its graph, and it differs."""
    shown = getattr(answer.result, "again", None)
    if shown is None:
        return
    first = answer.gradient(name, shape)
    second = judge.Answer(SimpleNamespace(grad=shown), None).gradient(name, shape)
    if first.tobytes() != second.tobytes():
        at = tuple(int(i) for i in np.argwhere(first != second)[0])
        raise ClauseViolation(
            f"grad[{name!r}] is {first[at]:.9g} at {list(at)}, and {second[at]:.9g} by a second backward over the graph"
        )


def _answer(check: Check, operation: str, case: Any, name: str) -> tuple[str, bytes]:
    """The loss, written out, and the bits of the gradient: read before the next call may write into them."""
    answer = judge.ask(check, operation, case)
    return repr(answer.value), answer.gradient(name, getattr(case, name).shape).tobytes()
