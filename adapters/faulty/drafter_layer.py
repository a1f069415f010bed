"""Drafters with one fault each: norms and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adapters.faulty.drafting import Array, Cache, Drafting, Net

# ---- norms


class EmbeddingNotNormed(Drafting):
    """Pairs the embedding as it is with the normed feature."""

    refutes = "DRAFTER-401"

    @classmethod
    def halves(cls, net: Net, embedding: Array, residual: Array) -> Array:
        return np.concatenate([embedding, cls.norm(net, residual, net.weight("hidden_norm"))])


class NormsTwice(Drafting):
    """Norms what is normed already."""

    refutes = "DRAFTER-401"

    @classmethod
    def norm(cls, net: Net, values: Array, weight: Array) -> Array:
        return super().norm(net, super().norm(net, values, weight), weight)


class NormsWithoutWeight(Drafting):
    """Divides by the root mean square, and weighs nothing."""

    refutes = "DRAFTER-401"

    @classmethod
    def norm(cls, net: Net, values: Array, weight: Array) -> Array:
        return super().norm(net, values, np.ones_like(weight))


class EpsilonOutsideOfTheRoot(Drafting):
    """Adds epsilon to the root, not to the mean square."""

    refutes = "DRAFTER-401"

    @classmethod
    def root(cls, net: Net, values: Array) -> Any:
        return np.sqrt((values * values).sum() / len(values)) + net.epsilon


class EpsilonOfItsOwn(Drafting):
    """Norms with an epsilon of 1e-6, whatever the configuration says."""

    refutes = "DRAFTER-401"

    @classmethod
    def root(cls, net: Net, values: Array) -> Any:
        return np.sqrt((values * values).sum() / len(values) + 1e-6)


class TakesTheMeanAway(Drafting):
    """Has a layer norm where a norm by the root mean square belongs."""

    refutes = "DRAFTER-401"

    @classmethod
    def norm(cls, net: Net, values: Array, weight: Array) -> Array:
        return super().norm(net, values - values.mean(), weight)


class InputNormInEagle1(Drafting):
    """Norms the fused row before attention, as a Llama layer does."""

    refutes = "DRAFTER-402"

    @classmethod
    def seen_of_one(cls, net: Net, residual: Array) -> Array:
        return cls.norm(net, residual, np.ones_like(residual))


class FeatureFirstInThePair(Drafting):
    """Sets the normed feature before the normed embedding."""

    refutes = "DRAFTER-403"

    @classmethod
    def halves(cls, net: Net, embedding: Array, residual: Array) -> Array:
        return np.roll(super().halves(net, embedding, residual), net.hidden)


class NormsExchanged(Drafting):
    """Norms the embedding by the feature's weight, and the feature by the embedding's."""

    refutes = "DRAFTER-403"

    @classmethod
    def halves(cls, net: Net, embedding: Array, residual: Array) -> Array:
        token = cls.norm(net, embedding, net.weight("hidden_norm"))
        return np.concatenate([token, cls.norm(net, residual, net.weight("input_layernorm"))])


class NormsThePairAsOne(Drafting):
    """Norms embedding and feature over both of their widths at once."""

    refutes = "DRAFTER-403"

    @classmethod
    def halves(cls, net: Net, embedding: Array, residual: Array) -> Array:
        weight = np.concatenate([net.weight("input_layernorm"), net.weight("hidden_norm")])
        return cls.norm(net, np.concatenate([embedding, residual]), weight)


class ProjectsBeforeTheNorms(Drafting):
    """Projects embedding and feature as they are, and norms what comes out."""

    refutes = "DRAFTER-404"

    @classmethod
    def pair(cls, net: Net, embedding: Array, residual: Array) -> Array:
        if not net.projected:
            return super().pair(net, embedding, residual)
        projected = cls.project(net, np.concatenate([embedding, residual]))
        return cls.norm(net, projected, net.weight("hidden_norm"))


class ProjectionIgnored(Drafting):
    """Attends from the normed feature alone where the pair is projected."""

    refutes = "DRAFTER-404"

    @classmethod
    def project(cls, net: Net, halves: Array) -> Array:
        return halves[net.hidden :]


# ---- attention


class MissesTheFirstRow(Drafting):
    """Does not see the first row of the prefix, where there are others."""

    refutes = "DRAFTER-501"

    @classmethod
    def visible(cls, cache: Cache) -> Cache:
        return cache[1:] or cache


class SeesItselfAlone(Drafting):
    """Runs a prefix without its cache."""

    refutes = "DRAFTER-501"

    @classmethod
    def visible(cls, cache: Cache) -> Cache:
        return cache[-1:]


class DoesNotSeeItself(Drafting):
    """Has its own key masked, as a strictly lower triangle does."""

    refutes = "DRAFTER-501"

    @classmethod
    def visible(cls, cache: Cache) -> Cache:
        return cache[:-1] or cache


class TokenOfTheRowBeforeInEagle3(Drafting):
    """Advances the tokens of EAGLE-1 alone."""

    refutes = "DRAFTER-502"

    @classmethod
    def token(cls, net: Net, row: int) -> int:
        if net.eagle1:
            return super().token(net, row)
        return int(net.case.tokens[row - 1]) if row else 0


class HeadsTakeGroupsInTurn(Drafting):
    """Tiles keys and values over the heads instead of repeating each."""

    refutes = "DRAFTER-503"

    @classmethod
    def group(cls, net: Net, head: int) -> int:
        return head % net.groups


class OneGroupForAll(Drafting):
    """Reads the first key and value head alone."""

    refutes = "DRAFTER-503"

    @classmethod
    def group(cls, net: Net, head: int) -> int:
        return 0


class PositionsAreRowNumbers(Drafting):
    """Numbers the rows, whatever positions are given."""

    refutes = "DRAFTER-504"

    @classmethod
    def position(cls, net: Net, row: int) -> int:
        return row


class KeysNotTurned(Drafting):
    """Turns queries alone."""

    refutes = "DRAFTER-504"

    @classmethod
    def turn_keys(cls, net: Net, rows: Array, position: int) -> Array:
        return rows


class NotTurned(Drafting):
    """Has no positions at all."""

    refutes = "DRAFTER-504"

    @classmethod
    def turn(cls, net: Net, rows: Array, position: int) -> Array:
        return rows


class NotScaled(Drafting):
    """Leaves scores undivided."""

    refutes = "DRAFTER-505"

    @classmethod
    def scale(cls, net: Net) -> float:
        return 1.0


class ScaledByHiddenOverHeads(Drafting):
    """Takes hidden / heads for the width of a head when it scales."""

    refutes = "DRAFTER-505"

    @classmethod
    def scale(cls, net: Net) -> float:
        return 1 / math.sqrt(net.hidden / net.heads)


class NeighboursTurn(Drafting):
    """Turns entry 2i with entry 2i + 1, as GPT-J does (NVIDIA/TensorRT-LLM#19036)."""

    refutes = "DRAFTER-506"

    @classmethod
    def pairs(cls, net: Net) -> list[tuple[int, int]]:
        return [(2 * i, 2 * i + 1) for i in range(net.width // 2)]


class BaseOfItsOwn(Drafting):
    """Turns by a base of 10000, whatever the configuration says."""

    refutes = "DRAFTER-507"

    @classmethod
    def frequency(cls, net: Net, i: int) -> float:
        return float(10000.0 ** (-2 * i / net.width))


class ExponentHalved(Drafting):
    """Raises the base to −i / width."""

    refutes = "DRAFTER-507"

    @classmethod
    def frequency(cls, net: Net, i: int) -> float:
        return float(net.theta ** (-i / net.width))
