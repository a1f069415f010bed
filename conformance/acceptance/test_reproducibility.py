"""Reproducibility: seeds mean what they promise, and a call leaves the rest of the world alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance import draw
from conformance.acceptance import strategies
from conformance.acceptance.calls import OPERATIONS, decide
from conformance.acceptance.cases import Batch, chain, coins, copy
from conformance.acceptance.side_effects import leaves_generators, stays_silent
from conformance.acceptance.test_structure import ragged
from conformance.check import Check
from conformance.verdicts import ClauseViolation, Inapplicable


def promised(check: Check, promise: str) -> None:
    check.require("verify_random")
    if promise not in check.implementation.declaration.promises:
        raise Inapplicable(f"the adapter does not promise {promise!r}")


@pytest.mark.clauses("ACCEPTANCE-801")
def test_the_same_seed_gives_the_same_decisions(check: Check) -> None:
    promised(check, "seed")

    def body(batch: Batch) -> None:
        crowd = Batch(batch.cases * 8, None, batch.seed)
        first, second = decide(check, "verify_random", crowd), decide(check, "verify_random", crowd)
        for i, (a, b) in enumerate(zip(first, second)):
            if a != b:
                raise ClauseViolation(
                    f"seed {batch.seed}, member {i}: first {draw.decision(a)}; again {draw.decision(b)}", crowd
                )

    check.for_all(strategies.ragged(), body)


@pytest.mark.clauses("ACCEPTANCE-802")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_other_generators_are_left_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        leaves_generators(check, operation, lambda: decide(check, operation, batch))

    check.for_all(ragged(operation), body, examples=5)


@pytest.mark.clauses("ACCEPTANCE-803")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_inputs_are_left_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        cases = [copy(case) for case in batch.cases]
        spent = [coins(c.accept.tolist(), c.frontier) for c in batch.coins or ()]
        more: dict[str, tuple[Any, ...]] = {"verify_sampled": (spent,), "verify_random": (check.seed,)}
        check.call(operation, cases, *more.get(operation, ()))
        for i, (before, after) in enumerate(zip(batch.cases, cases)):
            for name in ("parent", "token", "target_probs", "draft_probs"):
                if not same(getattr(before, name), getattr(after, name)):
                    raise ClauseViolation(f"{operation} wrote into {name} of member {i}")
        for i, (c, d) in enumerate(zip(batch.coins or (), spent)):
            if not same(c.accept, d.accept):
                raise ClauseViolation(f"{operation} wrote into the accept coins of member {i}")

    check.for_all(ragged(operation), body, examples=min(check.profile.examples, 40))


@pytest.mark.clauses("ACCEPTANCE-804")
def test_a_member_does_not_depend_on_those_beside_it(check: Check) -> None:
    promised(check, "batch_independent")

    def body(batch: Batch) -> None:
        whole = decide(check, "verify_random", batch)
        for count in range(1, len(batch.cases)):
            part = decide(check, "verify_random", Batch(batch.cases[:count], None, batch.seed))
            if part != whole[:count]:
                raise ClauseViolation(
                    f"seed {batch.seed}: the first {count} members are decided "
                    f"{'; '.join(map(draw.decision, part))} by themselves, and "
                    f"{'; '.join(map(draw.decision, whole[:count]))} with {len(batch.cases) - count} more behind them"
                )
        size = batch.cases[0].target_probs.shape[1]
        for place in range(len(batch.cases)):
            # another length is what shifts a stream of coins that the members share
            drafts = 0 if len(batch.cases[place].parent) else 2
            rows = np.full((drafts + 1, size), 1 / size).tolist()
            swapped = list(batch.cases)
            swapped[place] = chain([size - 1] * drafts, rows, None, "point")
            found = decide(check, "verify_random", Batch(tuple(swapped), None, batch.seed))
            for i, (first, second) in enumerate(zip(whole, found)):
                if i != place and first != second:
                    raise ClauseViolation(
                        f"seed {batch.seed}: member {i} is decided {draw.decision(first)}, and {draw.decision(second)} "
                        f"where member {place} has {drafts} drafts in the place of {len(batch.cases[place].parent)}"
                    )

    check.for_all(strategies.ragged(), body)


@pytest.mark.clauses("ACCEPTANCE-805")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_standard_output_stays_clean(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        stays_silent(check, operation, lambda: decide(check, operation, batch))

    check.for_all(ragged(operation), body, examples=3)


def same(before: np.ndarray | None, after: np.ndarray | None) -> bool:
    if before is None or after is None:
        return before is after
    return before.dtype == after.dtype and before.shape == after.shape and before.tobytes() == after.tobytes()
