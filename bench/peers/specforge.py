"""SpecForge's loss of a rollout, the one in torch: its kernel needs a GPU."""

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
