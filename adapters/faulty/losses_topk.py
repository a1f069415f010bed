"""Losses with one fault each: HASS's top-K term, and the sum of its steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adapters.faulty.loss_steps import Array, Losses, Term
from oracle.types import HassLossCase

# ---- top-K


class TopOfTheDraft(Losses):
    """Keeps the k tokens that the drafter finds most probable."""

    refutes = "LOSSES-501"

    @classmethod
    def top(cls, target: Array, draft: Array, k: int) -> Array:
        return super().top(draft, draft, k)


class OneTokenFewer(Losses):
    """Keeps the tokens above the k-th, without it."""

    refutes = "LOSSES-501"

    @classmethod
    def size(cls, k: int, vocabulary: int) -> int:
        return max(1, min(k, vocabulary) - 1) if k < vocabulary else vocabulary


class SetOfTheFirstRow(Losses):
    """Keeps the same tokens in every row."""

    refutes = "LOSSES-501"

    @classmethod
    def top(cls, target: Array, draft: Array, k: int) -> Array:
        return np.broadcast_to(super().top(target, draft, k)[0], target.shape)


class HighestIdsEnterFirst(Losses):
    """Among tied tokens it keeps the higher ids."""

    refutes = "LOSSES-502"

    @classmethod
    def top(cls, target: Array, draft: Array, k: int) -> Array:
        return super().top(target[:, ::-1], draft, k)[:, ::-1]


class KeepsEveryTie(Losses):
    """Keeps every token tied with the k-th."""

    refutes = "LOSSES-502"

    @classmethod
    def top(cls, target: Array, draft: Array, k: int) -> Array:
        least = -np.sort(-target, axis=1)[:, [cls.size(k, target.shape[1]) - 1]]
        found: Array = target >= least
        return found


class RenormalisedSet(Losses):
    """Renormalises the target's mass on the set."""

    refutes = "LOSSES-503"

    @classmethod
    def on_the_set(cls, p: Array, kept: Array) -> Array:
        found: Array = super().on_the_set(p, kept)
        return found / found.sum(axis=1, keepdims=True)


class NormalisesOnTheSet(Losses):
    """Takes the drafter's log-softmax over the set."""

    refutes = "LOSSES-504"

    @classmethod
    def draft_log_law(cls, logits: Array, kept: Array | None) -> Array:
        if kept is None:
            return super().draft_log_law(logits, kept)
        return np.where(kept, cls.log_softmax(np.where(kept, logits, -np.inf)), cls.log_softmax(logits))


class TopSlopeLacksTheMass(Losses):
    """Has the gradient q − p, as if the set held all of the mass."""

    refutes = "LOSSES-505"

    @classmethod
    def top_slope(cls, p: Array, log_q: Array, kept: Array) -> Array:
        slope: Array = np.exp(log_q) - p
        return slope


class TopSlopeInsideTheSet(Losses):
    """Has a gradient for the tokens of the set alone."""

    refutes = "LOSSES-505"

    @classmethod
    def top_slope(cls, p: Array, log_q: Array, kept: Array) -> Array:
        return np.where(kept, super().top_slope(p, log_q, kept), 0.0)


class NoKAboveTheVocabulary(Losses):
    """Refuses a k above the vocabulary, as torch.topk does."""

    refutes = "LOSSES-506"

    @classmethod
    def size(cls, k: int, vocabulary: int) -> int:
        if k > vocabulary:
            raise IndexError("selected index k out of range")
        return k


class KModuloTheVocabulary(Losses):
    """Takes k modulo the vocabulary."""

    refutes = "LOSSES-506"

    @classmethod
    def size(cls, k: int, vocabulary: int) -> int:
        return k % vocabulary or vocabulary


# ---- HASS


class MeanOfTheSteps(Losses):
    """Divides HASS's loss by the number of its steps."""

    refutes = "LOSSES-601"

    @classmethod
    def hass_total(cls, parts: Sequence[float | None]) -> float | None:
        total = super().hass_total(parts)
        return None if total is None else total / len(parts)


class LastStepAlone(Losses):
    """Reports the loss of the last step as HASS's."""

    refutes = "LOSSES-601"

    @classmethod
    def hass_total(cls, parts: Sequence[float | None]) -> float | None:
        return parts[-1]


class MaskOfTheFirstStep(Losses):
    """Counts, at each step, the rows that the first one supervises."""

    refutes = "LOSSES-602"

    @classmethod
    def hass_rows(cls, case: HassLossCase, s: int) -> Array:
        return cls.chosen(case.supervise[0])


class TopTermHasNoWeight(Losses):
    """Adds the top-K term without its weight."""

    refutes = "LOSSES-602"

    @classmethod
    def hass_weights(cls, case: HassLossCase) -> tuple[float, ...]:
        return case.regression_weight, case.classification_weight, 1.0


class WeightOfRegressionTwice(Losses):
    """Weighs the top-K term as it weighs regression."""

    refutes = "LOSSES-602"

    @classmethod
    def hass_weights(cls, case: HassLossCase) -> tuple[float, ...]:
        return case.regression_weight, case.classification_weight, case.regression_weight * case.topk_weight


class GradientOfTheWrongStep(Losses):
    """Hands each step the gradient of the step before."""

    refutes = "LOSSES-603"

    @classmethod
    def hass_gradient(cls, grads: Sequence[Array]) -> Array:
        return np.roll(np.stack(grads), 1, axis=0)


class GradientOfTheLastStep(Losses):
    """Back-propagates the last step alone."""

    refutes = "LOSSES-603"

    @classmethod
    def hass_gradient(cls, grads: Sequence[Array]) -> Array:
        return np.stack([grad * (s == len(grads) - 1) for s, grad in enumerate(grads)])


class ZeroForAnEmptyStep(Losses):
    """Reports 0 for a step of HASS that supervises no row."""

    refutes = "LOSSES-604"

    @classmethod
    def hass_step(cls, case: HassLossCase, s: int) -> Term:
        value, grad = super().hass_step(case, s)
        return 0.0 if value is None and case.supervise.any() else value, grad


class StopsAtAnEmptyStep(Losses):
    """Ends the rollout of HASS at the first step that supervises no row."""

    refutes = "LOSSES-604"

    @classmethod
    def hass_rows(cls, case: HassLossCase, s: int) -> Array:
        rows = super().hass_rows(case, s)
        return rows if case.supervise[: s + 1].any(axis=1).all() else rows[:0]
