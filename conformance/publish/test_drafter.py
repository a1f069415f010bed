"""The drafter's rows: one a token but the first, made from features or kept from drafting, never of rejected nodes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from conformance.check import Check
from conformance.compare import is_shown
from conformance.publish import asking, strategies
from conformance.publish.cases import CHAINS, DRAFTERS, ENDS, MAPPED, NOTHING, WITHOUT_ROOT
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import CommittedState, PublishCase

EVERY = (*DRAFTERS, *CHAINS, *NOTHING, *MAPPED, *WITHOUT_ROOT)


@pytest.mark.clauses("PUBLISH-801")
def test_a_drafter_has_a_row_for_each_token_but_the_first(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        if found.draft_kv is None or right.draft_kv is None:
            raise ClauseViolation("the drafter holds rows, and none are left after the round")
        asking.rows(case, right, found, "draft_kv", stop=len(case.state.draft_kv))  # type: ignore[arg-type]
        if len(found.draft_kv) != len(right.draft_kv):
            tokens = len(right.draft_kv) + 1
            raise ClauseViolation(
                f"the sequence has {tokens} tokens, so by {{clause}} there are {tokens - 1} rows of the drafter; "
                f"found {len(found.draft_kv)}"
            )

    asking.every(check, strategies.anything(), EVERY, body, "draft_kv")


@pytest.mark.clauses("PUBLISH-801")
def test_a_drafter_without_rows_has_none(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        if found.draft_kv is not None:
            raise ClauseViolation(f"the drafter keeps no rows; found {len(found.draft_kv)}")

    asking.every(check, strategies.anything().map(bare), [bare(case) for case in EVERY], body, "draft_kv")


@pytest.mark.clauses("PUBLISH-802")
def test_recomputed_rows_of_the_path_are_made_from_features(check: Check) -> None:
    if asking.draft_kv(check) != "recomputed":
        check.require("publish")
        raise Inapplicable("it keeps the rows that drafting made")

    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        observe(check, case, found)
        compare(case, right, found, list(range(len(case.decision.path))))

    asking.every(check, strategies.rounds("tree", mapped=True), some(EVERY), body, "draft_kv")


@pytest.mark.clauses("PUBLISH-803")
def test_kept_rows_of_the_path_are_those_that_drafting_made(check: Check) -> None:
    if asking.draft_kv(check) != "kept":
        check.require("publish")
        raise Inapplicable("its rows are recomputed from features")

    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        observe(check, case, found)
        compare(case, right, found, [i for i, row in enumerate(drafted(case)) if not math.isnan(row)])

    asking.every(check, strategies.rounds("tree", mapped=True), some(EVERY), body, "draft_kv")


@pytest.mark.clauses("PUBLISH-804")
def test_rows_that_drafting_did_not_make_are_made_from_features(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        missing = [i for i, row in enumerate(drafted(case)) if math.isnan(row)]
        compare(case, right, found, [*missing, len(case.decision.path)])

    asking.every(check, strategies.anything(), EVERY, body, "draft_kv")


@pytest.mark.clauses("PUBLISH-805")
def test_drafter_rows_end_with_the_output(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        asking.rows(case, right, found, "draft_kv", exact=True)

    drawn = strategies.anything(("path", "frontier", "limit", "both"), rooted=True)
    asking.every(check, drawn, ENDS, body, "draft_kv")


# ---- what these checks share


def bare(case: PublishCase) -> PublishCase:
    """The round of a drafter that keeps no rows."""
    return dataclasses.replace(
        case,
        state=dataclasses.replace(case.state, draft_kv=None),
        verified=dataclasses.replace(case.verified, draft_kv=None),
    )


def some(cases: tuple[PublishCase, ...]) -> list[PublishCase]:
    """Those that accept a draft."""
    return [case for case in cases if case.decision.path]


def drafted(case: PublishCase) -> list[float]:
    """What drafting made of each node of the path; NaN where it never consumed the token."""
    nodes = case.verified.row_node.tolist()
    rows = np.asarray(case.verified.draft_kv)
    return [float(rows[nodes.index(node)]) for node in case.decision.path]


def compare(case: PublishCase, right: CommittedState, found: CommittedState, new: list[int]) -> None:
    """`ClauseViolation` at the first of these new tokens whose drafter's row is not the right one."""
    first = len(case.state.prompt) + len(case.state.output) - 1
    for i in new:
        asking.rows(case, right, found, "draft_kv", first + i, first + i + 1)


def observe(check: Check, case: PublishCase, found: CommittedState) -> None:
    """Where the rows of accepted drafts come from, as it shows."""
    if not is_shown(found.draft_kv) or found.draft_kv is None or not is_shown(found.features):
        return
    first = len(case.state.prompt) + len(case.state.output) - 1
    for i, row in enumerate(drafted(case)):
        if math.isnan(row) or len(found.draft_kv) <= first + i or len(found.features) <= first + i:
            continue
        if found.draft_kv[first + i] == row:
            check.observe("draft_kv", "kept")
        elif found.draft_kv[first + i] == found.features[first + i]:
            check.observe("draft_kv", "recomputed")
