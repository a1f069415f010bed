"""Right drafters that look different: whole matrices, no cache, another precision, declared fusion orders."""

from __future__ import annotations

import numpy as np

from adapters.faulty.drafting import Array, Cache, Drafting, Net
from adapters.interface import NotApplicable
from oracle.types import DrafterCase, DraftRollout


class Float32(Drafting, dtype="float32"):
    """Computes and keeps everything in float32."""


class Bfloat16(Drafting, dtype="bfloat16"):
    """Stores every result in bfloat16, and adds up in float32."""


class EmbeddingFirst(Drafting, conventions={"fusion_order": "embedding_first"}):
    """Fuses the embedding first, says so, and reads no setting."""

    @classmethod
    def embedding_first(cls, net: Net) -> bool:
        return True


class FeatureFirst(Drafting, conventions={"fusion_order": "feature_first"}):
    """Fuses the feature first, says so, and reads no setting."""

    @classmethod
    def embedding_first(cls, net: Net) -> bool:
        return False


class Eagle3Alone(Drafting):
    """Knows EAGLE-3 as it is released, and no biases but the fusion's."""

    @classmethod
    def check(cls, case: DrafterCase) -> None:
        if case.variant != "eagle3":
            raise NotApplicable("EAGLE-3 as released is all there is")
        if any(name.endswith(".bias") and name != "fc.bias" for name in case.weights):
            raise NotApplicable("maps have no bias")
        super().check(case)


class TurnsByDistance(Drafting):
    """Counts positions from the prefix's first one: rotations are relative."""

    @classmethod
    def position(cls, net: Net, row: int) -> int:
        return super().position(net, row) - int(net.case.positions[0])


class SumsBackwards(Drafting):
    """Sees the rows from the last to the first, and adds products up in that order."""

    @classmethod
    def visible(cls, cache: Cache) -> Cache:
        return cache[::-1]

    @classmethod
    def linear(cls, net: Net, part: str, values: Array) -> Array:
        found = sum((column * value for column, value in zip(cls.matrix(net, part).T[::-1], values[::-1])))
        bias = cls.bias(net, part)
        return np.asarray(found if bias is None else found + bias)


class WithoutCache(Drafting):
    """Runs prefix and rollout anew for every step: each is the last row of a longer prefix."""

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        cls.check(case)
        net = Net(case, "float64")
        logits: list[Array] = []
        states: list[Array] = []
        for count in range(len(case.rollout_tokens) + 1):
            cache: Cache = []
            state = np.zeros(0)
            for row in range(len(case.tokens) + count):
                step = row - len(case.tokens)
                if step < 0:
                    fed = case.features[row] if net.eagle1 else cls.fuse_layers(net, case.features[row])
                    state = cls.row(net, cache, cls.token(net, row), fed, cls.position(net, row))
                else:
                    token, position = cls.rollout_token(case, step), cls.rollout_position(net, step)
                    state = cls.row(net, cache, token, states[step], position)
            states.append(state)
            logits.append(cls.logits(net, state))
        return cls.answer(net, states, logits)
