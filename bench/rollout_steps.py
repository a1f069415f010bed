"""What an attention of a rollout's last step is given and answers, the same for the fast path and for every trainer.

Tensors are [S, heads, width] in files, and in a trainer's layout at work: all heads of a row lie together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Inputs = dict[str, np.ndarray]
Call = Callable[[], Inputs]


def made(rows: int, steps: int, heads: int = 16, width: int = 64) -> Inputs:
    """Random queries, keys and values of every step, and what comes from above."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> np.ndarray:
        numbers: np.ndarray = torch.randn(*shape, rows, heads, width, generator=generator).numpy()
        return numbers

    return {"query": drawn(), "keys": drawn(steps), "values": drawn(steps), "above": drawn()}


def leaf(numbers: np.ndarray) -> Tensor:
    """[1, S, heads · width], as a projection gives it, to be differentiated in."""
    return torch.from_numpy(numbers).reshape(1, numbers.shape[0], -1).clone().requires_grad_()


def by_head(tensor: Tensor, heads: int) -> Tensor:
    """[1, heads, S, width], of [1, S, heads · width]."""
    return tensor.view(1, tensor.shape[1], heads, -1).transpose(1, 2)


class Fixed:
    """An attention module whose projections give what they are told, and whose last one passes on what it gets."""

    def __init__(self, attention: Any, query: Tensor, key: Tensor, value: Tensor) -> None:
        for name, given in (("q_proj", query), ("k_proj", key), ("v_proj", value)):
            getattr(attention, name).forward = lambda _, given=given: given
        attention.o_proj.forward = lambda output: output
        self.run = attention.forward
        self.fed = torch.zeros(1, query.shape[1], 1)


def answered(output: Tensor, query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], above: Tensor) -> Inputs:
    """The output, and the gradients of all leaves, [S, heads · width] each."""
    gradients = torch.autograd.grad(output, [query, *keys, *values], above)
    steps = len(keys)
    names = ["output", "query", *(f"key {t}" for t in range(steps)), *(f"value {t}" for t in range(steps))]
    return {name: x.detach()[0].numpy() for name, x in zip(names, (output, *gradients))}


def cached(attention: Any, inputs: Inputs, mask: Any, shift: int = 0) -> Call:
    """The last step of a trainer whose attention module is that of transformers: keys of earlier steps in its cache.

    shift: by how many rows a step's block is lower than the one before; rows that nothing is given for are zeros.
    """
    from transformers import DynamicCache

    rows, heads, width = inputs["query"].shape
    steps = len(inputs["keys"])
    length = rows + shift * (steps - 1)

    def placed(numbers: np.ndarray, step: int) -> np.ndarray:
        return np.pad(numbers, ((shift * step, length - rows - shift * step), (0, 0), (0, 0)))

    def earlier(numbers: np.ndarray) -> Tensor:
        joined = np.concatenate([placed(x, t) for t, x in enumerate(numbers[:-1])])
        return by_head(leaf(joined).detach(), heads).contiguous().requires_grad_()

    def back(gradient: Tensor, step: int) -> np.ndarray:
        numbers: np.ndarray = gradient.detach().reshape(length, -1)[shift * step :][:rows].numpy()
        return numbers

    query, key, value = (
        leaf(placed(x, steps - 1)) for x in (inputs["query"], inputs["keys"][-1], inputs["values"][-1])
    )
    above = torch.from_numpy(placed(inputs["above"], steps - 1)).view(1, length, -1)
    keys, values = earlier(inputs["keys"]), earlier(inputs["values"])
    attention.layer_idx = 0
    fixed = Fixed(attention, query, key, value)
    turned = torch.ones(1, length, width), torch.zeros(1, length, width)  # nothing is

    def call() -> Inputs:
        cache = DynamicCache()
        cache.update(keys, values, 0)
        output, _ = fixed.run(fixed.fed, position_embeddings=turned, attention_mask=mask, past_key_values=cache)
        found = torch.autograd.grad(output, [query, keys, key, values, value], above)
        told = {"output": back(output, steps - 1), "query": back(found[0], steps - 1)}
        for name, before, last in (("key", *found[1:3]), ("value", *found[3:])):
            parts = before.transpose(1, 2).reshape(steps - 1, length, -1)
            told |= {f"{name} {t}": back(part, t) for t, part in enumerate((*parts, last))}
        return told

    return call
