"""Acceptance by depth, and what is undefined."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.metrics import strategies
from conformance.metrics.asking import OPERATION, ask, few, judge_counts, judge_depths, judge_length, judge_ratios
from conformance.metrics.cases import (
    DEEP,
    EDGES,
    FALLING,
    NO_ROUNDS,
    OFF,
    ONE_DEPTH,
    PAUSES,
    REFUSED,
    RISING,
    SEVERAL_DEPTHS,
    UNREACHED,
    run,
)
from oracle.types import RoundsCase


@pytest.mark.clauses("METRICS-401")
def test_an_entry_for_each_depth(check: Check) -> None:
    check.require(OPERATION)
    drafted = [case for case in EDGES if case is not OFF]

    def body(case: RoundsCase) -> None:
        judge_length(check, case, ask(check, case))

    check.for_all(strategies.several_depths(), body, examples=few(check), first=drafted)


@pytest.mark.clauses("METRICS-402")
def test_acceptance_by_depth(check: Check) -> None:
    check.require(OPERATION)
    check.for_all(strategies.one_depth(), lambda case: reached(check, case), examples=few(check), first=ONE_DEPTH)


@pytest.mark.clauses("METRICS-403")
def test_acceptance_by_depth_where_drafts_end_early(check: Check) -> None:
    check.require(OPERATION)
    cases = strategies.several_depths()
    check.for_all(cases, lambda case: reached(check, case), examples=few(check), first=SEVERAL_DEPTHS)


@pytest.mark.clauses("METRICS-501")
def test_no_rounds(check: Check) -> None:
    check.require(OPERATION)
    check.for_each([NO_ROUNDS, run([], [])], lambda case: everything(check, case))


@pytest.mark.clauses("METRICS-502")
def test_no_drafts(check: Check) -> None:
    check.require(OPERATION)
    check.for_all(strategies.off(), lambda case: everything(check, case), examples=few(check), first=[OFF])


@pytest.mark.clauses("METRICS-503")
def test_depths_that_no_round_reached(check: Check) -> None:
    check.require(OPERATION)
    first = [REFUSED, UNREACHED, FALLING, PAUSES, RISING, DEEP]

    def body(case: RoundsCase) -> None:
        judge_depths(check, case, ask(check, case), undefined=True)

    check.for_all(strategies.several_depths(), body, examples=few(check), first=first)


# ---- what these checks share


def reached(check: Check, case: RoundsCase) -> None:
    judge_depths(check, case, ask(check, case))


def everything(check: Check, case: RoundsCase) -> None:
    found = ask(check, case)
    judge_counts(check, case, found)
    judge_ratios(check, case, found)
    judge_length(check, case, found)
