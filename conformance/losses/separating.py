"""Cases that tell conventions apart, and the values that could explain an answer to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.losses import judge
from conformance.losses.cases import SEPARATING, SMALL
from conformance.losses.conventions import VALUES, Settled, fields, weights
from conformance.losses.tolerance import Counter, number
from conformance.roads import losses as road
from oracle.types import RolloutLossCase

DECAYS = (0.8, 1.0, 0.9, 0.5)
EPSILONS = (0.0, 1e-5, 1e-3, 1.0)
CONVENTIONS = (*VALUES, "denominator_epsilon", "step_decay")


def candidates(name: str) -> Sequence[Any]:
    """The values of a convention, or usual ones of a number."""
    return {"denominator_epsilon": EPSILONS, "step_decay": DECAYS}.get(name) or VALUES[name]


def separating(name: str, value: Any, given: Settled) -> Iterator[RolloutLossCase]:
    """Cases of the value on which other values of the convention answer otherwise."""
    steps = len(SMALL.draft_logits) if name == "denominator_epsilon" else len(SEPARATING.draft_logits)
    base = SMALL if name == "denominator_epsilon" else SEPARATING
    asked: dict[str, Any] = {}
    if name == "step_decay":
        asked["step_weights"] = weights(value, steps)
    else:
        asked[name] = value
    made = dataclasses.replace(base, **fields(given, steps, asked))
    yield made
    if name == "step_decay" and name not in given and value == DECAYS[0]:
        yield dataclasses.replace(made, step_weights=None)


def alternatives(case: RolloutLossCase, name: str, given: Settled) -> Iterator[tuple[Any, RolloutLossCase]]:
    """The case under each value of the convention, the declared one among them."""
    extra = [given[name]] if name in given else []
    for value in dict.fromkeys([*extra, *candidates(name)]):
        if name == "step_decay":
            yield value, dataclasses.replace(case, step_weights=weights(value, len(case.draft_logits)))
        else:
            yield value, dataclasses.replace(case, **{name: value})


def shown_value(name: str, case: RolloutLossCase) -> Any:
    """The value of the convention in a case."""
    if name != "step_decay":
        return getattr(case, name)
    return DECAYS[0] if case.step_weights is None else list(case.step_weights)[1]


def apart(one: RolloutLossCase, other: RolloutLossCase, dtype: str) -> bool:
    """Whether the dtype tells the losses or the parts of two cases apart."""
    left, right = road.rollout_loss(one, False), road.rollout_loss(other, False)
    bounds = [Counter(case, dtype).bounds(loss, False) for case, loss in ((one, left), (other, right))]
    values = [[loss.value, *(part.value for part in loss.parts)] for loss in (left, right)]
    allowed = [[bound.value, *bound.parts] for bound in bounds]
    return any(
        not judge.close(number(a), number(b), None if x is None or y is None else x + y)
        for a, b, x, y in zip(*values, *allowed)
    )
