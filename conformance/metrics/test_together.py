"""Rounds of several workers, and long runs."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.metrics import strategies
from conformance.metrics.asking import OPERATION, ask, few, judge_counts, judge_depths, judge_length, judge_ratios
from conformance.metrics.cases import ENDURING, LARGE, LONG, WORKERS
from oracle.types import RoundsCase


@pytest.mark.clauses("METRICS-601")
def test_counts_of_several_workers(check: Check) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        judge_counts(check, case, ask(check, case))

    check.for_all(strategies.workers(), body, examples=few(check), first=WORKERS)


@pytest.mark.clauses("METRICS-602")
def test_ratios_of_several_workers(check: Check) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        judge_ratios(check, case, ask(check, case))

    check.for_all(strategies.workers(), body, examples=few(check), first=WORKERS)


@pytest.mark.clauses("METRICS-603")
def test_acceptance_by_depth_of_several_workers(check: Check) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        found = ask(check, case)
        judge_length(check, case, found)
        judge_depths(check, case, found)
        judge_depths(check, case, found, undefined=True)

    check.for_all(strategies.workers(), body, examples=few(check), first=WORKERS)


@pytest.mark.clauses("METRICS-701")
def test_counts_of_a_long_run(check: Check) -> None:
    check.require(OPERATION)
    check.for_each(LONG, lambda case: judge_counts(check, case, ask(check, case)))


@pytest.mark.clauses("METRICS-702")
def test_ratios_of_a_long_run(check: Check) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        found = ask(check, case)
        judge_ratios(check, case, found)
        judge_depths(check, case, found)

    check.for_each([LARGE, ENDURING], body)
