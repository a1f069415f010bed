"""The conventions of losses: what an implementation has settled, and what is an argument of its operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.check import Check
from oracle.types import DENOMINATORS, DIVERGENCES, GATES, REDUCTIONS, RESTRICTED_TARGETS

VALUES: Mapping[str, tuple[str, ...]] = {
    "denominator": DENOMINATORS,
    "restricted_target": RESTRICTED_TARGETS,
    "gate": GATES,
    "divergence": DIVERGENCES,
    "reduction": REDUCTIONS,
}
"""Convention → its values; each is a field of a rollout's case."""
Settled = Mapping[str, Any]


def settled(check: Check) -> Settled:
    """What the implementation declares of a rollout's fields: values, an epsilon, and weights by step."""
    declared = check.implementation.declaration.conventions
    found: dict[str, Any] = {name: declared[name] for name in VALUES if name in declared}
    for name in ("denominator_epsilon", "step_decay"):
        if name in declared:
            found[name] = float(declared[name])
    return found


def weights(decay: float, steps: int) -> tuple[float, ...]:
    """The weights of steps that decay."""
    return tuple(decay**s for s in range(steps))


def fields(given: Settled, steps: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a case: what is settled, else what is asked."""
    found = dict(asked) | {name: given[name] for name in (*VALUES, "denominator_epsilon") if name in given}
    if "step_decay" in given:
        found["step_weights"] = weights(given["step_decay"], steps)
    return found


def surroundings(given: Settled, free: Sequence[str]) -> list[Settled]:
    """What is settled; and beside it each other value of `free` conventions that are not, one at a time."""
    others = [{**given, name: value} for name in free if name not in given for value in VALUES[name][1:]]
    return [given, *others]


def names(values: Sequence[str]) -> str:
    """Alternatives, for a sentence."""
    return " or ".join(values) if values else "none that the suite knows"
