"""Row compilers with one fault each: reading, positions and visibility, rollouts, refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from adapters.faulty.compiler import Address, Node, Rows, ids
from oracle.types import Flags, GatherCase, RolloutRows, RolloutRowsCase, RowPlan, TokenBatch

# ---- reading


class StopsAtAStrangeToken(Rows):
    """Ends a batch row at the first id below 0, although its address is invalid."""

    refutes = "ROWS-401"

    @classmethod
    def holds(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return super().holds(batch, b, t) and not np.any(batch.tokens[b, :t] < 0)


class FeaturesInHalfPrecision(Rows):
    """Stores features in float16 on their way, undeclared."""

    refutes = "ROWS-402"

    @classmethod
    def feature(cls, case: GatherCase, b: int, t: int) -> Any:
        return case.features[b, t].astype(np.float16).astype(np.float64)


class BlendsWithWeightZero(Rows):
    """Adds the feature after the target with weight zero, as a convolution does that masks by multiplying."""

    refutes = "ROWS-403"

    @classmethod
    def wanted(cls, case: GatherCase, b: int, t: int) -> Any:
        after = min(t + 1, case.features.shape[1] - 1)
        return case.features[b, t] + 0.0 * case.features[b, after]


class GathersEveryFlagSet(Rows):
    """Loses the flags between its plan and its tensors."""

    refutes = "ROWS-404"

    @classmethod
    def gathered_flags(cls, plan: RowPlan) -> Flags:
        return np.ones(len(plan.source), dtype=bool)


# ---- positions and visibility


class PositionsByRow(Rows):
    """Numbers the rows of a batch row from 0, instead of carrying their positions."""

    refutes = "ROWS-501"

    @classmethod
    def positions(cls, batch: TokenBatch, rows: list[Address]) -> Any:
        return ids([sum(b == c for c, _ in rows[:r]) for r, (b, _) in enumerate(rows)])


class PositionOfTheNextToken(Rows):
    """Gives a row the position of the token that it consumes, undeclared."""

    refutes = "ROWS-501"

    @classmethod
    def positions(cls, batch: TokenBatch, rows: list[Address]) -> Any:
        return ids([batch.position[b, t + 1] for b, t in rows])


class SeesTheNextRow(Rows):
    """Lets a row see the one after it, whose token it also consumes."""

    refutes = "ROWS-502"

    @classmethod
    def sees(cls, batch: TokenBatch, query: Address, key: Address) -> bool:
        return super().sees(batch, query, key) or (query[0] == key[0] and key[1] == query[1] + 1)


class NotItself(Rows):
    """Compares positions strictly, so that no row sees itself."""

    refutes = "ROWS-502"

    @classmethod
    def sees(cls, batch: TokenBatch, query: Address, key: Address) -> bool:
        return super().sees(batch, query, key) and query != key


class CausalOverThePack(Rows):
    """Sees everything before it in its batch row, whatever segment that is of (vllm-project/speculators#897)."""

    refutes = "ROWS-503"

    @classmethod
    def sees(cls, batch: TokenBatch, query: Address, key: Address) -> bool:
        return query[0] == key[0] and key[1] <= query[1]


class UnsupervisedRowsUnseen(Rows):
    """Uses the supervision mask as an attention mask."""

    refutes = "ROWS-504"

    @classmethod
    def sees(cls, batch: TokenBatch, query: Address, key: Address) -> bool:
        return super().sees(batch, query, key) and (query == key or bool(batch.supervise[key]))


class AHoleEndsTheSegment(Rows):
    """Sees no further back than the last address that breaks off its segment."""

    refutes = "ROWS-505"

    @classmethod
    def sees(cls, batch: TokenBatch, query: Address, key: Address) -> bool:
        between = range(min(query[1], key[1]), max(query[1], key[1]))
        unbroken = all(cls.holds(batch, query[0], t) and cls.same(batch, query[0], t, query[1]) for t in between)
        return super().sees(batch, query, key) and unbroken


# ---- rollout


class AnchorByAnchor(Rows):
    """Orders nodes by anchor, and the steps of an anchor together."""

    refutes = "ROWS-601"

    @classmethod
    def ordered(cls, nodes: list[Node]) -> list[Node]:
        return sorted(nodes, key=lambda node: (node[1], node[2], node[0]))


class OneNodeTooMany(Rows):
    """Keeps the node whose token has just run out of the sequence."""

    refutes = "ROWS-602"

    @classmethod
    def node_exists(cls, batch: TokenBatch, node: Node) -> bool:
        s, b, a = node
        return all(cls.holds(batch, b, a + i) and cls.same(batch, b, a, a + i) for i in range(s + 1))


class EveryStepOneRowLess(Rows):
    """Drops the first anchor of each step, as an absolute row does that has lost its anchor."""

    refutes = "ROWS-602"

    @classmethod
    def node_exists(cls, batch: TokenBatch, node: Node) -> bool:
        return super().node_exists(batch, node) and node[2] >= node[0]


class RolloutCrossesSegments(Rows):
    """Rolls the tokens of a pack along, wherever its sequences end (vllm-project/speculators)."""

    refutes = "ROWS-603"

    @classmethod
    def node_exists(cls, batch: TokenBatch, node: Node) -> bool:
        s, b, a = node
        return all(cls.holds(batch, b, a + i) for i in range(s + 2))


class OnlyTheEndsAreChecked(Rows):
    """Looks at a node's anchor and at its token, and never at what lies between."""

    refutes = "ROWS-603"

    @classmethod
    def node_exists(cls, batch: TokenBatch, node: Node) -> bool:
        s, b, a = node
        return all(cls.holds(batch, b, t) and cls.same(batch, b, a, t) for t in (a, a + s + 1))


class TokensStandStill(Rows):
    """Feeds every step the tokens of step 0 (sgl-project/SpecForge#227)."""

    refutes = "ROWS-604"

    @classmethod
    def consumed(cls, node: Node) -> int:
        return node[2] + 1


class TargetsStandStill(Rows):
    """Trains every step towards the targets of step 0."""

    refutes = "ROWS-605"

    @classmethod
    def towards(cls, node: Node) -> int:
        return node[2] + 1


class FlagOfTheAnchor(Rows):
    """Supervises every step by the flags of step 0."""

    refutes = "ROWS-606"

    @classmethod
    def node_flag(cls, batch: TokenBatch, node: Node) -> bool:
        return bool(batch.supervise[node[1], node[2]])


class FlagOfTheTarget(Rows):
    """Supervises a node by the flag of the token that it consumes (sgl-project/SpecForge#885)."""

    refutes = "ROWS-606"

    @classmethod
    def node_flag(cls, batch: TokenBatch, node: Node) -> bool:
        return bool(batch.supervise[node[1], node[2] + node[0] + 1])


class PositionsStandStill(Rows):
    """Leaves every step at the positions of step 0 (sgl-project/SpecForge#244)."""

    refutes = "ROWS-607"

    @classmethod
    def stands(cls, batch: TokenBatch, node: Node) -> int:
        return int(batch.position[node[1], node[2]])


class OwnPositionsUndeclared(Rows):
    """Gives a node the position of its source and not of its anchor, undeclared: they differ where positions skip."""

    refutes = "ROWS-607"

    @classmethod
    def stands(cls, batch: TokenBatch, node: Node) -> int:
        return int(batch.position[node[1], node[2] + node[0]])


class NoStateIsKept(Rows):
    """Feeds every step the target's features, and so trains step 0 again and again (Tencent/AngelSlim#157)."""

    refutes = "ROWS-608"

    @classmethod
    def fed(cls, node: Node) -> Node:
        return -1, -1, -1


class StateOfTheNextAnchor(Rows):
    """Shifts the fed-back states by one row, although rows keep their anchors."""

    refutes = "ROWS-608"

    @classmethod
    def fed(cls, node: Node) -> Node:
        return node[0] - 1, node[1], node[2] + 1


class SupervisesNodesOnThePad(Rows, conventions={"last_row": "pad"}):
    """Keeps the nodes whose tokens have run out, and trains them (SafeAILab/EAGLE#317)."""

    refutes = "ROWS-609"

    @classmethod
    def rollout_rows(cls, case: RolloutRowsCase) -> RolloutRows:
        found = super().rollout_rows(case)
        over = [(b, t) for b, t in np.argwhere(case.batch.valid).tolist() if not cls.node_exists(case.batch, (0, b, t))]
        count = len(over)

        def behind(values: Any, more: list[Any]) -> Any:
            return np.concatenate([values, np.array(more, dtype=values.dtype)])

        return RolloutRows(
            step=behind(found.step, [case.steps] * count),
            batch=behind(found.batch, [b for b, _ in over]),
            anchor=behind(found.anchor, [a for _, a in over]),
            consumed=behind(found.consumed, [-1] * count),
            target=behind(found.target, [-1] * count),
            supervise=behind(found.supervise, [case.batch.supervise[row] for row in over]),
            position=behind(found.position, [case.batch.position[row] for row in over]),
            state_from=behind(found.state_from, [-1] * count),
        )


# ---- refusals


class PositionsUnchecked(Rows):
    """Takes positions that stand still or turn back."""

    refutes = "ROWS-701"

    @classmethod
    def check_positions(cls, batch: TokenBatch) -> None:
        return


class FlagsStretched(Rows):
    """Broadcasts arrays that are too small, and takes numbers for flags."""

    refutes = "ROWS-702"

    @classmethod
    def validate(cls, batch: TokenBatch) -> None:
        cls.check_positions(cls.stretched(batch))

    @classmethod
    def stretched(cls, batch: TokenBatch) -> TokenBatch:
        shape = np.atleast_2d(batch.tokens).shape
        made = {}
        for field in dataclasses.fields(batch):
            value = np.atleast_2d(getattr(batch, field.name))[:, : shape[1]]
            value = np.pad(value, [(0, 0), (0, shape[1] - value.shape[1])])
            kind = bool if field.name in ("valid", "supervise") else int
            made[field.name] = np.broadcast_to(value, shape).astype(kind)
        return TokenBatch(**made)

    @classmethod
    def soft_rows(cls, batch: TokenBatch) -> RowPlan:
        return super().soft_rows(cls.stretched(batch))

    @classmethod
    def hard_rows(cls, batch: TokenBatch) -> RowPlan:
        return super().hard_rows(cls.stretched(batch))

    @classmethod
    def rollout_rows(cls, case: RolloutRowsCase) -> RolloutRows:
        return super().rollout_rows(RolloutRowsCase(cls.stretched(case.batch), case.steps))


class NoStepIsOneStep(Rows):
    """Takes a rollout of no step for one of a single step."""

    refutes = "ROWS-703"

    @classmethod
    def steps(cls, case: RolloutRowsCase) -> int:
        return max(case.steps, 1)
