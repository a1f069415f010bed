"""A backward pass, and a second one over the same graph: what it writes into, the second one reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def twice(loss: Any, trained: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Gradients of a torch loss to `trained`, float64 arrays, of a first and of a second backward; zeros where none."""
    import torch

    def once(retain: bool) -> list[Any]:
        if not loss.requires_grad:
            return [None] * len(trained)
        return list(torch.autograd.grad(loss, trained, retain_graph=retain, allow_unused=True))

    def array(gradient: Any, tensor: Any) -> Any:
        found = torch.zeros_like(tensor) if gradient is None else gradient
        return found.detach().double().cpu().numpy().copy()  # copied: the second pass may write over it

    first = [array(g, t) for g, t in zip(once(True), trained)]
    return first, [array(g, t) for g, t in zip(once(False), trained)]
