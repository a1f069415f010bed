"""Counts and their ratios: rounds, drafts, accepted drafts, emitted tokens."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.metrics import strategies
from conformance.metrics.asking import OPERATION, ask, few, judge_counts, judge_ratios
from conformance.metrics.cases import EDGES, ONE_DEPTH, SEVERAL_DEPTHS
from oracle.types import RoundsCase


@pytest.mark.clauses("METRICS-201")
def test_rounds(check: Check) -> None:
    count(check, "rounds")


@pytest.mark.clauses("METRICS-202")
def test_drafted(check: Check) -> None:
    count(check, "drafted")


@pytest.mark.clauses("METRICS-203")
def test_accepted(check: Check) -> None:
    check.require(OPERATION)
    shown: set[str] = set()

    def body(case: RoundsCase) -> None:
        found = ask(check, case)
        drafts, rounds = int(case.accepted.sum()), len(case.accepted)
        conventions = {drafts: "drafts", drafts + rounds: "drafts_and_frontier"}
        shown.add(conventions.get(found.counts["accepted"], "neither"))
        judge_counts(check, case, found, ["accepted"])

    try:
        check.for_all(strategies.anything(), body, examples=few(check), first=EDGES)
    finally:
        if shown:
            check.observe("accepted_count", " or ".join(sorted(shown)))


@pytest.mark.clauses("METRICS-204")
def test_emitted(check: Check) -> None:
    count(check, "emitted")


@pytest.mark.clauses("METRICS-301")
def test_tokens_a_round(check: Check) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        judge_ratios(check, case, ask(check, case), ["tau"])

    check.for_all(strategies.anything(), body, examples=few(check), first=EDGES)


@pytest.mark.clauses("METRICS-302")
def test_accepted_a_round(check: Check) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        judge_ratios(check, case, ask(check, case), ["accepted_per_round"])

    check.for_all(strategies.anything(), body, examples=few(check), first=EDGES)


@pytest.mark.clauses("METRICS-303")
def test_the_rate_of_one_depth(check: Check) -> None:
    check.require(OPERATION)
    check.for_all(strategies.one_depth(), lambda case: rate(check, case), examples=few(check), first=ONE_DEPTH)


@pytest.mark.clauses("METRICS-304")
def test_the_rate_of_several_depths(check: Check) -> None:
    check.require(OPERATION)
    cases = strategies.several_depths()
    check.for_all(cases, lambda case: rate(check, case), examples=few(check), first=SEVERAL_DEPTHS)


# ---- what these checks share


def count(check: Check, name: str) -> None:
    check.require(OPERATION)

    def body(case: RoundsCase) -> None:
        judge_counts(check, case, ask(check, case), [name])

    check.for_all(strategies.anything(), body, examples=few(check), first=EDGES)


def rate(check: Check, case: RoundsCase) -> None:
    judge_ratios(check, case, ask(check, case), ["rate"])
