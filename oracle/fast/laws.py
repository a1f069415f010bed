"""What a drafter learns of the target: a measure a ≥ 0 on the draft vocabulary, against which −Σ a log q is its loss.

The target's law, its part on a draft vocabulary, its top-K part, and their weighted sums are all such measures, so one
pass over a row serves every one of these losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oracle.fast.products import blocks, on_cpu

GROUP = 64
"""Neighbours of which only the largest is looked at first where the k largest are wanted."""


@dataclass(frozen=True)
class Law:
    """Of target logits [V], the measure that the drafter's are held against.

    whole: weight of the target's law. top: weight of its part on the k largest logits, lower ids first, not
    renormalised. ids: int64 [Vd], the target ids of the draft vocabulary; None = all. renormalised: over it. gate:
    a row counts only where its most probable token, lowest id on ties, is one of `ids`. entropy: −Σ p log p is taken
    off the loss.
    """

    whole: float = 1.0
    top: float = 0.0
    k: int = 0
    ids: Tensor | None = None
    renormalised: bool = True
    gate: bool = False
    entropy: bool = False


class Measure(NamedTuple):
    """a [b, Vd], its mass [b, 1], and Σ p log p [b, 1] where the entropy is asked for."""

    on: Tensor
    mass: Tensor
    negentropy: Tensor | None


def counted(target: Tensor, law: Law, given: bool) -> Tensor | None:
    """Which rows of target logits [c, V] count: bool [c], or None where all do, as nothing can be told against them.

    given: the logits came as they are, so that some may be −inf; a row of none but −inf does not count. What is no
    number counts, and shows.
    """
    drafted = _drafted(target, law) if law.gate else None
    if drafted is None and not given:
        return None
    found = torch.ones(len(target), dtype=torch.bool, device=target.device)
    token = torch.arange(target.shape[-1], dtype=torch.int32, device=target.device)
    for block in blocks(target):
        full = target[block]
        peak = full.amax(-1, keepdim=True)
        if drafted is not None:
            lowest = torch.where(full == peak, token, len(token)).amin(-1)
            found[block] = drafted[lowest.long()] | ~(peak.squeeze(-1) < math.inf)
        if given:
            lower = peak.squeeze(-1) if law.ids is None else full.index_select(1, law.ids).amax(-1)
            found[block] &= lower != -math.inf
    return found


def _drafted(target: Tensor, law: Law) -> Tensor | None:
    """Which tokens, and none beyond them, are of the draft vocabulary: bool [V + 1]; None = all are."""
    if law.ids is None:
        return None
    found = torch.zeros(target.shape[-1] + 1, dtype=torch.bool, device=target.device)
    return found.index_fill_(0, law.ids, True)


def measure(full: Tensor, law: Law, given: bool) -> Measure:
    """The measure of each row of target logits [b, V], which are overwritten; as many as fit in a core's cache."""
    kept = _largest(full, law.k) if law.top != 0 and law.k < full.shape[-1] else None
    peak = full.amax(-1, keepdim=True)
    here, norm = full, None
    if law.ids is not None:
        here = full.index_select(1, law.ids)
        if law.renormalised:
            # what is no number elsewhere in the row shows here
            peak = here.amax(-1, keepdim=True) + 0.0 * peak.clamp(min=torch.finfo(peak.dtype).min)
        else:
            norm = full.sub_(_shift(peak)).exp_().sum(-1, keepdim=True)
    here.sub_(_shift(peak) if given else peak).exp_()
    here.div_(here.sum(-1, keepdim=True) if norm is None else norm)
    negentropy = torch.xlogy(here, here).sum(-1, keepdim=True) if law.entropy else None
    if law.top != 0:
        return Measure(here, _with_top(here, kept, law), negentropy)
    if law.whole != 1:
        here.mul_(law.whole)
    mass = torch.full_like(peak, law.whole) if norm is None else here.sum(-1, keepdim=True)
    return Measure(here, mass, negentropy)


def _shift(peak: Tensor) -> Tensor:
    """The largest logit, or 0 where it is −inf: what is taken off keeps such rows at −inf."""
    return peak.masked_fill(peak == -math.inf, 0.0)


def _with_top(law_of_rows: Tensor, kept: Tensor | None, law: Law) -> Tensor:
    """Make p of the rows whole · p + top · p where kept; their masses."""
    if kept is None:
        law_of_rows.mul_(law.whole + law.top)
        return torch.full_like(law_of_rows[:, :1], law.whole + law.top)
    top = law_of_rows * kept
    if law.whole == 0:
        law_of_rows.zero_()
    elif law.whole != 1:
        law_of_rows.mul_(law.whole)
    law_of_rows.add_(top, alpha=law.top)
    return law.whole + law.top * top.sum(-1, keepdim=True)


def _largest(rows: Tensor, k: int) -> Tensor:
    """Which entries are the k largest of their row, lower ids first on ties; k is below the width."""
    least = _kth(rows, k)
    kept = rows >= least
    if on_cpu(rows) and bool((kept.sum(-1) == k).all()):
        return kept
    tied = rows == least
    room = k - (rows > least).sum(-1, keepdim=True)
    return (kept & ~tied) | (tied & (tied.cumsum(-1) <= room))


def _kth(rows: Tensor, k: int) -> Tensor:
    """The k-th largest value of each row, [c, 1]: it lies in one of the k groups whose largest are largest."""
    groups = rows.shape[-1] // GROUP
    if k < groups:
        grouped = rows[:, : groups * GROUP].reshape(-1, groups, GROUP)
        best = grouped.amax(-1).topk(k, sorted=False).indices
        inside = grouped.gather(1, best.unsqueeze(-1).expand(-1, -1, GROUP)).flatten(1)
        rows = torch.cat((inside, rows[:, groups * GROUP :]), 1)
    return rows.topk(k, sorted=False).values.amin(-1, keepdim=True)
