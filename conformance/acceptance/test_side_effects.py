"""Warping and proposing touch nothing but their result, and keep what they promise."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from conformance.acceptance import proposing
from conformance.acceptance.test_reproducibility import global_states, stir
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
    """Call the operation for what it does beside its result; what it raises is for other clauses to judge."""
    try:
        check.call(operation, case)
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
        ask(check, operation, case)  # whatever a first call imports may seed what it likes
        stir()
        before = global_states()
        ask(check, operation, case)
        after = global_states()
        declared = check.implementation.declaration.generators
        moved = [name for name in before if name not in declared and before[name] != after[name]]
        if moved:
            raise ClauseViolation(f"{operation} moved the global generator of {' and '.join(moved)}")

    check.for_each(cases(operation, check.seed), body)


@pytest.mark.clauses("ACCEPTANCE-803")
def test_what_is_asked_of_a_proposer_is_left_alone(check: Check) -> None:
    check.require("propose")

    def body(case: ProposalCase) -> None:
        before = proposing.contents(case)
        ask(check, "propose", case)
        if proposing.contents(case) != before:
            raise ClauseViolation("propose wrote into its table or into its parents")

    check.for_each(cases("propose", check.seed), body)


@pytest.mark.clauses("ACCEPTANCE-805")
@pytest.mark.parametrize("operation", BESIDE)
def test_standard_output_stays_clean_beside_the_ladder(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as stream:  # where pytest captures, Python's is another one
            ask(check, operation, case)
        text = check.printed[:200].decode(errors="replace") or stream.getvalue()[:200]
        if text:
            raise ClauseViolation(f"{operation} wrote to standard output: {text!r}")

    check.for_each(cases(operation, check.seed), body)
