"""The trainer of `adapters.tiny`: a frozen recurrent target, a linear drafter, EAGLE-1's loss and torch's AdamW."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from adapters import tiny_losses as losses
from oracle.errors import BadInput
from oracle.types import (
    GRADIENTS,
    Flags,
    Provenance,
    Rows,
    StateGradientCase,
    TokenBatch,
    TrainingCase,
    TrainingResult,
)

if TYPE_CHECKING:
    from torch import Generator, Tensor

VOCABULARY = 16
"""Token ids lie in [0, 16)."""
WIDTH = 6
WEIGHTS = (1.0, 0.1)
"""Of regression and classification."""


@dataclasses.dataclass(frozen=True)
class Precision:
    """The dtype of the trainer's matrix products, and that in which softmax, losses and their means are computed."""

    products: str
    losses: str


@dataclasses.dataclass(frozen=True)
class Forward:
    """What a batch gives: logits of its rows, which of them count, the loss and its classification term."""

    draft_logits: Tensor
    target_logits: Tensor
    supervise: Tensor
    loss: Tensor | None
    classification: Tensor | None


class Trainer:
    """The frozen target, the drafter and the drafter's optimizer, made from a generator."""

    def __init__(self, generator: Generator, weight_decay: float, precision: Precision) -> None:
        import torch

        def random(*shape: int, scale: float = 1.0) -> Tensor:
            # the master copy of a weight is float32, whatever its products are
            return torch.randn(*shape, generator=generator) * scale

        self._products: torch.dtype = getattr(torch, precision.products)
        self.dtype: torch.dtype = getattr(torch, precision.losses)
        self.target = {
            "embedding": random(VOCABULARY, WIDTH),
            "recurrence": random(WIDTH, WIDTH, scale=0.3),
            "head": random(VOCABULARY, WIDTH),
        }
        self.drafter = {
            "weight": random(WIDTH, 2 * WIDTH, scale=0.25).requires_grad_(),
            "bias": random(WIDTH, scale=0.25).requires_grad_(),
        }
        self.optimizer = torch.optim.AdamW(self.drafter.values(), lr=0.01, betas=(0.9, 0.95), weight_decay=weight_decay)

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """x·weightᵀ in the dtype of the products, handed on in that of the losses."""
        return (x.to(self._products) @ weight.to(self._products).T).to(self.dtype)

    def draft(self, tokens: Tensor, features: Tensor) -> Tensor:
        """The predicted features, one a row."""
        import torch

        embedded = self.target["embedding"][tokens].to(self.dtype)
        mixed = self.product(torch.cat([embedded, features], dim=-1), self.drafter["weight"])
        return mixed + self.drafter["bias"].to(self.dtype)

    def forward(self, batch: TokenBatch) -> Forward:
        """The rows of the batch, gathered address by address, and their loss."""
        import torch

        features = self._features(batch)
        rows = [(b, t) for b, t in features if _row(batch, b, t)]
        shape = (len(rows), WIDTH)
        source = torch.stack([features[b, t] for b, t in rows]) if rows else torch.zeros(shape, dtype=self.dtype)
        target = torch.stack([features[b, t + 1] for b, t in rows]) if rows else source
        tokens = torch.tensor([int(batch.tokens[b, t + 1]) for b, t in rows], dtype=torch.int64)
        supervise = torch.tensor([bool(batch.supervise[b, t]) for b, t in rows], dtype=torch.bool)
        predicted = self.draft(tokens, source)
        draft_logits = self.product(predicted, self.target["head"])
        target_logits = self.product(target, self.target["head"])
        terms = (
            losses.regression(predicted, target, supervise, beta=1.0),
            losses.distillation(draft_logits, target_logits, supervise),
        )
        return Forward(draft_logits, target_logits, supervise, losses.weighted(terms, WEIGHTS), terms[1])

    def step(self, loss: Tensor | None) -> dict[str, Rows | None]:
        """Back-propagate and update; nothing at all where there is no loss. Returns the gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        if loss is not None:
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        return {name: None if weight.grad is None else array(weight.grad) for name, weight in self.drafter.items()}

    def state(self) -> dict[str, Rows]:
        """The optimizer's moments and counts of steps, zeros before its first step."""
        found = {}
        for name, weight in self.drafter.items():
            held = self.optimizer.state.get(weight, {})
            for kind, size in (("step", ()), ("exp_avg", weight.shape), ("exp_avg_sq", weight.shape)):
                found[f"{name}.{kind}"] = array(held[kind]) if kind in held else np.zeros(tuple(size))
        return found

    def _features(self, batch: TokenBatch) -> dict[tuple[int, int], Tensor]:
        """f of each valid address: tanh(e(x) + W f'), f' being the feature before it in its segment."""
        import torch

        found: dict[tuple[int, int], Tensor] = {}
        for b, row in enumerate(batch.tokens.tolist()):
            last: dict[int, Tensor] = {}
            for t, token in enumerate(row):
                if not batch.valid[b, t]:
                    continue
                if not 0 <= token < VOCABULARY:
                    raise BadInput("batch.tokens", (b, t), f"a token id lies in [0, {VOCABULARY})", token)
                segment = int(batch.segment[b, t])
                before = last.get(segment, torch.zeros(WIDTH, dtype=self.dtype))
                carried = self.product(before[None], self.target["recurrence"])[0]
                last[segment] = found[b, t] = torch.tanh(self.target["embedding"][token].to(self.dtype) + carried)
        return found


def training_step(case: TrainingCase, precision: Precision) -> TrainingResult:
    """Warm up on data of its own, then one step on the batch, or none where nothing of it is supervised."""
    import torch

    _refuse_stale(case.cached_for, case.trained_for)
    generator = torch.Generator().manual_seed(case.seed)
    trainer = Trainer(generator, case.weight_decay, precision)
    for _ in range(case.warm_steps):
        tokens = torch.randint(0, VOCABULARY, (2, 5), generator=generator).numpy()
        everything = np.ones((2, 5), dtype=bool)
        counting = np.tile(np.arange(5), (2, 1))
        trainer.step(trainer.forward(TokenBatch(tokens, everything, counting * 0, counting, everything)).loss)
    parameters = {name: array(weight) for name, weight in trainer.drafter.items()}
    frozen = {name: array(weight) for name, weight in trainer.target.items()}
    state = trainer.state()
    forward = trainer.forward(case.batch)
    gradients = trainer.step(forward.loss)
    after = trainer.state()
    return TrainingResult(
        loss=number(forward.loss),
        drafter={name: (parameters[name], array(weight)) for name, weight in trainer.drafter.items()},
        target={name: (frozen[name], array(weight)) for name, weight in trainer.target.items()},
        drafter_grad=gradients,
        target_grad={name: None if w.grad is None else array(w.grad) for name, w in trainer.target.items()},
        target_trainable=tuple(name for name, weight in trainer.target.items() if weight.requires_grad),
        optimizer={name: (state[name], after[name]) for name in state},
        draft_logits=array(forward.draft_logits),
        target_logits=array(forward.target_logits),
        supervise=forward.supervise.numpy(),
        step_loss=number(forward.classification),
    )


def state_gradient(case: StateGradientCase, precision: Precision) -> Flags:
    """Roll the drafter out over one random sequence and ask autograd which states a step's loss reaches."""
    import torch

    if case.gradient not in GRADIENTS:
        raise BadInput("gradient", (), f"is one of {', '.join(GRADIENTS)}", case.gradient)
    if isinstance(case.steps, bool) or case.steps < 1:
        raise BadInput("steps", (), "is a whole number of at least 1", case.steps)
    generator = torch.Generator().manual_seed(0)
    trainer = Trainer(generator, 0.0, precision)
    anchors = 3
    tokens = torch.randint(0, VOCABULARY, (anchors + case.steps + 1,), generator=generator)
    targets = torch.randn(len(tokens), WIDTH, generator=generator, dtype=trainer.dtype)
    fed, states, step_losses = targets[:anchors], [], []
    for s in range(case.steps):
        state = trainer.draft(tokens[s + 1 : s + 1 + anchors], fed)
        states.append(state)
        there = targets[s + 1 : s + 1 + anchors]
        # the smallest loss there is: asked is its path to the states, not its value
        step_losses.append((state - there).square().mean())
        fed = state if case.gradient == "flows" else state.detach()
    reached = np.zeros((case.steps, case.steps), dtype=bool)
    for s, loss in enumerate(step_losses):
        for r, found in enumerate(torch.autograd.grad(loss, states, retain_graph=True, allow_unused=True)):
            reached[s, r] = found is not None and bool(found.any())
    return reached


def array(tensor: Tensor) -> Rows:
    """A copy of a tensor's numbers, in float64."""
    return np.array(tensor.detach().double().numpy(), dtype=np.float64)


def number(tensor: Tensor | None) -> float | None:
    """The number that a loss is."""
    return None if tensor is None else float(tensor.detach())


def _row(batch: TokenBatch, b: int, t: int) -> bool:
    """Whether the valid address t of batch row b has a row."""
    ahead = t + 1
    return bool(
        ahead < batch.valid.shape[1] and batch.valid[b, ahead] and batch.segment[b, t] == batch.segment[b, ahead]
    )


def _refuse_stale(cached: Provenance | None, wanted: Provenance | None) -> None:
    if cached is None or wanted is None or cached == wanted:
        return
    for field, found in dataclasses.asdict(cached).items():
        if found != getattr(wanted, field):
            raise BadInput(f"cached_for.{field}", (), "cached features are of the target that is trained for", found)
