"""A tiny frozen target for the training steps of `adapters.specforge` and `adapters.angelslim`, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adapters import eagle3_loop as loop
from adapters.interface import NotApplicable
from oracle.types import Flags, Ids, Rows, TrainingCase, TrainingResult

VOCABULARY = 16
"""Token ids lie in [0, 16)."""
RATE = 0.01
STEPS = 2
"""Steps of a rollout: the second one is fed a state."""

Raw = tuple[Ids, Rows, Rows, Flags]
"""Tokens [L], auxiliary features [L, 3d], last features [L, d] and the token mask [L] of a sample."""


class Target:
    """A random recurrence over an embedding, and a head: everything float32."""

    def __init__(self, rng: np.random.Generator, width: int) -> None:
        self.embedding: Rows = rng.normal(size=(VOCABULARY, width)).astype(np.float32)
        self.head: Rows = rng.normal(size=(VOCABULARY, width)).astype(np.float32)

    def sample(self, tokens: Ids, mask: Flags) -> Raw:
        """The features of a token sequence: the embedding, half of the way and the last state."""
        if np.any((tokens < 0) | (tokens >= VOCABULARY)):
            raise NotApplicable(f"the tiny target has the tokens 0 to {VOCABULARY - 1}")
        last: Rows = np.zeros((len(tokens), self.embedding.shape[1]), dtype=np.float32)
        for t, token in enumerate(tokens):
            last[t] = np.tanh(self.embedding[token] + (0.5 * last[t - 1] if t else 0.0))
        entry = self.embedding[tokens]
        return tokens, np.concatenate([entry, np.tanh(entry), last], axis=1), last, mask


@dataclass
class Work:
    """The batches of a case, the warm ones first, and the target that their features come from."""

    target: Target
    batches: list[list[Raw]]


def work(case: TrainingCase, width: int) -> Work:
    """Everything that the seed decides but the drafter's weights."""
    rng = np.random.default_rng(case.seed)
    target = Target(rng, width)
    mask = np.asarray(case.batch.supervise)
    given = loop.samples(case.batch, np.zeros((*mask.shape, 1)), mask)
    warm = [
        [target.sample(rng.integers(0, VOCABULARY, 5), np.ones(5, dtype=bool)) for _ in given]
        for _ in range(case.warm_steps)
    ]
    return Work(target, [*warm, [target.sample(sample.tokens, sample.mask) for sample in given]])


@dataclass
class Observed:
    """What a step is seen to do. Parameters and states are float64 arrays by name."""

    before: Mapping[str, Rows] = field(default_factory=dict)
    after: Mapping[str, Rows] = field(default_factory=dict)
    target_before: Mapping[str, Rows] = field(default_factory=dict)
    target_after: Mapping[str, Rows] = field(default_factory=dict)
    state_before: Mapping[str, Rows] = field(default_factory=dict)
    state_after: Mapping[str, Rows] = field(default_factory=dict)
    gradient: Mapping[str, Rows | None] = field(default_factory=dict)
    target_gradient: Mapping[str, Rows | None] = field(default_factory=dict)
    target_trainable: tuple[str, ...] = ()
    loss: float | None = None
    draft_logits: Rows | None = None
    target_logits: Rows | None = None
    supervise: Flags | None = None
    step_loss: float | None = None

    def result(self) -> TrainingResult:
        return TrainingResult(
            loss=self.loss,
            drafter={name: (value, self.after[name]) for name, value in self.before.items()},
            target={name: (value, self.target_after[name]) for name, value in self.target_before.items()},
            drafter_grad=self.gradient,
            target_grad=self.target_gradient,
            target_trainable=self.target_trainable,
            optimizer={name: (value, self.state_after[name]) for name, value in self.state_before.items()},
            draft_logits=self.draft_logits,
            target_logits=self.target_logits,
            supervise=self.supervise,
            step_loss=self.step_loss,
        )


def numbers(parameters: Mapping[str, Any]) -> dict[str, Rows]:
    """Copies of tensors."""
    return {name: array(tensor) for name, tensor in parameters.items()}


def gradients(parameters: Mapping[str, Any]) -> dict[str, Rows | None]:
    """Copies of the gradients that parameters hold."""
    return {name: None if tensor.grad is None else array(tensor.grad) for name, tensor in parameters.items()}


def moments(optimizer: Any, parameters: Mapping[str, Any]) -> dict[str, Rows]:
    """AdamW's moments and counts of steps, zeros before its first step."""
    found = {}
    for name, tensor in parameters.items():
        held = optimizer.state.get(tensor, {})
        for kind, shape in (("step", ()), ("exp_avg", tensor.shape), ("exp_avg_sq", tensor.shape)):
            found[f"{name}.{kind}"] = array(held[kind]) if kind in held else np.zeros(tuple(shape))
    return found


def rows(tensor: Any) -> Rows:
    """[B, N, V] → [B·N, V]."""
    return array(tensor).reshape(-1, tensor.shape[-1])


def array(tensor: Any) -> Rows:
    """A copy of a tensor's numbers, in float64."""
    return np.array(tensor.detach().double().numpy(), dtype=np.float64)


def trainable(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of those that ask for a gradient."""
    return tuple(name for name, tensor in parameters.items() if tensor.requires_grad)


def split(named: Sequence[tuple[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A draft model's parameters: its own, and the embedding that it took from the target."""
    own = {name: tensor for name, tensor in named if not name.startswith("embed_tokens.")}
    taken = {name: tensor for name, tensor in named if name.startswith("embed_tokens.")}
    return own, taken
