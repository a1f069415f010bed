"""The losses of `adapters.tiny`: torch operations on the rows that count, gradients by autograd.

A row that does not count is never indexed, so that what it holds reaches neither a value nor a gradient. Every function
returns None where no row counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oracle.errors import BadInput
from oracle.types import DENOMINATORS, DIVERGENCES, GATES, REDUCTIONS, RESTRICTED_TARGETS

if TYPE_CHECKING:
    from torch import Tensor

DECAY = 0.8


def regression(predicted: Tensor, target: Tensor, counted: Tensor, beta: float) -> Tensor | None:
    """Smooth-L1 in the mean over the rows that count and their features."""
    from torch.nn import functional

    if not (isinstance(beta, (int, float)) and math.isfinite(beta) and beta > 0):
        raise BadInput("beta", (), "is a finite number above zero", beta)
    if not counted.any():
        return None
    here, there = (finite(x[counted], name) for x, name in ((predicted, "predicted"), (target, "target")))
    return functional.smooth_l1_loss(here, there, beta=float(beta))


def distillation(draft: Tensor, target: Tensor, counted: Tensor, k: int | None = None) -> Tensor | None:
    """−Σ p log q over the k tokens of the largest target logits, all where k is None, in the mean over rows."""
    import torch

    if k is not None and (isinstance(k, bool) or k < 1):
        raise BadInput("k", (), "is a whole number of at least 1", k)
    if not counted.any():
        return None
    here, there = (logits(x[counted], name) for x, name in ((draft, "draft_logits"), (target, "target_logits")))
    if (there == -math.inf).all(dim=-1).any():
        raise BadInput("target_logits", (), "a row that counts leaves some token unmasked")
    p = torch.softmax(there, dim=-1)
    if k is not None:
        # a stable sort, since topk promises nothing about which of equal logits it takes
        out = torch.sort(there, dim=-1, descending=True, stable=True).indices[:, k:]
        p = p.scatter(-1, out, 0.0)
    return cross_entropy(p, log_softmax(here)).mean()


def through_head(
    predicted: Tensor, target: Tensor, head: Tensor, counted: Tensor, k: int | None = None
) -> Tensor | None:
    """`distillation` of the logits that the frozen head makes of features."""
    if not counted.any():
        return None
    here, there = (finite(x[counted], name) for x, name in ((predicted, "predicted"), (target, "target")))
    everything = counted[counted]
    return distillation(here @ head.T, there @ head.T, everything, k)


def weighted(terms: Sequence[Tensor | None], weights: Sequence[float]) -> Tensor | None:
    """The weighted sum; a zero weight drops its term. None where no term counts a row."""
    for i, weight in enumerate(weights):
        if not math.isfinite(weight):
            raise BadInput("weights", (i,), "a weight is a finite number", weight)
    counted = [(term, weight) for term, weight in zip(terms, weights, strict=True) if term is not None]
    if not counted:
        return None
    total = counted[0][0].new_zeros(())
    for term, weight in counted:
        if weight != 0:
            total = total + weight * term
    return total


@dataclass(frozen=True)
class Conventions:
    """What a rollout loss leaves open; the names are those of `oracle.types.RolloutLossCase`."""

    denominator: str
    restricted_target: str
    gate: str
    divergence: str
    reduction: str
    epsilon: float

    def __post_init__(self) -> None:
        allowed = {
            "denominator": DENOMINATORS,
            "restricted_target": RESTRICTED_TARGETS,
            "gate": GATES,
            "divergence": DIVERGENCES,
            "reduction": REDUCTIONS,
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise BadInput(name, (), f"is one of {', '.join(values)}", getattr(self, name))
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise BadInput("denominator_epsilon", (), "is a finite number of at least zero", self.epsilon)


def rollout_step(draft: Tensor, target: Tensor, mask: Tensor, ids: Tensor, how: Conventions) -> Tensor | None:
    """The loss of one step: draft logits [R, Vd] against target logits [R, V], of which `ids` [Vd] are drafted."""
    import torch

    row = mask.nonzero()[:, 0]
    full = logits(target[row], "target_logits")
    restricted = full[:, ids]
    counts = (restricted > -math.inf).any(dim=-1)
    if how.gate == "argmax":
        drafted = torch.zeros(target.shape[-1], dtype=torch.bool)
        drafted[ids] = True
        counts &= drafted[full.argmax(dim=-1)]
    if not counts.any():
        return None
    law = torch.softmax(restricted[counts], dim=-1)
    if how.restricted_target == "raw":
        law = torch.softmax(full[counts], dim=-1)[:, ids]
    rows = cross_entropy(law, log_softmax(logits(draft[row[counts]], "draft_logits")))
    if how.divergence == "kl":
        rows = rows + torch.special.xlogy(law, law).sum(dim=-1)
    denominator = {"supervised": int(counts.sum()), "mask": len(row), "rows": len(mask)}[how.denominator]
    return rows.sum() / (denominator + how.epsilon)


def log_softmax(rows: Tensor) -> Tensor:
    """log q; −inf at every masked token, also where nothing is left unmasked."""
    import torch

    return torch.log_softmax(rows, dim=-1).masked_fill(rows == -math.inf, -math.inf)


def cross_entropy(p: Tensor, log_q: Tensor) -> Tensor:
    """−Σ p log q of each row, in which 0 · (−inf) is 0."""
    return -(p * log_q.masked_fill(p == 0, 0.0)).sum(dim=-1)


def finite(rows: Tensor, field: str) -> Tensor:
    """The rows; `BadInput` where one holds something not finite."""
    if not rows.isfinite().all():
        raise BadInput(field, (), "a number that counts is finite")
    return rows


def logits(rows: Tensor, field: str) -> Tensor:
    """The rows; `BadInput` where one holds NaN or +inf."""
    if (rows.isnan() | (rows == math.inf)).any():
        raise BadInput(field, (), "a logit that counts is finite or −inf")
    return rows


def absolute_ids(d2t: Tensor, t2d: Tensor | None, convention: str) -> Tensor:
    """The absolute target id of each draft id, checked against the flags where there are any."""
    import torch

    if convention not in ("offset", "absolute"):
        raise BadInput("convention", (), "is offset or absolute", convention)
    ids = d2t + torch.arange(len(d2t)) if convention == "offset" else d2t.clone()
    return distinct(ids, "d2t", t2d)


def distinct(ids: Tensor, field: str, flags: Tensor | None, vocabulary: int | None = None) -> Tensor:
    """The ids; `BadInput` unless they differ, lie in the vocabulary and are the flagged ones."""
    import torch

    size = len(flags) if flags is not None else vocabulary
    outside = (ids < 0) if size is None else (ids < 0) | (ids >= size)
    if outside.any():
        raise BadInput(field, (int(outside.nonzero()[0]),), "maps to an id of the target's vocabulary")
    if len(set(ids.tolist())) != len(ids):
        raise BadInput(field, (), "two draft ids map to different target ids")
    if flags is not None and not torch.equal(torch.zeros_like(flags).index_fill(0, ids, True), flags):
        raise BadInput("t2d", (), "marks exactly the ids that d2t maps to")
    return ids
