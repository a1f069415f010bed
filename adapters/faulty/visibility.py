"""Rollouts with one fault each: structure, nodes and positions; `visibility_seen` and `_shown` hold the others.

`--impl=adapters.faulty.visibility:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from adapters.faulty.unrolling import Node, Rollout
from adapters.faulty.visibility_seen import *  # noqa: F403 - one address for every fault
from adapters.faulty.visibility_shown import *  # noqa: F403
from oracle.types import Flags, RolloutCase, RolloutMaskCase, VisibilityGraph

# ---- structure


class MaskCachedByStep(Rollout):
    """Keeps the mask of each number of steps, whatever length it was made for (NVIDIA/Model-Optimizer#1343)."""

    refutes = "VISIBILITY-101"
    cache: ClassVar[dict[tuple[int, str], Flags]] = {}

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        cls.validate(case)
        key = case.steps, anchor
        if key not in cls.cache:
            cls.cache[key] = super().masked(case, anchor)
        return cls.cache[key]


class GraphCachedByLength(Rollout):
    """Keeps the graph of each length, whatever number of steps it was made for."""

    refutes = "VISIBILITY-101"
    cache: ClassVar[dict[int, tuple[list[Node], Flags]]] = {}

    @classmethod
    def graph(cls, case: RolloutCase) -> tuple[list[Node], Flags]:
        cls.validate(case)
        if case.length not in cls.cache:
            cls.cache[case.length] = super().graph(case)
        return cls.cache[case.length]


class VisibleOverAllRows(Rollout):
    """Says who sees whom for every two rows of the steps, not for every two nodes."""

    refutes = "VISIBILITY-102"

    @classmethod
    def rollout_visibility(cls, case: RolloutCase) -> VisibilityGraph:
        square = cls.masked(case, "start").reshape(case.steps * case.length, case.steps * case.length)
        return dataclasses.replace(super().rollout_visibility(case), visible=square)


class MaskOfNumbers(Rollout):
    """Hands out a mask that is added to scores: 0 and −inf, and no booleans."""

    refutes = "VISIBILITY-102"

    @classmethod
    def rollout_mask(cls, case: RolloutMaskCase) -> Any:
        return np.where(super().rollout_mask(case), 0.0, -np.inf)


class AnchorByAnchor(Rollout):
    """Orders nodes by anchor, and the steps of an anchor together."""

    refutes = "VISIBILITY-103"

    @classmethod
    def nodes(cls, case: RolloutCase) -> list[Node]:
        return sorted(super().nodes(case), key=lambda node: (node[1], node[0]))


class ANodeForNothing(Rollout):
    """Fills a rollout without nodes with one at address 0, so that no tensor is empty."""

    refutes = "VISIBILITY-104"

    @classmethod
    def nodes(cls, case: RolloutCase) -> list[Node]:
        return super().nodes(case) or ([(0, 0)] if case.length else [])


class MarksPaddingInPlace(Rollout):
    """Writes −1 into the segments of invalid addresses, in the case that it was handed."""

    refutes = "VISIBILITY-105"

    @classmethod
    def validate(cls, case: RolloutCase) -> None:
        super().validate(case)
        case.segment[~case.valid] = -1


# ---- nodes


class OneNodeTooMany(Rollout):
    """Keeps the node whose token has just run out of the sequence."""

    refutes = "VISIBILITY-201"

    @classmethod
    def exists(cls, case: RolloutCase, s: int, a: int) -> bool:
        return all(cls.holds(case, a + i) and cls.same(case, a, a + i) for i in range(s + 1))


class EveryStepOneRowLess(Rollout):
    """Drops the first anchor of each step, as an absolute row does that has lost its anchor."""

    refutes = "VISIBILITY-201"

    @classmethod
    def exists(cls, case: RolloutCase, s: int, a: int) -> bool:
        return super().exists(case, s, a) and a >= s


class FourStepsAtMost(Rollout):
    """Stops after four steps, however many are asked for (NVIDIA/Model-Optimizer#548)."""

    refutes = "VISIBILITY-201"

    @classmethod
    def exists(cls, case: RolloutCase, s: int, a: int) -> bool:
        return super().exists(case, s, a) and s < 4


class PaddingIsAToken(Rollout):
    """Looks whether the anchor is valid, and never at the addresses after it."""

    refutes = "VISIBILITY-202"

    @classmethod
    def exists(cls, case: RolloutCase, s: int, a: int) -> bool:
        inside = cls.holds(case, a) and a + s + 1 < case.length
        return inside and all(cls.same(case, a, a + i) for i in range(s + 2))


class CountsValidTokens(Rollout):
    """Takes the first S valid tokens to be the first S addresses, wherever they stand."""

    refutes = "VISIBILITY-202"

    @classmethod
    def holds(cls, case: RolloutCase, t: int) -> bool:
        return 0 <= t < int(case.valid.sum())


class CrossesSegments(Rollout):
    """Rolls the tokens of a pack along, wherever its sequences end (vllm-project/speculators)."""

    refutes = "VISIBILITY-203"

    @classmethod
    def exists(cls, case: RolloutCase, s: int, a: int) -> bool:
        return all(cls.holds(case, a + i) for i in range(s + 2))


class OnlyTheEndsAreCompared(Rollout):
    """Compares the segments of a node's anchor and of its token, and never of what lies between."""

    refutes = "VISIBILITY-203"

    @classmethod
    def exists(cls, case: RolloutCase, s: int, a: int) -> bool:
        return all(cls.holds(case, a + i) for i in range(s + 2)) and cls.same(case, a, a + s + 1)


class SegmentMinusOneIsPadding(Rollout):
    """Takes the segment id −1 for padding, although its tokens are valid."""

    refutes = "VISIBILITY-203"

    @classmethod
    def holds(cls, case: RolloutCase, t: int) -> bool:
        return super().holds(case, t) and bool(case.segment[t] != -1)


# ---- positions


class PositionsByRow(Rollout):
    """Numbers addresses from 0, whatever positions they are given."""

    refutes = "VISIBILITY-301"

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return node[1] + node[0]


class CountsFromOneUndeclared(Rollout):
    """Counts positions from 1 and does not say so (vllm-project/speculators counts so, and may)."""

    refutes = "VISIBILITY-301"

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return super().position(case, node) + 1


class PositionsStandStill(Rollout):
    """Leaves every step at the positions of step 0 (sgl-project/SpecForge#244)."""

    refutes = "VISIBILITY-302"

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return int(cls.places(case)[node[1]])


class PositionsAdvancedTwice(Rollout):
    """Adds the step to positions that the attention has already advanced (SafeAILab/EAGLE, one day in October 2025)."""

    refutes = "VISIBILITY-302"

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return super().position(case, node) + node[0]


class OwnPositionsUndeclared(Rollout):
    """Gives a node the position of address a + s, undeclared: where positions skip it is another."""

    refutes = "VISIBILITY-302"

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return int(cls.places(case)[node[0] + node[1]])
