"""The rollouts of EAGLE-1/2's and HASS's training scripts, whose attention is watched.

The statements of the loop run as for the rows, with the clone's own drafter. HASS's attention projects the states of
all steps anew in each step: a state is known by what it was when it was the newest, and gets the value of that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters import clone_features as features
from adapters import rollout_attention as shared
from adapters.clones import Clone
from adapters.interface import AdapterError, NotApplicable
from oracle.types import Attended, AttentionCase, RolloutCase, Rows, VisibilityGraph


class Attention:
    """The operations over the drafter of a clone. most: the steps that the loop has, where it has a number of them."""

    def __init__(self, clone: Clone, script: features.Script, model: str, absolute: bool, most: int = 0) -> None:
        self._clone, self._script, self._model, self._most = clone, script, model, most
        self._trainer = shared.Trainer(self._attend, shared.longest, absolute=absolute)

    def rollout_visibility(self, case: RolloutCase) -> VisibilityGraph:
        """Whom the rows of a rollout give weight to."""
        return shared.visibility(self._trainer, case)

    def rollout_attention(self, cases: Sequence[AttentionCase]) -> list[Attended]:
        """What the attention makes of given values; the cases are one padded batch."""
        return shared.attention(self._trainer, cases)

    def _attend(self, given: Sequence[shared.Document], steps: int, value: Rows) -> shared.Seen:
        if self._most and steps > self._most:
            raise NotApplicable("its drafter is trained on the target's features alone, which is one step")
        if steps > 1 + shared.longest(given, steps):
            raise NotApplicable("its attention has no mask for more steps than a sequence has tokens, and one")
        names = self._script.namespace()
        torch = names["torch"]
        injected = shared.widened(torch, value).double()
        shape, width = (len(given), shared.longest(given, steps)), injected.shape[3]
        features.steps_of(names, steps)
        ids = np.arange(shape[0] * shape[1]).reshape(shape)  # no two rows are alike
        drafter = features.Watched(self._clone, self._model, ids.size, width)
        rows = np.random.default_rng(0).normal(size=(*shape, width))
        cut = features.cut(torch, shared.as_samples(given), rows, ids, np.ones(shape, dtype=bool))
        newest: list[Any] = []

        def valued(fed: Any) -> Any:
            states = fed if fed.dim() == 4 else fed[None]
            newest.append(states[-1])
            made = torch.stack([injected[_step(torch, newest, state)] for state in states])
            return made if fed.dim() == 4 else made[0]

        with torch.no_grad(), shared.probed(drafter.attention, valued) as outputs:
            self._script.run(names, drafter, self._script.batch(names, cut), head=lambda found: found)
        kept = np.stack([fed.visible.numpy() for fed in drafter.fed])
        return shared.stacked(outputs, [fed.positions for fed in drafter.fed], kept, value)


def _step(torch: Any, newest: Sequence[Any], state: Any) -> int:
    """The step whose newest states these are."""
    for step, known in enumerate(newest):
        if torch.allclose(known, state):
            return step
    raise AdapterError("the attention is fed states that never were the newest")
