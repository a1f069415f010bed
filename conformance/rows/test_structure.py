"""Structure: the form of an answer, the order of its rows, batches without any, and what is left alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check
from conformance.handout import copy, written
from conformance.rows import asking, strategies
from conformance.rows.asking import VIA
from conformance.rows.cases import EDGES, PACKED, batch, empty, traced
from conformance.verdicts import ClauseViolation
from oracle.types import RolloutRowsCase, SupervisionCase, TokenBatch

OPERATIONS = ("soft_rows", "hard_rows", "supervision_at_source", "gather_rows", "rollout_rows")
PLANS = ("soft_rows", "hard_rows")
HALVES: Any = np.array([[0.5, 1.5, 2.5], [0.5, 1.5, 2.5]])
ANY = batch([[3, 1, 4], [2, 6, 5]], valid=[[1, 1, 1], [1, 1, 0]])


@pytest.mark.clauses("ROWS-101")
@pytest.mark.parametrize("operation", [*PLANS, "gather_rows"])
def test_the_form_of_an_answer(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: TokenBatch) -> None:
        if operation == "gather_rows":
            asking.tensors(check, traced(case))
        else:
            asking.plan(check, operation, case)

    check.for_all(strategies.anything(), body, first=EDGES)


@pytest.mark.clauses("ROWS-101")
def test_a_mask_of_sources_has_the_shape_of_the_batch(check: Check) -> None:
    check.require("supervision_at_source")
    check.for_all(strategies.masks(strategies.anything()), lambda case: asking.sources(check, case))


@pytest.mark.clauses("ROWS-102")
@pytest.mark.parametrize("via", VIA)
def test_rows_are_ordered(check: Check, via: str) -> None:
    check.require(via)

    def body(case: TokenBatch) -> None:
        keys = asking.ask(check, via, case).keys
        for one, next_one in itertools.pairwise(keys):
            if one >= next_one:
                raise ClauseViolation(
                    f"the row of batch row {next_one[0]}, source {next_one[1]} comes after that of batch row {one[0]}, "
                    f"source {one[1]}"
                )

    # rows that the next clauses forbid are in the way here: each batch row is one full segment
    check.for_all(st.one_of(strategies.full(flags=False), strategies.apart()), body)


@pytest.mark.clauses("ROWS-103")
@pytest.mark.parametrize("via", VIA)
def test_a_batch_without_rows(check: Check, via: str) -> None:
    check.require(via)
    cases = [empty(0, 0), empty(2, 0), empty(0, 3), empty(1, 1), empty(2, 3), batch([[4]])]

    def body(case: TokenBatch) -> None:
        found = asking.ask(check, via, case)
        if found.keys:
            raise ClauseViolation(f"no token has a next one, and there are rows {found.keys}")

    check.for_each(cases, body)


@pytest.mark.clauses("ROWS-104")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_case_is_left_alone(check: Check, operation: str) -> None:
    check.require(operation)
    mask = np.array([[True, False, True], [True, True, False]])
    case: Any = {
        "supervision_at_source": SupervisionCase(ANY, mask, check.convention("mask_owner", "source")),
        "gather_rows": traced(ANY),
        "rollout_rows": RolloutRowsCase(ANY, 2),
    }.get(operation, ANY)

    def body(case: Any) -> None:
        handed = copy(case)
        check.call(operation, handed)
        if names := written(case, handed):
            raise ClauseViolation(f"{operation} wrote into {', '.join(names)}")

    check.for_each([case], body)


@pytest.mark.hostile
@pytest.mark.clauses("ROWS-701")
@pytest.mark.parametrize("operation", [*PLANS, "rollout_rows"])
def test_positions_that_do_not_increase_are_refused(check: Check, operation: str) -> None:
    check.require(operation)
    cases = [
        batch([[3, 1, 2]], position=[[0, 0, 1]]),
        batch([[3, 1, 2]], position=[[2, 1, 3]]),
        batch([[3, 1, 2, 4]], valid=[[1, 1, 0, 1]], position=[[0, 2, 9, 2]]),
        batch([[3, 1, 2, 4]], segment=[[5, 1, 1, 5]], position=[[4, 0, 1, 4]]),
    ]
    refuses(check, operation, cases)


@pytest.mark.hostile
@pytest.mark.clauses("ROWS-702")
@pytest.mark.parametrize("operation", [*PLANS, "rollout_rows"])
def test_arrays_that_do_not_fit_are_refused(check: Check, operation: str) -> None:
    check.require(operation)
    right = batch([[3, 1, 2], [6, 4, 5]])
    cases = [
        TokenBatch(right.tokens, right.valid, right.segment, right.position, right.supervise[:1]),
        TokenBatch(right.tokens, right.valid[:, :2], right.segment, right.position, right.supervise),
        TokenBatch(right.tokens, right.valid.astype(np.int64), right.segment, right.position, right.supervise),
        TokenBatch(right.tokens, right.valid, right.segment, HALVES, right.supervise),
        TokenBatch(right.tokens[0], right.valid[0], right.segment[0], right.position[0], right.supervise[0]),
    ]
    refuses(check, operation, cases)


@pytest.mark.hostile
@pytest.mark.clauses("ROWS-703")
@pytest.mark.parametrize("operation", ["supervision_at_source", "rollout_rows"])
def test_what_has_no_meaning_is_refused(check: Check, operation: str) -> None:
    check.require(operation)
    cases: list[Any] = [RolloutRowsCase(PACKED, 0), RolloutRowsCase(PACKED, -1)]
    if operation == "supervision_at_source":
        cases = [SupervisionCase(PACKED, np.ones((1, 7), dtype=bool), owner) for owner in ("target", "", "Source")]
    check.for_each(cases, lambda case: check.refuses(operation, copy(case)))


# ---- what these checks share


def refuses(check: Check, operation: str, cases: list[TokenBatch]) -> None:
    handed = [RolloutRowsCase(case, 2) for case in cases] if operation == "rollout_rows" else cases
    check.for_each(handed, lambda case: check.refuses(operation, copy(case)))
