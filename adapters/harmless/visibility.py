"""Right rollouts that look different: other conventions, rows kept as padding, another precision, one form alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.unrolling import Array, Node, Rollout, ids
from adapters.interface import NotApplicable
from oracle.types import Attended, AttentionCase, Flags, RolloutCase, RolloutMaskCase, VisibilityGraph


class WholeArrays(Rollout):
    """Works on whole arrays: runs by their borders, who sees whom by one expression."""

    @classmethod
    def graph(cls, case: RolloutCase) -> tuple[list[Node], Flags]:
        cls.validate(case)
        follows = np.zeros((case.steps + 1, case.length), dtype=bool)
        follows[0] = case.valid
        linked = case.valid[:-1] & case.valid[1:] & (case.segment[:-1] == case.segment[1:])
        for s in range(case.steps):  # a link further each step
            reach = max(case.length - s - 1, 0)
            follows[s + 1, :reach] = follows[s, :reach] & linked[s : s + reach]
        step, anchor = np.nonzero(follows[1:])
        segment, causal = case.segment[anchor], anchor[:, None] >= anchor
        first = (step == 0) & causal & (segment[:, None] == segment)
        visible = first | ((anchor[:, None] == anchor) & (step[:, None] >= step))
        return list(zip(step.tolist(), anchor.tolist())), visible


class AbsoluteRows(Rollout, conventions={"row_anchor": "absolute"}):
    """Has masks of absolute rows alone, and declares it."""

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        if anchor == "start":
            raise NotApplicable("its rows are absolute")
        return super().masked(case, anchor)


class StartRows(Rollout, conventions={"row_anchor": "start"}):
    """Has masks of start-anchored rows alone, in Fortran's order."""

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        if anchor == "absolute":
            raise NotApplicable("its rows stay where they start")
        return np.asfortranarray(super().masked(case, anchor))


class KeepsPadding(Rollout, conventions={"last_row": "pad"}):
    """Keeps a row for every step and every address; those without a node see themselves and are seen by none."""

    @classmethod
    def nodes(cls, case: RolloutCase) -> list[Node]:
        return [(s, a) for s in range(case.steps) for a in range(case.length)]

    @classmethod
    def sees(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        if query != key and not (cls.exists(case, *query) and cls.exists(case, *key)):
            return False
        return super().sees(case, query, key)

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        if anchor == "absolute":
            raise NotApplicable("its rows stay where they start")
        return super().masked(case, anchor)


class Float32Attention(Rollout, dtype="float32"):
    """Attends in float32, block by block, merged by the logarithms of their sums."""

    @classmethod
    def weights(cls, nodes: list[Node], visible: Flags) -> Array:
        scores = cls.scores(nodes, visible).astype(np.float32) + np.float32(3)
        blocks = [scores[:, [t == s for t, _ in nodes]] for s in range(nodes[-1][0] + 1)]
        with np.errstate(divide="ignore"):
            logs = [np.log(np.exp(block).sum(axis=1)) for block in blocks]
        whole = np.logaddexp.reduce(np.stack(logs), axis=0)
        return np.exp(scores - whole[:, None])


class BFloat16Attention(Rollout, dtype="bfloat16"):
    """Rounds its weights to bfloat16, and says so."""

    @classmethod
    def weights(cls, nodes: list[Node], visible: Flags) -> Array:
        bits = super().weights(nodes, visible).astype(np.float32).view(np.uint32)
        return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


class PositionsOfTheAddress(Rollout, conventions={"rollout_position": "own", "position_base": "1"}):
    """Lets a node stand at the position of address a + s, counted from 1, and declares both."""

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return int(cls.places(case)[node[0] + node[1]]) + 1


class WithoutPositions(Rollout):
    """Shows no positions."""

    @classmethod
    def rollout_visibility(cls, case: RolloutCase) -> VisibilityGraph:
        nodes, visible = cls.graph(case)
        nothing: Any = None
        return VisibilityGraph(ids([s for s, _ in nodes]), ids([a for _, a in nodes]), nothing, visible)


class PacksNothing(Rollout, conventions={"packing": "none"}):
    """Has no notion of segments, and refuses a row that holds several."""

    @classmethod
    def validate(cls, case: RolloutCase) -> None:
        super().validate(case)
        if len(set(case.segment[case.valid].tolist())) > 1:
            raise NotApplicable("it packs no segments")


class ShowsItsAttentionAlone(Rollout):
    """Offers its attention and nothing else."""

    rollout_visibility = None  # type: ignore[assignment]
    rollout_mask = None  # type: ignore[assignment]

    @classmethod
    def rollout_attention(cls, cases: Sequence[AttentionCase]) -> list[Attended]:
        return super().rollout_attention(cases)


class ShowsItsMaskAlone(Rollout, conventions={"row_anchor": "absolute", "last_row": "pad"}):
    """Offers the mask of absolute rows and nothing else, a row for every address."""

    rollout_visibility = None  # type: ignore[assignment]
    rollout_attention = None  # type: ignore[assignment]

    @classmethod
    def rollout_mask(cls, case: RolloutMaskCase) -> Flags:
        if case.row_anchor == "start":
            raise NotApplicable("its rows are absolute")
        mask = super().rollout_mask(case)
        square = mask.reshape(2 * (case.rollout.steps * case.rollout.length,))
        square[np.diag_indices(len(square))] = True
        return mask
