"""Warping and proposing touch nothing but their result, and keep what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.acceptance import proposing, warped
from conformance.acceptance.side_effects import leaves_generators, stays_silent
from conformance.acceptance.warp_cases import COLD_BESIDE_WARM, ORDER_ROWS
from conformance.check import Check, Raised
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import ProposalCase, WarpCase

BESIDE = ("warp", "propose")


def cases(operation: str, seed: int) -> list[Any]:
    """A few cases of an operation, in every form it takes."""
    if operation == "warp":
        return [ORDER_ROWS[0], WarpCase(COLD_BESIDE_WARM.logits, 0.5)]
    model = proposing.model("iid")
    chain = proposing.law_shapes("iid")[1]
    return [proposing.asked(m, 8, seed, layers=layers) for m in (model, chain) for layers in (False, True)]


def ask(check: Check, operation: str, case: Any) -> None:
    """Call the operation, on containers of its own; what it raises is for other clauses to judge."""
    own = warped.copy(case) if operation == "warp" else proposing.copy(case)
    call(check, operation, own)


def call(check: Check, operation: str, handed: Any) -> None:
    try:
        check.call(operation, handed)
    except Raised as error:
        raise Inapplicable(f"{operation} raised, which other clauses judge: {error.reason}") from None


@pytest.mark.clauses("ACCEPTANCE-801")
def test_the_same_seed_gives_the_same_drafts(check: Check) -> None:
    check.require("propose")
    if "seed" not in check.implementation.declaration.promises:
        raise Inapplicable("the adapter does not promise 'seed'")

    def body(case: ProposalCase) -> None:
        first, again = (np.asarray(check.call("propose", proposing.copy(case)).token) for _ in range(2))
        if not np.array_equal(first, again):
            raise ClauseViolation(f"seed {case.seed}: first {first.tolist()}; again {again.tolist()}")

    check.for_each(cases("propose", check.seed), body)


@pytest.mark.clauses("ACCEPTANCE-802")
@pytest.mark.parametrize("operation", BESIDE)
def test_generators_are_left_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: Any) -> None:
        leaves_generators(check, operation, lambda: ask(check, operation, case))

    check.for_each(cases(operation, check.seed), body)


@pytest.mark.clauses("ACCEPTANCE-803")
def test_what_is_asked_of_a_proposer_is_left_alone(check: Check) -> None:
    check.require("propose")

    def body(case: ProposalCase) -> None:
        handed = proposing.copy(case)
        call(check, "propose", handed)
        if proposing.contents(handed) != proposing.contents(case):
            raise ClauseViolation("propose wrote into its table or into its parents")

    check.for_each(cases("propose", check.seed), body)


@pytest.mark.clauses("ACCEPTANCE-805")
@pytest.mark.parametrize("operation", BESIDE)
def test_standard_output_stays_clean_beside_the_ladder(check: Check, operation: str) -> None:
    check.require(operation)
    check.for_each(
        cases(operation, check.seed), lambda case: stays_silent(check, operation, lambda: ask(check, operation, case))
    )
