"""Matrix products with a head, of rows by rows, whose sums are float32 at least whatever the head is stored in.

A head that is stored narrower is widened some tokens at a time: what it holds is exact in float32, so are the sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

TOKENS = 4096
"""Tokens of a narrow head that are widened at once."""
ELEMENTS = 1 << 17
"""Numbers that a core's cache holds beside as many others."""


class Headed(NamedTuple):
    """Logits that are not made yet: hidden [..., d] and the head's weight [V, d]; logits = hidden · weightᵀ."""

    hidden: Tensor
    weight: Tensor


def accumulated(*dtypes: torch.dtype) -> torch.dtype:
    """What is computed in: float64 where some input is, float32 otherwise."""
    return torch.float64 if torch.float64 in dtypes else torch.float32


def logits(rows: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """out [c, V] = rows [c, d] · weightᵀ."""
    if weight.dtype == out.dtype:
        return torch.mm(rows, weight.t(), out=out)
    for tokens in _parts(weight):
        torch.mm(rows, weight[tokens].to(out.dtype).t(), out=out[:, tokens])
    return out


def through(slope: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """out [c, d] = slope [c, V] · weight: a gradient with respect to logits, taken to what the head was given."""
    if weight.dtype == out.dtype:
        return torch.mm(slope, weight, out=out)
    out.zero_()
    for tokens in _parts(weight):
        out.addmm_(slope[:, tokens], weight[tokens].to(out.dtype))
    return out


def _parts(weight: Tensor) -> Iterator[slice]:
    for start in range(0, len(weight), TOKENS):
        yield slice(start, start + TOKENS)


def on_cpu(tensor: Tensor) -> bool:
    """Whether to go by what a core is good at: parts that fit in its cache, decisions as they come up."""
    return tensor.device.type == "cpu"


def blocks(rows: Tensor) -> Iterator[slice]:
    """Which of the rows [c, V] are worked on at once: what fits in a core's cache; on a GPU all of them."""
    count, width = rows.shape
    step = max(1, ELEMENTS // max(width, 1)) if on_cpu(rows) else max(count, 1)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
