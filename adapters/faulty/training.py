"""Training steps with one fault each. `refutes` was written down before the run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from adapters.faulty.declared import Declared
from oracle.training import AdamW, Forward, models, refuse_stale, warm_batch
from oracle.types import Provenance, TrainingCase, TrainingResult

Arrays = dict[str, Any]


class Trainer(Declared, cost={"training_step": 2e-3}):
    """A right training step, cut into smaller ones: a fault is a subclass that overrides one of them."""

    @classmethod
    def training_step(cls, case: TrainingCase) -> TrainingResult:
        cls.check_cache(case.cached_for, case.trained_for)
        rng = np.random.default_rng(case.seed)
        target, drafter = models(rng)
        optimizer = AdamW(drafter, case.weight_decay)
        for _ in range(case.warm_steps):
            optimizer.step(Forward(warm_batch(rng), target, drafter).gradient())
        before = [cls.copied(arrays) for arrays in (drafter, target, optimizer.state)]
        forward = Forward(case.batch, target, drafter)
        gradient = cls.gradient(forward)
        logits = forward.predicted @ target["head"].T, forward.rows.target @ target["head"].T
        if forward.loss is not None:
            optimizer.step(gradient)
            cls.beside(target)
        else:
            cls.on_nothing(optimizer, drafter, gradient, case)
        after = (drafter, target, optimizer.state)
        pairs = [{name: (old[name], new[name].copy()) for name in new} for old, new in zip(before, after)]
        return TrainingResult(
            loss=forward.loss,
            drafter=pairs[0],
            target=pairs[1],
            drafter_grad=dict(gradient),
            target_grad=cls.target_gradient(target),
            target_trainable=cls.trainable(),
            optimizer=pairs[2],
            draft_logits=logits[0],
            target_logits=logits[1],
            supervise=forward.rows.supervise,
            step_loss=cls.step_loss(forward),
        )

    @classmethod
    def copied(cls, arrays: Any) -> Arrays:
        return {name: value.copy() for name, value in arrays.items()}

    @classmethod
    def check_cache(cls, cached: Provenance | None, wanted: Provenance | None) -> None:
        refuse_stale(cached, wanted)

    @classmethod
    def gradient(cls, forward: Forward) -> Arrays:
        return forward.gradient()

    @classmethod
    def beside(cls, target: Arrays) -> None:
        """What else an update moves."""

    @classmethod
    def on_nothing(cls, optimizer: AdamW, drafter: Arrays, gradient: Arrays, case: TrainingCase) -> None:
        """What a batch with nothing supervised moves."""

    @classmethod
    def target_gradient(cls, target: Arrays) -> dict[str, Any]:
        return dict.fromkeys(target)

    @classmethod
    def trainable(cls) -> tuple[str, ...]:
        return ()

    @classmethod
    def step_loss(cls, forward: Forward) -> float | None:
        return forward.classification


class HeadTrainedAlong(Trainer):
    """Hands the target's head to the optimizer together with the drafter."""

    refutes = "LOSSES-1201"

    @classmethod
    def beside(cls, target: Arrays) -> None:
        target["head"] *= 0.999


class HeadLeftTrainable(Trainer):
    """Freezes the target but for its head, which nobody happens to update."""

    refutes = "LOSSES-1201"

    @classmethod
    def trainable(cls) -> tuple[str, ...]:
        return ("head",)


class PredictionDetached(Trainer):
    """Detaches the drafter's output before the loss."""

    refutes = "LOSSES-1202"

    @classmethod
    def gradient(cls, forward: Forward) -> Arrays:
        return {name: np.zeros_like(value) for name, value in forward.gradient().items()}


class StepsOnNothing(Trainer):
    """Takes an optimizer step with a gradient of zero, so that momentum and weight decay go on."""

    refutes = "LOSSES-1203"

    @classmethod
    def on_nothing(cls, optimizer: AdamW, drafter: Arrays, gradient: Arrays, case: TrainingCase) -> None:
        optimizer.step(gradient)


class DecaysOnNothing(Trainer):
    """Skips the update and keeps the weight decay."""

    refutes = "LOSSES-1203"

    @classmethod
    def on_nothing(cls, optimizer: AdamW, drafter: Arrays, gradient: Arrays, case: TrainingCase) -> None:
        for value in drafter.values():
            value *= 1 - 0.01 * case.weight_decay


class MomentsFadeOnNothing(Trainer):
    """Lets the first moments fade, and leaves the parameters alone."""

    refutes = "LOSSES-1204"

    @classmethod
    def on_nothing(cls, optimizer: AdamW, drafter: Arrays, gradient: Arrays, case: TrainingCase) -> None:
        for name in drafter:
            optimizer.state[f"{name}.first"] *= 0.9


class CountsTheStepOnNothing(Trainer):
    """Counts a step that it did not take, and so corrects the next moments by the wrong power."""

    refutes = "LOSSES-1204"

    @classmethod
    def on_nothing(cls, optimizer: AdamW, drafter: Arrays, gradient: Arrays, case: TrainingCase) -> None:
        optimizer.state["step"] += 1


class LossInHalfPrecision(Trainer):
    """Sums its loss in the precision of its products."""

    refutes = "LOSSES-1205"

    @classmethod
    def step_loss(cls, forward: Forward) -> float | None:
        return None if forward.classification is None else float(np.float16(forward.classification))


class CacheUnchecked(Trainer):
    """Takes whatever features lie in the cache."""

    refutes = "LOSSES-1206"

    @classmethod
    def check_cache(cls, cached: Provenance | None, wanted: Provenance | None) -> None:
        return


class CacheOfAnyLayer(Trainer):
    """Compares revision and tokenizer, and forgets the layer (sgl-project/sglang#25454)."""

    refutes = "LOSSES-1206"

    @classmethod
    def check_cache(cls, cached: Provenance | None, wanted: Provenance | None) -> None:
        if cached is not None and wanted is not None:
            refuse_stale(dataclasses.replace(cached, layer=wanted.layer), wanted)
