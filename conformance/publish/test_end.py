"""The end of a request: stop tokens and the length limit cut outputs, KV and features together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conformance.check import Check
from conformance.publish import asking, strategies
from conformance.publish.cases import (
    BOTH,
    CHAIN,
    LIMITS_AT_FRONTIER,
    LIMITS_AT_PATH,
    LIMITS_INSIDE,
    NEAR_LIMIT,
    STOP_AT_LIMIT,
    STOP_ELSEWHERE,
    STOPS_AT_FRONTIER,
    STOPS_INSIDE,
    a_round,
)
from oracle.types import CommittedState, PublishCase

PATH = strategies.rounds("tree", mapped=True, endings=("path",))
FRONTIER = strategies.rounds("tree", "any", mapped=True, endings=("frontier",))
LIMIT = strategies.rounds("tree", "any", mapped=True, endings=("limit",))
EITHER = strategies.rounds("tree", "any", mapped=True, endings=("both",))


@pytest.mark.clauses("PUBLISH-601")
def test_a_stop_token_in_the_path_is_the_last_token(check: Check) -> None:
    asking.every(check, PATH, STOPS_INSIDE, output)


@pytest.mark.clauses("PUBLISH-602")
def test_a_stop_token_in_the_path_is_the_last_one_with_rows(check: Check) -> None:
    asking.every(check, PATH, STOPS_INSIDE, rows, "kv", "features")


@pytest.mark.clauses("PUBLISH-603")
def test_a_round_cut_inside_its_path_leaves_nothing_pending(check: Check) -> None:
    asking.every(check, PATH, STOPS_INSIDE, nothing_pending, "pending", "seed")


@pytest.mark.clauses("PUBLISH-604")
def test_a_frontier_that_is_a_stop_token_stays_pending(check: Check) -> None:
    asking.every(check, FRONTIER, STOPS_AT_FRONTIER, pending, "pending")


@pytest.mark.clauses("PUBLISH-605")
@pytest.mark.parametrize("where", ["path", "frontier"])
def test_a_stop_token_finishes_the_request(check: Check, where: str) -> None:
    drawn, first = (PATH, STOPS_INSIDE) if where == "path" else (FRONTIER, STOPS_AT_FRONTIER)
    asking.every(check, drawn, first, finish, "finished", "finish_reason")


@pytest.mark.clauses("PUBLISH-606")
def test_the_limit_cuts_the_path(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        output(case, right, found)
        rows(case, right, found)

    drawn = LIMIT.filter(lambda case: room(case) < len(case.decision.path))
    further = [a_round(CHAIN, 2, max_new_tokens=7), a_round(CHAIN, 0, output=5, max_new_tokens=8, request=2)]
    asking.every(check, drawn, (*LIMITS_INSIDE, *further), body)


@pytest.mark.clauses("PUBLISH-607")
def test_a_path_that_ends_on_the_limit_has_no_frontier(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        output(case, right, found)
        nothing_pending(case, right, found)

    drawn = LIMIT.filter(lambda case: room(case) == len(case.decision.path))
    asking.every(check, drawn, LIMITS_AT_PATH, body)


@pytest.mark.clauses("PUBLISH-608")
def test_a_frontier_on_the_limit_stays_pending_and_finishes(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        if right.pending is not None:
            pending(case, right, found)
        finish(case, right, found)

    first = (*LIMITS_AT_FRONTIER, *NEAR_LIMIT, *LIMITS_INSIDE, *LIMITS_AT_PATH)
    asking.every(check, LIMIT, first, body)


@pytest.mark.clauses("PUBLISH-609")
def test_whichever_end_comes_first_ends_the_output(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        output(case, right, found)
        finish(case, right, found)

    asking.every(check, EITHER.filter(lambda case: not at_once(case)), BOTH, body)


@pytest.mark.clauses("PUBLISH-610")
def test_a_stop_token_on_the_limit_ends_by_stop(check: Check) -> None:
    asking.every(check, EITHER, (*STOP_AT_LIMIT, *BOTH), finish, "finished", "finish_reason")


@pytest.mark.clauses("PUBLISH-611")
def test_a_stop_token_that_is_not_published_ends_nothing(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        output(case, right, found)
        finish(case, right, found)
        asking.value(right, found, "pending", "the frontier is no stop token")

    asking.every(check, strategies.stopping_elsewhere(), STOP_ELSEWHERE, body)


# ---- what these checks say of a case


def output(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    asking.rows(case, right, found, "output", exact=True)


def rows(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    for name in ("kv", "features"):
        asking.rows(case, right, found, name, exact=True)


def nothing_pending(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    asking.value(right, found, "pending", "the output ends inside the path, and no frontier comes after it")
    asking.value(right, found, "seed", "nothing is drafted any more")


def pending(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    output(case, right, found)
    asking.value(right, found, "pending", "the frontier is output, and its KV is not there")


def finish(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    last = f"the last token of the output is {int(right.output[-1])}"
    limit = case.limits.max_new_tokens
    of = "" if limit is None else f", and there are {len(right.output)} tokens of at most {limit}"
    asking.value(right, found, "finished", last + of)
    asking.value(right, found, "finish_reason", last + of)


def room(case: PublishCase) -> int:
    """How many tokens the limit leaves."""
    assert case.limits.max_new_tokens is not None
    return case.limits.max_new_tokens - len(case.state.output)


def at_once(case: PublishCase) -> bool:
    """Whether a stop token is the last one allowed."""
    return first_stop(case) == room(case)


def first_stop(case: PublishCase) -> int:
    """How many new tokens there are with the first stop token among them."""
    nodes, tokens = case.verified.row_node.tolist(), case.verified.row_token.tolist()
    new: Sequence[int] = [*(tokens[nodes.index(node)] for node in case.decision.path), case.decision.frontier]
    return next(i + 1 for i, token in enumerate(new) if token in case.limits.stop_tokens)
