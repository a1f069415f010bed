"""Losses with one fault each: the steps of a rollout on a draft vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adapters.faulty.loss_steps import Array, Losses, Term
from oracle.types import RolloutLossCase

# ---- steps and weights


class SumOverTheRows(Losses):
    """Sums the divergences of a step, and takes no mean."""

    refutes = "LOSSES-701"

    @classmethod
    def rollout_divisor(cls, case: RolloutLossCase, s: int, counted: int) -> float:
        return 1


class MeanOverTokens(Losses):
    """Takes the mean over rows and draft tokens, as a library's default reduction does."""

    refutes = "LOSSES-701"

    @classmethod
    def diverging(cls, p: Array, log_q: Array, full: Array, case: RolloutLossCase) -> Array:
        return super().diverging(p, log_q, full, case) / p.shape[1]


class TargetOfTheFirstStep(Losses):
    """Compares every step with the target rows of the first."""

    refutes = "LOSSES-701"

    @classmethod
    def rollout_step(cls, case: RolloutLossCase, s: int, ids: Array) -> Term:
        same = np.broadcast_to(case.target_logits[:1], case.target_logits.shape)
        return super().rollout_step(_with(case, target_logits=same), s, ids)


class DecayStartsOneStepLate(Losses):
    """Weighs step s by 0.8**(s+1)."""

    refutes = "LOSSES-702"

    @classmethod
    def step_weights(cls, case: RolloutLossCase) -> list[float]:
        weights = super().step_weights(case)
        return [0.8 * w for w in weights] if case.step_weights is None else weights


class WeightsCancelTheirSum(Losses):
    """Divides by the sum of the step weights (vllm-project/speculators#720)."""

    refutes = "LOSSES-702"

    @classmethod
    def step_weights(cls, case: RolloutLossCase) -> list[float]:
        weights = super().step_weights(case)
        return [w / (sum(weights) or 1.0) for w in weights]


class WeightsInReverse(Losses):
    """Weighs the last step most."""

    refutes = "LOSSES-702"

    @classmethod
    def step_weights(cls, case: RolloutLossCase) -> list[float]:
        return super().step_weights(case)[::-1]


# ---- the draft vocabulary and the gate


class PadsTheDraftToTheTarget(Losses):
    """Scatters the draft's logits into zeros over the target's vocabulary before its softmax."""

    refutes = "LOSSES-703"

    @classmethod
    def rollout_log_law(cls, draft: Array, ids: Array, vocabulary: int) -> Array:
        padded = np.zeros((len(draft), vocabulary))
        padded[:, ids] = draft
        return cls.log_softmax(padded)[:, ids]


class FirstTargetTokens(Losses):
    """Takes the first tokens of the target for the draft vocabulary (verl-project/verl-SpeCo#66)."""

    refutes = "LOSSES-703"

    @classmethod
    def restricted(cls, full: Array, ids: Array, kind: str) -> Array:
        first = np.arange(len(ids))
        with np.errstate(invalid="ignore"):
            return super().restricted(full, first, kind)


class AlwaysRaw(Losses):
    """Leaves the target's mass on the draft vocabulary as it is, whatever is asked."""

    refutes = "LOSSES-704"

    @classmethod
    def restricted(cls, full: Array, ids: Array, kind: str) -> Array:
        return super().restricted(full, ids, "raw")


class AlwaysRenormalised(Losses):
    """Renormalises the target's mass on the draft vocabulary, whatever is asked."""

    refutes = "LOSSES-704"

    @classmethod
    def restricted(cls, full: Array, ids: Array, kind: str) -> Array:
        return super().restricted(full, ids, "renormalised")


class NoGate(Losses):
    """Trains rows whose token the drafter cannot know on what is left (lightseekorg/TorchSpec#186)."""

    refutes = "LOSSES-705"

    @classmethod
    def gate(cls, full: Array, draft: Array, ids: Array) -> Array:
        return np.ones(len(full), dtype=bool)


class GateOnTheDraft(Losses):
    """Opens the gate where the drafter's most probable token is the target's."""

    refutes = "LOSSES-705"

    @classmethod
    def gate(cls, full: Array, draft: Array, ids: Array) -> Array:
        found: Array = ids[draft.argmax(axis=1)] == full.argmax(axis=1)
        return super().gate(full, draft, ids) if len(ids) == full.shape[1] else found


class GateByDraftIds(Losses):
    """Looks the target's most probable token up among draft ids, without the map."""

    refutes = "LOSSES-705"

    @classmethod
    def gate(cls, full: Array, draft: Array, ids: Array) -> Array:
        found: Array = full.argmax(axis=1) < len(ids)
        return found


class GateByTheHighestId(Losses):
    """Takes the highest id among the most probable tokens."""

    refutes = "LOSSES-705"

    @classmethod
    def gate(cls, full: Array, draft: Array, ids: Array) -> Array:
        last = full.shape[1] - 1 - full[:, ::-1].argmax(axis=1)
        return np.isin(last, ids)


class GateOnAnyTie(Losses):
    """Opens the gate where some most probable token is a draft token."""

    refutes = "LOSSES-705"

    @classmethod
    def gate(cls, full: Array, draft: Array, ids: Array) -> Array:
        found: Array = full[:, ids].max(axis=1) >= full.max(axis=1)
        return found


# ---- denominators


class DenominatorOfTheFirstStep(Losses):
    """Divides every step by what the first one counts."""

    refutes = "LOSSES-706"

    @classmethod
    def rollout_step(cls, case: RolloutLossCase, s: int, ids: Array) -> Term:
        value, grad = super().rollout_step(case, s, ids)
        counts = [int(cls.counted(*cls.rows(case, step), ids, case).sum()) for step in (0, s)]
        if value is None or not counts[0]:
            return value, grad
        over = [cls.rollout_divisor(case, step, count) for step, count in zip((0, s), counts)]
        return value * over[1] / over[0], grad * over[1] / over[0]

    @classmethod
    def rows(cls, case: RolloutLossCase, s: int) -> tuple[Array, Array]:
        rows = cls.chosen(case.supervise[s])
        return case.target_logits[s, rows], case.draft_logits[s, rows]


class MaskForTheGate(Losses):
    """Divides by the rows of the mask where the rows that count are asked for."""

    refutes = "LOSSES-706"

    @classmethod
    def rollout_divisor(cls, case: RolloutLossCase, s: int, counted: int) -> float:
        asked = "mask" if case.denominator == "supervised" else case.denominator
        return super().rollout_divisor(_with(case, denominator=asked), s, counted)


class AllRowsAlways(Losses):
    """Divides by all rows, whatever is asked (SafeAILab/EAGLE#340)."""

    refutes = "LOSSES-706"

    @classmethod
    def rollout_divisor(cls, case: RolloutLossCase, s: int, counted: int) -> float:
        return len(case.supervise[s])


class NoEpsilon(Losses):
    """Adds no epsilon."""

    refutes = "LOSSES-707"

    @classmethod
    def epsilon(cls, case: RolloutLossCase, s: int) -> float:
        return 0.0


class EpsilonOnce(Losses):
    """Adds the epsilon to the denominator of the first step alone."""

    refutes = "LOSSES-707"

    @classmethod
    def epsilon(cls, case: RolloutLossCase, s: int) -> float:
        return case.denominator_epsilon if s == 0 else 0.0


class EpsilonIsALeast(Losses):
    """Takes the epsilon for the least denominator."""

    refutes = "LOSSES-707"

    @classmethod
    def epsilon(cls, case: RolloutLossCase, s: int) -> float:
        return max(0.0, case.denominator_epsilon - 1)


# ---- what adds nothing, and what diverges


class ZeroForAStep(Losses):
    """Reports 0 for a step that counts no row."""

    refutes = "LOSSES-708"

    @classmethod
    def nothing(cls) -> float | None:
        return 0.0


class ZeroTimesAStep(Losses):
    """Multiplies an infinite step by a weight of zero."""

    refutes = "LOSSES-708"

    @classmethod
    def total(cls, parts: Sequence[float | None], weights: Sequence[float]) -> float | None:
        counted = [w * part for w, part in zip(weights, parts) if part is not None]
        return sum(counted) if counted else None


class NeverLessTheEntropy(Losses):
    """Takes cross-entropy where the divergence is asked for."""

    refutes = "LOSSES-709"

    @classmethod
    def entropy(cls, p: Array, full: Array) -> Array:
        return np.zeros(len(p))


class EntropyOfTheWholeLaw(Losses):
    """Takes away the entropy of the target over its whole vocabulary."""

    refutes = "LOSSES-709"

    @classmethod
    def entropy(cls, p: Array, full: Array) -> Array:
        whole = cls.law(full)
        return super().entropy(whole, full)


class GradientWithoutStepWeights(Losses):
    """Leaves the step weights out of the gradient."""

    refutes = "LOSSES-710"

    @classmethod
    def rollout_gradient(cls, case: RolloutLossCase, grads: Sequence[Array], weights: Sequence[float]) -> Array:
        return super().rollout_gradient(case, grads, [float(w != 0) for w in weights])


class GradientLacksTheMass(Losses):
    """Has the gradient q − p where p is not renormalised."""

    refutes = "LOSSES-710"

    @classmethod
    def rollout_slope(cls, p: Array, log_q: Array) -> Array:
        slope: Array = np.exp(log_q) - p
        return slope


class AnEmptyLawIsUniform(Losses):
    """Counts a row without a draft token, as a uniform law."""

    refutes = "LOSSES-711"

    @classmethod
    def counted(cls, full: Array, draft: Array, ids: Array, case: RolloutLossCase) -> Array:
        return super().counted(full, draft, ids, case) if case.gate == "argmax" else np.ones(len(full), dtype=bool)

    @classmethod
    def restricted(cls, full: Array, ids: Array, kind: str) -> Array:
        empty = np.isneginf(full[:, ids]).all(axis=1, keepdims=True)
        return super().restricted(np.where(empty, 0.0, full), ids, kind)


def _with(case: RolloutLossCase, **changed: object) -> RolloutLossCase:
    return RolloutLossCase(**{**vars(case), **changed})
