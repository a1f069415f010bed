"""Large logits, laws without a choice, masses that underflow; the precision of a sum."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.losses import judge, strategies
from conformance.losses.cases import edges
from conformance.losses.conventions import settled
from conformance.losses.large import MANY, made, sixteenths


@pytest.mark.clauses("LOSSES-1001")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_extreme_numbers(check: Check, operation: str) -> None:
    check.require(operation)
    check.for_each(edges(operation, settled(check)), lambda case: judge.whole(check, operation, case, False))


@pytest.mark.clauses("LOSSES-1002")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_narrow_inputs_do_not_narrow_the_sum(check: Check, operation: str) -> None:
    check.require(operation)
    cases = [made(operation, settled(check), seed, sixteenths, 3, 17, 5) for seed in (1, 2)]
    check.for_each(cases, lambda case: judge.whole(check, operation, case, False))


@pytest.mark.clauses("LOSSES-1003")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_many_rows(check: Check, operation: str) -> None:
    check.require(operation)
    case = made(operation, settled(check), 3, strategies.rows, MANY, 3, 2)
    check.for_each([case], lambda case: judge.value(check, operation, case))
