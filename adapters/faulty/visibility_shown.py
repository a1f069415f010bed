"""Rollouts with one fault each in the way they are shown: masks, attentions, refusals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.unrolling import Array, Node, Rollout, softmax
from adapters.interface import NotApplicable
from oracle.types import Attended, AttentionCase, Flags, RolloutCase

# ---- masks


class MaskOfFourSteps(Rollout):
    """Makes the blocks of four steps and leaves those of further ones empty (NVIDIA/Model-Optimizer#548)."""

    refutes = "VISIBILITY-701"

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        mask = super().masked(case, anchor)
        mask[4:] = False
        return mask


class MaskWithoutSegments(Rollout):
    """Makes its mask of lengths alone, and its graph of segments."""

    refutes = "VISIBILITY-701"

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        mask = super().masked(case, anchor)
        if anchor == "start":
            held = np.asarray(mask.any(axis=2))
            causal = np.tril(np.ones((case.length, case.length), dtype=bool))
            mask[:, :, : case.length] |= causal & held[:, :, None] & held[0]
        return mask


class RowsMoveAndColumnsStay(Rollout):
    """Moves the rows of a later step under the absolute anchor, and not the columns of its keys."""

    refutes = "VISIBILITY-701"

    @classmethod
    def column(cls, t: int, b: int, anchor: str) -> int:
        return b


class StartWhateverIsAsked(Rollout):
    """Hands out start-anchored rows for absolute ones."""

    refutes = "VISIBILITY-702"

    @classmethod
    def row(cls, s: int, a: int, anchor: str) -> int:
        return a


class AnchorsExchanged(Rollout):
    """Takes each of the two anchors for the other."""

    refutes = "VISIBILITY-702"

    @classmethod
    def row(cls, s: int, a: int, anchor: str) -> int:
        return a if anchor == "absolute" else a + s


class AbsoluteUndeclared(Rollout):
    """Has absolute rows alone, and does not say so."""

    refutes = "VISIBILITY-702"

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        if anchor == "start":
            raise NotApplicable("its rows are absolute")
        return super().masked(case, anchor)


class PaddingRowsSeeThemselves(Rollout):
    """Lets rows that no node has see themselves, so that no softmax is empty, undeclared."""

    refutes = "VISIBILITY-703"

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        mask = super().masked(case, anchor)
        square = mask.reshape(2 * (case.steps * case.length,))
        square[np.diag_indices(len(square))] = True
        return mask


class MaskShowsPadding(Rollout, conventions={"last_row": "pad"}):
    """Makes the block of step 0 causal over all addresses, invalid ones and all."""

    refutes = "VISIBILITY-703"

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        mask = super().masked(case, anchor)
        causal = np.tril(np.ones((case.length, case.length), dtype=bool))
        mask[0] |= (causal & ~case.valid) @ np.eye(case.length, case.length * case.steps, dtype=bool)
        return mask


# ---- attention


class OutputsOfTheLastStep(Rollout):
    """Answers for the last step alone, as the step at work does."""

    refutes = "VISIBILITY-801"

    @classmethod
    def attended(cls, case: AttentionCase) -> Attended:
        found = super().attended(case)
        kept = found.step == found.step.max(initial=0)
        return Attended(found.step[kept], found.anchor[kept], found.output[kept])


class MaskMultiplied(Rollout):
    """Multiplies scores by the mask instead of adding it: what is hidden scores 0."""

    refutes = "VISIBILITY-802"

    @classmethod
    def scores(cls, nodes: list[Node], visible: Flags) -> Array:
        return np.zeros(visible.shape) * visible


class BlocksOfOnesAppended(Rollout):
    """Appends 1/0 blocks of later steps to a mask of 0 and −inf (vllm-project/speculators#897)."""

    refutes = "VISIBILITY-802"

    @classmethod
    def scores(cls, nodes: list[Node], visible: Flags) -> Array:
        later = np.array([t > 0 for t, _ in nodes])
        return np.where(later[None], np.where(visible, 1.0, 0.0), super().scores(nodes, visible))


class HiddenByMinusTwenty(Rollout):
    """Hides by a score of −20, which is not far enough."""

    refutes = "VISIBILITY-802"

    @classmethod
    def scores(cls, nodes: list[Node], visible: Flags) -> Array:
        return np.where(visible, 0.0, -20.0)


class HiddenAfterTheSoftmax(Rollout):
    """Multiplies scores by the mask, and weights once more, so that they no longer sum to one (HASS, cnets_hass.py)."""

    refutes = "VISIBILITY-803"

    @classmethod
    def weights(cls, nodes: list[Node], visible: Flags) -> Array:
        return softmax(np.zeros(visible.shape)) * visible


class WeightsOfHalfPrecision(Rollout):
    """Rounds weights to float16, undeclared."""

    refutes = "VISIBILITY-803"

    @classmethod
    def weights(cls, nodes: list[Node], visible: Flags) -> Array:
        return super().weights(nodes, visible).astype(np.float16).astype(np.float64)


class OneMoreForLaterSteps(Rollout):
    """Adds one to the scores of later steps that are seen, as a mask of ones does that is added."""

    refutes = "VISIBILITY-804"

    @classmethod
    def scores(cls, nodes: list[Node], visible: Flags) -> Array:
        later = np.array([t > 0 for t, _ in nodes])
        return super().scores(nodes, visible) + np.where(later, 1.0, 0.0)


class ItsOwnKeyTwice(Rollout):
    """Has the key of a node's own anchor both in the block of step 0 and among the diagonals."""

    refutes = "VISIBILITY-804"

    @classmethod
    def scores(cls, nodes: list[Node], visible: Flags) -> Array:
        own = np.array([[k[0] == 0 and k[1] == q[1] and q[0] > 0 for k in nodes] for q in nodes])
        return super().scores(nodes, visible) + np.where(own, np.log(2.0), 0.0)


class MaskOfTheFirstMember(Rollout):
    """Takes the mask of the first member of a batch for all of its size."""

    refutes = "VISIBILITY-805"

    @classmethod
    def rollout_attention(cls, cases: Sequence[AttentionCase]) -> list[Attended]:
        found = []
        for case in cases:
            first = cases[0].rollout
            alike = (first.length, first.steps) == (case.rollout.length, case.rollout.steps)
            found.append(cls.attended(dataclasses.replace(case, rollout=first) if alike else case))
        return found


class ValuesOfTheMemberBefore(Rollout):
    """Reads the values of the member before, where that has as many."""

    refutes = "VISIBILITY-805"

    @classmethod
    def rollout_attention(cls, cases: Sequence[AttentionCase]) -> list[Attended]:
        found = []
        for before, case in zip([cases[0], *cases], cases):
            alike = before.value.shape == case.value.shape
            found.append(cls.attended(dataclasses.replace(case, value=before.value) if alike else case))
        return found


class StepsOfTheLongestMember(Rollout):
    """Shares the softmax of a batch: each member's weights are padded to the longest, which counts."""

    refutes = "VISIBILITY-805"

    @classmethod
    def rollout_attention(cls, cases: Sequence[AttentionCase]) -> list[Attended]:
        found = super().rollout_attention(cases)
        longest = max((len(one.step) for one in found), default=0)
        return [dataclasses.replace(one, output=one.output * (len(one.step) + 1) / (longest + 1)) for one in found]


class EveryValueTimesItsWeight(Rollout):
    """Multiplies all values by their weights, also those that no node has, by zero."""

    refutes = "VISIBILITY-806"

    @classmethod
    def mixed(cls, case: AttentionCase, nodes: list[Node], weights: Array) -> Array:
        wide = np.zeros((len(nodes), *case.value.shape[:2]))
        for j, node in enumerate(nodes):
            wide[:, node[0], node[1]] = weights[:, j]
        return wide.reshape(len(nodes), -1) @ case.value.reshape(-1, case.value.shape[2])


# ---- refusals


class PositionsUnchecked(Rollout):
    """Takes positions that stand still or turn back."""

    refutes = "VISIBILITY-901"

    @classmethod
    def check_positions(cls, case: RolloutCase) -> None:
        return


class ArraysStretched(Rollout):
    """Broadcasts arrays that are too small, cuts those that are too large, and takes numbers for flags."""

    refutes = "VISIBILITY-902"

    @classmethod
    def graph(cls, case: RolloutCase) -> tuple[list[Node], Flags]:
        return super().graph(cls.stretched(case))

    @classmethod
    def stretched(cls, case: RolloutCase) -> RolloutCase:
        def fitted(values: Any, kind: type) -> Any:
            flat = np.asarray(values).reshape(-1)[: case.length]
            return np.pad(flat, (0, case.length - len(flat))).astype(kind)

        position = None if case.position is None else fitted(case.position, int)
        return RolloutCase(case.length, case.steps, fitted(case.segment, int), fitted(case.valid, bool), position)

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return super().position(cls.stretched(case), node)


class NoStepIsOneStep(Rollout):
    """Takes a rollout of no step for one of a single step."""

    refutes = "VISIBILITY-903"

    @classmethod
    def check_steps(cls, case: RolloutCase) -> None:
        return

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        return super().masked(dataclasses.replace(case, steps=max(case.steps, 1)), anchor)


class AnyAnchorIsAbsolute(Rollout):
    """Takes whatever is not "start" for the absolute anchor."""

    refutes = "VISIBILITY-903"

    @classmethod
    def check_anchor(cls, anchor: str) -> None:
        return

    @classmethod
    def row(cls, s: int, a: int, anchor: str) -> int:
        return a if anchor == "start" else a + s
