"""SpecForge's loss of a rollout, the one in torch: its kernel needs a GPU; and the attention of a rollout's step."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from bench.whole_logits import rollout

PACKAGE = "specforge"


def rollout_loss(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`_compute_target_p` and `_compute_loss`, not compiled; the mean becomes one over the rows that count."""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # a C++ compiler is nowhere promised
    from specforge.algorithms.eagle3.model import _compute_target_p
    from specforge.core.loss import _compute_loss

    drafted = torch.ones(len(inputs["head"]), dtype=torch.bool)

    def loss(draft: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            law, _, _, counted = _compute_target_p(target[None], drafted, mask[None, :, None].long())
        made: Tensor = _compute_loss(draft[None], law, counted)
        return made * (len(mask) / int(mask.sum()))

    return rollout(inputs, loss)


def step_attention(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`LlamaAttention` at the last step, with the keys and values of those before in its cache, and step 0's mask."""
    from adapters import specforge_engine as engine
    from bench.rollout_steps import Fixed, answered, by_head, leaf

    rows, heads, width = inputs["query"].shape
    query, above = leaf(inputs["query"]), torch.from_numpy(inputs["above"]).view(1, rows, -1)
    keys, values = ([leaf(x) for x in inputs[name]] for name in ("keys", "values"))
    attention = engine.draft_model(2, width=heads * width, heads=heads).midlayer.self_attn
    fixed = Fixed(attention, query, keys[-1], values[-1])
    mask = torch.full((rows, rows), torch.finfo(torch.float32).min).triu(1)[None, None]
    position = torch.full((1, rows), 1 - len(keys))  # to which it adds the step: nothing is turned

    def call() -> dict[str, np.ndarray]:
        cache = [[by_head(x, heads) for x in earlier[:-1]] for earlier in (keys, values)]
        output = fixed.run(fixed.fed, cache_hidden=cache, attention_mask=mask, position_ids=position)
        return answered(output, query, keys, values, above)

    return call
