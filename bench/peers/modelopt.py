"""modelopt's attention of a rollout's step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

PACKAGE = "nvidia-modelopt"


def step_attention(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """The attention of a converted Llama's drafter at the last step, with the mask that it caches for that step.

    Rows are absolute: that of a node of step t at anchor a is a + t, so as many rows more are there as steps before.
    """
    from adapters import modelopt_engine as engine
    from bench.rollout_steps import cached

    steps, rows, _, width = inputs["keys"].shape
    model = engine.converted(engine.base_model(3, width), steps, 2, width=width).train()
    mask = model._get_ttt_attention_mask(1, rows + steps - 1, steps - 1)
    return cached(model.eagle_module.layers[0].self_attn, inputs, mask, shift=1)
