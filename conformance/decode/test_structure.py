"""Structure: the form of an answer, ids, prompts, margins, the case; and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance import compare
from conformance.check import Check
from conformance.decode import asking, strategies
from conformance.decode.cases import (
    ALONE,
    LONG_PROMPTS,
    MIXED,
    ONE_TOKEN,
    RAGGED,
    RAGGED_LIMITS,
    SAMPLED,
    Requests,
    made,
    prompts,
)
from conformance.handout import copy, written
from conformance.verdicts import ClauseViolation
from oracle.types import GenerateCase

SPECULATIVE = pytest.mark.parametrize("speculative", [True, False], ids=["speculative", "plain"])
FORMS = (ALONE, ONE_TOKEN, RAGGED, RAGGED_LIMITS, SAMPLED, MIXED)


@pytest.mark.clauses("DECODE-101")
@SPECULATIVE
def test_the_form_of_an_answer(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        asking.outputs(check, requests, speculative)

    asking.run(check, strategies.batches(sampled=True), body, FORMS)


@pytest.mark.clauses("DECODE-102")
@SPECULATIVE
def test_every_token_is_one_of_the_vocabulary(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        size = asking.engine(check).vocabulary
        for i, found in enumerate(asking.outputs(check, requests, speculative)):
            for step, token in enumerate(found.tokens):
                if not 0 <= token < size:
                    raise ClauseViolation(f"request {i}, token {step} is {token}; ids lie in [0, {size})")

    asking.run(check, strategies.batches(sampled=True), body, FORMS)


@pytest.mark.clauses("DECODE-103")
@SPECULATIVE
def test_an_output_does_not_begin_with_its_prompt(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        drawn = prompts(requests, asking.engine(check))
        for i, (prompt, found) in enumerate(zip(drawn, asking.outputs(check, requests, speculative))):
            if len(prompt) >= 8 and found.tokens[: len(prompt)] == prompt.tolist():
                raise ClauseViolation(f"request {i}: the output begins with all {len(prompt)} tokens of the prompt")

    check.require("generate")
    check.for_each([LONG_PROMPTS], body)


@pytest.mark.clauses("DECODE-104")
@SPECULATIVE
def test_margins_are_one_number_a_token(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        case = made(requests, asking.engine(check), speculative)
        for i, found in enumerate(asking.raw(check, case)):
            margins = getattr(found, "margins", None)
            if margins is None:
                continue
            count = len(compare.vector(found.tokens, "tokens", entry="token"))
            read = compare.vector(margins, f"generation {i}.margins", "f", count, "token")
            for step in np.flatnonzero(~(read >= 0))[:1].tolist():  # NaN, too
                raise ClauseViolation(f"request {i}, token {step}: the margin is {read[step]}; it is at least 0")

    asking.run(check, strategies.batches(sampled=True), body, FORMS[:4], examples=5)


@pytest.mark.clauses("DECODE-105")
@SPECULATIVE
def test_the_case_is_left_alone(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        whole = made(requests, asking.engine(check), speculative, (1,))
        mine = copy(whole)
        check.call("generate", mine)
        if len(mine.prompts) != len(whole.prompts):
            raise ClauseViolation(f"{len(mine.prompts)} prompts are left of {len(whole.prompts)}")
        if names := written(whole, mine):
            raise ClauseViolation(f"generate wrote into {', '.join(names)}")

    asking.run(check, strategies.batches(sampled=True, drafts=True), body, (RAGGED_LIMITS, SAMPLED), examples=5)


# ---- refusals


@pytest.mark.hostile
@pytest.mark.clauses("DECODE-901")
def test_a_prompt_of_nothing_or_of_foreign_ids_is_refused(check: Check) -> None:
    check.require("generate")
    size = asking.engine(check).vocabulary
    wrong = [[], [0, size], [size + 2**17, 1], [1, -1, 0]]
    check.for_each([asked(prompt) for prompt in wrong], lambda case: check.refuses("generate", copy(case)))


@pytest.mark.hostile
@pytest.mark.clauses("DECODE-902")
def test_limits_and_temperatures_without_meaning_are_refused(check: Check) -> None:
    check.require("generate")
    cases = [asked([1, 0], max_new_tokens=0), asked([1, 0], max_new_tokens=-3), asked([1, 0], temperature=-1.0)]
    check.for_each(cases, lambda case: check.refuses("generate", copy(case)))


def asked(prompt: list[int], **changed: Any) -> GenerateCase:
    """One request beside a right one, three tokens long."""
    fields: dict[str, Any] = {"max_new_tokens": 3, "temperature": 0.0, "speculative": True, "seed": 1} | changed
    return GenerateCase([np.array([0, 1], dtype=np.int64), np.array(prompt, dtype=np.int64)], **fields)
