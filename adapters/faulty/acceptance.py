"""Verifiers with one fault each: support; the modules beside hold the others.

`--impl=adapters.faulty.acceptance:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

from adapters.faulty.acceptance_sampled import *  # noqa: F403 - one address for every fault
from adapters.faulty.acceptance_structure import *  # noqa: F403 - one address for every fault
from adapters.faulty.chain import Chain, Row, Trial, normalised
from adapters.faulty.proposing import *  # noqa: F403
from adapters.faulty.reported import *  # noqa: F403
from adapters.faulty.schemes import *  # noqa: F403
from adapters.faulty.siblings import *  # noqa: F403
from adapters.faulty.trees import *  # noqa: F403
from adapters.faulty.warping import *  # noqa: F403
from adapters.faulty.warping_together import *  # noqa: F403
from oracle.types import Coins, VerifyCase

# ---- support


class InvertedRatio(Chain):
    """Accepts where u·p < q."""

    refutes = "ACCEPTANCE-301"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.p < trial.q


class EpsilonInTheRatio(Chain):
    """Adds 1e-6 to numerator and denominator, which makes an impossible token possible."""

    refutes = "ACCEPTANCE-301"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u < (trial.p + 1e-6) / (trial.q + 1e-6)


class JudgesByTheRowBefore(Chain):
    """Tests a draft against the target row of its parent's parent."""

    refutes = "ACCEPTANCE-301"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        before = cls.row(trial.case.target_probs, max(trial.node - 1, 0))
        return trial.u * trial.q < before[trial.token]


class AcceptsEverything(Chain):
    """Accepts every draft, whatever its coin."""

    refutes = "ACCEPTANCE-301"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return True


class InclusiveComparison(Chain, conventions={"accept_operator": "<="}):
    """Accepts where u·q ≤ p, so the coin zero lets an impossible token through."""

    refutes = "ACCEPTANCE-302"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q <= trial.p


class CoinZeroPicksTokenZero(Chain):
    """Takes the first token v with coin ≤ CDF(v), so the coin zero picks a first token without mass."""

    refutes = "ACCEPTANCE-303"

    @classmethod
    def pick(cls, law: Row, coin: float) -> int:
        cumulative = 0.0
        for v, probability in enumerate(law):
            cumulative += probability
            if coin <= cumulative:
                return v
        return super().pick(law, coin)


class AbsoluteResidual(Chain):
    """Draws from |p − q| after a rejection."""

    refutes = "ACCEPTANCE-303"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        differences = [abs(p - q) for p, q in zip(trial.target, trial.draft)]
        return normalised(differences) if any(differences) else trial.target


class ResidualIsTheDraft(Chain):
    """Draws from q after a rejection."""

    refutes = "ACCEPTANCE-303"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        return trial.draft


class BonusFromTheRowBefore(Chain):
    """After full acceptance it draws from the row before the last."""

    refutes = "ACCEPTANCE-303"

    @classmethod
    def bonus(cls, case: VerifyCase, coins: Coins, row: Row) -> int:
        return super().bonus(case, coins, cls.row(case.target_probs, max(len(case.token) - 1, 0)))


class BonusFromTheDraft(Chain):
    """After full acceptance of a sampled proposal it draws from the row of the last draft."""

    refutes = "ACCEPTANCE-303"

    @classmethod
    def bonus(cls, case: VerifyCase, coins: Coins, row: Row) -> int:
        sampled = case.draft_probs is not None and len(case.token)
        return super().bonus(case, coins, cls.draft_row(case, len(case.token) - 1) if sampled else row)


class NoResidualGivesTheLastToken(Chain):
    """Publishes the last id where rounding leaves no residual."""

    refutes = "ACCEPTANCE-304"

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        nothing = all(p <= q for p, q in zip(trial.target, trial.draft))
        return len(trial.target) - 1 if nothing else super().recovered(trial)


class NoResidualGivesTokenZero(Chain):
    """Publishes id 0 where rounding leaves no residual."""

    refutes = "ACCEPTANCE-304"

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        nothing = all(p <= q for p, q in zip(trial.target, trial.draft))
        return 0 if nothing else super().recovered(trial)
