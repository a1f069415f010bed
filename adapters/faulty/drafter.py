"""Drafters with one fault each: structure, residual, fusion, refusals; the modules that it imports hold the others.

`--impl=adapters.faulty.drafter:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from adapters.faulty.drafter_head import *  # noqa: F403 - one address for every fault
from adapters.faulty.drafter_layer import *  # noqa: F403
from adapters.faulty.drafter_rollout import *  # noqa: F403
from adapters.faulty.drafting import Array, Cache, Drafting, Net, other_weights
from oracle.types import DrafterCase, DraftRollout

# ---- structure


class EveryRowOfThePrefix(Drafting):
    """Gives the logits of each row of the prefix, not of its last one alone."""

    refutes = "DRAFTER-101"

    @classmethod
    def first_logits(cls, net: Net, prefix: list[Array]) -> Array:
        return np.array([cls.logits(net, state) for state in prefix])

    @classmethod
    def answer(cls, net: Net, states: list[Array], logits: list[Array]) -> DraftRollout:
        return DraftRollout(np.concatenate([logits[0], *(row[None] for row in logits[1:])]), np.array(states))


class LogitsOfTheTarget(Drafting):
    """Gives logits over the target's vocabulary, masked where the draft has no token."""

    refutes = "DRAFTER-101"

    @classmethod
    def answer(cls, net: Net, states: list[Array], logits: list[Array]) -> DraftRollout:
        wide = np.full((len(logits), len(net.case.weights["embed_tokens.weight"])), -np.inf)
        wide[:, : len(logits[0])] = logits
        return DraftRollout(wide, np.array(states))


class NoStepForThePrefix(Drafting):
    """Leaves the prefix's own logits out where tokens follow."""

    refutes = "DRAFTER-101"

    @classmethod
    def answer(cls, net: Net, states: list[Array], logits: list[Array]) -> DraftRollout:
        since = 1 if len(logits) > 1 else 0
        return DraftRollout(np.array(logits[since:]), np.array(states[since:]))


class FusesInPlace(Drafting):
    """Writes what it fused over the features it was given."""

    refutes = "DRAFTER-102"

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        found = super().draft_logits(case)
        case.features[:, : len(case.weights["fc.weight"])] = found.states[0]
        return found


class TakesWeightsOut(Drafting):
    """Moves the head out of the state dict that it was given."""

    refutes = "DRAFTER-102"

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        found = super().draft_logits(case)
        weights: Any = case.weights
        del weights["lm_head.weight"]
        return found


class KeepsTheCache(Drafting):
    """Attends to the rows of the case before, where these have the same size."""

    refutes = "DRAFTER-103"
    rows_before: ClassVar[dict[tuple[int, int], Cache]] = {}

    @classmethod
    def cache(cls, net: Net) -> Cache:
        return cls.rows_before.setdefault((net.groups, net.width), [])


class WarmStates(Drafting):
    """Feeds the last state of the case before to the first row, where it fits."""

    refutes = "DRAFTER-103"
    last: ClassVar[dict[str, Array]] = {}

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        cls.check(case)
        features, left = case.features.copy(), cls.last.get(case.variant)
        if left is not None and len(left) <= features.shape[1] and np.isfinite(left).all():
            features[0, : len(left)] = left
        found = super().draft_logits(dataclasses.replace(case, features=features))
        cls.last[case.variant] = found.states[-1]
        return found


# ---- residual


class ResidualDropped(Drafting):
    """Goes on with what attention gives, alone."""

    refutes = "DRAFTER-201"

    @classmethod
    def kept(cls, net: Net, residual: Array) -> Array:
        return np.zeros_like(residual)


class SecondResidualDropped(Drafting):
    """Goes on with what the feed-forward part gives, alone."""

    refutes = "DRAFTER-201"

    @classmethod
    def kept_again(cls, net: Net, middle: Array) -> Array:
        return np.zeros_like(middle)


class ResidualNormed(Drafting):
    """Adds attention to the normed row (vllm-project/vllm#14464 has the residual of another norm)."""

    refutes = "DRAFTER-201"

    @classmethod
    def kept(cls, net: Net, residual: Array) -> Array:
        return cls.norm(net, residual, net.weight("post_attention_layernorm" if net.eagle1 else "hidden_norm"))


class StateNormed(Drafting):
    """Hands out, and feeds back, the state after a norm."""

    refutes = "DRAFTER-201"

    @classmethod
    def state(cls, net: Net, state: Array) -> Array:
        return cls.norm(net, state, np.ones_like(state))


# ---- fusion


class FeatureOfTheRowBefore(Drafting):
    """Pairs a token with the feature of the row before."""

    refutes = "DRAFTER-301"

    @classmethod
    def feature(cls, case: DrafterCase, row: int) -> Array:
        return np.asarray(case.features[row - 1])


class FeatureNormed(Drafting):
    """Norms the target's features first: takes them for those before the target's last norm."""

    refutes = "DRAFTER-301"

    @classmethod
    def feature(cls, case: DrafterCase, row: int) -> Array:
        blocks = np.split(case.features[row], case.features.shape[1] // len(case.weights["fc.weight"]))
        return np.concatenate([block / np.sqrt(np.mean(block * block)) for block in blocks])


class TokenOfTheRowBefore(Drafting):
    """Pairs a feature with its own token instead of the next: tokens are not advanced."""

    refutes = "DRAFTER-302"

    @classmethod
    def token(cls, net: Net, row: int) -> int:
        return int(net.case.tokens[row - 1]) if row else 0


class OrderSwapped(Drafting):
    """Fuses the feature first where the embedding is, and the other way round."""

    refutes = "DRAFTER-303"

    @classmethod
    def embedding_first(cls, net: Net) -> bool:
        return not net.embedding_first


class OrderIgnored(Drafting):
    """Fuses the embedding first, always, and declares nothing."""

    refutes = "DRAFTER-303"

    @classmethod
    def embedding_first(cls, net: Net) -> bool:
        return True


class AnotherOrderThanDeclared(Drafting, conventions={"fusion_order": "feature_first"}):
    """Declares the feature first, and fuses the embedding first."""

    refutes = "DRAFTER-303"

    @classmethod
    def embedding_first(cls, net: Net) -> bool:
        return True


class HighestLayerFirst(Drafting):
    """Fuses the three layers from the highest down."""

    refutes = "DRAFTER-304"

    @classmethod
    def layers(cls, net: Net, layers: list[Array]) -> list[Array]:
        return layers[::-1]


class LayersOneOff(Drafting):
    """Addresses each layer by the number of the next one (SafeAILab/EAGLE#239)."""

    refutes = "DRAFTER-304"

    @classmethod
    def layers(cls, net: Net, layers: list[Array]) -> list[Array]:
        return [layers[1], layers[2], layers[0]]


class FusionWithoutBias(Drafting):
    """Has no bias in its fusion, whatever the checkpoint holds."""

    refutes = "DRAFTER-305"

    @classmethod
    def bias(cls, net: Net, part: str) -> Array | None:
        return None if part == "fc" else super().bias(net, part)


# ---- refusals


class MissingWeightsAreDrawn(Drafting):
    """Starts from fresh numbers where a weight is missing."""

    refutes = "DRAFTER-1001"

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        net = Net(case, "float64")
        fresh: dict[str, Any] = {}
        if "lm_head.weight" not in case.weights:
            fresh["lm_head.weight"] = np.cos(np.arange(9 * net.hidden)).reshape(9, net.hidden)
        return super().draft_logits(other_weights(case, fresh))


class WeightsAreCut(Drafting):
    """Reads as much of a matrix as it has room for."""

    refutes = "DRAFTER-1001"

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        width = len(np.ravel(case.weights.get("fc.weight", np.zeros((1, 1)))[:, 0]))
        cut = {name: values[:, :width] for name, values in case.weights.items() if name == "lm_head.weight"}
        return super().draft_logits(other_weights(case, cut))


class NarrowFeaturesAreRepeated(Drafting):
    """Takes an EAGLE-1 feature for each of the three layers."""

    refutes = "DRAFTER-1002"

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        if case.variant != "eagle1" and case.features.shape[1] == case.config["hidden_size"]:
            case = dataclasses.replace(case, features=np.tile(case.features, (1, 3)))
        return super().draft_logits(case)


class TokensWrapAround(Drafting):
    """Reads tokens modulo the vocabulary, as an index of −1 does."""

    refutes = "DRAFTER-1003"

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        table = case.weights.get("embed_tokens.weight")
        if table is not None:
            tokens, rollout = (values % len(table) for values in (case.tokens, case.rollout_tokens))
            case = dataclasses.replace(case, tokens=tokens, rollout_tokens=rollout)
        return super().draft_logits(case)


class NanIsZero(Drafting):
    """Replaces NaN by 0 before it computes."""

    refutes = "DRAFTER-1004"

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        clean = {name: np.nan_to_num(values) for name, values in case.weights.items()}
        return super().draft_logits(dataclasses.replace(case, weights=clean, features=np.nan_to_num(case.features)))
