"""The frontier: pending after the round, and what the draft starts from."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.publish import asking, drawing, strategies
from conformance.publish.cases import CHAINS, GAPS, MAPPED, NOTHING, TWINS, WITHOUT_ROOT, a_round
from conformance.verdicts import ClauseViolation
from oracle.types import CommittedState, PublishCase

FAR = (
    a_round((-1, 0, 1), 1, stop_tokens=[9, 150], max_new_tokens=64),
    a_round((-1, -1), 1, max_new_tokens=900, request=2),
    a_round(stop_tokens=[9], request=3),
)
"""Stop tokens that no row holds, and limits that are far away."""
EVERY = (*CHAINS, *NOTHING, *GAPS, *MAPPED, *TWINS, *WITHOUT_ROOT)
SOME = tuple(case for case in EVERY if case.decision.path)
NONE = tuple(case for case in EVERY if not case.decision.path)


@pytest.mark.clauses("PUBLISH-501")
def test_the_frontier_is_pending(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        asking.value(right, found, "pending", "it is the frontier")

    asking.every(check, strategies.anything(), EVERY, body, "pending")


@pytest.mark.clauses("PUBLISH-502")
def test_the_draft_reseeds_from_the_last_accepted_node(check: Check) -> None:
    drawn = strategies.rounds("tree", mapped=True, twins=True)
    asking.every(check, drawn, SOME, seed, "seed")


@pytest.mark.clauses("PUBLISH-503")
@pytest.mark.parametrize("root", ["root row", "no root row"])
def test_where_nothing_is_accepted_the_draft_reseeds_from_the_root(check: Check, root: str) -> None:
    rooted = root == "root row"
    drawn = strategies.rounds("tree", "none", mapped=True, rooted=rooted)
    asking.every(check, drawn, [case for case in NONE if (case.state.pending is not None) == rooted], seed, "seed")


@pytest.mark.clauses("PUBLISH-504")
def test_a_round_that_meets_no_end_goes_on(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        asking.value(right, found, "finished", "no stop token is output and the limit is not reached")
        asking.value(right, found, "finish_reason", "the request goes on")

    asking.every(check, strategies.anything(), (*FAR, *EVERY), body, "finished", "finish_reason")


def seed(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    """`ClauseViolation` unless the seed is the feature of the token before the frontier."""
    if found.seed == right.seed:
        return
    owners = [
        drawing.owner(case, "features", value) if value is not None else "None" for value in (right.seed, found.seed)
    ]
    raise ClauseViolation(f"the draft reseeds from {owners[0]}; found {owners[1]}")
