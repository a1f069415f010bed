"""Implementations that do no work worth the name: each has one trick, for whatever operation it fits.

They say nothing of a clause. Golden vectors that one of them passes are worth nothing; the operations that a class
provides are those that its trick is applicable to. What is no part of the trick is the oracle's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.degenerate_shifted import *  # noqa: F403 - one address for all of them
from adapters.faulty.degenerating import Degenerate, Losses, changed, drawn, first_children
from oracle import acceptance, metrics, rows
from oracle.types import (
    Coins,
    CommittedState,
    Decision,
    DraftMapCase,
    Flags,
    GenerateCase,
    Generation,
    Ids,
    Metrics,
    NoiseCase,
    NoisySample,
    ProposalCase,
    Proposals,
    PublishCase,
    ReleaseCase,
    RoundsCase,
    RowPlan,
    Rows,
    SampleCase,
    SelectionCase,
    SupervisionCase,
    TokenBatch,
    VerifyCase,
    Violation,
    WarpCase,
)


class AcceptAll(Losses, Degenerate):
    """Accepts whatever is first: drafts, rows, releases."""

    @staticmethod
    def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
        return [Decision(tuple(p := first_children(c)), int(np.argmax(_last(c, p)))) for c in cases]

    @staticmethod
    def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        paths = [first_children(case) for case in cases]
        return [Decision(tuple(p), drawn(_last(c, p), coin.frontier)) for c, p, coin in zip(cases, paths, coins)]

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        frontiers = np.random.default_rng(seed).random(len(cases))
        return cls.verify_sampled(cases, [Coins(np.zeros(0), float(u)) for u in frontiers])

    @staticmethod
    def change(case: Any) -> Any:
        return changed(case, supervise=np.ones_like(case.supervise))

    @staticmethod
    def soft_rows(batch: TokenBatch) -> RowPlan:
        return rows.soft_rows(changed(batch, supervise=np.ones_like(batch.supervise)))

    @staticmethod
    def hard_rows(batch: TokenBatch) -> RowPlan:
        found = rows.hard_rows(batch)
        return changed(found, supervise=np.ones_like(found.supervise))

    @staticmethod
    def supervision_at_source(case: SupervisionCase) -> Flags:
        return np.ones_like(rows.supervision_at_source(case))

    @staticmethod
    def check_release(case: ReleaseCase) -> list[Violation]:
        return []

    @staticmethod
    def summarise_rounds(case: RoundsCase) -> Metrics:
        return metrics.summarise_rounds(changed(case, accepted=case.drafted, emitted=case.drafted + 1))


def _last(case: VerifyCase, path: Sequence[int]) -> Rows:
    row: Rows = np.asarray(case.target_probs)[path[-1] + 1 if path else 0]
    return row


class RejectAll(Losses, Degenerate):
    """Accepts nothing: no draft, no row, no release."""

    @staticmethod
    def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
        return [Decision((), int(np.argmax(case.target_probs[0]))) for case in cases]

    @staticmethod
    def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return [Decision((), drawn(case.target_probs[0], coin.frontier)) for case, coin in zip(cases, coins)]

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        frontiers = np.random.default_rng(seed).random(len(cases))
        return cls.verify_sampled(cases, [Coins(np.zeros(0), float(u)) for u in frontiers])

    @staticmethod
    def change(case: Any) -> Any:
        return changed(case, supervise=np.zeros_like(case.supervise))

    @staticmethod
    def soft_rows(batch: TokenBatch) -> RowPlan:
        return rows.soft_rows(changed(batch, supervise=np.zeros_like(batch.supervise)))

    @staticmethod
    def hard_rows(batch: TokenBatch) -> RowPlan:
        return rows.hard_rows(changed(batch, supervise=np.zeros_like(batch.supervise)))

    @staticmethod
    def supervision_at_source(case: SupervisionCase) -> Flags:
        return np.zeros_like(rows.supervision_at_source(case))

    @staticmethod
    def check_release(case: ReleaseCase) -> list[Violation]:
        return [Violation("MANIFEST-201", "target.weights", "it is another target")]

    @staticmethod
    def summarise_rounds(case: RoundsCase) -> Metrics:
        none = np.zeros_like(case.accepted)
        return metrics.summarise_rounds(changed(case, accepted=none, emitted=none + 1))


class Echo(Degenerate):
    """Hands back what it was handed."""

    @staticmethod
    def warp(case: WarpCase) -> Rows:
        return case.logits

    @staticmethod
    def select_nodes(case: SelectionCase) -> Ids:
        return np.arange(min(max(case.budget, 0), len(case.tree.parent)))

    @staticmethod
    def draft_to_target(case: DraftMapCase) -> Ids:
        return case.d2t

    @staticmethod
    def feature_noise(case: NoiseCase) -> Rows:
        return case.unit

    @staticmethod
    def noisy_sample(case: SampleCase) -> NoisySample:
        return NoisySample(case.features, case.targets)

    @staticmethod
    def supervision_at_source(case: SupervisionCase) -> Flags:
        return case.token_mask

    @staticmethod
    def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
        return [case.state for case in cases]

    @staticmethod
    def generate(case: GenerateCase) -> list[Generation]:
        return [Generation(np.asarray(prompt)) for prompt in case.prompts]


class FirstChild(Degenerate):
    """Decides by the rules, and looks at the first child of each node alone."""

    @classmethod
    def verify_greedy(cls, cases: Sequence[VerifyCase]) -> list[Decision]:
        found = acceptance.verify_greedy([cls._chain(case) for case in cases])
        return [cls._whole(case, one) for case, one in zip(cases, found)]

    @classmethod
    def verify_sampled(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        kept = [Coins(np.asarray(coin.accept)[first_children(case)], coin.frontier) for case, coin in zip(cases, coins)]
        found = acceptance.verify_sampled([cls._chain(case) for case in cases], kept)
        return [cls._whole(case, one) for case, one in zip(cases, found)]

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        found = acceptance.verify_random([cls._chain(case) for case in cases], seed)
        return [cls._whole(case, one) for case, one in zip(cases, found)]

    @staticmethod
    def _chain(case: VerifyCase) -> VerifyCase:
        path = first_children(case)
        kept = [0, *(node + 1 for node in path)]
        draft = None if case.draft_probs is None else np.asarray(case.draft_probs)[kept]
        parent = np.arange(-1, len(path) - 1)
        return VerifyCase(parent, np.asarray(case.token)[path], case.target_probs[kept], case.proposal, draft)

    @staticmethod
    def _whole(case: VerifyCase, found: Decision) -> Decision:
        return Decision(tuple(first_children(case)[: len(found.path)]), found.frontier)


class AlwaysArgmax(Degenerate):
    """Takes the most probable token wherever one is drawn."""

    @staticmethod
    def warp(case: WarpCase) -> Rows:
        return acceptance.warp(changed(case, temperature=np.zeros_like(np.asarray(case.temperature, dtype=np.float64))))

    @staticmethod
    def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return acceptance.verify_greedy(cases)

    @staticmethod
    def verify_random(cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        return acceptance.verify_greedy(cases)

    @staticmethod
    def propose(case: ProposalCase) -> Proposals:
        return acceptance.propose(changed(case, proposal="point"))
