"""Rollouts with one fault each in who sees whom: step 0, later steps, segments and padding."""

from __future__ import annotations

import numpy as np

from adapters.faulty.unrolling import Node, Rollout
from oracle.types import RolloutCase

# ---- step 0


class NotItself(Rollout):
    """Compares anchors strictly, so that step 0 does not see itself."""

    refutes = "VISIBILITY-401"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) and b != query[1]


class AWindowOfEight(Rollout):
    """Sees the eight latest nodes of step 0, as a layer with a sliding window does."""

    refutes = "VISIBILITY-401"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) and query[1] - b < 8


class SeesTheNextNode(Rollout):
    """Lets a node see the one after it, whose token it also consumes."""

    refutes = "VISIBILITY-402"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) or (b == query[1] + 1 and cls.same(case, b, query[1]))


class CausalByRow(Rollout):
    """Moves the causal mask with the step, as absolute rows do, although its rows stay (sgl-project/SpecForge#244)."""

    refutes = "VISIBILITY-402"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return b <= query[1] + query[0] and cls.same(case, query[1], b)


class SubDiagonalsBlanked(Rollout):
    """Blanks one more sub-diagonal of the block of step 0 at every step (SafeAILab/EAGLE until 09b1628)."""

    refutes = "VISIBILITY-403"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) and b <= query[1] - query[0]


class BlockShrinksWithTheStep(Rollout):
    """Drops the first column of the block of step 0 at every step."""

    refutes = "VISIBILITY-403"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) and b >= query[0]


class NoKeysArePast(Rollout):
    """Keeps no keys between steps, so that a later step sees itself alone (Tencent/AngelSlim#157)."""

    refutes = "VISIBILITY-403"

    @classmethod
    def sees(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return super().sees(case, query, key) and (key[0] == query[0])


class ADiagonalInEveryBlock(Rollout):
    """Lets later steps see their own anchor of step 0 and nothing else of it."""

    refutes = "VISIBILITY-403"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) and (query[0] == 0 or b == query[1])


# ---- later steps


class TheStepBeforeIsForgotten(Rollout):
    """Appends a step's keys one step too late: no step sees the one before it."""

    refutes = "VISIBILITY-501"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return super().sees_later(case, query, key) and key[0] != query[0] - 1


class DiagonalsOfFourSteps(Rollout):
    """Has the diagonals of four steps, and lets every further step do with these (NVIDIA/Model-Optimizer#548)."""

    refutes = "VISIBILITY-501"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return super().sees_later(case, query, key) and key[0] < 4


class SiblingsVisible(Rollout):
    """Makes every block causal, so that siblings of earlier anchors are seen."""

    refutes = "VISIBILITY-502"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return key[1] <= query[1] and key[0] <= query[0] and cls.same(case, query[1], key[1])


class TheNextAnchorOfTheStepBefore(Rollout):
    """Sees beside its own anchor the sibling that consumed the same token one step before."""

    refutes = "VISIBILITY-502"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        (s, a), (t, b) = query, key
        return super().sees_later(case, query, key) or (t == s - 1 and b == a + 1)


class LaterStepsVisible(Rollout):
    """Compares anchors and no steps: a node sees what it is yet to predict."""

    refutes = "VISIBILITY-503"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return key[1] == query[1]


# ---- segments and padding


class CausalOverThePack(Rollout):
    """Sees all of step 0 that is earlier, whatever segment it is of (vllm-project/speculators#897)."""

    refutes = "VISIBILITY-601"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return b <= query[1]


class SegmentsOf32Bits(Rollout):
    """Compares segments in 32 bits."""

    refutes = "VISIBILITY-601"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        narrow = case.segment.astype(np.int32)
        return b <= query[1] and bool(narrow[query[1]] == narrow[b])


class DiagonalsByPosition(Rollout):
    """Knows its own anchor by its position, which another segment has as well."""

    refutes = "VISIBILITY-602"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        places = cls.places(case)
        return key[0] <= query[0] and bool(places[key[1]] == places[query[1]])


class BlocksWithoutSegments(Rollout):
    """Forgets in the blocks of later steps that other segments are others (vllm-project/speculators#897)."""

    refutes = "VISIBILITY-602"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return super().sees_later(case, query, key) or not cls.same(case, query[1], key[1])


class AHoleEndsTheSegment(Rollout):
    """Sees no further back than the last invalid address."""

    refutes = "VISIBILITY-603"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) and bool(case.valid[b : query[1]].all())


class WhatComesBackIsNew(Rollout):
    """Takes a segment that comes back for another one, as sequence lengths alone do."""

    refutes = "VISIBILITY-603"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return super().sees_first(case, query, b) and bool((case.segment[b : query[1]] == case.segment[b]).all())


class PaddingIsOnTheRight(Rollout):
    """Cuts the keys behind the width of the sample, as if it began at address 0."""

    refutes = "VISIBILITY-604"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        held = np.flatnonzero(case.valid)
        return super().sees_first(case, query, b) and (b == query[1] or b < held[-1] - held[0] + 1)


class NoStepsOfLaterSegments(Rollout):
    """Has the diagonals of the first segment alone."""

    refutes = "VISIBILITY-604"

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        first = case.segment[int(np.argmax(case.valid))]
        return super().sees_later(case, query, key) and bool(case.segment[query[1]] == first)


class SegmentsOfInvalidAddresses(Rollout):
    """Ends a segment at an invalid address whose id is below zero, as that of padding may be."""

    refutes = "VISIBILITY-605"

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        between = slice(min(b, query[1]), query[1])
        strange = ~case.valid[between] & (case.segment[between] < 0)
        return super().sees_first(case, query, b) and not strange.any()


class PaddingVisible(Rollout, conventions={"last_row": "pad"}):
    """Keeps a row for every address, and lets nodes see those of step 0 whatever they hold."""

    refutes = "VISIBILITY-606"
    rollout_mask = None  # type: ignore[assignment]

    @classmethod
    def nodes(cls, case: RolloutCase) -> list[Node]:
        return [(s, a) for s in range(case.steps) for a in range(case.length)]
