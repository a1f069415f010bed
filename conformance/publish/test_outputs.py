"""Outputs: earlier tokens, those of the path, and the frontier."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.publish import asking, strategies
from conformance.publish.cases import CHAINS, GAPS, MAPPED, NOTHING, TWINS, WITHOUT_ROOT
from conformance.verdicts import ClauseViolation
from oracle.types import CommittedState, PublishCase


@pytest.mark.clauses("PUBLISH-201")
def test_earlier_output_stays_and_new_tokens_follow(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        before, after = case.state.output.tolist(), found.output.tolist()
        if after[: len(before)] != before:
            raise ClauseViolation(f"the output was {before}; found {after}, which does not go on from there")
        if len(after) == len(before):
            raise ClauseViolation(f"the output is {after}, as before: no token of the round joined it")

    asking.every(check, strategies.rounds(), CHAINS, body)


@pytest.mark.clauses("PUBLISH-202")
def test_the_path_and_the_frontier_are_output(check: Check) -> None:
    asking.every(check, strategies.rounds(), CHAINS, output)


@pytest.mark.clauses("PUBLISH-203")
def test_a_round_that_accepts_nothing_outputs_its_frontier(check: Check) -> None:
    asking.every(check, strategies.rounds("tree", "none"), NOTHING, output)


@pytest.mark.clauses("PUBLISH-204")
def test_a_path_that_skips_rows_outputs_its_own_tokens(check: Check) -> None:
    asking.every(check, strategies.rounds("tree"), GAPS, output)


@pytest.mark.clauses("PUBLISH-205")
def test_tokens_are_found_through_the_row_map(check: Check) -> None:
    drawn = strategies.rounds("tree", "any", mapped=True, twins=True)
    asking.every(check, drawn, (*MAPPED, *TWINS, *WITHOUT_ROOT), output)


def output(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    """`ClauseViolation` unless the output is the right one, whole."""
    asking.rows(case, right, found, "output", exact=True)
