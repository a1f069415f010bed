"""Regression, distillation and EAGLE-1's sum of the two."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check
from conformance.losses import judge, strategies
from conformance.losses.cases import MASKED_LOGITS, MASKED_TOPS, RESIDUALS, masked_rollouts
from conformance.losses.conventions import settled
from conformance.losses.tolerance import number
from conformance.verdicts import ClauseViolation
from oracle.types import DistillCase, Eagle1Case


@pytest.mark.clauses("LOSSES-201")
def test_smooth_l1(check: Check) -> None:
    check.require("feature_regression")
    check.for_all(
        strategies.regressions(mixed=True),
        lambda case: judge.value(check, "feature_regression", case),
        first=RESIDUALS,
    )


@pytest.mark.clauses("LOSSES-202")
def test_the_gradient_of_smooth_l1(check: Check) -> None:
    check.require("feature_regression")
    check.for_all(
        strategies.regressions(mixed=True),
        lambda case: judge.gradient(check, "feature_regression", case),
        first=RESIDUALS,
    )


@pytest.mark.clauses("LOSSES-301")
def test_soft_cross_entropy(check: Check) -> None:
    check.require("soft_cross_entropy")
    strategy = strategies.distillations(mixed=True)
    check.for_all(strategy, lambda case: judge.value(check, "soft_cross_entropy", case))


@pytest.mark.clauses("LOSSES-302")
def test_the_gradient_of_soft_cross_entropy(check: Check) -> None:
    check.require("soft_cross_entropy")
    strategy = strategies.distillations(mixed=True)
    check.for_all(strategy, lambda case: judge.gradient(check, "soft_cross_entropy", case), judge.few(check))


@pytest.mark.clauses("LOSSES-303")
def test_masked_tokens(check: Check) -> None:
    check.require("soft_cross_entropy")

    def body(case: DistillCase) -> None:
        judge.value(check, "soft_cross_entropy", case)
        impossible = np.isneginf(case.draft_logits) & ~np.isneginf(case.target_logits)
        if not impossible[case.supervise].any():  # an infinite loss has no gradient to speak of
            judge.gradient(check, "soft_cross_entropy", case)

    check.for_all(strategies.distillations(masked=True), body, judge.few(check), MASKED_LOGITS)


@pytest.mark.clauses("LOSSES-303")
@pytest.mark.parametrize("operation", ["topk_distillation", "rollout_loss"])
def test_masked_tokens_elsewhere(check: Check, operation: str) -> None:
    """Finite or infinite, and no gradient to what is masked: how large a finite loss is, other clauses say."""
    check.require(operation)

    def body(case: Any) -> None:
        answer = judge.ask(check, operation, case)
        right = judge.by_road(check, operation, case)
        wanted, found = [right.value], [answer.value]
        if right.shows_parts:
            wanted += [part.value for part in right.parts]
            found += answer.parts(len(right.parts))
        for here, there in zip(wanted, found):
            expected = number(here)
            if there is None or not (there == expected or (math.isfinite(there) and expected != math.inf)):
                kind = "infinite" if expected == math.inf else "finite"
                raise ClauseViolation(
                    f"by {{clause}} the loss is {kind}; the implementation gives {judge.shown(there)}"
                )
        if number(right.value) != math.inf:
            gradient = answer.gradient("draft_logits", case.draft_logits.shape)
            if not np.isfinite(gradient).all() or gradient[np.isneginf(case.draft_logits)].any():
                raise ClauseViolation(f"by {{clause}} a masked token has no gradient; it is {gradient.tolist()}")

    cases: Sequence[Any] = masked_rollouts(settled(check)) if operation == "rollout_loss" else MASKED_TOPS
    check.for_each(cases, body)


@pytest.mark.clauses("LOSSES-401")
def test_the_parts_of_eagle_1(check: Check) -> None:
    check.require("eagle1_loss")
    check.for_all(strategies.eagle1s(mixed=True), lambda case: judge.parts(check, "eagle1_loss", case))


@pytest.mark.clauses("LOSSES-402")
def test_the_weights_of_eagle_1(check: Check) -> None:
    check.require("eagle1_loss")
    check.for_all(dropping(), lambda case: judge.value(check, "eagle1_loss", case))


@pytest.mark.clauses("LOSSES-403")
def test_the_gradient_of_eagle_1(check: Check) -> None:
    check.require("eagle1_loss")
    strategy = strategies.eagle1s(mixed=True)
    check.for_all(strategy, lambda case: judge.gradient(check, "eagle1_loss", case), judge.few(check))


@st.composite
def dropping(draw: st.DrawFn) -> Eagle1Case:
    """Some of the weights are zero."""
    case = draw(strategies.eagle1s(mixed=True))
    return draw(
        st.sampled_from(
            (
                case,
                dataclasses.replace(case, regression_weight=0.0),
                dataclasses.replace(case, classification_weight=0.0),
            )
        )
    )
