"""Draft vocabularies: which target id a draft id stands for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check, Raised
from conformance.compare import plain
from conformance.handout import copy
from conformance.losses import strategies
from conformance.losses.cases import NO_MAPS, broken
from conformance.losses.conventions import names
from conformance.roads import losses as road
from conformance.verdicts import ClauseViolation, HarnessError
from oracle.losses import draft_to_target
from oracle.types import MAP_CONVENTIONS, DraftMapCase

OPERATION = "draft_to_target"


def conventions(check: Check) -> Sequence[str]:
    """The declared convention, or both."""
    declared = check.convention("draft_map", "")
    return [declared] if declared else MAP_CONVENTIONS


def maps(check: Check, case: DraftMapCase) -> None:
    """Judge the ids; raises `ClauseViolation`."""
    found = plain(check.call(OPERATION, copy(case)), "the ids")
    expected = road.draft_to_target(case)
    if expected is None or draft_to_target(case).tolist() != expected:
        raise HarnessError(f"the oracle maps to {draft_to_target(case).tolist()}, the second road to {expected}")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ClauseViolation(f"the ids are {found.dtype} {list(found.shape)}, not a vector of integers")
    if found.tolist() != expected:
        others = [c for c in MAP_CONVENTIONS if road.draft_to_target(DraftMapCase(case.d2t, None, c)) == found.tolist()]
        raise ClauseViolation(
            f"d2t = {case.d2t.tolist()} is {case.convention}, so {{clause}} maps to {expected}; the implementation "
            f"maps to {found.tolist()}, as if it were {names(others)}"
        )


@pytest.mark.clauses("LOSSES-801")
def test_offsets_and_absolute_ids(check: Check) -> None:
    check.require(OPERATION)
    declared = check.convention("draft_map", "")
    worked = [DraftMapCase(np.array([1, 2]), None, c) for c in conventions(check)]
    check.for_all(strategies.maps(conventions(check)), lambda case: maps(check, case), first=worked)
    check.observe("draft_map", declared or "argument")


@pytest.mark.clauses("LOSSES-802")
def test_a_map_of_equal_widths_permutes(check: Check) -> None:
    check.require(OPERATION)
    check.for_all(permutations(conventions(check)), lambda case: maps(check, case))


@pytest.mark.hostile
@pytest.mark.clauses("LOSSES-803")
def test_what_is_no_map_is_refused(check: Check) -> None:
    check.require(OPERATION)

    def body(case: DraftMapCase) -> None:
        if road.draft_to_target(case) is not None:
            raise HarnessError("the map is one")
        try:
            found = plain(check.call(OPERATION, copy(case)), "the ids")
        except Raised:
            return
        raise ClauseViolation(f"{{clause}} refuses the map; the implementation maps to {found.tolist()}")

    check.for_each([broken(*case, c) for case in NO_MAPS for c in conventions(check)], body)


@st.composite
def permutations(draw: st.DrawFn, given: Sequence[str]) -> DraftMapCase:
    """Every target token has a draft token, in another order."""
    size = draw(st.integers(3, 5))
    ids = draw(st.permutations(range(size)).filter(lambda ids: list(ids) != sorted(ids)))
    return strategies.map_of(np.array(ids), draw(st.sampled_from(given)), size if draw(st.booleans()) else None)
