"""Structure: runs that do not depend on each other, the form of an answer; and refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from conformance.check import Check
from conformance.handout import copy, written
from conformance.metrics import strategies
from conformance.metrics.asking import COUNTS, OPERATION, RATIOS, ask, few
from conformance.metrics.cases import EDGES, FALLING, NO_ROUNDS, OFF, RISING, STEADY, WORKERS, Runs, run
from conformance.verdicts import ClauseViolation
from oracle.types import RoundsCase


@pytest.mark.clauses("METRICS-101")
def test_a_run_does_not_depend_on_those_before_it(check: Check) -> None:
    check.require(OPERATION)

    def body(case: Runs) -> None:
        told: dict[int, tuple[int, str]] = {}
        for i, one in enumerate(case.runs):
            # equal runs are told by their numbers: a case file that is read holds them as different objects
            key = next(k for k, other in enumerate(case.runs) if same(one, other))
            found = check.call(OPERATION, copy(one))  # its form another clause asks
            answer = ", ".join(f"{name} {getattr(found, name, None)!r}" for name in (*COUNTS, *RATIOS, "by_depth"))
            at, before = told.setdefault(key, (i, answer))
            if answer != before:
                raise ClauseViolation(f"run {i} is run {at} again, and the answer is another: {before}, then {answer}")

    first = [Runs((OFF, FALLING, OFF, STEADY, OFF, FALLING)), Runs((NO_ROUNDS, RISING, NO_ROUNDS, RISING))]
    check.for_all(strategies.in_turn(), body, examples=few(check), first=first)


@pytest.mark.clauses("METRICS-102")
def test_the_form_of_an_answer(check: Check) -> None:
    check.require(OPERATION)
    first = [*EDGES, NO_ROUNDS, *WORKERS]
    check.for_all(strategies.anything(), lambda case: ask(check, case), examples=few(check), first=first)


@pytest.mark.clauses("METRICS-103")
def test_the_case_is_left_alone(check: Check) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        mine = copy(case)
        check.call(OPERATION, mine)
        if names := written(case, mine):
            raise ClauseViolation(f"{OPERATION} wrote into {', '.join(names)}")

    check.for_each([*EDGES, *WORKERS], body)


# ---- refusals


@pytest.mark.hostile
@pytest.mark.clauses("METRICS-901")
def test_arrays_that_do_not_fit_are_refused(check: Check) -> None:
    halves: Any = np.array([0.5, 1.5])
    right = run([(3, 2, 3), (2, 1, 2)], [0, 1])
    short = {name: getattr(right, name)[:1] for name in ("drafted", "accepted", "emitted", "worker")}
    refuses(
        check,
        [
            *(dataclasses.replace(right, **{name: value}) for name, value in short.items()),
            *(dataclasses.replace(right, **{name: halves}) for name in short),
            dataclasses.replace(right, **{name: getattr(right, name)[None] for name in short}),
            dataclasses.replace(right, accepted=np.array([True, False])),
        ],
    )


@pytest.mark.hostile
@pytest.mark.clauses("METRICS-902")
def test_negative_counts_are_refused(check: Check) -> None:
    refuses(check, [run([(2, 1, 2), (3, -1, 1)]), run([(-1, -1, 1)]), run([(4, 2, 3), (-2, -3, 1), (1, 0, 1)])])


@pytest.mark.hostile
@pytest.mark.clauses("METRICS-903")
def test_more_accepted_than_drafted_is_refused(check: Check) -> None:
    refuses(check, [run([(2, 3, 4)]), run([(0, 1, 1)]), run([(5, 5, 6), (1, 2, 2), (7, 0, 1)])])


@pytest.mark.hostile
@pytest.mark.clauses("METRICS-904")
def test_tokens_from_nowhere_are_refused(check: Check) -> None:
    refuses(check, [run([(2, 1, 0)]), run([(2, 1, 3)]), run([(3, 3, 4), (0, 0, 2)]), run([(1, 1, 2), (4, 2, -1)])])


# ---- what these checks share


def refuses(check: Check, cases: list[RoundsCase]) -> None:
    check.require(OPERATION)
    check.for_each(cases, lambda case: check.refuses(OPERATION, copy(case)))


def same(one: RoundsCase, other: RoundsCase) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("drafted", "accepted", "emitted"))
