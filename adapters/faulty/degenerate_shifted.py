"""Degenerate implementations that read, or show, the wrong place: a row, a position, an id, a coin, a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.degenerating import C, Degenerate, Losses, changed, rolled
from oracle import acceptance, drafter, masks, metrics, publish, rows, tree, visibility
from oracle.types import (
    Attended,
    AttentionCase,
    CandidateTree,
    Coins,
    CommittedState,
    Decision,
    DrafterCase,
    DraftMapCase,
    DraftRollout,
    DraftTreeCase,
    Flags,
    FlattenCase,
    FlatTree,
    GatherCase,
    GatheredRows,
    GrowthCase,
    Ids,
    MaskCase,
    Metrics,
    PublishCase,
    RolloutCase,
    RolloutMaskCase,
    RolloutRows,
    RolloutRowsCase,
    RoundsCase,
    RowPlan,
    SupervisionCase,
    TokenBatch,
    VerifyCase,
    VisibilityGraph,
)


class RowShifted(Losses, Degenerate):
    """Reads or writes every row one further than it stands."""

    @staticmethod
    def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
        return acceptance.verify_greedy([changed(c, target_probs=rolled(c.target_probs)) for c in cases])

    @staticmethod
    def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return acceptance.verify_sampled([changed(c, target_probs=rolled(c.target_probs)) for c in cases], coins)

    @staticmethod
    def verify_random(cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        return acceptance.verify_random([changed(c, target_probs=rolled(c.target_probs)) for c in cases], seed)

    @staticmethod
    def change(case: Any) -> Any:
        teacher = next(name for name in ("target", "target_logits") if hasattr(case, name))
        held = getattr(case, teacher)
        return changed(case, **{teacher: rolled(held, held.ndim - 2)})

    @staticmethod
    def soft_rows(batch: TokenBatch) -> RowPlan:
        found = rows.soft_rows(batch)
        return changed(found, source=found.source + 1)

    @staticmethod
    def hard_rows(batch: TokenBatch) -> RowPlan:
        found = rows.hard_rows(batch)
        return changed(found, target=found.target + 1)

    @staticmethod
    def supervision_at_source(case: SupervisionCase) -> Flags:
        found: Flags = rolled(rows.supervision_at_source(case), 1)
        return found

    @staticmethod
    def gather_rows(case: GatherCase) -> GatheredRows:
        found = rows.gather_rows(case)
        return changed(found, feature=rolled(found.feature))

    @staticmethod
    def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
        found = rows.rollout_rows(case)
        return changed(found, consumed=found.consumed + 1)

    @staticmethod
    def flatten_tree(cases: Sequence[FlattenCase]) -> list[FlatTree]:
        return [changed(found, token=rolled(found.token)) for found in tree.flatten_tree(cases)]

    @staticmethod
    def draft_tree(cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        return [changed(found, token=rolled(found.token)) for found in tree.draft_tree(cases)]

    @staticmethod
    def tree_visibility(parent: Ids) -> Flags:
        found: Flags = rolled(tree.tree_visibility(parent))
        return found

    @staticmethod
    def tree_mask(cases: Sequence[MaskCase]) -> list[np.ndarray]:
        return [rolled(mask) for mask in masks.tree_mask(cases)]

    @staticmethod
    def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
        found = visibility.rollout_visibility(case)
        return changed(found, visible=rolled(found.visible))

    @staticmethod
    def rollout_mask(case: RolloutMaskCase) -> Flags:
        found: Flags = rolled(visibility.rollout_mask(case), 1)
        return found

    @staticmethod
    def rollout_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
        return [changed(found, output=rolled(found.output)) for found in visibility.rollout_attention(cases)]

    @staticmethod
    def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
        return publish.publish(
            [changed(case, verified=changed(case.verified, kv=rolled(case.verified.kv))) for case in cases]
        )

    @staticmethod
    def draft_logits(case: DrafterCase) -> DraftRollout:
        return drafter.draft_logits(changed(case, features=rolled(case.features)))

    @staticmethod
    def summarise_rounds(case: RoundsCase) -> Metrics:
        return metrics.summarise_rounds(changed(case, accepted=rolled(case.accepted)))


class PositionShifted(Degenerate):
    """Stands one position further than it should."""

    @staticmethod
    def soft_rows(batch: TokenBatch) -> RowPlan:
        return further(rows.soft_rows(batch))

    @staticmethod
    def hard_rows(batch: TokenBatch) -> RowPlan:
        return further(rows.hard_rows(batch))

    @staticmethod
    def gather_rows(case: GatherCase) -> GatheredRows:
        return further(rows.gather_rows(case))

    @staticmethod
    def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
        return further(rows.rollout_rows(case))

    @staticmethod
    def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
        return further(visibility.rollout_visibility(case))

    @staticmethod
    def flatten_tree(cases: Sequence[FlattenCase]) -> list[FlatTree]:
        return [further(found) for found in tree.flatten_tree(cases)]

    @staticmethod
    def draft_tree(cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        return [further(found) for found in tree.draft_tree(cases)]

    @staticmethod
    def draft_logits(case: DrafterCase) -> DraftRollout:
        """All but the first: attention sees the distance alone."""
        return drafter.draft_logits(changed(case, positions=case.positions + (np.arange(len(case.positions)) > 0)))


def further(found: C) -> C:
    return changed(found, position=found.position + 1)  # type: ignore[attr-defined]


class OffsetsAreIds(Degenerate):
    """Takes the offsets of a draft vocabulary for its target ids."""

    @staticmethod
    def draft_to_target(case: DraftMapCase) -> Ids:
        return case.d2t

    @classmethod
    def grow_tree(cls, case: GrowthCase) -> CandidateTree:
        return tree.grow_tree(cls._read(case))

    @classmethod
    def draft_tree(cls, cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        return tree.draft_tree([changed(case, growth=cls._read(case.growth)) for case in cases])

    @staticmethod
    def _read(case: GrowthCase) -> GrowthCase:
        given = case.draft_map
        return case if given is None else changed(case, draft_map=changed(given, convention="absolute", t2d=None))


class CoinsReversed(Degenerate):
    """Spends the coins of a request from the last to the first."""

    @staticmethod
    def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return acceptance.verify_sampled(cases, [changed(coin, accept=coin.accept[::-1]) for coin in coins])


class BlindToQ(Degenerate):
    """Takes every draft for one that was certain: u < p, whatever the drafter's probability was."""

    @classmethod
    def verify_sampled(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return acceptance.verify_sampled([cls._certain(case) for case in cases], coins)

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        return acceptance.verify_random([cls._certain(case) for case in cases], seed)

    @staticmethod
    def _certain(case: VerifyCase) -> VerifyCase:
        return changed(case, proposal="point", draft_probs=None)


class IdentityMask(Degenerate):
    """Lets everything see itself, and nothing else."""

    @staticmethod
    def soft_rows(batch: TokenBatch) -> RowPlan:
        return alone(rows.soft_rows(batch))

    @staticmethod
    def hard_rows(batch: TokenBatch) -> RowPlan:
        return alone(rows.hard_rows(batch))

    @staticmethod
    def flatten_tree(cases: Sequence[FlattenCase]) -> list[FlatTree]:
        return [alone(found) for found in tree.flatten_tree(cases)]

    @staticmethod
    def draft_tree(cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        return [alone(found) for found in tree.draft_tree(cases)]

    @staticmethod
    def tree_visibility(parent: Ids) -> Flags:
        return np.eye(len(parent), dtype=bool)

    @staticmethod
    def tree_mask(cases: Sequence[MaskCase]) -> list[np.ndarray]:
        return masks.tree_mask([changed(case, parent=np.full(len(case.parent), -1)) for case in cases])

    @staticmethod
    def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
        return alone(visibility.rollout_visibility(case))

    @staticmethod
    def rollout_mask(case: RolloutMaskCase) -> Flags:
        steps, length = case.rollout.steps, case.rollout.length
        found: Flags = np.eye(steps * length, dtype=bool).reshape(steps, length, steps * length)
        return found

    @staticmethod
    def rollout_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
        found = visibility.rollout_attention(cases)
        return [changed(one, output=case.value[one.step, one.anchor]) for case, one in zip(cases, found)]


def alone(found: C) -> C:
    return changed(found, visible=np.eye(len(found.visible), dtype=bool))  # type: ignore[attr-defined]
