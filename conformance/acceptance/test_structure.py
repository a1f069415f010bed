"""Structure: one frontier, a real path, batches that keep their members apart."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance import compare, draw
from conformance.acceptance import strategies
from conformance.acceptance.calls import OPERATIONS, decide, determined
from conformance.acceptance.cases import WITNESSES, Batch, chain, coins, one
from conformance.check import Check, Raised
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import Decision, VerifyCase

BY_INPUTS = ("verify_greedy", "verify_sampled")


def batches(operation: str) -> st.SearchStrategy[Batch]:
    """Single chains with drafts, as fit for the operation."""
    cases = strategies.greedy_chains() if operation == "verify_greedy" else strategies.chains()
    return strategies.with_coins(cases)


def ragged(operation: str) -> st.SearchStrategy[Batch]:
    return strategies.ragged_greedy() if operation == "verify_greedy" else strategies.ragged()


@pytest.mark.clauses("ACCEPTANCE-101")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_frontier_token_of_the_vocabulary(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        (found,) = decide(check, operation, batch)
        vocabulary = batch.cases[0].target_probs.shape[1]
        if not 0 <= found.frontier < vocabulary:
            raise ClauseViolation(f"the frontier is {found.frontier}, outside the vocabulary [0, {vocabulary})")

    check.for_all(batches(operation), body)


@pytest.mark.clauses("ACCEPTANCE-102")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_path_is_a_walk_from_the_root(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        (found,) = decide(check, operation, batch)
        compare.check_structure(batch.cases[0], Decision(found.path, 0), batch)

    check.for_all(batches(operation), body)


@pytest.mark.clauses("ACCEPTANCE-103")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_drafts_publish_the_frontier_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        (found,) = decide(check, operation, batch)
        if found.path or not 0 <= found.frontier < batch.cases[0].target_probs.shape[1]:
            raise ClauseViolation(f"a case without drafts was decided {draw.decision(found)}")

    sampled = one(chain([], [[0.0, 0.5, 0.125, 0.375]], [[0.25] * 4], "iid"), [], 0.75)
    check.for_each([WITNESSES["no_drafts"], sampled], body)


@pytest.mark.clauses("ACCEPTANCE-104")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_decision_a_case(check: Check, operation: str) -> None:
    check.require(operation)
    check.for_all(ragged(operation), lambda batch: decide(check, operation, batch))


@pytest.mark.clauses("ACCEPTANCE-105")
@pytest.mark.parametrize("operation", BY_INPUTS)
def test_permuting_the_batch_permutes_the_decisions(check: Check, operation: str) -> None:
    check.require(operation)

    def body(drawn: Batch) -> None:
        batch = spread(drawn) if operation == "verify_sampled" else drawn
        straight = decide(check, operation, batch)
        for order in (list(reversed(range(len(batch.cases)))), [*range(1, len(batch.cases)), 0]):
            permuted = Batch(
                tuple(batch.cases[i] for i in order),
                None if batch.coins is None else tuple(batch.coins[i] for i in order),
            )
            for place, (i, found) in enumerate(zip(order, decide(check, operation, permuted))):
                same_as(check, operation, straight[i], found, f"member {i} at place {i}", f"at place {place}")

    check.for_all(ragged(operation), body)


@pytest.mark.clauses("ACCEPTANCE-106")
@pytest.mark.parametrize("operation", BY_INPUTS)
def test_a_member_is_decided_as_if_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(drawn: Batch) -> None:
        batch = spread(drawn) if operation == "verify_sampled" else drawn
        together = decide(check, operation, batch)
        for i, found in enumerate(together):
            alone = Batch((batch.cases[i],), None if batch.coins is None else (batch.coins[i],))
            (expected,) = decide(check, operation, alone)
            same_as(check, operation, expected, found, f"member {i} alone", "in its batch")

    check.for_all(ragged(operation), body)


@pytest.mark.hostile
@pytest.mark.clauses("ACCEPTANCE-107")
@pytest.mark.parametrize("operation", BY_INPUTS)
def test_what_is_not_reached_changes_nothing(check: Check, operation: str) -> None:
    check.require(operation)
    if operation == "verify_sampled" and check.convention("coin_scheme", "per_node") == "block":
        raise Inapplicable("block verification reads every row before it decides")

    def body(batch: Batch) -> None:
        (clean,) = decide(check, operation, batch)
        (found,) = decide(check, operation, poisoned(batch, len(clean.path)))
        same_as(check, operation, clean, found, "with clean rows", "with NaN in every row behind the stop")

    # two drafts that are rejected, then one that would be accepted: a verifier that counts sees it
    rows = [[0.5, 0.125, 0.375], [0.75, 0.0, 0.25], [0.125, 0.25, 0.625], [0.25, 0.5, 0.25]]
    check.for_each([one(chain([1, 1, 2], rows, None, "point"), [0.75, 0.75, 0.25], 0.5)], body)
    check.for_all(batches(operation), body)


@pytest.mark.hostile
@pytest.mark.clauses("ACCEPTANCE-108")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nan_in_a_row_that_is_read_is_refused(check: Check, operation: str) -> None:
    check.require(operation)
    law, other = [0.5, 0.25, 0.25], [0.25, 0.125, 0.625]
    batches = [
        WITNESSES["nan_at_the_root"],
        one(chain([1, 2], [law, [np.nan] * 3, other], [other, law, law], "iid"), [0.25, 0.5], 0.5),
        one(chain([0, 2], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [np.nan] * 3], None, "point"), [0.25, 0.5], 0.5),
    ]
    reads_draft_rows = check.convention("coin_scheme", "per_node") in ("per_node", "block")
    if operation == "verify_sampled" and reads_draft_rows:
        batches.append(one(chain([1], [law, other], [[np.nan] * 3, law], "iid"), [0.25], 0.5))
    if operation == "verify_greedy":
        law[1] = 0.75  # node 0 is accepted, so that the row with NaN is read
        law[0], law[2] = 0.125, 0.125

    def body(batch: Batch) -> None:
        try:
            (found,) = decide(check, operation, batch)
        except Raised:
            return
        (case,) = batch.cases
        if len(found.path) < nan_row(case):
            return  # the walk stopped before the row
        raise ClauseViolation(f"the NaN row was read, and the case was decided {draw.decision(found)}")

    check.for_each(batches, body)


@pytest.mark.hostile
@pytest.mark.clauses("ACCEPTANCE-109")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_padded_drafts_are_never_accepted(check: Check, operation: str) -> None:
    check.require(operation)
    last = [0.0, 0.125, 0.875]  # −1 read as an index is the last token: make that one attractive
    batches = [
        WITNESSES["padded_draft"],
        WITNESSES["padded_sampled_draft"],
        WITNESSES["padding_read_as_the_last_token"],
        one(chain([-1], [last, [0.75, 0.25, 0.0]], [[0.125, 0.125, 0.75]] * 2, "iid"), [0.0], 0.5),
    ]

    def body(batch: Batch) -> None:
        try:
            (found,) = decide(check, operation, batch)
        except Raised:
            return
        (case,) = batch.cases
        pad = int(np.flatnonzero(case.token < 0)[0])
        row = case.target_probs[min(len(found.path), pad)]
        if pad in found.path or not 0 <= found.frontier < len(row) or not row[found.frontier] > 0:
            raise ClauseViolation(
                f"node {pad} is padding (−1), so the walk stops at {draw.node(len(found.path[:pad]) - 1)} and draws "
                f"from p = {draw.row(row)}; the case was decided {draw.decision(found)}"
            )

    check.for_each(batches, body)


@pytest.mark.clauses("ACCEPTANCE-110")
def test_seeds_differ(check: Check) -> None:
    """Null: 64 fair coins from two seeds agree with probability 2⁻⁶⁴."""
    check.require("verify_random")
    case = chain([1], [[0.5, 0.5], [0.25, 0.75]], None, "point")

    def body(batch: Batch) -> None:
        first, second = (decide(check, "verify_random", dataclasses.replace(batch, seed=seed)) for seed in (11, 12))
        if first == second:
            raise ClauseViolation("64 fair coins fell the same way under seed 11 and under seed 12")

    check.for_each([Batch((case,) * 64, None, 11)], body)


# ---- what these checks share


def spread(batch: Batch) -> Batch:
    """The batch without its seed, so that only rows, drafts and coins decide."""
    return dataclasses.replace(batch, seed=None)


def same_as(check: Check, operation: str, first: Decision, second: Decision, here: str, there: str) -> None:
    left, right = determined(check, operation, first), determined(check, operation, second)
    if left != right:
        raise ClauseViolation(f"{here}: {draw.decision(left)}; {there}: {draw.decision(right)}")


def poisoned(batch: Batch, accepted: int) -> Batch:
    """The chain with NaN rows and other coins wherever a walk that accepts `accepted` drafts never looks."""
    (case,) = batch.cases
    target, draft = case.target_probs.copy(), None if case.draft_probs is None else case.draft_probs.copy()
    target[accepted + 1 :] = np.nan
    if draft is not None:
        draft[accepted + 1 :] = np.nan
        draft[len(case.parent)] = np.nan  # a leaf has no children to draw
    spent = None
    if batch.coins is not None:
        accept = batch.coins[0].accept.copy()
        accept[accepted + 1 :] = 0.75 - accept[accepted + 1 :] / 2
        spent = (coins(accept.tolist(), batch.coins[0].frontier),)
    return Batch((VerifyCase(case.parent, case.token, target, case.proposal, draft),), spent)


def nan_row(case: VerifyCase) -> int:
    """How many drafts are accepted before the first row with NaN is read."""
    rows = [case.target_probs, *([] if case.draft_probs is None else [case.draft_probs])]
    return min(int(np.flatnonzero(np.isnan(r).any(axis=1))[0]) for r in rows if np.isnan(r).any())
