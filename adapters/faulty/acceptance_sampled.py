"""Verifiers with one fault each: the laws, the coins, accounting, reproducibility.

Named as `adapters.faulty.acceptance:Name`, like those of the lower rungs.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from adapters.faulty.chain import BlackBox, Chain, Member, Row, Trial, normalised, owed
from oracle.types import Coins, Decision, VerifyCase

# ---- first-token law


class ResidualIsTheTarget(Chain):
    """Draws from p after the rejection of a sampled draft."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        return trial.target if trial.case.proposal != "point" else super().residual(trial)


class ResidualForgetsToRenormalise(Chain):
    """Reads the CDF of (p − q)+ as it is; what is missing from one falls to the last token with mass."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        left = [max(p - q, 0.0) for p, q in zip(trial.target, trial.draft)]
        return left if any(left) else trial.target


class SampledDraftIsAPoint(Chain):
    """After a rejection it takes out the token alone, as if its draft row had been one-hot."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        return owed(trial.target, [float(v == trial.token) for v in range(len(trial.target))])


class AcceptsTooRarelyAtFirst(Chain):
    """Accepts the first draft of a chain with 0.98 of its probability."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < trial.p * (0.98 if trial.node == 0 else 1)


class AcceptsTooOftenAtFirst(Chain):
    """Accepts the first draft of a chain with 1.02 of its probability."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < trial.p * (1.02 if trial.node == 0 else 1)


class ReusesTheAcceptCoin(Chain):
    """Spends the coin of the test on the draw that follows its rejection."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        return cls.pick(cls.residual(trial), trial.u)


class RoundsDraftProbabilities(Chain):
    """Keeps draft probabilities to two digits."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def draft_row(cls, case: VerifyCase, node: int) -> Row:
        return [round(q, 2) for q in super().draft_row(case, node)]


class BlindToTheDraftRow(Chain):
    """Tests a sampled draft as u < p."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u < trial.p


class PointResidualKeepsTheToken(Chain):
    """Draws from the whole target row after the rejection of a point proposal."""

    refutes = "ACCEPTANCE-402"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        return trial.target if trial.case.proposal == "point" else super().residual(trial)


class NeighboursDraftRows(BlackBox):
    """Tests a member against the draft rows of the sampled member before it in the batch."""

    refutes = "ACCEPTANCE-403"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        found: list[Member] = []
        before: np.ndarray | None = None
        for case, spent in zip(cases, coins):
            mine = case.draft_probs
            if before is not None and mine is not None and before.shape[1] == mine.shape[1]:
                shared = min(len(mine), len(before))
                case = dataclasses.replace(case, draft_probs=np.concatenate([before[:shared], mine[shared:]]))
            found.append((case, spent))
            before = before if mine is None else mine
        return found


# ---- joint law


class AcceptsTooRarelyLater(Chain):
    """Accepts every draft behind the first with 0.98 of its probability."""

    refutes = "ACCEPTANCE-501"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < trial.p * (0.98 if trial.node > 0 else 1)


class AcceptsTooOftenLater(Chain):
    """Accepts every draft behind the first with 1.02 of its probability."""

    refutes = "ACCEPTANCE-501"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < trial.p * (1.02 if trial.node > 0 else 1)


class OneCoinForAllDrafts(Chain):
    """Spends the coin of the first draft on all of them."""

    refutes = "ACCEPTANCE-501"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return float(trial.coins.accept[0]) * trial.q < trial.p


class LaterResidualIsTheTarget(Chain):
    """Draws from p after the rejection of a sampled draft behind the first."""

    refutes = "ACCEPTANCE-501"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        later = trial.node > 0 and trial.case.proposal != "point"
        return trial.target if later else super().residual(trial)


class SharpensTheBonusRow(Chain):
    """Applies a temperature of one half to the row of the bonus token, once more than to the others."""

    refutes = "ACCEPTANCE-501"

    @classmethod
    def bonus(cls, case: VerifyCase, coins: Coins, row: Row) -> int:
        return super().bonus(case, coins, normalised([p * p for p in row]))


class LaterPointResidualKeepsTheToken(Chain):
    """Draws from the whole target row after the rejection of a point proposal behind the first."""

    refutes = "ACCEPTANCE-502"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        later = trial.node > 0 and trial.case.proposal == "point"
        return trial.target if later else super().residual(trial)


class AcceptsPointsTooRarelyLater(Chain):
    """Accepts point proposals behind the first with 0.98 of their probability."""

    refutes = "ACCEPTANCE-502"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        later = trial.node > 0 and trial.case.proposal == "point"
        return trial.u * trial.q < trial.p * (0.98 if later else 1)


class NeighboursShareCoins(BlackBox):
    """Seeds a generator for every two members of a batch."""

    refutes = "ACCEPTANCE-503"

    @classmethod
    def own_coins(cls, cases: Sequence[VerifyCase], seed: int) -> list[Coins]:
        generators = [np.random.default_rng([seed, i // 2]) for i in range(len(cases))]
        return [Coins(g.random(len(case.token)), float(g.random())) for case, g in zip(cases, generators)]


# ---- coins


class AcceptsTooRarely(Chain):
    """Accepts with 0.9 of min(1, p/q) and pays back p − 0.9 min(p, q): the law is right, the effort wasted."""

    refutes = "ACCEPTANCE-601"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u < 0.9 and trial.u * trial.q < 0.9 * trial.p

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        return normalised([p - 0.9 * min(p, q) for p, q in zip(trial.target, trial.draft)])


class RejectsEqualLaws(Chain):
    """Rejects where p = q."""

    refutes = "ACCEPTANCE-602"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.p != trial.q and super().accepts(trial)


class RejectsWithoutDraftMass(Chain):
    """Rejects where q = 0, to be safe from dividing by it."""

    refutes = "ACCEPTANCE-603"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.q > 0 and trial.u < trial.p / trial.q


class ResidualReadFromTheEnd(Chain):
    """Reads the CDF of the residual from the last token down."""

    refutes = "ACCEPTANCE-604"

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        backwards = cls.residual(trial)[::-1]
        return len(backwards) - 1 - cls.pick(backwards, trial.coins.frontier)


class BonusReadFromTheEnd(Chain):
    """Reads the CDF of the row after full acceptance from the last token down."""

    refutes = "ACCEPTANCE-605"

    @classmethod
    def bonus(cls, case: VerifyCase, coins: Coins, row: Row) -> int:
        return len(row) - 1 - cls.pick(row[::-1], coins.frontier)


class StopsAfterFourDrafts(Chain):
    """Tests no more than four drafts and draws from the row behind them, which is lossless."""

    refutes = "ACCEPTANCE-606"

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        return super().sampled(dataclasses.replace(case, parent=case.parent[:4], token=case.token[:4]), coins)


class DeclaresAnotherOperator(Chain, conventions={"accept_operator": "<="}):
    """Says that it accepts where u·q ≤ p, and accepts where u·q < p."""

    refutes = "ACCEPTANCE-607"


# ---- accounting


class AcceptsTooRarelyUnseen(BlackBox):
    """Accepts with 0.9 of min(1, p/q) and pays back what is owed, inside a black box."""

    refutes = "ACCEPTANCE-701"

    accepts = AcceptsTooRarely.accepts
    residual = AcceptsTooRarely.residual


class AcceptsOnePositionTooRarely(BlackBox):
    """Accepts the second draft of every chain with 0.98 of its probability, inside a black box."""

    refutes = "ACCEPTANCE-701"
    seen_in = "ci"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < trial.p * (0.98 if trial.node == 1 else 1)


class AcceptsOneMemberTooOften(BlackBox):
    """Accepts the drafts of chains of three with 1.02 of their probability, inside a black box."""

    refutes = "ACCEPTANCE-701"
    seen_in = "ci"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < trial.p * (1.02 if len(trial.case.token) == 3 else 1)


# ---- reproducibility


class IgnoresItsPromise(Chain):
    """Promises that a seed repeats its decisions, and draws from the system's entropy."""

    refutes = "ACCEPTANCE-801"

    @classmethod
    def own_coins(cls, cases: Sequence[VerifyCase], seed: int) -> list[Coins]:
        return super().own_coins(cases, int.from_bytes(os.urandom(8), "big"))


class SeedsTheGlobalGenerator(Chain):
    """Draws from NumPy's global generator without declaring it."""

    refutes = "ACCEPTANCE-802"

    @classmethod
    def own_coins(cls, cases: Sequence[VerifyCase], seed: int) -> list[Coins]:
        np.random.seed(seed)
        return [Coins(np.random.random(len(case.token)), np.random.random()) for case in cases]


class ResidualInPlace(Chain):
    """Subtracts q from the row of the case itself after a rejection."""

    refutes = "ACCEPTANCE-803"

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        found = super().recovered(trial)
        np.maximum(0, trial.case.target_probs[trial.node] - trial.draft, out=trial.case.target_probs[trial.node])
        return found


class CoinsInPlace(Chain):
    """Multiplies the coins of the request by q."""

    refutes = "ACCEPTANCE-803"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        trial.coins.accept[trial.node] *= trial.q
        return bool(trial.coins.accept[trial.node] < trial.p)


class OneStreamForTheBatch(Chain, promises=("seed", "batch_independent")):
    """Promises that members do not depend on each other, and deals out one stream of coins in turn."""

    refutes = "ACCEPTANCE-804"


class PrintsItsDecisions(Chain):
    """Prints every decision."""

    refutes = "ACCEPTANCE-805"

    @classmethod
    def decide(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        found = super().decide(cases, coins)
        print(found)
        return found
