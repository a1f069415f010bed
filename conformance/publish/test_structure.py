"""Structure: one state a request, arrays that are left alone, a prompt that stays."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import strategies as st

from conformance.check import Check, Raised
from conformance.handout import copy, written
from conformance.publish import asking, strategies
from conformance.publish.cases import (
    CHAINS,
    ENDS,
    GAPS,
    MAPPED,
    MIXED,
    NOTHING,
    RAGGED,
    TWINS,
    WHOLE,
    WITHOUT_ROOT,
    Rounds,
)
from conformance.verdicts import ClauseViolation
from oracle.types import CommittedState, PublishCase


@pytest.mark.clauses("PUBLISH-101")
def test_the_form_of_states(check: Check) -> None:
    check.require("publish")
    drawn = st.lists(strategies.rounds(), min_size=1, max_size=3).map(lambda rounds: Rounds(tuple(rounds)))
    first = [*(Rounds((case,)) for case in CHAINS), Rounds(CHAINS), Rounds((WHOLE, WHOLE))]
    check.for_all(drawn, lambda call: asking.published(check, call.rounds), examples=asking.few(check), first=first)


@pytest.mark.clauses("PUBLISH-101")
def test_an_empty_batch(check: Check) -> None:
    check.require("publish")
    check.for_each([Rounds(())], lambda call: asking.published(check, call.rounds))


@pytest.mark.clauses("PUBLISH-102")
def test_the_case_is_left_alone(check: Check) -> None:
    check.require("publish")

    def body(call: Rounds) -> None:
        mine = copy(call)
        with contextlib.suppress(Raised):  # what it does not publish is another clause's
            check.call("publish", list(mine.rounds))
        if names := written(call, mine):
            raise ClauseViolation(f"publish wrote into {', '.join(names)}")

    alone = (*CHAINS, *NOTHING, *GAPS, *MAPPED, *TWINS, *WITHOUT_ROOT, *ENDS)
    check.for_each([*(Rounds((case,)) for case in alone), RAGGED, MIXED], body)


@pytest.mark.clauses("PUBLISH-103")
def test_the_prompt_stays(check: Check) -> None:
    def body(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
        if found.prompt.tolist() != right.prompt.tolist():
            raise ClauseViolation(f"the prompt is {right.prompt.tolist()}; found {found.prompt.tolist()}")

    asking.every(check, strategies.rounds(), CHAINS, body)
