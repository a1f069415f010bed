"""HASS: steps, their terms, their gradients, and steps that supervise nothing."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check
from conformance.losses import judge, strategies
from conformance.losses.cases import TIED_HEADS
from conformance.losses.large import LONG_HASS, WIDE_HASS
from conformance.losses.tolerance import Counter, number
from conformance.roads import losses as road
from conformance.verdicts import ClauseViolation
from oracle.types import HassLossCase


@pytest.mark.clauses("LOSSES-502")
def test_ties_behind_a_head(check: Check) -> None:
    """Tokens take their ids from the rows of the head, so other ties are those of the head in another order."""
    check.require("hass_loss")

    def body(case: HassLossCase) -> None:
        found = judge.ask(check, "hass_loss", case).value
        right = judge.by_road(check, "hass_loss", case)
        allowed = Counter(case, check.arithmetic.dtype).bounds(right, False).value
        if not judge.decides(check, case, right) or judge.close(number(right.value), found, allowed):
            return
        for order in itertools.permutations(range(len(case.head))):
            other = dataclasses.replace(case, head=case.head[list(order)])
            if judge.close(number(road.hass_loss(other, False, judge.over(check, "hass_loss")).value), found, allowed):
                raise ClauseViolation(
                    f"{{clause}} gives {judge.shown(number(right.value))}; the implementation gives "
                    f"{judge.shown(found)}, as if the tokens had entered the set in the order {list(order)}"
                )

    check.for_each(TIED_HEADS, body)


@pytest.mark.clauses("LOSSES-601")
def test_the_loss_is_the_sum_of_its_parts(check: Check) -> None:
    check.require("hass_loss")

    def body(case: HassLossCase) -> None:
        answer = judge.ask(check, "hass_loss", case)
        parts = [part for part in answer.parts(len(case.predicted)) if part is not None]
        right = judge.by_road(check, "hass_loss", case)
        if len(parts) < len(case.predicted) or answer.value is None:
            raise ClauseViolation("every step supervises a row, and some step has no loss")
        bounds = Counter(case, check.arithmetic.dtype).bounds(right, False)
        allowed = (bounds.value or 0) + sum(part or 0 for part in bounds.parts)
        if judge.decides(check, case, right):
            judge.judge(sum(parts), answer.value, allowed, lambda: f"its own parts are {parts}")

    check.for_all(strategies.hasses(mixed=True), body, judge.some(check), [LONG_HASS])


@pytest.mark.clauses("LOSSES-602")
def test_the_loss_of_a_step(check: Check) -> None:
    check.require("hass_loss")
    strategy, first = strategies.hasses(mixed=True), [LONG_HASS, WIDE_HASS]
    check.for_all(strategy, lambda case: judge.parts(check, "hass_loss", case), judge.some(check), first)


@pytest.mark.clauses("LOSSES-603")
def test_the_gradient_of_a_step(check: Check) -> None:
    check.require("hass_loss")
    strategy = strategies.hasses(mixed=True)
    check.for_all(strategy, lambda case: judge.gradient(check, "hass_loss", case), EXAMPLES, [LONG_HASS])


@pytest.mark.clauses("LOSSES-604")
def test_a_step_that_supervises_nothing(check: Check) -> None:
    check.require("hass_loss")

    check.for_all(emptied(), lambda case: judge.whole(check, "hass_loss", case), EXAMPLES)


EXAMPLES = 20
"""Differences through a head, term by term, are slow."""


@st.composite
def emptied(draw: st.DrawFn) -> HassLossCase:
    """One step of several has no supervised row."""
    case = draw(strategies.hasses(mixed=True).filter(lambda case: len(case.predicted) > 1))
    supervise = case.supervise.copy()
    supervise[draw(st.integers(0, len(supervise) - 1))] = np.False_
    return dataclasses.replace(case, supervise=supervise)
