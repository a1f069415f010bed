"""Attention of a rollout: causal over the rows of step 0, and beside it one key of each later step.

A query at anchor a sees the step-0 rows of its document up to a, and of every later step the row at its own anchor
(VISIBILITY 4xx, 5xx). The causal part runs through a fused attention that tells its log-sum-exp; each later step is one
score a query, a diagonal, and joins it by log-sum-exp. Backward, the fused kernel is given the joint log-sum-exp and
the joint output instead of its own: P = exp(s − lse) and dS = P · (dP − Σ dO · O) hold for any part of a softmax if lse
and O are those of the whole. So nothing of size S · S, let alone (S · T)², is ever stored.

Rows that have no node are never read: every tensor is cut to what the layout says before anything is done with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oracle.errors import BadInput
from oracle.fast.causal import accumulated, causal, causal_backward
from oracle.fast.layout import Layout

ELEMENTS = 131072
"""How much of a tensor is worked on at once on a CPU: what a block needs stays in a core's cache."""


def rollout_step_attention(
    query: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    layout: Layout | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention of one step of a rollout, as a trainer runs it, differentiable once in every tensor.

    query: [B, H, S, d], of step len(keys) − 1. keys, values: one of each step up to it, step 0 first, [B, G, S, d]
    where G divides H (grouped queries: head h reads group h // (H / G)). layout: None = one document a batch row, all
    of whose rows have a node at every step. scale: None = 1/√d.

    Returns [B, H, S, d] of the query's dtype, zeros where there is no node; sums and the softmax are float32 at least.
    Raises `BadInput`.
    """
    return _attention((query,), keys, values, layout, scale)[0]


def rollout_attention(
    queries: Sequence[Tensor] | Tensor,
    keys: Sequence[Tensor] | Tensor,
    values: Sequence[Tensor] | Tensor,
    layout: Layout | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """Attention of all steps of a rollout, the query, key and value of each step given: its output, of each step.

    Tensors, or one of all steps, layout and scale are those of `rollout_step_attention`. Raises `BadInput`.
    """
    if len(queries) != len(keys):
        raise BadInput("queries", (), "there is one of each step, as of keys", len(queries))
    return _attention(queries, keys, values, layout, scale)


def _attention(
    queries: Sequence[Tensor] | Tensor,
    keys: Sequence[Tensor] | Tensor,
    values: Sequence[Tensor] | Tensor,
    layout: Layout | None,
    scale: float | None,
) -> tuple[Tensor, ...]:
    queries, keys, values = tuple(queries), tuple(keys), tuple(values)
    _validate(queries, keys, values)
    batch, _, length, width = queries[0].shape
    layout = Layout.packed([length]) if layout is None else layout
    if layout.length != length:
        raise BadInput("layout", (), f"is of the {length} rows", layout.length)
    if any((document.batch.stop or 0) > batch for document in layout.documents):
        raise BadInput("layout", (), f"is of the {batch} batch rows", len(layout.documents))
    scale = 1 / math.sqrt(width) if scale is None else float(scale)
    outputs: tuple[Tensor, ...] = _Rollout.apply(layout, scale, len(keys), *queries, *keys, *values)  # type: ignore[no-untyped-call]
    return outputs


class _Rollout(torch.autograd.Function):
    """Saves the tensors, the outputs, the joint log-sum-exp, and one weight a query and later step."""

    @staticmethod
    def forward(ctx: Any, layout: Layout, scale: float, steps: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) - 2 * steps
        queries, keys, values = _apart(tensors, steps)
        made = [_step(q, keys[: s + 1], values[: s + 1], layout, scale) for s, q in enumerate(queries, steps - count)]
        outputs, lse, weights = zip(*made)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *outputs, *lse, *weights)
        ctx.layout, ctx.scale, ctx.steps, ctx.count = layout, scale, steps, count
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        steps, count, layout, scale = ctx.steps, ctx.count, ctx.layout, ctx.scale
        saved = ctx.saved_tensors
        queries, keys, values = _apart(saved[: count + 2 * steps], steps)
        outputs, lse, weights = (saved[i:][:count] for i in range(count + 2 * steps, len(saved), count))
        grad_queries: list[Tensor | None] = [None] * count
        grad_keys, grad_values = _Gathering(keys), _Gathering(values)
        for i, grad in enumerate(grads):
            if grad is not None:
                s = steps - count + i
                grad_queries[i] = _step_backward(
                    *(grad, queries[i], keys[: s + 1], values[: s + 1], outputs[i], lse[i], weights[i]),
                    *(layout, scale, grad_keys, grad_values),
                )
        return (None, None, None, *grad_queries, *grad_keys.found(), *grad_values.found())


class _Gathering:
    """Gradients of tensors, the first part of each written, the others added to it."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self.sums: list[Tensor | None] = [None] * len(tensors)

    def cut(self, t: int, cut: _Cut) -> tuple[list[Tensor], bool]:
        """Blocks of that of step t, and whether nothing is in it yet; it starts as zeros where rows are left out."""
        known = self.sums[t]
        if known is not None:
            return cut.of_keys(known, t), False
        make = torch.empty_like if cut.covered else torch.zeros_like
        made = self.sums[t] = make(self.tensors[t], dtype=accumulated(self.tensors[t].dtype))
        return cut.of_keys(made, t), True

    def add(self, t: int, part: Tensor) -> None:
        """One part more, which is given away."""
        known = self.sums[t]
        self.sums[t] = part.to(accumulated(part.dtype)) if known is None else known.add_(part)

    def found(self) -> list[Tensor | None]:
        return [None if g is None else g.to(x.dtype) for g, x in zip(self.sums, self.tensors)]


def _step(
    query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], layout: Layout, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Output [B, H, S, d]; log-sum-exp [B, G, H / G, S] and weights [s, B, G, H / G, S, 1] by anchor."""
    step = len(keys) - 1
    output, lse = causal(query, keys[0], values[0], layout, step, scale)
    cut = _Cut(query, keys[0], layout, step)
    scores = cut.numbers(lse, step + 1)
    told = [cut.of_anchors(score) for score in scores]
    later = [cut.of_keys(keys[t], t) for t in range(1, step + 1)]
    for i, own in enumerate(cut.of_queries(query)):
        own = own.to(lse.dtype)
        product = torch.empty_like(own)
        for t, key in enumerate(later, 1):
            torch.mul(own, key[i], out=product)
            torch.sum(product, -1, out=told[t][i])
    scores.mul_(scale)
    scores[0] = cut.by_group(lse)
    joint = torch.logsumexp(scores, 0)
    weights = scores.sub_(joint).exp_().unsqueeze(-1)
    told = [cut.of_anchors(weight) for weight in weights]
    later = [cut.of_keys(values[t], t) for t in range(1, step + 1)]
    for i, place in enumerate(cut.of_queries(output) if later else ()):
        mixed = place.to(lse.dtype).mul_(told[0][i])
        for t, value in enumerate(later, 1):
            mixed.addcmul_(told[t][i], value[i].to(lse.dtype))
        if mixed is not place:
            place.copy_(mixed)
    return output, joint, weights[1:]


def _step_backward(
    grad: Tensor,
    query: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    output: Tensor,
    lse: Tensor,
    weights: Tensor,
    layout: Layout,
    scale: float,
    grad_keys: _Gathering,
    grad_values: _Gathering,
) -> Tensor:
    """The query's gradient; those of keys and values are added to what is known of them."""
    step = len(keys) - 1
    grad_query, first_key, first_value = causal_backward(
        *(grad, query, keys[0], values[0], output, lse.flatten(1, 2), layout, step, scale)
    )
    grad_keys.add(0, first_key)
    grad_values.add(0, first_value)
    if not step:
        return grad_query
    cut = _Cut(query, keys[0], layout, step)
    dots = cut.numbers(lse, step + 1)
    told = [cut.of_anchors(dot) for dot in dots]
    shares = [cut.of_anchors(weight) for weight in weights]
    later = [cut.of_keys(values[t], t) for t in range(1, step + 1)]
    into = [grad_values.cut(t, cut) for t in range(1, step + 1)]
    for i, (own, mixed) in enumerate(zip(cut.of_queries(grad), cut.of_queries(output))):
        own = own.to(lse.dtype)
        product = torch.mul(own, mixed)
        torch.sum(product, -1, out=told[0][i])
        for t, (value, share, (found, fresh)) in enumerate(zip(later, shares, into), 1):
            torch.mul(own, value[i], out=product)
            torch.sum(product, -1, out=told[t][i])
            _gather(found[i], own, share[i], fresh)
    slopes = dots[1:].sub_(dots[0]).unsqueeze(-1).mul_(weights).mul_(scale)
    told = [cut.of_anchors(slope) for slope in slopes]
    later = [cut.of_keys(keys[t], t) for t in range(1, step + 1)]
    into = [grad_keys.cut(t, cut) for t in range(1, step + 1)]
    for i, (own, place) in enumerate(zip(cut.of_queries(query), cut.of_queries(grad_query))):
        own, mixed = own.to(lse.dtype), place.to(lse.dtype)
        for key, slope, (found, fresh) in zip(later, told, into):
            mixed.addcmul_(slope[i], key[i].to(lse.dtype))
            _gather(found[i], own, slope[i], fresh)
        if mixed is not place:
            place.copy_(mixed)
    return grad_query


def _gather(place: Tensor, rows: Tensor, factor: Tensor, fresh: bool) -> None:
    """Rows [b, g, H / G, n, d] times their factors, summed over the heads of a group, to a gradient [b, g, 1, n, d]."""
    if rows.shape[2] > 1:
        part = (rows * factor).sum(2, keepdim=True)
        place.copy_(part) if fresh else place.add_(part)
    elif fresh:
        torch.mul(rows, factor, out=place)
    else:
        place.addcmul_(rows, factor)


class _Cut:
    """Cuts tensors into blocks of the rows that have a node at a step, the same ones each: [b, g, heads of a group, n,
    d], or one head for all of a group where they are keys."""

    def __init__(self, query: Tensor, key: Tensor, layout: Layout, step: int) -> None:
        heads, width = query.shape[1], query.shape[3]
        self.groups, self.share = key.shape[1], heads // key.shape[1]
        self.layout, self.step, self.covered = layout, step, layout.covers(step)
        self.parts = [(slice(None), 0, layout.length)]  # whatever documents there are, a later step's key is one row
        if not self.covered:
            self.parts = [(p.batch, first, count) for p in layout.parts(step) for first, count, _ in p.queries]
        self.rows = max(ELEMENTS // max(width, 1) // self.share, 1)
        self.whole = query.device.type != "cpu"
        self.inner = query.stride(1) < query.stride(2)  # all heads of a row lie together

    def numbers(self, like: Tensor, count: int) -> Tensor:
        """[count, B, G, H / G, S], a number a row each; zeros where there are rows without a node."""
        make = torch.empty if self.covered else torch.zeros
        shape = (count, like.shape[0], self.groups, self.share, like.shape[-1])
        if self.inner:  # as the rows lie
            return make((*shape[:2], *shape[4:], *shape[2:4]), dtype=like.dtype, device=like.device).permute(
                0, 1, 3, 4, 2
            )
        return make(shape, dtype=like.dtype, device=like.device)

    def by_group(self, tensor: Tensor) -> Tensor:
        """[B, H, …] as [B, G, H / G, …]."""
        return tensor.view(tensor.shape[0], self.groups, self.share, *tensor.shape[2:])

    def of_queries(self, tensor: Tensor) -> list[Tensor]:
        """Blocks of [B, H, S, d], rows of the step."""
        return self._blocks(self.by_group(tensor), self.layout.shift(self.step))

    def of_keys(self, tensor: Tensor, step: int) -> list[Tensor]:
        """Blocks of [B, G, S, d], rows of that step at the same anchors."""
        return self._blocks(tensor.unsqueeze(2), self.layout.shift(step))

    def of_anchors(self, tensor: Tensor) -> list[Tensor]:
        """Blocks of [B, G, H / G, S, …], rows of step 0."""
        return self._blocks(tensor, 0)

    def _blocks(self, tensor: Tensor, shift: int) -> list[Tensor]:
        found: list[Tensor] = []
        for batch, first, count in self.parts:
            part = tensor[batch].narrow(3, first + shift, count)
            if self.whole:
                found.append(part)
                continue
            rows = max(min(self.rows // self.groups if self.inner else self.rows, count), 1)
            groups = self.groups if self.inner else max(self.rows // rows, 1)
            for alone in torch.split(part, 1):
                for several in torch.split(alone, groups, 1):
                    found.extend(torch.split(several, rows, 3))
        return found


def _apart(tensors: Sequence[Tensor], steps: int) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
    """Queries, keys and values."""
    return tensors[: -2 * steps], tensors[-2 * steps : -steps], tensors[-steps:]


def _validate(queries: Sequence[Tensor], keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    query = queries[0] if queries else None
    if not isinstance(query, Tensor) or query.ndim != 4 or not query.is_floating_point():
        raise BadInput("queries", (0,), "is a floating-point tensor [B, H, S, d]", _told(query))
    if not keys or len(keys) != len(values):
        raise BadInput("values", (), "there is one of each step, as of keys, step 0 at least", len(values))
    batch, heads, rows, width = query.shape
    groups = keys[0].shape[1] if isinstance(keys[0], Tensor) and keys[0].ndim == 4 else 0
    if groups < 1 or heads % groups:
        raise BadInput("keys", (0,), f"has a number of groups that divides the {heads} heads", _told(keys[0]))
    for name, tensors, count in (("queries", queries, heads), ("keys", keys, groups), ("values", values, groups)):
        for s, found in enumerate(tensors):
            if not isinstance(found, Tensor) or found.shape != (batch, count, rows, width):
                raise BadInput(name, (s,), f"has shape {(batch, count, rows, width)}", _told(found))
            if found.dtype != query.dtype or found.device != query.device:
                raise BadInput(name, (s,), f"is {query.dtype} on {query.device}", (found.dtype, found.device))


def _told(values: object) -> object:
    return (tuple(values.shape), values.dtype) if isinstance(values, Tensor) else type(values).__name__
