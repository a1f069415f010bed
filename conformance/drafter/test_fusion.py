"""What a row is made of: the fused row that the layer keeps, and what is fused in it."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.check import Check
from conformance.drafter import mistakes, shapes, strategies
from conformance.drafter.asking import OPERATION, STATES, ask, few, judge, judge_all, limits
from conformance.drafter.cases import EAGLE1, EAGLE1_CASES, EVERY, LARGE, THREES
from conformance.drafter.making import configured
from conformance.drafter.strategies import THREE, drafters
from oracle.types import FUSION_ORDERS, DrafterCase


@pytest.mark.clauses("DRAFTER-201")
def test_the_residual(check: Check) -> None:
    judge_all(check, shapes.residual, drafters(), EVERY, mistakes.lost_residual)


@pytest.mark.clauses("DRAFTER-301")
def test_the_feature_of_a_row(check: Check) -> None:
    judge_all(check, shapes.own_feature, drafters(rows=(2, 4)), EVERY, mistakes.other_feature)


@pytest.mark.clauses("DRAFTER-302")
def test_the_token_of_a_row(check: Check) -> None:
    drawn = drafters([EAGLE1], rows=(2, 4))
    judge_all(check, shapes.own_token, drawn, (*EAGLE1_CASES, LARGE[EAGLE1]), mistakes.other_token)


@pytest.mark.clauses("DRAFTER-303")
def test_the_order_of_fusion(check: Check) -> None:
    check.require(OPERATION)
    declared = check.implementation.declaration.conventions.get("fusion_order")
    asked = [declared] if declared else FUSION_ORDERS
    shown: set[str] = set()
    asked_for: set[str] = set()

    def body(case: DrafterCase) -> None:
        found = ask(check, case)
        (off,) = limits(check, case, found, [STATES])
        orders = mistakes.fusion_orders(case).items()
        shown.update(name for name, answer in orders if (np.abs(answer.states - found.states) <= off).all())
        asked_for.add(str(case.config["fusion_order"]))
        judge(check, case, found, wrong=mistakes.other_order)

    try:
        first = [configured(shapes.fused(c), fusion_order=order) for order in asked for c in EAGLE1_CASES]
        drawn = strategies.drafters([EAGLE1]).map(shapes.fused)
        if declared:
            drawn = drawn.map(lambda case: configured(case, fusion_order=declared))
        check.for_all(drawn, body, examples=few(check), first=first)
    finally:
        if shown:
            argument = len(shown) > 1 and shown == asked_for
            check.observe("fusion_order", "argument" if argument else " or ".join(sorted(shown)))


@pytest.mark.clauses("DRAFTER-304")
def test_the_order_of_layers(check: Check) -> None:
    judge_all(check, shapes.fused, drafters(THREE), THREES, mistakes.other_layers)


@pytest.mark.clauses("DRAFTER-305")
def test_the_bias_of_the_fusion(check: Check) -> None:
    drawn = drafters().filter(lambda case: "fc.bias" in case.weights)
    judge_all(check, shapes.bare, drawn, [c for c in EVERY if "fc.bias" in c.weights], mistakes.no_bias)
