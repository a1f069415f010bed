"""HASS: steps, their terms, their gradients, and steps that supervise nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check
from conformance.losses import judge, strategies
from conformance.losses.tolerance import Counter
from conformance.verdicts import ClauseViolation
from oracle.types import HassLossCase


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

    check.for_all(strategies.hasses(mixed=True), body)


@pytest.mark.clauses("LOSSES-602")
def test_the_loss_of_a_step(check: Check) -> None:
    check.require("hass_loss")
    check.for_all(strategies.hasses(mixed=True), lambda case: judge.parts(check, "hass_loss", case))


@pytest.mark.clauses("LOSSES-603")
def test_the_gradient_of_a_step(check: Check) -> None:
    check.require("hass_loss")
    check.for_all(strategies.hasses(mixed=True), lambda case: judge.gradient(check, "hass_loss", case), EXAMPLES)


@pytest.mark.clauses("LOSSES-604")
def test_a_step_that_supervises_nothing(check: Check) -> None:
    check.require("hass_loss")

    def body(case: HassLossCase) -> None:
        judge.parts(check, "hass_loss", case)
        judge.value(check, "hass_loss", case)
        judge.gradient(check, "hass_loss", case)

    check.for_all(emptied(), body, EXAMPLES)


EXAMPLES = 20
"""Differences through a head, term by term, are slow."""


@st.composite
def emptied(draw: st.DrawFn) -> HassLossCase:
    """One step of several has no supervised row."""
    case = draw(strategies.hasses(mixed=True).filter(lambda case: len(case.predicted) > 1))
    supervise = case.supervise.copy()
    supervise[draw(st.integers(0, len(supervise) - 1))] = np.False_
    return dataclasses.replace(case, supervise=supervise)
