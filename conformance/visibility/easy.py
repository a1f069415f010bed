"""Easy cases of the visibility contract: what the smoke step asks of an adapter."""

from __future__ import annotations

from typing import Any

from adapters.interface import Declaration
from conformance.visibility.cases import rollout, traced
from oracle.types import ROW_ANCHORS, RolloutMaskCase

STEPS = (1, 2)


def easy(operation: str, _: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Arguments of `operation`, and the fields of its answer, or of each member of it."""
    rollouts = [rollout(5, steps) for steps in STEPS]
    cases: dict[str, tuple[list[Any], tuple[str, ...]]] = {
        "rollout_visibility": (rollouts, ("step", "anchor", "visible")),
        "rollout_mask": ([RolloutMaskCase(case, anchor) for case in rollouts for anchor in ROW_ANCHORS], ()),
        "rollout_attention": ([[traced(case)] for case in rollouts], ("step", "anchor", "output")),
    }
    return cases[operation]
