"""One training step of a tiny drafter, in NumPy: EAGLE-1's loss, its closed-form gradient, AdamW.

The target is a frozen recurrence with a head; the drafter one linear layer over the embedding and the feature. It shows
what a step owes: the target learns nothing, and a batch with nothing supervised moves neither a parameter nor a moment.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from oracle.errors import BadInput
from oracle.losses import eagle1_loss
from oracle.rows import gather_rows, soft_rows
from oracle.tensors import finite, member, one_of, whole
from oracle.types import (
    GRADIENTS,
    Eagle1Case,
    Flags,
    GatherCase,
    GatheredRows,
    Provenance,
    Rows,
    StateGradientCase,
    TokenBatch,
    TrainingCase,
    TrainingResult,
)

VOCABULARY = 16
"""Token ids of a training case lie in [0, 16)."""
WIDTH = 6
RATE = 0.01
BETAS = (0.9, 0.95)
"""Of AdamW, as the released trainer sets them (SafeAILab/EAGLE, eagle/train/main.py)."""


def training_step(case: TrainingCase) -> TrainingResult:
    """A supervised step, or none where nothing is supervised (LOSSES 12xx).

    Features cached for another target are refused as stale labels. Raises `BadInput`.
    """
    member(case, TrainingCase)
    refuse_stale(case.cached_for, case.trained_for)
    rng = np.random.default_rng(whole(case.seed, "seed", 0))
    target, drafter = models(rng)
    decay = finite(case.weight_decay, "weight_decay")
    if decay < 0:
        raise BadInput("weight_decay", (), "is at least zero", decay)
    optimizer = AdamW(drafter, decay)
    for _ in range(whole(case.warm_steps, "warm_steps", 0)):
        optimizer.step(Forward(warm_batch(rng), target, drafter).gradient())
    before = _copied(drafter), _copied(optimizer.state), _copied(target)
    forward = Forward(case.batch, target, drafter)
    gradient = forward.gradient()
    if forward.loss is not None:
        optimizer.step(gradient)
    return TrainingResult(
        loss=forward.loss,
        drafter={name: (before[0][name], drafter[name].copy()) for name in drafter},
        target={name: (before[2][name], target[name].copy()) for name in target},
        drafter_grad={name: None if forward.loss is None else value for name, value in gradient.items()},
        target_grad=dict.fromkeys(target),
        target_trainable=(),
        optimizer={name: (before[1][name], optimizer.state[name].copy()) for name in optimizer.state},
        draft_logits=forward.predicted @ target["head"].T,
        target_logits=forward.rows.target @ target["head"].T,
        supervise=forward.rows.supervise,
        step_loss=forward.classification,
    )


def models(rng: np.random.Generator) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """A random target (embedding and head, both [16, 6]) and a random drafter (weight [6, 12], bias [6])."""
    target = {"embedding": rng.normal(size=(VOCABULARY, WIDTH)), "head": rng.normal(size=(VOCABULARY, WIDTH))}
    return target, {"weight": rng.normal(size=(WIDTH, 2 * WIDTH)) / 4, "bias": rng.normal(size=WIDTH) / 4}


def warm_batch(rng: np.random.Generator) -> TokenBatch:
    """Two random sequences of five tokens, all supervised."""
    return TokenBatch(
        tokens=rng.integers(0, VOCABULARY, (2, 5)),
        valid=np.ones((2, 5), dtype=bool),
        segment=np.zeros((2, 5), dtype=np.int64),
        position=np.tile(np.arange(5), (2, 1)),
        supervise=np.ones((2, 5), dtype=bool),
    )


def state_gradient(case: StateGradientCase) -> Flags:
    """Whether the loss of step s has a gradient with respect to the state made at step r: bool [steps, steps].

    Every loss reaches the state it is computed from, and where gradients flow also the states fed into it
    (LOSSES-1102). Raises `BadInput`.
    """
    member(case, StateGradientCase)
    steps = whole(case.steps, "steps", 1)
    flows = one_of(case.gradient, "gradient", GRADIENTS) == "flows"
    return np.array([[r == s or (flows and r < s) for r in range(steps)] for s in range(steps)])


def refuse_stale(cached: Provenance | None, wanted: Provenance | None) -> None:
    """`BadInput` where features were cached for another target revision, layer or tokenizer."""
    if cached is None or wanted is None:
        return
    for field in dataclasses.fields(Provenance):
        found, expected = getattr(cached, field.name), getattr(wanted, field.name)
        if found != expected:
            rule = f"cached features are of the {field.name} that is trained for, {expected!r}"
            raise BadInput(f"cached_for.{field.name}", (), rule, found)


class AdamW:
    """Adam with decoupled weight decay; `state` holds both moments of each parameter and the count of steps."""

    def __init__(self, parameters: Mapping[str, Rows], weight_decay: float) -> None:
        self._parameters = parameters
        self._decay = weight_decay
        self.state: dict[str, Rows] = {"step": np.zeros(1)}
        for name, value in parameters.items():
            self.state |= {f"{name}.first": np.zeros(value.shape), f"{name}.second": np.zeros(value.shape)}

    def step(self, gradient: Mapping[str, Rows]) -> None:
        """Update moments, then parameters, in place."""
        self.state["step"] += 1
        count = int(self.state["step"][0])
        for name, value in self._parameters.items():
            first, second = self.state[f"{name}.first"], self.state[f"{name}.second"]
            first += (1 - BETAS[0]) * (gradient[name] - first)
            second += (1 - BETAS[1]) * (gradient[name] ** 2 - second)
            value *= 1 - RATE * self._decay
            corrected = first / (1 - BETAS[0] ** count)
            value -= RATE * corrected / (np.sqrt(second / (1 - BETAS[1] ** count)) + 1e-8)


class Forward:
    """Features, rows, predictions and loss of a batch."""

    def __init__(self, batch: TokenBatch, target: Mapping[str, Rows], drafter: Mapping[str, Rows]) -> None:
        self.rows: GatheredRows = gather_rows(GatherCase(batch, _features(batch, target["embedding"])))
        self.inputs = np.concatenate([target["embedding"][self.rows.token], self.rows.feature], axis=1)
        self.predicted = self.inputs @ drafter["weight"].T + drafter["bias"]
        result = eagle1_loss(Eagle1Case(self.predicted, self.rows.target, target["head"], self.rows.supervise))
        self.loss, self.classification = result.value, result.parts[1]
        self._grad = result.grad["predicted"]

    def gradient(self) -> dict[str, Rows]:
        """With respect to the drafter's parameters."""
        return {"weight": self._grad.T @ self.inputs, "bias": self._grad.sum(axis=0)}


def _features(batch: TokenBatch, embedding: Rows) -> Rows:
    """f[t] = tanh(e(x[t]) + ½ f[t−1]) within a segment; an invalid address holds NaN, which nobody reads."""
    soft_rows(batch)  # refuses what is no batch
    tokens, valid, segments = (np.asarray(values) for values in (batch.tokens, batch.valid, batch.segment))
    features = np.full((*tokens.shape, embedding.shape[1]), math.nan)
    for b, row in enumerate(tokens):
        last: dict[int, Rows] = {}
        for t, token in enumerate(row):
            if valid[b, t]:
                if not 0 <= token < VOCABULARY:
                    raise BadInput("batch.tokens", (b, t), f"a token id lies in [0, {VOCABULARY})", int(token))
                segment = int(segments[b, t])
                features[b, t] = np.tanh(embedding[token] + 0.5 * last.get(segment, np.zeros(embedding.shape[1])))
                last[segment] = features[b, t]
    return features


def _copied(arrays: Mapping[str, Rows]) -> dict[str, Rows]:
    return {name: value.copy() for name, value in arrays.items()}
