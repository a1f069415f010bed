"""Greedy: follow the target's most probable token as far as the drafts go."""

from __future__ import annotations

import pytest

from conformance import compare, draw
from conformance.acceptance import strategies
from conformance.acceptance.calls import decide
from conformance.acceptance.cases import Batch, chain
from conformance.check import Check
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation
from oracle.types import Decision, VerifyCase


def path_only(check: Check, case: VerifyCase) -> None:
    """Compare what is accepted; the frontier has clauses of its own."""
    batch = Batch((case,))
    (found,) = decide(check, "verify_greedy", batch)
    compare.check_greedy(case, Decision(found.path, road.greedy(case).frontier), check.is_oracle, batch)


@pytest.mark.clauses("ACCEPTANCE-201")
def test_a_draft_is_accepted_where_it_is_the_argmax_at_its_parent(check: Check) -> None:
    check.require("verify_greedy")
    check.for_all(strategies.greedy_judgements(), lambda case: path_only(check, case))


@pytest.mark.clauses("ACCEPTANCE-202")
def test_the_walk_stops_at_the_first_mismatch(check: Check) -> None:
    check.require("verify_greedy")
    check.for_all(strategies.greedy_chains((2, 5)), lambda case: path_only(check, case))


@pytest.mark.clauses("ACCEPTANCE-203")
@pytest.mark.parametrize("outcome", ["any", "full acceptance"])
def test_the_frontier_is_the_argmax_where_the_walk_stops(check: Check, outcome: str) -> None:
    check.require("verify_greedy")

    def body(case: VerifyCase) -> None:
        batch = Batch((case,))
        (found,) = decide(check, "verify_greedy", batch)
        compare.check_greedy(case, found, check.is_oracle, batch)

    check.for_all(strategies.greedy_chains((1, 4), matches=outcome == "full acceptance"), body)


@pytest.mark.clauses("ACCEPTANCE-204")
def test_the_lowest_id_wins_a_tie(check: Check) -> None:
    check.require("verify_greedy")
    cases = [
        chain([1, 2], [[0.125, 0.375, 0.125, 0.375], [0.25, 0.0, 0.5, 0.25], [0.0, 0.5, 0.0, 0.5]], None, "point"),
        chain([3], [[0.125, 0.375, 0.125, 0.375], [0.25, 0.0, 0.5, 0.25]], None, "point"),
        chain([0], [[0.5, 0.5, 0.0], [0.25, 0.375, 0.375]], None, "point"),
    ]

    def body(case: VerifyCase) -> None:
        (found,) = decide(check, "verify_greedy", Batch((case,)))
        expected = road.greedy(case)
        if found != expected:
            raise ClauseViolation(
                f"ties go to the lowest id, so {draw.decision(expected)}; the implementation: {draw.decision(found)}"
            )

    check.for_each(cases, body)
