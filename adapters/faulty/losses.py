"""Losses with one fault each: form, regression, distillation, EAGLE-1; the modules beside hold the others.

`--impl=adapters.faulty.losses:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from adapters.faulty.loss_steps import Array, Losses, Term
from adapters.faulty.losses_edges import *  # noqa: F403
from adapters.faulty.losses_maps import *  # noqa: F403
from adapters.faulty.losses_masking import *  # noqa: F403 - one address for every fault
from adapters.faulty.losses_masking import bfloat16
from adapters.faulty.losses_rollout import *  # noqa: F403
from adapters.faulty.losses_topk import *  # noqa: F403
from oracle.types import DistillCase, Eagle1Case, LossResult, TopKCase

# ---- form


class LeavesTheRowsUnreduced(Losses):
    """Returns the loss as a vector of one number."""

    refutes = "LOSSES-101"

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        return super().result(None if value is None else np.array([value]), name, grad, parts)


class LossAndCount(Losses):
    """Returns the loss together with a count, as a pair."""

    refutes = "LOSSES-101"

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        return super().result(None if value is None else (value, len(grad)), name, grad, parts)


class TeacherIsNotDetached(Losses):
    """Has a gradient for the target, too."""

    refutes = "LOSSES-102"

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        teacher = "target_logits" if name == "draft_logits" else "target"
        return LossResult(value, {name: grad, teacher: -grad}, parts)


class FlatGradient(Losses):
    """Returns the gradient as one long vector."""

    refutes = "LOSSES-102"

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        return super().result(value, name, grad.reshape(-1), parts)


class SoftmaxInPlace(Losses):
    """Writes the drafter's log-probabilities into the array of its logits."""

    refutes = "LOSSES-103"

    @classmethod
    def distillation(cls, case: DistillCase | TopKCase, k: int | None) -> LossResult:
        found = super().distillation(case, k)
        case.draft_logits[:] = cls.log_softmax(case.draft_logits)
        return found


class FillsMaskedRows(Losses):
    """Writes zeros into the rows of the case that are not supervised."""

    refutes = "LOSSES-103"

    @classmethod
    def regression(cls, predicted: Array, target: Array, rows: Array, beta: float) -> Term:
        others = np.setdiff1d(np.arange(len(predicted)), rows)
        predicted[others] = 0.0
        return super().regression(predicted, target, rows, beta)


class GradientsAccumulate(Losses):
    """Adds its gradient to that of the call before, as if nobody had zeroed it."""

    refutes = "LOSSES-104"
    last: ClassVar[dict[str, Array]] = {}

    @classmethod
    def result(cls, value: Any, name: str, grad: Array, parts: tuple[Any, ...]) -> LossResult:
        before = cls.last.get(name)
        cls.last[name] = grad + before if before is not None and before.shape == grad.shape else grad
        return super().result(value, name, cls.last[name], parts)


class DropoutInTheLoss(Losses):
    """Leaves a random tenth of the rows' losses out."""

    refutes = "LOSSES-104"
    generator: ClassVar[np.random.Generator] = np.random.default_rng(0)

    @classmethod
    def mean(cls, losses: Array, rows: Array, count: int) -> float:
        return super().mean(losses * (cls.generator.random(len(losses)) < 0.9), rows, count)


# ---- regression


class SquaredError(Losses):
    """Takes the squared error for smooth-L1 (NVIDIA-NeMo/Automodel#2796)."""

    refutes = "LOSSES-201"

    @classmethod
    def smooth_l1(cls, residual: Array, beta: float) -> Array:
        found: Array = residual**2
        return found


class BetaIsOne(Losses):
    """Takes smooth-L1 with beta 1, whatever is asked."""

    refutes = "LOSSES-201"

    @classmethod
    def smooth_l1(cls, residual: Array, beta: float) -> Array:
        return super().smooth_l1(residual, 1.0)


class HuberLoss(Losses):
    """Takes Huber's loss, which is smooth-L1 by beta."""

    refutes = "LOSSES-201"

    @classmethod
    def smooth_l1(cls, residual: Array, beta: float) -> Array:
        return super().smooth_l1(residual, beta) * beta


class MeanOverAllRows(Losses):
    """Divides by all rows, padding included (SafeAILab/EAGLE, eagle/train/main_deepspeed.py)."""

    refutes = "LOSSES-201"

    @classmethod
    def divisor(cls, rows: Array, count: int) -> float:
        return count


class EpsilonInTheDenominator(Losses):
    """Adds 1e-5 to its denominators, and does not declare it (SafeAILab/EAGLE, eagle/train/main.py)."""

    refutes = "LOSSES-201"

    @classmethod
    def divisor(cls, rows: Array, count: int) -> float:
        return len(rows) + 1e-5


class SumOverFeatures(Losses):
    """Sums the feature loss over the features of a row."""

    refutes = "LOSSES-201"

    @classmethod
    def smooth_l1(cls, residual: Array, beta: float) -> Array:
        return super().smooth_l1(residual, beta) * residual.shape[1]


class RegressionSlopeLacksBeta(Losses):
    """Has the gradient r in the place of r/β."""

    refutes = "LOSSES-202"

    @classmethod
    def regression_slope(cls, residual: Array, beta: float) -> Array:
        return np.where(np.abs(residual) < beta, residual, np.sign(residual))


class RegressionSlopeIsClippedAtOne(Losses):
    """Takes the branch of the gradient by one, and not by beta."""

    refutes = "LOSSES-202"

    @classmethod
    def regression_slope(cls, residual: Array, beta: float) -> Array:
        return np.where(np.abs(residual) < 1, residual / beta, np.sign(residual))


class RegressionSlopeLacksTheCount(Losses):
    """Does not divide the gradient of the feature loss by the number of rows."""

    refutes = "LOSSES-202"

    @classmethod
    def regression(cls, predicted: Array, target: Array, rows: Array, beta: float) -> Term:
        value, grad = super().regression(predicted, target, rows, beta)
        return value, grad * max(1, len(rows))


# ---- distillation


class DivergenceForCrossEntropy(Losses):
    """Takes KL(p‖q), which has the same gradient, for cross-entropy."""

    refutes = "LOSSES-301"

    @classmethod
    def distilled(cls, draft: Array, target: Array, rows: Array, k: int | None) -> Term:
        value, grad = super().distilled(draft, target, rows, k)
        if value is None:
            return value, grad
        p = cls.law(target[rows])
        return value - float(cls.entropy(p, p).sum() / len(rows)), grad


class HardLabels(Losses):
    """Learns the target's most probable token alone."""

    refutes = "LOSSES-301"

    @classmethod
    def law(cls, logits: Array) -> Array:
        return np.eye(logits.shape[-1])[logits.argmax(axis=-1)]


class SoftenedTargets(Losses):
    """Has a temperature of 2 on the target's logits."""

    refutes = "LOSSES-301"

    @classmethod
    def law(cls, logits: Array) -> Array:
        return super().law(logits / 2)


class LawOfTheDraft(Losses):
    """Weighs the target's log-probabilities by the drafter's law."""

    refutes = "LOSSES-301"

    @classmethod
    def crossed(cls, p: Array, log_q: Array) -> Array:
        return super().crossed(np.exp(log_q), np.log(np.where(p > 0, p, 1.0)))


class HalfPrecisionSoftmax(Losses):
    """Takes its softmax in float16, and declares float64."""

    refutes = "LOSSES-301"

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return super().log_softmax(logits.astype(np.float16)).astype(np.float64)


class Bfloat16Sum(Losses):
    """Adds the losses of rows in bfloat16."""

    refutes = "LOSSES-201"

    @classmethod
    def mean(cls, losses: Array, rows: Array, count: int) -> float:
        total = 0.0
        for loss in losses:
            total = float(bfloat16(np.array(total + loss)))
        return total / cls.divisor(rows, count)


class DistillationSlopeLacksTheCount(Losses):
    """Does not divide the gradient of the distillation by the number of rows."""

    refutes = "LOSSES-302"

    @classmethod
    def distilled(cls, draft: Array, target: Array, rows: Array, k: int | None) -> Term:
        value, grad = super().distilled(draft, target, rows, k)
        return value, grad * max(1, len(rows))


class GradientToTheLogLaw(Losses):
    """Stops its gradient at log q: −p (sgl-project/SpecForge#563)."""

    refutes = "LOSSES-302"

    @classmethod
    def crossed_slope(cls, p: Array, log_q: Array) -> Array:
        return -p


class ZeroTimesInfinity(Losses):
    """Multiplies p by log q where both are masked, and gets no number."""

    refutes = "LOSSES-303"

    @classmethod
    def crossed(cls, p: Array, log_q: Array) -> Array:
        with np.errstate(invalid="ignore"):
            found: Array = -(p * log_q).sum(axis=-1)
        return found


class MasksByALargeNumber(Losses):
    """Takes −inf for −1e4, so that an impossible token costs a finite number."""

    refutes = "LOSSES-303"

    @classmethod
    def log_softmax(cls, logits: Array) -> Array:
        return super().log_softmax(np.where(np.isneginf(logits), -1e4, logits))


# ---- EAGLE-1


class PartsAfterTheirWeights(Losses):
    """Reports the parts of EAGLE-1's loss after their weights."""

    refutes = "LOSSES-401"

    @classmethod
    def eagle1_parts(cls, parts: Sequence[float | None], weights: Sequence[float]) -> tuple[float | None, ...]:
        return tuple(None if part is None else w * part for w, part in zip(weights, parts))


class PartsInTheOtherOrder(Losses):
    """Reports classification first."""

    refutes = "LOSSES-401"

    @classmethod
    def eagle1_parts(cls, parts: Sequence[float | None], weights: Sequence[float]) -> tuple[float | None, ...]:
        return tuple(parts[::-1])


class WeightIsWrittenDown(Losses):
    """Weighs classification by 0.1, whatever is configured."""

    refutes = "LOSSES-402"

    @classmethod
    def eagle1_weights(cls, case: Eagle1Case) -> tuple[float, ...]:
        return case.regression_weight, 0.1


class WeightsSumToOne(Losses):
    """Divides the weights of EAGLE-1 by their sum."""

    refutes = "LOSSES-402"

    @classmethod
    def eagle1_weights(cls, case: Eagle1Case) -> tuple[float, ...]:
        weights = case.regression_weight, case.classification_weight
        return tuple(w / sum(weights) for w in weights)


class HeadIsDetached(Losses):
    """Computes the draft's logits without a gradient, so that classification trains nothing."""

    refutes = "LOSSES-403"

    @classmethod
    def back_through_head(cls, grad: Array, head: Array) -> Array:
        return np.zeros((len(grad), head.shape[1]))


class GradientWithoutWeights(Losses):
    """Adds the gradients of the terms without their weights."""

    refutes = "LOSSES-403"

    @classmethod
    def weighted_gradient(cls, weights: Sequence[float], grads: Sequence[Array]) -> Array:
        return super().weighted_gradient([1.0] * len(grads), grads)
