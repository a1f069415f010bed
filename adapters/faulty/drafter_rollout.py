"""Drafters with one fault each: biases beside the fusion's, and the rollout."""

from __future__ import annotations

import numpy as np

from adapters.faulty.drafting import Array, Cache, Drafting, Net
from oracle.types import DrafterCase

# ---- biases


class AttentionWithoutBias(Drafting):
    """Has no bias in queries, keys and values, whatever the checkpoint holds."""

    refutes = "DRAFTER-801"

    @classmethod
    def bias(cls, net: Net, part: str) -> Array | None:
        return None if part in ("q_proj", "k_proj", "v_proj") else super().bias(net, part)


class OutputsWithoutBias(Drafting):
    """Has no bias where attention and the feed-forward part end."""

    refutes = "DRAFTER-801"

    @classmethod
    def bias(cls, net: Net, part: str) -> Array | None:
        return None if part in ("o_proj", "down_proj") else super().bias(net, part)


class HeadWithoutBias(Drafting):
    """Has no bias in its head, whatever the checkpoint holds."""

    refutes = "DRAFTER-801"

    @classmethod
    def bias(cls, net: Net, part: str) -> Array | None:
        return None if part == "lm_head" else super().bias(net, part)


# ---- rollout


class FeedsBackNormed(Drafting):
    """Feeds back what the head reads, and hands out the state before it."""

    refutes = "DRAFTER-901"

    @classmethod
    def fed_back(cls, net: Net, states: list[Array]) -> Array:
        weight = np.ones_like(states[-1]) if net.eagle1 else net.weight("norm")
        return cls.norm(net, states[-1], weight)


class FeedsBackTheFirstState(Drafting):
    """Feeds back the prefix's state at every step."""

    refutes = "DRAFTER-901"

    @classmethod
    def fed_back(cls, net: Net, states: list[Array]) -> Array:
        return states[0]


class FusesTheStateAgain(Drafting):
    """Passes the state through the fusion, as each of its three layers."""

    refutes = "DRAFTER-902"

    @classmethod
    def fed_back(cls, net: Net, states: list[Array]) -> Array:
        return states[-1] if net.eagle1 else cls.fuse_layers(net, np.tile(states[-1], 3))


class RolloutSeesItselfAlone(Drafting):
    """Starts every rollout row with an empty cache."""

    refutes = "DRAFTER-903"

    @classmethod
    def rollout_cache(cls, net: Net, cache: Cache) -> Cache:
        return []


class RolloutForgetsItself(Drafting):
    """Shows a rollout row the prefix, and no rollout row before it: as the siblings of a tree."""

    refutes = "DRAFTER-903"

    @classmethod
    def rollout_cache(cls, net: Net, cache: Cache) -> Cache:
        return cache[: len(net.case.tokens)]


class RolloutForgetsThePrefix(Drafting):
    """Drops the prefix's keys and values when the rollout begins."""

    refutes = "DRAFTER-903"

    @classmethod
    def rollout_cache(cls, net: Net, cache: Cache) -> Cache:
        return cache[len(net.case.tokens) :]


class PositionStays(Drafting):
    """Leaves every rollout token at the prefix's last position."""

    refutes = "DRAFTER-904"

    @classmethod
    def rollout_position(cls, net: Net, step: int) -> int:
        return int(net.case.positions[-1])


class RolloutPositionsByRow(Drafting):
    """Counts rows when the rollout begins, whatever positions were given."""

    refutes = "DRAFTER-904"

    @classmethod
    def rollout_position(cls, net: Net, step: int) -> int:
        return len(net.case.tokens) + step


class PositionOneLate(Drafting):
    """Leaves a position out between prefix and rollout."""

    refutes = "DRAFTER-904"

    @classmethod
    def rollout_position(cls, net: Net, step: int) -> int:
        return int(net.case.positions[-1]) + 2 + step


class TokensOneStepLate(Drafting):
    """Consumes the token of the step before."""

    refutes = "DRAFTER-905"

    @classmethod
    def rollout_token(cls, case: DrafterCase, step: int) -> int:
        return int(case.rollout_tokens[step - 1] if step else case.tokens[-1])


class FiveTokensAtMost(Drafting):
    """Has room for five rollout tokens, and repeats the last of them."""

    refutes = "DRAFTER-905"

    @classmethod
    def rollout_token(cls, case: DrafterCase, step: int) -> int:
        return int(case.rollout_tokens[min(step, 4)])
