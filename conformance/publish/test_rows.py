"""Rows of KV and of features: those of earlier tokens, of the root and of the path, each at the place of its token."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.publish import asking, strategies
from conformance.publish.cases import CHAINS, GAPS, MAPPED, NOTHING, TWINS, WITHOUT_ROOT
from conformance.verdicts import ClauseViolation
from oracle.types import CommittedState, PublishCase


@pytest.mark.clauses("PUBLISH-301")
def test_earlier_kv_stays(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        asking.rows(case, right, found, "kv", stop=len(case.state.kv))

    asking.every(check, strategies.rounds(), CHAINS, body, "kv")


@pytest.mark.clauses("PUBLISH-302")
def test_kv_grows_by_the_root_and_the_path(check: Check) -> None:
    asking.every(check, strategies.rounds(accepts="any"), (*CHAINS, *NOTHING), kv, "kv")


@pytest.mark.clauses("PUBLISH-303")
def test_a_path_that_skips_rows_keeps_its_own_kv(check: Check) -> None:
    asking.every(check, strategies.rounds("tree"), GAPS, kv, "kv")


@pytest.mark.clauses("PUBLISH-304")
def test_of_two_nodes_with_one_token_the_accepted_one_keeps_its_kv(check: Check) -> None:
    asking.every(check, strategies.rounds("tree", twins=True), TWINS, kv, "kv")


@pytest.mark.clauses("PUBLISH-305")
def test_kv_is_found_through_the_row_map(check: Check) -> None:
    asking.every(check, strategies.rounds("tree", "any", mapped=True), MAPPED, kv, "kv")


@pytest.mark.clauses("PUBLISH-306")
def test_without_a_root_row_kv_grows_by_the_path_alone(check: Check) -> None:
    drawn = strategies.rounds("tree", "any", mapped=True, rooted=False)
    asking.every(check, drawn, WITHOUT_ROOT, kv, "kv")


@pytest.mark.clauses("PUBLISH-307")
def test_the_frontier_has_no_kv(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        size = len(right.prompt) + len(right.output)
        if len(found.kv) != size - 1:
            held = f"there are {len(found.kv)} rows of KV, and the sequence of {size} tokens ends in the frontier"
            raise ClauseViolation(f"{held}, whose KV comes with the next round: by {{clause}} {size - 1}")

    first = (*CHAINS, *NOTHING, *GAPS, *MAPPED, *TWINS, *WITHOUT_ROOT)
    asking.every(check, strategies.anything(), first, body, "kv")


@pytest.mark.clauses("PUBLISH-401")
def test_features_grow_by_the_root_and_the_path(check: Check) -> None:
    asking.every(check, strategies.rounds(accepts="any"), (*CHAINS, *NOTHING), features, "features")


@pytest.mark.clauses("PUBLISH-402")
def test_a_path_that_skips_rows_keeps_its_own_features(check: Check) -> None:
    asking.every(check, strategies.rounds("tree", twins=True), (*GAPS, *TWINS), features, "features")


@pytest.mark.clauses("PUBLISH-403")
@pytest.mark.parametrize("root", ["root row", "no root row"])
def test_features_are_found_through_the_row_map(check: Check, root: str) -> None:
    rooted = root == "root row"
    drawn = strategies.rounds("tree", "any", mapped=True, rooted=rooted)
    asking.every(check, drawn, MAPPED if rooted else WITHOUT_ROOT, features, "features")


def kv(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    """`ClauseViolation` at the first row of KV that is not that of its token."""
    asking.rows(case, right, found, "kv")


def features(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    """`ClauseViolation` at the first feature that is not that of its token, or that belongs to none."""
    asking.rows(case, right, found, "features", exact=True)
