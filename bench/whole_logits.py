"""The loss of a rollout behind logits held whole, as trainers make them: for peers, and for a plain torch version."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

DECAY = 0.8
"""A step's weight is this to the power of the step."""


def rollout(
    inputs: dict[str, np.ndarray], loss: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Callable[[], dict[str, np.ndarray]]:
    """Forward and backward to the draft's states [T, R, d]: the value, and the gradient.

    Row r of step s is held against row r + s of the target's states [R, d], both through `head` [V, d]. loss: of a
    step's draft logits [R, V], target logits [R, V] and mask [R].
    """
    draft = torch.from_numpy(inputs["draft"]).requires_grad_()
    target, head, supervise = (torch.from_numpy(inputs[name]) for name in ("target", "head", "supervise"))

    def call() -> dict[str, np.ndarray]:
        with torch.no_grad():
            logits = target @ head.t()
        total = torch.zeros(())
        for s, (states, mask) in enumerate(zip(draft, supervise)):
            shifted = torch.cat((logits[s:], logits[:s])) if s else logits
            total = total + DECAY**s * loss(states @ head.t(), shifted, mask)
        (gradient,) = torch.autograd.grad(total, draft)
        return {"value": total.detach().numpy(), "gradient": gradient.numpy()}

    return call
