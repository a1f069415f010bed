"""Cases beyond the sizes that are drawn: more steps, more tokens, a larger set; few rows, so that they stay cheap."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.losses.conventions import Settled, fields
from conformance.losses.strategies import rows
from oracle.types import HassLossCase, RolloutLossCase, TopKCase

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
