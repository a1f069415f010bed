"""Warping: what temperature, top-k, top-p and min-p make of the target's logits, row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adapters.interface import DTYPES, TOP_K_TIES
from conformance import draw
from conformance.acceptance import logits, warped
from conformance.acceptance.warp_cases import (
    COLD_BESIDE_WARM,
    EXTREME_ROWS,
    FLAT_BESIDE_PEAKED,
    NO_LAWS,
    OFF_ROWS,
    ORDER_ROWS,
    THRESHOLD_ROWS,
    TIED_ROWS,
    TIES_OF_THE_KTH,
    WITNESSES,
)
from conformance.check import Check, Raised
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import WarpCase


def nucleus(check: Check, name: str) -> list[WarpCase]:
    """A nucleus that takes every token there is, where the implementation has top-p: drawn rows seldom have one."""
    return [WITNESSES[name]] if "top_p" in warped.convention(check)[0] else []


@pytest.mark.clauses("ACCEPTANCE-1001")
def test_a_warped_row_is_a_law(check: Check) -> None:
    check.require("warp")
    unit = DTYPES[check.arithmetic.dtype]

    def body(case: WarpCase) -> None:
        for r, row in enumerate(warped.warp(check, case)):
            bound = (len(row) + 2) * unit
            if not all(0 <= p < math.inf for p in row) or abs(math.fsum(row) - 1) > bound:
                raise ClauseViolation(
                    f"row {r} is {draw.row(row)}, with the sum {draw.number(math.fsum(row))}; {{clause}} asks for a "
                    f"law, within {bound:.1g}"
                )

    check.for_all(logits.one_row((1.0, *logits.TEMPERATURES)) | logits.combined(), body)


@pytest.mark.clauses("ACCEPTANCE-1002")
def test_a_filter_that_is_off_removes_nothing(check: Check) -> None:
    check.require("warp")
    check.for_each(OFF_ROWS, lambda case: warped.compare(check, case, support=True))


@pytest.mark.clauses("ACCEPTANCE-1003")
def test_the_law_is_the_softmax_over_the_temperature(check: Check) -> None:
    check.require("warp")
    check.for_all(logits.one_row((1.0, *logits.TEMPERATURES)), lambda case: warped.compare(check, case))


@pytest.mark.clauses("ACCEPTANCE-1004")
def test_temperature_zero_is_the_lowest_argmax(check: Check) -> None:
    check.require("warp")

    def body(case: WarpCase) -> None:
        (row,) = warped.warp(check, case)
        warped.expected(check, case)
        (values,) = warped.rows_of(case)
        best = values.index(max(values))
        if row[best] != 1 or np.count_nonzero(row) != 1:
            raise ClauseViolation(
                f"token {best} has the largest logit (the lowest id on ties), so {{clause}} puts all mass on it; the "
                f"implementation gives {draw.row(row)}"
            )

    order, _ = warped.convention(check)
    strategy = logits.one_row((0.0,)) | logits.one_row((0.0,), ties=True) | logits.one_row((0.0,), masked=True)
    for name in ("top_k", "top_p", "min_p"):
        strategy |= logits.one_row((0.0,), (name,), ties=True) if name in order else strategy
    check.for_all(strategy, body)


@pytest.mark.clauses("ACCEPTANCE-1005")
def test_extreme_numbers_give_the_limit(check: Check) -> None:
    check.require("warp")
    check.for_each(EXTREME_ROWS, lambda case: warped.compare(check, case))


SUPPORT = [
    pytest.param("top_k", marks=pytest.mark.clauses("ACCEPTANCE-1006"), id="top_k"),
    pytest.param("top_p", marks=pytest.mark.clauses("ACCEPTANCE-1007"), id="top_p"),
    pytest.param("min_p", marks=pytest.mark.clauses("ACCEPTANCE-1008"), id="min_p"),
]


@pytest.mark.parametrize("name", SUPPORT)
def test_a_filter_leaves_the_right_tokens(check: Check, name: str) -> None:
    check.require("warp")
    first = [*(nucleus(check, "nucleus_of_all_tokens") if name == "top_p" else []), *THRESHOLD_ROWS[name]]
    strategy = logits.one_row(filters=(name,)) | logits.at_a_threshold(name)
    check.for_all(strategy, lambda case: warped.compare(check, case, support=True), first=first)


@pytest.mark.clauses("ACCEPTANCE-1009")
@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p"])
def test_survivors_keep_their_proportions(check: Check, name: str) -> None:
    check.require("warp")
    first = nucleus(check, "nucleus_of_all_tokens") if name == "top_p" else []
    check.for_all(logits.one_row(filters=(name,)), lambda case: warped.compare(check, case), first=first)


@pytest.mark.clauses("ACCEPTANCE-1010")
@pytest.mark.parametrize("name", [None, "top_k", "top_p", "min_p"])
def test_masked_tokens_stay_out(check: Check, name: str | None) -> None:
    check.require("warp")
    first = nucleus(check, "nucleus_of_all_unmasked_tokens") if name == "top_p" else []
    strategy = logits.one_row(filters=() if name is None else (name,), masked=True)
    check.for_all(strategy, lambda case: warped.compare(check, case), first=first)


@pytest.mark.clauses("ACCEPTANCE-1011")
def test_ties_at_the_cut(check: Check) -> None:
    check.require("warp")
    check.for_each(TIED_ROWS, lambda case: warped.compare(check, case, support=True))


@pytest.mark.clauses("ACCEPTANCE-1011")
def test_the_declared_treatment_of_ties_is_the_observed_one(check: Check) -> None:
    check.require("warp")
    order, ties = warped.convention(check)
    warped.identify(check, TIES_OF_THE_KTH, "top_k_ties", ties, {t: (order, t) for t in TOP_K_TIES}, support=True)


@pytest.mark.clauses("ACCEPTANCE-1012")
def test_stages_combine_in_the_declared_order(check: Check) -> None:
    check.require("warp")
    first = nucleus(check, "heated_nucleus_of_all_tokens")
    check.for_all(logits.combined(), lambda case: warped.compare(check, case), first=first)


@pytest.mark.clauses("ACCEPTANCE-1012")
def test_the_declared_order_is_the_observed_one(check: Check) -> None:
    check.require("warp")
    order, ties = warped.convention(check)
    warped.identify(check, ORDER_ROWS, "filter_order", order, {o: (o, ties) for o in warped.orders_like(order)})


@pytest.mark.clauses("ACCEPTANCE-1013")
def test_every_row_is_warped(check: Check) -> None:
    check.require("warp")
    first = nucleus(check, "nuclei_of_all_tokens_side_by_side")
    if "min_p" in warped.convention(check)[0]:
        first = [FLAT_BESIDE_PEAKED, *first]
    check.for_all(logits.side_by_side(), lambda case: warped.compare(check, case), first=first)


@pytest.mark.clauses("ACCEPTANCE-1014")
def test_each_row_has_its_own_parameters(check: Check) -> None:
    check.require("warp")
    order, _ = warped.convention(check)
    names = [name for stage in order.split(",") for name in stage.split("+")]
    first = nucleus(check, "nucleus_of_all_tokens_beside_others")
    if "temperature" in names:
        first = [COLD_BESIDE_WARM, *first]
    check.for_all(logits.own_parameters(names), lambda case: warped.compare(check, case), first=first)


@pytest.mark.hostile
@pytest.mark.clauses("ACCEPTANCE-1015")
def test_what_is_no_row_becomes_no_law(check: Check) -> None:
    check.require("warp")

    def body(case: WarpCase) -> None:
        try:
            found = warped.warp(check, case)
        except Raised:
            return
        for r, (logit, row) in enumerate(zip(warped.rows_of(case), found)):
            spoilt = any(v != v or v == math.inf for v in logit) or max(logit) == -math.inf
            if spoilt and all(0 <= p <= 1 for p in row) and math.isclose(math.fsum(row), 1, abs_tol=1e-3):
                raise ClauseViolation(f"row {r} has no law, and it was warped to {draw.row(row)}")

    check.for_each(NO_LAWS, body)


@pytest.mark.clauses("ACCEPTANCE-1016")
def test_the_logits_are_left_alone(check: Check) -> None:
    check.require("warp")

    def body(case: WarpCase) -> None:
        handed = warped.copy(case)
        try:
            check.call("warp", handed)
        except Raised as error:
            raise Inapplicable(f"warp raised, which other clauses judge: {error.reason}") from None
        for name, before in vars(case).items():
            after = getattr(handed, name)
            if not np.array_equal(before, after):
                raise ClauseViolation(f"{name} was {np.asarray(before).tolist()} and is {np.asarray(after).tolist()}")

    check.for_all(logits.side_by_side() | logits.combined(), body, examples=20)
