"""What is given back: the rows of this verification that are not kept."""

from __future__ import annotations

import math

import pytest

from conformance.check import Check
from conformance.publish import asking, drawing, strategies
from conformance.publish.cases import CHAINS, ENDS, GAPS, MAPPED, NOTHING, PAD, PADDED, ROOTLESS, TWINS, WITHOUT_ROOT
from conformance.verdicts import ClauseViolation
from oracle.types import CommittedState, PublishCase

EVERY = (*CHAINS, *NOTHING, *GAPS, *MAPPED, *TWINS, *WITHOUT_ROOT)


@pytest.mark.clauses("PUBLISH-701")
def test_rows_that_are_not_accepted_are_given_back_in_their_order(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        judge(case, right, found)
        known = {*case.verified.kv.tolist(), *case.state.kv.tolist()}
        for value in found.freed:
            if not math.isnan(value) and float(value) not in known:
                raise ClauseViolation(f"{drawing.owner(case, 'kv', float(value))}, is given back")

    asking.every(check, strategies.anything(), EVERY, body, "freed")


@pytest.mark.clauses("PUBLISH-702")
def test_no_row_that_is_kept_is_given_back(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        for value in found.freed:
            if float(value) in right.kv.tolist():
                owner = drawing.owner(case, "kv", float(value))
                raise ClauseViolation(f"{owner}, is given back, and KV holds it{lists(right, found)}")

    asking.every(check, strategies.anything(), EVERY, body, "freed")


@pytest.mark.clauses("PUBLISH-703")
def test_padding_is_not_given_back(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        padding = case.verified.kv[case.verified.row_node == PAD].tolist()
        for value in found.freed:
            if math.isnan(value) or float(value) in padding:
                raise ClauseViolation(f"{drawing.owner(case, 'kv', float(value))}, is given back{lists(right, found)}")

    asking.every(check, strategies.anything(), (*PADDED, ROOTLESS, *MAPPED), body, "freed")


@pytest.mark.clauses("PUBLISH-704")
def test_rows_behind_the_end_are_given_back(check: Check) -> None:
    drawn = strategies.rounds("tree", mapped=True, endings=("path", "limit", "both"))
    asking.every(check, drawn, ENDS, judge, "freed")


def judge(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    """`ClauseViolation` unless the rows to give back are given back once each and in order, whatever is between."""
    wanted = [float(value) for value in right.freed]
    given = [float(value) for value in found.freed if float(value) in wanted]
    if given == wanted:
        return
    missing = [value for value in wanted if value not in given]
    if missing:
        words = f"{drawing.owner(case, 'kv', missing[0])}, is not given back"
    else:
        twice = len(given) > len(wanted)
        words = "a row is given back twice" if twice else "rows are not given back in the order of the verification"
    raise ClauseViolation(words + lists(right, found))


def lists(right: CommittedState, found: CommittedState) -> str:
    told = [" ".join(drawing.number(float(value)) for value in state.freed) or "nothing" for state in (right, found)]
    return f"\ngiven back by {{clause}}: {told[0]}\nfound: {told[1]}"
