"""Structure: the form of an answer, cases that are left alone and do not depend on each other; and refusals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from conformance.check import Check, Raised
from conformance.drafter import shapes
from conformance.drafter.asking import LOGITS, OPERATION, STATES, ask, few, limits, settled
from conformance.drafter.cases import EVERY, LONGER, SKEWED_CASES, TWINS, Turns
from conformance.drafter.making import name_of, weight
from conformance.drafter.strategies import drafters
from conformance.handout import copy, written
from conformance.verdicts import ClauseViolation
from oracle.types import DrafterCase


@pytest.mark.clauses("DRAFTER-101")
def test_the_form_of_an_answer(check: Check) -> None:
    check.require(OPERATION)

    def body(case: DrafterCase) -> None:
        found = ask(check, case)
        for part in (LOGITS, STATES):
            rows = found.part(part)
            if not np.isfinite(rows).all():
                step, entry = np.argwhere(~np.isfinite(rows))[0].tolist()
                raise ClauseViolation(
                    f"{part}[{step}][{entry}] is {rows[step, entry]}; all that it is made of is finite"
                )

    first = [settled(check, case) for one in (*EVERY, *LONGER) for case in (shapes.steps(one, 0), one)]
    check.for_all(drafters(rollout=(0, 4)).map(lambda c: settled(check, c)), body, examples=few(check), first=first)


@pytest.mark.clauses("DRAFTER-102")
def test_the_case_is_left_alone(check: Check) -> None:
    check.require(OPERATION)

    def body(case: DrafterCase) -> None:
        mine = copy(case)
        check.call(OPERATION, mine)
        if names := written(case, mine):
            raise ClauseViolation(f"{OPERATION} wrote into {', '.join(names)}")

    check.for_each([settled(check, case) for case in EVERY], body)


@pytest.mark.clauses("DRAFTER-103")
def test_a_case_does_not_depend_on_those_before_it(check: Check) -> None:
    check.require(OPERATION)

    def body(turns: Turns) -> None:
        one, other = turns.cases
        before = ask(check, one)
        ask(check, other)
        after = ask(check, one)
        for part, off in zip((STATES, LOGITS), limits(check, one, before, (STATES, LOGITS))):
            apart = ~(np.abs(before.part(part) - after.part(part)) <= 2 * off)
            if apart.any():
                step, entry = np.argwhere(apart)[0].tolist()
                raise ClauseViolation(
                    f"the first case is asked again, after another: {part}[{step}][{entry}] is "
                    f"{after.part(part)[step, entry]:.9g}, and was {before.part(part)[step, entry]:.9g}"
                )

    first = [settled(check, case) for case in EVERY]
    others = [settled(check, case) for case in TWINS]
    check.for_each([Turns(pair) for pair in (*zip(first, others), *zip(first, first[3:]))], body)


# ---- refusals


@pytest.mark.hostile
@pytest.mark.clauses("DRAFTER-1001")
def test_weights_that_do_not_fit_are_refused(check: Check) -> None:
    cases = []
    for case in SKEWED_CASES:
        names = ["fc", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
        names += ["embed_tokens", "post_attention_layernorm"]
        names += [] if case.variant == "eagle1" else ["input_layernorm", "hidden_norm", "norm"]
        for part in names:
            name = name_of(case, part)
            cases.append(reweighed(case, {k: v for k, v in case.weights.items() if k != name}))
            values = case.weights[name]
            cases.append(reweighed(case, {**case.weights, name: np.concatenate([values, values], axis=-1)}))
    refuses(check, cases)


@pytest.mark.hostile
@pytest.mark.clauses("DRAFTER-1002")
def test_features_of_another_width_are_refused(check: Check) -> None:
    cases = []
    for case in SKEWED_CASES:
        single, wide = case.features[:, : len(weight(case, "fc"))], np.tile(case.features, (1, 3))
        cases.append(dataclasses.replace(case, features=wide if case.variant == "eagle1" else single))
        cases.append(dataclasses.replace(case, features=case.features[:, :-1]))
        cases.append(dataclasses.replace(case, features=case.features[:-1]))
    refuses(check, cases)


@pytest.mark.hostile
@pytest.mark.clauses("DRAFTER-1003")
def test_a_token_outside_is_refused(check: Check) -> None:
    cases = []
    for case in SKEWED_CASES:
        for token in (len(weight(case, "embed_tokens")), -1, 70_000):
            tokens, rollout = case.tokens.copy(), case.rollout_tokens.copy()
            tokens[1] = rollout[2] = token
            cases.append(dataclasses.replace(case, tokens=tokens))
            cases.append(dataclasses.replace(case, rollout_tokens=rollout))
    refuses(check, cases)


@pytest.mark.hostile
@pytest.mark.clauses("DRAFTER-1004")
def test_nan_is_refused_or_shows(check: Check) -> None:
    check.require(OPERATION)
    cases = []
    for case in SKEWED_CASES:
        features = case.features.copy()
        features[:, 0] = np.nan
        cases.append(dataclasses.replace(case, features=features))
        for part in ("fc", "v_proj", "down_proj", "lm_head"):
            values = weight(case, part).copy()
            values[(0,) * values.ndim] = np.nan
            cases.append(reweighed(case, {**case.weights, name_of(case, part): values}))
        table = weight(case, "embed_tokens").copy()
        table[case.tokens] = np.nan
        cases.append(reweighed(case, {**case.weights, "embed_tokens.weight": table}))

    def body(case: DrafterCase) -> None:
        try:
            found = ask(check, case)
        except Raised:
            return
        if np.isfinite(found.logits).all():
            raise ClauseViolation("NaN is read, and every logit is a finite number")

    check.for_each([settled(check, case) for case in cases], body)


# ---- what these checks share


def reweighed(case: DrafterCase, weights: dict[str, np.ndarray]) -> DrafterCase:
    return dataclasses.replace(case, weights=weights)


def refuses(check: Check, cases: Sequence[DrafterCase]) -> None:
    check.require(OPERATION)
    check.for_each([settled(check, case) for case in cases], lambda case: check.refuses(OPERATION, copy(case)))
