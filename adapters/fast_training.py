"""A training step, and the gradient of a rollout's states, put together from `oracle.fast`: rows gathered, losses made.

The frozen target (a recurrence with a head), the linear drafter and AdamW, which is torch's, are the adapter's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

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

COST: Mapping[str, float] = {"training_step": 1e-2, "state_gradient": 5e-3}


class Training:
    """The operations with tensors of a dtype."""

    dtype = "float64"

    @classmethod
    def training_step(cls, case: TrainingCase) -> TrainingResult:
        """A few steps on data of its own, then one on the batch, or none where nothing of it is supervised."""
        import torch

        _refuse_stale(case.cached_for, case.trained_for)
        generator = torch.Generator(torch.get_default_device()).manual_seed(case.seed)
        trainer = _Trainer(generator, case.weight_decay, cls.dtype)
        everything = np.ones((2, 5), dtype=bool)
        position = np.tile(np.arange(5), (2, 1))
        for _ in range(case.warm_steps):
            tokens = torch.randint(0, VOCABULARY, (2, 5), generator=generator).cpu().numpy()
            trainer.step(TokenBatch(tokens, everything, 0 * position, position, everything))
        drafter, optimizer, target = _copied(trainer.drafter), trainer.state(), _copied(trainer.target)
        made, rows, predicted = trainer.step(case.batch)
        counts = bool(made.counted.any())
        after = trainer.state()
        head = trainer.target["head"]
        return TrainingResult(
            loss=made.value.item() if counts else None,
            drafter={name: (drafter[name], _array(weight)) for name, weight in trainer.drafter.items()},
            target={name: (target[name], _array(weight)) for name, weight in trainer.target.items()},
            drafter_grad={n: None if w.grad is None else _array(w.grad) for n, w in trainer.drafter.items()},
            target_grad={n: None if w.grad is None else _array(w.grad) for n, w in trainer.target.items()},
            target_trainable=tuple(name for name, weight in trainer.target.items() if weight.requires_grad),
            optimizer={name: (optimizer[name], after[name]) for name in optimizer},
            draft_logits=_array(predicted @ head.T),
            target_logits=_array(rows.target @ head.T),
            supervise=rows.supervise.cpu().numpy(),
            step_loss=made.parts[1].item() if counts else None,
        )

    @classmethod
    def state_gradient(cls, case: StateGradientCase) -> Flags:
        """Roll the drafter out, each step's loss through the head, and ask autograd which states it reaches."""
        import torch

        from oracle.fast.losses import Headed, rollout_loss

        if case.gradient not in GRADIENTS:
            raise BadInput("gradient", (), f"is one of {', '.join(GRADIENTS)}", case.gradient)
        if isinstance(case.steps, bool) or case.steps < 1:
            raise BadInput("steps", (), "is a whole number of at least 1", case.steps)
        generator = torch.Generator(torch.get_default_device()).manual_seed(0)
        trainer = _Trainer(generator, 0.0, cls.dtype)
        anchors = 3
        tokens = torch.randint(0, VOCABULARY, (anchors + case.steps,), generator=generator)
        features = torch.randn(anchors + case.steps, WIDTH, generator=generator).to(trainer.dtype)
        head = trainer.target["head"]
        fed, states = features[:anchors], []
        reached = np.zeros((case.steps, case.steps), dtype=bool)
        for s in range(case.steps):
            states.append(trainer.draft(tokens[s : s + anchors], fed))
            fed = states[s] if case.gradient == "flows" else states[s].detach()
            target = Headed(features[None, s : s + anchors], head)
            loss = rollout_loss(Headed(states[s][None], head), target, torch.ones(1, anchors, dtype=torch.bool)).value
            found = torch.autograd.grad(loss, states, retain_graph=True, allow_unused=True)
            reached[s, : s + 1] = [gradient is not None and bool(gradient.any()) for gradient in found]
        return reached


class _Trainer:
    """The frozen target, the drafter and its optimizer."""

    def __init__(self, generator: Generator, weight_decay: float, dtype: str) -> None:
        import torch

        self.dtype: torch.dtype = getattr(torch, dtype)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(self.dtype)

        self.target = {"embedding": random(VOCABULARY, WIDTH), "head": random(VOCABULARY, WIDTH)}
        weight, bias = random(WIDTH, 2 * WIDTH) / 4, random(WIDTH) / 4
        self.drafter = {"weight": weight.requires_grad_(), "bias": bias.requires_grad_()}
        self.optimizer = torch.optim.AdamW(self.drafter.values(), lr=0.01, betas=(0.9, 0.95), weight_decay=weight_decay)

    def draft(self, tokens: Tensor, features: Tensor) -> Tensor:
        """The predicted features, one a row."""
        import torch

        inputs = torch.cat((self.target["embedding"][tokens], features), dim=1)
        return inputs @ self.drafter["weight"].T + self.drafter["bias"]

    def step(self, batch: TokenBatch) -> tuple[Any, Any, Tensor]:
        """Update the drafter where some row counts; the loss, the rows and what was predicted."""
        from oracle.fast.losses import eagle1_loss
        from oracle.fast.rows import gather_rows

        rows = gather_rows(_tensors(batch), self._features(batch))
        predicted = self.draft(rows.token, rows.feature)
        made = eagle1_loss(predicted, rows.target, self.target["head"], rows.supervise)
        self.optimizer.zero_grad(set_to_none=True)
        if made.counted.any():
            made.value.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        return made, rows, predicted

    def state(self) -> dict[str, Rows]:
        """The optimizer's moments and counts of steps, zeros before its first step."""
        found = {}
        for name, weight in self.drafter.items():
            held = self.optimizer.state.get(weight, {})
            for kind, size in (("step", ()), ("exp_avg", weight.shape), ("exp_avg_sq", weight.shape)):
                found[f"{name}.{kind}"] = _array(held[kind]) if kind in held else np.zeros(tuple(size))
        return found

    def _features(self, batch: TokenBatch) -> Tensor:
        """f = tanh(e + ½ f') at each valid address, f' being the feature before it in its segment; NaN elsewhere."""
        import torch

        features = torch.full((*batch.tokens.shape, WIDTH), torch.nan, dtype=self.dtype)
        for b, row in enumerate(batch.tokens.tolist()):
            last: dict[int, Tensor] = {}
            for t, token in enumerate(row):
                if batch.valid[b, t]:
                    if not 0 <= token < VOCABULARY:
                        raise BadInput("batch.tokens", (b, t), f"a token id lies in [0, {VOCABULARY})", token)
                    segment = int(batch.segment[b, t])
                    before = last.get(segment, torch.zeros(WIDTH, dtype=self.dtype))
                    last[segment] = features[b, t] = torch.tanh(self.target["embedding"][token] + 0.5 * before)
        return features


def _tensors(batch: TokenBatch) -> Any:
    import torch

    from oracle.fast import rows

    fields = [np.array(getattr(batch, field.name)) for field in dataclasses.fields(batch)]
    return rows.TokenBatch(*map(torch.from_numpy, fields))


def _array(tensor: Tensor) -> Rows:
    return np.array(tensor.detach().double().cpu().numpy(), dtype=np.float64)


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Rows]:
    return {name: _array(tensor) for name, tensor in tensors.items()}


def _refuse_stale(cached: Provenance | None, wanted: Provenance | None) -> None:
    if cached is None or wanted is None or cached == wanted:
        return
    for field, found in dataclasses.asdict(cached).items():
        if found != getattr(wanted, field):
            raise BadInput(f"cached_for.{field}", (), "cached features are of the target that is trained for", found)
