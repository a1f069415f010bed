"""Refusals: rounds published twice, rounds of requests that ended, rows and paths that do not fit; nothing is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from conformance import compare
from conformance.check import Check
from conformance.handout import copy, written
from conformance.publish import asking
from conformance.publish.cases import (
    BUSHY,
    CHAIN,
    GAPS,
    MIXED,
    PART,
    PERMUTED,
    PREFILLED,
    ROOTLESS_EMPTY,
    SKIPS,
    STOP_FIRST,
    STOP_FRONTIER,
    STOPS_INSIDE,
    WHOLE,
    Rounds,
    a_round,
    but,
)
from conformance.roads import publish as road
from conformance.verdicts import ClauseViolation
from oracle import publish as oracle
from oracle.errors import BadInput
from oracle.types import PublishCase


def refused(check: Check, cases: Sequence[PublishCase]) -> None:
    """Each of these rounds is refused, and its arrays stay as they were."""
    check.require("publish")

    def body(case: PublishCase) -> None:
        mine = copy(case)
        check.refuses("publish", [mine])
        if names := written(case, mine):
            raise ClauseViolation(f"it is refused, and publish wrote into {', '.join(names)}")

    check.for_each(cases, body)


def again(case: PublishCase) -> PublishCase:
    """The round once more, on the state that it left."""
    return dataclasses.replace(case, state=dataclasses.replace(road.published(case), freed=()))


def short(values: np.ndarray) -> np.ndarray:
    return values[:-1].copy()


def long(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, [9.0]])


@pytest.mark.hostile
@pytest.mark.clauses("PUBLISH-1001")
def test_a_round_that_is_published_again_is_refused(check: Check) -> None:
    cases = [WHOLE, PART, *GAPS[:3], PERMUTED, a_round(request=3), a_round(CHAIN, -1, max_new_tokens=40)]
    refused(check, [again(case) for case in cases])


@pytest.mark.hostile
@pytest.mark.clauses("PUBLISH-1002")
def test_a_finished_request_is_refused(check: Check) -> None:
    over = [but(case, state={"finished": True, "finish_reason": "stop"}) for case in (WHOLE, a_round(), PREFILLED)]
    # the root row holds the pending token, and the request is finished all the same
    frontier = again(STOP_FRONTIER)
    frontier = but(frontier, verified={"row_token": np.array([199, 120, 121, 122, 123])})
    refused(check, [*over, frontier])


@pytest.mark.hostile
@pytest.mark.clauses("PUBLISH-1002")
def test_a_request_at_its_limit_is_refused(check: Check) -> None:
    limits = [a_round(CHAIN, 1, output=4, max_new_tokens=most) for most in (4, 3)]
    refused(check, [*limits, a_round(output=0, max_new_tokens=0), a_round(BUSHY, 6, pending=False, max_new_tokens=2)])


@pytest.mark.hostile
@pytest.mark.clauses("PUBLISH-1003")
def test_a_pending_token_has_its_root_row(check: Check) -> None:
    without = a_round(CHAIN, 1, order=range(4))
    cases = [without, a_round(order=[]), a_round(BUSHY, 6, order=[-2, *range(8), -2])]
    rooted = [a_round(CHAIN, 1, pending=False, order=[-1, 0, 1, 2, 3]), a_round(pending=False, order=[-2, -1])]
    refused(check, [*cases, *rooted])


@pytest.mark.hostile
@pytest.mark.clauses("PUBLISH-1004")
def test_paths_and_rows_that_do_not_fit_are_refused(check: Check) -> None:
    paths = [(0, 0), (0, 3, 0), (0, 99), (-1,), (-2,), (0, -3)]
    cases = [but(SKIPS, decision={"path": path}) for path in paths]
    cases += [but(PERMUTED, decision={"path": (0, 3, 8)}), but(PREFILLED, decision={"path": (-1, 0)})]
    cases += [but(ROOTLESS_EMPTY, decision={"path": (0,)})]
    twice = [[-1, 0, 0, 1, 2], [-1, -1, 0, 1, 2], [-1, 3, 0, 1, 3]]
    cases += [but(PART, verified={"row_node": np.array(nodes)}) for nodes in twice]
    refused(check, cases)


@pytest.mark.hostile
@pytest.mark.clauses("PUBLISH-1005")
def test_rows_that_are_not_as_many_as_the_tokens_are_refused(check: Check) -> None:
    cases = []
    for case in (WHOLE, PREFILLED):
        for name in ("kv", "features"):
            held = getattr(case.state, name)
            cases += [but(case, state={name: short(held)}), but(case, state={name: long(held)})]
        both = [{name: change(getattr(case.state, name)) for name in ("kv", "features")} for change in (short, long)]
        cases += [but(case, state=fields) for fields in both]
    refused(check, cases)


@pytest.mark.hostile
@pytest.mark.clauses("PUBLISH-1006")
def test_a_batch_with_a_bad_member_is_refused_whole(check: Check) -> None:
    check.require("publish")
    bad = but(SKIPS, decision={"path": (0, 99)})
    others = [*MIXED.rounds, PERMUTED, *STOPS_INSIDE[:1]]
    calls = [Rounds((*others[:place], bad, *others[place:])) for place in (0, 3, len(others))]
    calls += [Rounds((PERMUTED, again(PART), WHOLE)), Rounds((GAPS[0], PERMUTED, a_round(output=4, max_new_tokens=4)))]
    calls += [Rounds((PART, STOP_FIRST, but(WHOLE, state={"kv": short(WHOLE.state.kv)})))]

    def body(call: Rounds) -> None:
        mine = copy(call)
        check.refuses("publish", list(mine.rounds))
        if names := written(call, mine):
            raise ClauseViolation(f"the batch is refused, and publish wrote into {', '.join(names)}")
        good = [m for m, case in enumerate(call.rounds) if right(case)]
        found = compare.members(check.call("publish", [mine.rounds[m] for m in good]), len(good))
        for m, state in zip(good, found):
            try:
                asking.whole(call.rounds[m], asking.expected(check, call.rounds[m]), asking.formed(state))
            except ClauseViolation as violation:
                raise ClauseViolation(f"member {m}, published after the refusal: {violation.reason}") from None

    check.for_each(calls, body)


def right(case: PublishCase) -> bool:
    """Whether this member is a good one."""
    try:
        oracle.publish([case])
    except BadInput:
        return False
    return True
