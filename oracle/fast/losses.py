"""Losses of drafter training in torch, for trainers: from hidden states through the head without the logits held whole.

Names, conventions and right answers are those of `oracle.losses`. Wherever logits are taken, a `Headed` may stand:
hidden states and the head that makes logits of them. Rows may have any number of leading axes, the same in every
argument. Masking selects rows and never multiplies: what an unsupervised row holds is never read. Sums are float32 at
least, and the same inputs give the same bits again. Every result is a `Loss` of tensors; where no row counts, its value
and gradient are 0 and `counted` says so: an optimizer's step is then to be skipped.

`validate`: whether numbers are looked at, which a GPU has to be waited for; by default on the CPU alone. Structure
always is. Raises `oracle.errors.BadInput`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from oracle.errors import BadInput
from oracle.fast.distillation import Distilled, Task, distil
from oracle.fast.laws import Law
from oracle.fast.products import Headed, accumulated
from oracle.fast.reading import checked, finite, flags, headed, leading, logits, one_of, positive, rows_of, whole
from oracle.words import DENOMINATORS, DIVERGENCES, GATES, MAP_CONVENTIONS, REDUCTIONS, RESTRICTED_TARGETS

__all__ = [
    "Headed",
    "Loss",
    "draft_to_target",
    "eagle1_loss",
    "feature_regression",
    "hass_loss",
    "rollout_loss",
    "soft_cross_entropy",
    "topk_distillation",
]

DECAY = 0.8
"""The released weight of step s is 0.8**s."""


class Loss(NamedTuple):
    """A loss, differentiable once in what is trained; its terms, as `oracle.types.LossResult` has them, and the number
    of rows that count in each: of the one term, of both terms of EAGLE-1, of each step. Terms carry no gradient, and
    are 0 where no row counts."""

    value: Tensor
    parts: Tensor
    counted: Tensor


def feature_regression(
    predicted: Tensor, target: Tensor, supervise: Tensor, beta: float = 1.0, *, validate: bool | None = None
) -> Loss:
    """Smooth-L1 between features [..., d], mean over supervised rows and d (LOSSES 2xx)."""
    shape = leading(predicted, "predicted")
    rows_of(target, "target", (*shape, predicted.shape[-1]))
    mask = flags(supervise, "supervise", shape)
    value, counted = _regression(predicted, target, mask.reshape(1, -1), None, positive(beta, "beta"), validate)
    return Loss(value.sum(), value.detach(), counted)


def soft_cross_entropy(
    draft_logits: Tensor | Headed, target_logits: Tensor | Headed, supervise: Tensor, *, validate: bool | None = None
) -> Loss:
    """−Σ p log q over the whole vocabulary, mean over supervised rows (LOSSES 3xx).

    Trained: the draft's logits, or its hidden states and its head where they require gradients.
    """
    return _of_one_step(draft_logits, target_logits, supervise, Law(), validate)


def topk_distillation(
    draft_logits: Tensor | Headed,
    target_logits: Tensor | Headed,
    supervise: Tensor,
    k: int,
    *,
    validate: bool | None = None,
) -> Loss:
    """−Σ p log q over the k tokens of the largest target logits, p as it is, lower ids first on ties (LOSSES 5xx)."""
    law = Law(whole=0.0, top=1.0, k=whole(k, "k"))
    return _of_one_step(draft_logits, target_logits, supervise, law, validate)


def eagle1_loss(
    predicted: Tensor,
    target: Tensor,
    head: Tensor,
    supervise: Tensor,
    beta: float = 1.0,
    regression_weight: float = 1.0,
    classification_weight: float = 0.1,
    *,
    validate: bool | None = None,
) -> Loss:
    """w_r · regression + w_c · cross-entropy through the frozen head [V, d] (LOSSES 4xx); parts: both, unweighted."""
    shape = leading(predicted, "predicted")
    rows_of(target, "target", (*shape, predicted.shape[-1]))
    weights = [
        finite(regression_weight, "regression_weight"),
        finite(classification_weight, "classification_weight"),
    ]
    beta = positive(beta, "beta")
    mask = flags(supervise, "supervise", shape).reshape(1, -1)
    predicted = predicted.to(accumulated(predicted.dtype, target.dtype))  # so that gradients are rounded once, as a sum
    made = _through_head(
        predicted.reshape(1, -1, predicted.shape[-1]), target, head, mask, [1.0], shape, Law(), validate
    )
    value, counted = _regression(predicted, target, mask, None, beta, validate)
    terms = [value.sum(), made.value]
    total = _summed([weight * term for weight, term in zip(weights, terms) if weight != 0], made.value)
    return Loss(total, torch.stack([term.detach() for term in terms]), counted.expand(2))


def hass_loss(
    predicted: Tensor,
    target: Tensor,
    head: Tensor,
    supervise: Tensor,
    k: int,
    beta: float = 1.0,
    regression_weight: float = 1.0,
    classification_weight: float = 0.1,
    topk_weight: float = 1.0,
    *,
    validate: bool | None = None,
) -> Loss:
    """The sum over steps of regression, cross-entropy and top-K, each weighted (LOSSES 6xx); parts: the steps'.

    predicted: [T, ..., d] against one target [..., d]; supervise [T, ...].
    """
    shape = leading(predicted, "predicted", least=2)
    steps, width = shape[0], predicted.shape[-1]
    rows_of(target, "target", (*shape[1:], width))
    mask = flags(supervise, "supervise", shape).reshape(steps, math.prod(shape[1:]))
    k, beta = whole(k, "k"), positive(beta, "beta")
    regression, classification, top = (
        finite(regression_weight, "regression_weight"),
        finite(classification_weight, "classification_weight"),
        finite(topk_weight, "topk_weight"),
    )
    predicted = predicted.to(accumulated(predicted.dtype, target.dtype))  # so that gradients are rounded once, as a sum
    paired = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    law = Law(whole=classification, top=top, k=k)
    made = _through_head(
        predicted.reshape(*mask.shape, width), target, head, mask, [1.0] * steps, shape, law, validate, paired
    )
    value, counted = _regression(predicted, target, mask, paired, beta, validate)
    if regression == 0:
        return Loss(made.value, made.parts, counted)
    return Loss(made.value + regression * value.sum(), made.parts + regression * value.detach(), counted)


def rollout_loss(
    draft_logits: Tensor | Headed,
    target_logits: Tensor | Headed,
    supervise: Tensor,
    step_weights: Sequence[float] | None = None,
    draft_to_target: Tensor | None = None,
    denominator: str = "supervised",
    restricted_target: str = "renormalised",
    gate: str = "argmax",
    divergence: str = "cross_entropy",
    reduction: str = "sum",
    denominator_epsilon: float = 0.0,
    *,
    target_row: Tensor | None = None,
    validate: bool | None = None,
) -> Loss:
    """Σ ω_s · (Σ over counted rows of the divergence) / (denominator of the step + ε) (LOSSES 7xx); parts: the steps'.

    draft: [T, ..., Vd], or the hidden states and head that make it; target: [T, ..., V], likewise; supervise [T, ...].
    target_row: int64 [T, ...], where the steps share rows of the target: the row, counted over all its leading axes,
    that each row of the draft is held against. A shared row is made once.
    """
    shape = headed(draft_logits, "draft_logits", least=2)
    theirs = headed(target_logits, "target_logits", least=1)
    mask = flags(supervise, "supervise", shape).reshape(shape[0], math.prod(shape[1:]))
    paired = None
    if target_row is not None:
        paired = rows_of(target_row, "target_row", shape, torch.int64).reshape(mask.shape)
        if checked(validate, paired) and bool(((paired < 0) | (paired >= math.prod(theirs)))[mask].any()):
            raise BadInput("target_row", (), f"a row that counts is one of the {math.prod(theirs)} of target_logits")
    elif theirs != shape:
        raise BadInput("target_logits", (), f"its leading axes are those of draft_logits, {list(shape)}", theirs)
    weights = [DECAY**s for s in range(shape[0])]
    if step_weights is not None:
        if len(step_weights) != shape[0]:
            raise BadInput(
                "step_weights", (), f"there is one weight for each of the {shape[0]} steps", len(step_weights)
            )
        weights = [finite(weight, "step_weights", (s,)) for s, weight in enumerate(step_weights)]
    one_of(denominator, "denominator", DENOMINATORS)
    epsilon = finite(denominator_epsilon, "denominator_epsilon")
    if epsilon < 0:
        raise BadInput("denominator_epsilon", (), "is at least zero", epsilon)
    if one_of(reduction, "reduction", REDUCTIONS) == "mean":
        weights = [weight / shape[0] for weight in weights]
    target, law = _restricted(
        draft_logits,
        target_logits,
        draft_to_target,
        one_of(restricted_target, "restricted_target", RESTRICTED_TARGETS) == "renormalised",
        one_of(gate, "gate", GATES) == "argmax",
        one_of(divergence, "divergence", DIVERGENCES) == "kl",
        validate,
    )
    task = Task(*(target, mask, weights, shape, law, paired, denominator, epsilon), validate=checked(validate, mask))
    return Loss(*distil(_shaped(draft_logits, mask.shape), task))


def draft_to_target(
    d2t: Tensor, t2d: Tensor | None, convention: str, *, vocabulary: int | None = None, validate: bool | None = None
) -> Tensor:
    """The absolute target id of each draft id: int64 [Vd] (LOSSES 8xx).

    "offset": i + d2t[i]; "absolute": d2t[i]. t2d: bool [V], where given, marks exactly the mapped ids.
    """
    integer = isinstance(d2t, Tensor) and not (d2t.is_floating_point() or d2t.is_complex() or d2t.dtype == torch.bool)
    if not integer or d2t.ndim != 1:
        raise BadInput("d2t", (), "is a tensor of integers [Vd]", getattr(d2t, "dtype", type(d2t).__name__))
    ids = d2t.to(torch.int64)
    if one_of(convention, "convention", MAP_CONVENTIONS) == "offset":
        ids = ids + torch.arange(len(ids), device=ids.device)
    if t2d is not None:
        if not isinstance(t2d, Tensor) or t2d.dtype != torch.bool or t2d.ndim != 1:
            raise BadInput("t2d", (), "is a tensor of booleans [V]", getattr(t2d, "dtype", type(t2d).__name__))
        vocabulary = len(t2d)
    if checked(validate, ids):
        _distinct(ids, "d2t", vocabulary)
        if t2d is not None:
            wrong = torch.zeros_like(t2d).index_fill_(0, ids, True) != t2d
            if bool(wrong.any()):
                (v,) = wrong.nonzero()[0].tolist()
                raise BadInput("t2d", (v,), "marks exactly the ids that d2t maps to", bool(t2d[v]))
    return ids


def _distinct(ids: Tensor, field: str, vocabulary: int | None) -> None:
    outside = ids < 0 if vocabulary is None else (ids < 0) | (ids >= vocabulary)
    if bool(outside.any()):
        (i,) = outside.nonzero()[0].tolist()
        raise BadInput(field, (i,), f"maps to a target id in [0, {vocabulary or 'V'})", int(ids[i]))
    ordered, order = ids.sort(stable=True)
    twins = (ordered[1:] == ordered[:-1]).nonzero()
    if len(twins):
        i = int(order[int(twins[0, 0]) + 1])
        raise BadInput(field, (i,), "two draft ids map to different target ids", int(ids[i]))


def _restricted(
    draft: Tensor | Headed,
    target: Tensor | Headed,
    ids: Tensor | None,
    renormalised: bool,
    gate: bool,
    entropy: bool,
    validate: bool | None,
) -> tuple[Tensor | Headed, Law]:
    """The target, its rows on one axis, and what of its law the draft vocabulary learns."""
    width, vocabulary = logits(draft), logits(target)
    flat = _shaped(target, (-1,))
    if ids is None:
        if width != vocabulary:
            rule = f"without a map the draft vocabulary is the target's, of {vocabulary} tokens"
            raise BadInput("draft_logits", (), rule, width)
        return flat, Law(entropy=entropy)
    rows_of(ids, "draft_to_target", (width,), torch.int64)
    if checked(validate, ids):
        _distinct(ids, "draft_to_target", vocabulary)
    if isinstance(flat, Headed) and renormalised and not gate:
        # nothing of the other tokens is asked for
        return Headed(flat.hidden, flat.weight.detach().index_select(0, ids)), Law(entropy=entropy)
    return flat, Law(ids=ids, renormalised=renormalised, gate=gate, entropy=entropy)


def _of_one_step(
    draft: Tensor | Headed, target: Tensor | Headed, supervise: Tensor, law: Law, validate: bool | None
) -> Loss:
    shape = headed(draft, "draft_logits", least=1)
    if headed(target, "target_logits", least=1) != shape:
        raise BadInput("target_logits", (), f"its leading axes are those of draft_logits, {list(shape)}")
    if logits(draft) != logits(target):
        raise BadInput("target_logits", (), f"has the {logits(draft)} tokens of draft_logits", logits(target))
    mask = flags(supervise, "supervise", shape).reshape(1, -1)
    task = Task(_shaped(target, (-1,)), mask, [1.0], shape, law, required=True, validate=checked(validate, mask))
    return Loss(*distil(_shaped(draft, mask.shape), task))


def _through_head(
    predicted: Tensor,
    target: Tensor,
    head: Tensor,
    mask: Tensor,
    weights: Sequence[float],
    axes: tuple[int, ...],
    law: Law,
    validate: bool | None,
    paired: Tensor | None = None,
) -> Distilled:
    """Cross-entropy of features through the frozen head of both."""
    head = rows_of(head, "head", (None, predicted.shape[-1])).detach()
    if not len(head):
        raise BadInput("head", (), "has at least one token", tuple(head.shape))
    if checked(validate, head):
        _all_finite(head)
    teacher = Headed(target.reshape(-1, target.shape[-1]), head)
    task = Task(
        *(teacher, mask, weights, axes, law, paired), validate=checked(validate, mask), names=("predicted", "target")
    )
    return distil(Headed(predicted, head), task)


def _all_finite(head: Tensor) -> None:
    """`BadInput` unless the head is finite; its extremes tell, without a flag for each of its numbers."""
    if head.numel() and not all(math.isfinite(float(end)) for end in torch.aminmax(head)):
        v, i = (~head.isfinite()).nonzero()[0].tolist()
        raise BadInput("head", (v, i), "a number that counts is finite", float(head[v, i]))


def _regression(
    predicted: Tensor, target: Tensor, mask: Tensor, paired: Tensor | None, beta: float, validate: bool | None
) -> tuple[Tensor, Tensor]:
    """Smooth-L1 of each step in the mean over its rows and their features [T], and how many rows there are [T]."""
    width = predicted.shape[-1]
    if not width:
        raise BadInput("predicted", (), "has at least one feature", tuple(predicted.shape))
    dtype = accumulated(predicted.dtype, target.dtype)
    index = mask.reshape(-1).nonzero().squeeze(1)
    theirs = index if paired is None else paired.reshape(-1)[index]
    here = predicted.reshape(-1, width).index_select(0, index).to(dtype)
    there = target.detach().reshape(-1, width).index_select(0, theirs).to(dtype)
    if checked(validate, mask):
        for name, numbers, rows in (("predicted", here.detach(), index), ("target", there, theirs)):
            wrong = ~numbers.isfinite()
            if bool(wrong.any()):
                i, v = wrong.nonzero()[0].tolist()
                axes = predicted.shape[:-1] if name == "predicted" else target.shape[:-1]
                place = [int(n) for n in torch.unravel_index(rows[i], axes)]
                raise BadInput(name, (*place, v), "a number that counts is finite", float(numbers[i, v]))
    lost = functional.smooth_l1_loss(here, there, reduction="none", beta=beta).sum(1)
    counted = mask.sum(1)
    sums = lost.new_zeros(mask.numel()).index_copy(0, index, lost).view(mask.shape).sum(1)
    return sums / (counted.clamp(min=1) * width), counted


def _summed(terms: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.stack(list(terms)).sum() if terms else torch.zeros_like(like)


def _shaped(values: Tensor | Headed, shape: Sequence[int]) -> Tensor | Headed:
    """The rows on other leading axes."""
    if isinstance(values, Headed):
        return Headed(values.hidden.reshape(*shape, values.hidden.shape[-1]), values.weight)
    return values.reshape(*shape, values.shape[-1])
