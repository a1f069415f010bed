"""Draws from rows of masses by coins, and what a rejection leaves of a row: batched, without a decision on the host."""

from __future__ import annotations

import torch
from torch import Tensor


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """float64 of float64, float32 of all that is narrower."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def inverse_cdf(rows: Tensor, coins: Tensor) -> Tensor:
    """int64 [...]: the first token v with coin · mass < Σ of the masses up to v, rows [..., V] and coins [...].

    The masses need no sum of one. Where rounding leaves no token it is the last one of positive mass; −1 where a row
    has no mass, or holds NaN.
    """
    cumulative = rows.cumsum(-1)
    total = cumulative[..., -1]
    within = cumulative > (coins.to(rows.dtype) * total).unsqueeze(-1)
    size = rows.shape[-1]
    token = torch.arange(size, device=rows.device)
    positive = rows > 0  # a parallel sum need not rise where it should, so a token of no mass is ruled out by itself
    first = torch.where(within & positive, token, size).amin(-1)
    last = torch.where(positive, token, -1).amax(-1)
    found = torch.where(first < size, first, last)
    return torch.where(torch.isfinite(total), found, -1)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """(p − q)+ renormalised, rows [..., V]; p where nothing is left."""
    left = (p - q).clamp_(min=0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total == 0, p, left / total)


def without(q: Tensor, token: Tensor) -> Tensor:
    """q [..., V] renormalised without a token [...]; zeros where nothing is left."""
    left = q.scatter(-1, token.unsqueeze(-1), 0.0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total == 0, left, left / total)
