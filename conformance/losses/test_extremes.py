"""Large logits, laws without a choice, masses that underflow; the precision of a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from conformance.check import Check
from conformance.losses import judge, strategies
from conformance.losses.cases import edges
from conformance.losses.conventions import Settled, fields, settled
from oracle.types import DistillCase, Eagle1Case, HassLossCase, RegressionCase, RolloutLossCase, TopKCase


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


MANY = 258
"""All but one count: one more than a power of two, so that the last block of any size is a short one."""
Numbers = Callable[..., np.ndarray]


def sixteenths(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Multiples of 1/16 below 8: bfloat16 holds them."""
    return rng.integers(-127, 128, shape) / 16


def made(operation: str, given: Settled, seed: int, numbers: Numbers, count: int, vocabulary: int, width: int) -> Any:
    """A case of an operation of that many rows, the second of which is not supervised."""
    rng = np.random.default_rng(seed)
    supervise = np.arange(count) != 1
    two = np.stack([supervise, supervise[::-1]])

    def of(*shape: int) -> np.ndarray:
        return numbers(rng, *shape)

    makers: Mapping[str, Callable[[], Any]] = {
        "feature_regression": lambda: RegressionCase(of(count, width), of(count, width), supervise),
        "soft_cross_entropy": lambda: DistillCase(of(count, vocabulary), of(count, vocabulary), supervise),
        "topk_distillation": lambda: TopKCase(
            of(count, vocabulary), distinct(of(count, vocabulary)), supervise, vocabulary // 2
        ),
        "eagle1_loss": lambda: Eagle1Case(of(count, width), of(count, width), of(vocabulary, width) / 4, supervise),
        "hass_loss": lambda: HassLossCase(
            of(2, count, width), of(count, width), of(vocabulary, width) / 4, two, vocabulary // 2
        ),
        "rollout_loss": lambda: RolloutLossCase(
            of(2, count, vocabulary), of(2, count, vocabulary), two, **fields(given, 2, {})
        ),
    }
    return makers[operation]()


def distinct(logits: np.ndarray) -> np.ndarray:
    """Ties are another clause's: equal logits move apart by what bfloat16 still holds."""
    for row in logits:
        while len(set(row.tolist())) < len(row):
            seen: set[float] = set()
            for v, x in enumerate(row.tolist()):
                row[v] = x if x not in seen else (x + 1 / 16 if x < 7 else -7.0)
                seen.add(x)
    return logits
