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
    """a [c, Vd], its mass [c, 1], Σ p log p [c, 1] where the entropy is asked for, and which rows count: [c], or None
    where all do."""

    on: Tensor
    mass: Tensor
    negentropy: Tensor | None
    counts: Tensor | None


def measure(target: Tensor, law: Law, given: bool) -> Measure:
    """The measure of each row of target logits [c, V], which are overwritten.

    given: the logits came as they are, so that some may be −inf; a row of none but −inf does not count.
    """
    rows, width = target.shape
    on = target if law.ids is None else target.new_empty((rows, len(law.ids)))
    mass = target.new_full((rows, 1), law.whole)
    negentropy = target.new_empty((rows, 1)) if law.entropy else None
    partial = given or (law.gate and law.ids is not None)
    counts = torch.ones(rows, dtype=torch.bool, device=target.device) if partial else None
    drafted = None if law.ids is None else torch.zeros(width + 1, dtype=torch.bool, device=target.device)
    if drafted is not None:
        drafted[law.ids] = True
    token = torch.arange(width, dtype=torch.int32, device=target.device) if law.gate and law.ids is not None else None
    for block in blocks(target):
        full, here = target[block], on[block]
        peak = full.amax(-1, keepdim=True)
        if token is not None and drafted is not None and counts is not None:
            lowest = torch.where(full == peak, token, width).amin(-1)
            counts[block] = drafted[lowest.long()] | ~(peak.squeeze(-1) < math.inf)  # what is no number counts
        kept = _largest(full, law.k) if law.top != 0 and law.k < width else None
        norm = None
        if law.ids is not None:
            torch.index_select(full, 1, law.ids, out=here)
            if not law.renormalised:
                norm = full.sub_(_shift(peak)).exp_().sum(-1, keepdim=True)
            else:
                # what is no number elsewhere in the row shows here
                peak = here.amax(-1, keepdim=True) + 0.0 * peak.clamp(min=torch.finfo(peak.dtype).min)
        if counts is not None and given:
            lower = peak if law.ids is None or law.renormalised else here.amax(-1, keepdim=True)
            counts[block] &= (lower != -math.inf).squeeze(-1)
        here.sub_(_shift(peak) if given else peak).exp_()
        here.div_(here.sum(-1, keepdim=True) if norm is None else norm)
        if negentropy is not None:
            negentropy[block] = torch.xlogy(here, here).sum(-1, keepdim=True)
        if not law.renormalised:
            mass[block] = here.sum(-1, keepdim=True)
        if law.top != 0:
            mass[block] = _with_top(here, kept, law)
        elif law.whole != 1:
            here.mul_(law.whole)
    return Measure(on, mass, negentropy, counts)


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
