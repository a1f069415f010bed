"""Cases beyond the sizes that are drawn: more steps, more tokens, a larger set, many rows; and of narrow numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from conformance.losses.conventions import Settled, fields
from conformance.losses.strategies import rows
from oracle.types import DistillCase, Eagle1Case, HassLossCase, RegressionCase, RolloutLossCase, TopKCase

STEPS = 7
"""Of a long rollout; as many as trainers are configured for."""


def long_rollout(given: Settled, **asked: Any) -> RolloutLossCase:
    """Seven steps, with the weights that are released unless others are asked for."""
    rng = np.random.default_rng(7)
    draft, target = rows(rng, STEPS, 2, 3), rows(rng, STEPS, 2, 3)
    return RolloutLossCase(draft, target, np.ones((STEPS, 2), dtype=bool), **fields(given, STEPS, asked))


def _long_hass() -> HassLossCase:
    """Five steps of six rows, two of which count."""
    rng = np.random.default_rng(5)
    supervise = np.zeros((5, 6), dtype=bool)
    supervise[:, [1, 4]] = True
    return HassLossCase(rows(rng, 5, 6, 3), rows(rng, 6, 3), rows(rng, 4, 3), supervise, 2)


def _wide_hass() -> HassLossCase:
    """A head of 24 tokens, 10 of which are kept."""
    rng = np.random.default_rng(24)
    return HassLossCase(rows(rng, 1, 2, 3), rows(rng, 2, 3), rows(rng, 24, 3) / 4, np.array([[True, False]]), 10)


def _wide_top() -> TopKCase:
    """24 tokens, 10 of which are kept."""
    rng = np.random.default_rng(24)
    return TopKCase(rows(rng, 2, 24), rows(rng, 2, 24), np.array([False, True]), 10)


LONG_HASS, WIDE_HASS, WIDE_TOP = _long_hass(), _wide_hass(), _wide_top()


# ---- rows of any number

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
