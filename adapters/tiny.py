"""A tiny drafter and its trainer in torch: losses and gradients by autograd, updates by torch.optim.AdamW.

`adapters.tiny` multiplies matrices in float32 and computes softmax, losses and means in float64; the losses of cases
are float64 throughout. `adapters.tiny:bfloat16` multiplies the trainer's matrices in bfloat16 and computes softmax,
losses and means in float32, as mixed-precision training does; the losses of cases are float32 throughout.

Every convention of a loss is an argument of its operation, so none is declared. `noisy_sample` scales its noise by the
length of the sample under `adapters.tiny`, and draws it by the law of the paper under `:bfloat16`.

`state_gradient` rolls the drafter out and asks `torch.autograd.grad` which states each step's loss reaches.
`training_step` warms the optimizer up on random tokens of its own. A batch with nothing supervised makes no loss, so no
optimizer step is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adapters import tiny_losses as losses
from adapters import tiny_training as training
from adapters.backward import twice
from adapters.interface import AdapterError, Arithmetic, Declaration
from oracle.errors import BadInput
from oracle.types import (
    LAWS,
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    Flags,
    HassLossCase,
    Ids,
    LossResult,
    NoiseCase,
    NoisySample,
    RegressionCase,
    RolloutLossCase,
    Rows,
    SampleCase,
    StateGradientCase,
    TopKCase,
    TrainingCase,
    TrainingResult,
)

if TYPE_CHECKING:
    from torch import Tensor

NOISE_WIDTH = 0.2
REFERENCE_LENGTH = 512


class Tiny:
    """The operations in one precision, with one law of noise of its own."""

    def __init__(self, name: str, precision: training.Precision, noise: str) -> None:
        self._precision = precision
        self._noise = noise
        self.DECLARATION = Declaration(
            name=name,
            version="0.1.0",
            conventions={"noise_amplitude": noise},
            arithmetic=Arithmetic(dtype=precision.losses),
            cost={"training_step": 5e-3, "state_gradient": 3e-3, "noisy_sample": 1e-4}
            | dict.fromkeys(("feature_regression", "soft_cross_entropy", "topk_distillation"), 3e-4)
            | dict.fromkeys(("eagle1_loss", "hass_loss", "rollout_loss"), 1e-3),
        )

    def feature_regression(self, case: RegressionCase) -> LossResult:
        """Smooth-L1, by `torch.nn.functional.smooth_l1_loss`."""
        predicted = self._trained(case.predicted)
        value = losses.regression(predicted, self._rows(case.target), _flags(case.supervise), case.beta)
        return _result(value, "predicted", predicted)

    def soft_cross_entropy(self, case: DistillCase) -> LossResult:
        """Cross-entropy against the target's whole law."""
        draft = self._trained(case.draft_logits)
        value = losses.distillation(draft, self._rows(case.target_logits), _flags(case.supervise))
        return _result(value, "draft_logits", draft)

    def topk_distillation(self, case: TopKCase) -> LossResult:
        """Cross-entropy over the k tokens of the largest target logits."""
        draft = self._trained(case.draft_logits)
        value = losses.distillation(draft, self._rows(case.target_logits), _flags(case.supervise), case.k)
        return _result(value, "draft_logits", draft)

    def eagle1_loss(self, case: Eagle1Case) -> LossResult:
        """Regression, and cross-entropy through the frozen head."""
        predicted = self._trained(case.predicted)
        given = (self._rows(case.target), self._rows(case.head), _flags(case.supervise))
        terms = _terms(predicted, *given, case.beta)
        value = losses.weighted(terms, (case.regression_weight, case.classification_weight))
        return _result(value, "predicted", predicted, terms)

    def hass_loss(self, case: HassLossCase) -> LossResult:
        """Regression, cross-entropy and its top-K term at every step, summed."""
        predicted = self._trained(case.predicted)
        target, head, flags = self._rows(case.target), self._rows(case.head), _flags(case.supervise)
        weights = (case.regression_weight, case.classification_weight, case.topk_weight)
        steps = []
        for state, counted in zip(predicted, flags, strict=True):
            topk = losses.through_head(state, target, head, counted, case.k)
            steps.append(losses.weighted((*_terms(state, target, head, counted, case.beta), topk), weights))
        return _result(losses.weighted(steps, [1.0] * len(steps)), "predicted", predicted, steps)

    def rollout_loss(self, case: RolloutLossCase) -> LossResult:
        """Soft cross-entropy on the draft vocabulary, step by step."""
        torch = _torch()
        how = losses.Conventions(
            case.denominator,
            case.restricted_target,
            case.gate,
            case.divergence,
            case.reduction,
            float(case.denominator_epsilon),
        )
        draft, target, flags = self._trained(case.draft_logits), self._rows(case.target_logits), _flags(case.supervise)
        count, vocabulary = len(draft), target.shape[-1]
        ids = torch.arange(vocabulary) if case.draft_to_target is None else _ids(case.draft_to_target)
        losses.distinct(ids, "draft_to_target", None, vocabulary)
        if len(ids) != draft.shape[-1]:
            raise BadInput("draft_to_target", (), "there is one id for each draft token", len(ids))
        weights = [losses.DECAY**s for s in range(count)] if case.step_weights is None else list(case.step_weights)
        if len(weights) != count:
            raise BadInput("step_weights", (), f"there is one weight for each of the {count} steps", len(weights))
        steps = [losses.rollout_step(*step, ids, how) for step in zip(draft, target, flags, strict=True)]
        value = losses.weighted(steps, weights)
        if value is not None and how.reduction == "mean":
            value = value / count
        return _result(value, "draft_logits", draft, steps)

    def draft_to_target(self, case: DraftMapCase) -> Ids:
        """The absolute target ids."""
        flags = None if case.t2d is None else _flags(case.t2d)
        found: Ids = losses.absolute_ids(_ids(case.d2t), flags, case.convention).numpy()
        return found

    def feature_noise(self, case: NoiseCase) -> Rows:
        """Uniforms turned into noise."""
        unit = np.asarray(case.unit)
        # before the cast, which takes the largest uniforms to 1 in float32
        if not ((unit >= 0) & (unit < 1)).all():
            raise BadInput("unit", (), "a uniform lies in [0, 1)")
        return training.array(_noise(self._rows(unit), case.length, case.law))

    def noisy_sample(self, case: SampleCase) -> NoisySample:
        """The sample with noise from a generator of its own; its targets stay as they are."""
        torch = _torch()
        features = self._rows(case.features)
        generator = torch.Generator().manual_seed(case.seed)
        unit = torch.rand(features.shape, generator=generator, dtype=features.dtype)
        noisy = features + _noise(unit, len(features), self._noise)
        return NoisySample(training.array(noisy), training.array(self._rows(case.targets)))

    def training_step(self, case: TrainingCase) -> TrainingResult:
        """One step of the trainer on a batch."""
        _torch()
        return training.training_step(case, self._precision)

    def state_gradient(self, case: StateGradientCase) -> Flags:
        """Which states the loss of each step has a gradient to."""
        _torch()
        return training.state_gradient(case, self._precision)

    def _rows(self, values: object) -> Tensor:
        torch = _torch()
        # a copy: an array that is shared with torch can be written by it
        found: Tensor = torch.tensor(np.array(values), dtype=getattr(torch, self._precision.losses))
        return found

    def _trained(self, values: object) -> Tensor:
        return self._rows(values).requires_grad_()


def _terms(
    predicted: Tensor, target: Tensor, head: Tensor, counted: Tensor, beta: float
) -> tuple[Tensor | None, Tensor | None]:
    classification = losses.through_head(predicted, target, head, counted)
    return losses.regression(predicted, target, counted, beta), classification


def _noise(unit: Tensor, length: int, law: str) -> Tensor:
    if law not in LAWS:
        raise BadInput("law", (), f"is one of {', '.join(LAWS)}", law)
    if isinstance(length, bool) or length < 1:
        raise BadInput("length", (), "is a whole number of at least 1", length)
    return (unit - 0.5) * (NOISE_WIDTH * (REFERENCE_LENGTH / length if law == "length_scaled" else 1.0))


def _result(value: Tensor | None, name: str, trained: Tensor, parts: Sequence[Tensor | None] = ()) -> LossResult:
    """Value, gradient by autograd (zeros where the loss does not reach the input), and the terms as numbers."""
    told = tuple(training.number(part) for part in parts)
    if value is None:
        return LossResult(None, {name: np.zeros(tuple(trained.shape))}, told)
    first, second = twice(value, [trained])
    return LossResult(training.number(value), {name: first[0]}, told, {name: second[0]})


def _flags(values: object) -> Tensor:
    torch = _torch()
    flags: Tensor = torch.tensor(np.array(values))
    if flags.dtype != torch.bool:
        raise BadInput("supervise", (), "holds booleans", str(flags.dtype))
    return flags


def _ids(values: object) -> Tensor:
    torch = _torch()
    ids: Tensor = torch.tensor(np.array(values))
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise BadInput("d2t", (), "holds integers", str(ids.dtype))
    return ids.long()


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise AdapterError(f"adapters.tiny needs `pip install -r adapters/requirements/tiny.txt` ({error})") from error
    return torch


_float32 = Tiny("tiny", training.Precision(products="float32", losses="float64"), "length_scaled")
bfloat16 = Tiny("tiny, bfloat16", training.Precision(products="bfloat16", losses="float32"), "paper")

DECLARATION = _float32.DECLARATION
feature_regression = _float32.feature_regression
soft_cross_entropy = _float32.soft_cross_entropy
topk_distillation = _float32.topk_distillation
eagle1_loss = _float32.eagle1_loss
hass_loss = _float32.hass_loss
rollout_loss = _float32.rollout_loss
draft_to_target = _float32.draft_to_target
feature_noise = _float32.feature_noise
noisy_sample = _float32.noisy_sample
training_step = _float32.training_step
state_gradient = _float32.state_gradient
