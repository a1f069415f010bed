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
from oracle.fast.causal import causal, causal_backward
from oracle.fast.layout import Layout

ELEMENTS = 2**16
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

    def at(self, t: int, whole: bool) -> tuple[Tensor, bool]:
        """That of tensor t, and whether nothing is in it yet; it is made of zeros unless the whole is written."""
        known = self.sums[t]
        if known is not None:
            return known, False
        make = torch.empty_like if whole else torch.zeros_like
        made = self.sums[t] = make(self.tensors[t], dtype=_accumulated(self.tensors[t].dtype))
        return made, True

    def add(self, t: int, part: Tensor) -> None:
        """One part more, which is given away."""
        known = self.sums[t]
        self.sums[t] = part.to(_accumulated(part.dtype)) if known is None else known.add_(part)

    def found(self) -> list[Tensor | None]:
        return [None if g is None else g.to(x.dtype) for g, x in zip(self.sums, self.tensors)]


def _step(
    query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], layout: Layout, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Output [B, H, S, d]; log-sum-exp [B, G, H / G, S] and weights [s, B, G, H / G, S] by anchor."""
    step = len(keys) - 1
    output, lse = causal(query, keys[0], values[0], layout, step, scale)
    grouped = _Grouped(query, keys[0], layout, step)
    q, o = grouped.queries(query), grouped.queries(output)
    later = [(t, grouped.keys(keys[t]), grouped.keys(values[t])) for t in range(1, step + 1)]
    scores = (lse.new_empty if grouped.full else lse.new_zeros)((step + 1, *q.shape[:4]))
    for block in grouped.blocks:
        own = grouped.read(q, block, step)
        product = torch.empty_like(own)
        for t, key, _ in later:
            torch.mul(own, grouped.read(key, block, t), out=product)
            torch.sum(product, -1, out=scores[t][block])
    scores.mul_(scale)
    scores[0] = grouped.queries(lse)
    joint = torch.logsumexp(scores, 0)
    weights = scores.sub_(joint).exp_().unsqueeze(-1)
    for block in grouped.blocks if later else ():
        mixed = grouped.read(o, block, step)
        mixed.mul_(weights[0][block])
        for t, _, value in later:
            mixed.addcmul_(weights[t][block], grouped.read(value, block, t))
        grouped.write(o, block, step, mixed)
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
    grouped = _Grouped(query, keys[0], layout, step)
    q, o, upstream, joined = (grouped.queries(x) for x in (query, output, grad, grad_query))
    later = [(t, grouped.keys(keys[t]), grouped.keys(values[t])) for t in range(1, step + 1)]
    dots = (lse.new_empty if grouped.full else lse.new_zeros)((step + 1, *q.shape[:4]))
    into = [(*grad_values.at(t, grouped.full), weights[t - 1]) for t in range(1, step + 1)]
    for block in grouped.blocks if later else ():
        own = grouped.read(upstream, block, step)
        product = torch.empty_like(own)
        torch.mul(own, grouped.read(o, block, step), out=product)
        torch.sum(product, -1, out=dots[0][block])
        for (t, _, value), (found, fresh, weight) in zip(later, into):
            torch.mul(own, grouped.read(value, block, t), out=product)
            torch.sum(product, -1, out=dots[t][block])
            grouped.gather(found, block, t, own, weight[block], fresh)
    slopes = dots[1:].sub_(dots[0]).unsqueeze(-1).mul_(weights).mul_(scale)
    into = [(*grad_keys.at(t, grouped.full), slopes[t - 1]) for t in range(1, step + 1)]
    for block in grouped.blocks if later else ():
        own, mixed = grouped.read(q, block, step), grouped.read(joined, block, step)
        for (t, key, _), (found, fresh, slope) in zip(later, into):
            mixed.addcmul_(slope[block], grouped.read(key, block, t))
            grouped.gather(found, block, t, own, slope[block], fresh)
        grouped.write(joined, block, step, mixed)
    return grad_query


Block = tuple[slice, slice, slice, slice]
_ALL = slice(None)


class _Grouped:
    """Tensors by group, [B, G, heads of the group or 1, S, d], and the blocks of rows that have a node at a step."""

    def __init__(self, query: Tensor, key: Tensor, layout: Layout, step: int) -> None:
        self.groups, self.share = key.shape[1], query.shape[1] // key.shape[1]
        self.layout, self.full, self.dtype = layout, layout.full(step), _accumulated(query.dtype)
        self.blocks = list(self._cut(query, step))

    def queries(self, tensor: Tensor) -> Tensor:
        return tensor.view(tensor.shape[0], self.groups, self.share, *tensor.shape[2:])

    def keys(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(2)

    def read(self, tensor: Tensor, block: Block, step: int) -> Tensor:
        """What a tensor of a step has at the anchors of a block, as it is accumulated."""
        return tensor[self._place(block, step)].to(self.dtype)

    def write(self, tensor: Tensor, block: Block, step: int, values: Tensor) -> None:
        """Put it back, where it is not the tensor's own memory."""
        if tensor.dtype != self.dtype:
            tensor[self._place(block, step)] = values

    def gather(self, tensor: Tensor, block: Block, step: int, rows: Tensor, factor: Tensor, fresh: bool) -> None:
        """Rows times their factors, summed over the heads of a group, to a gradient [B, G, S, d] of a key."""
        place = self.keys(tensor)[self._place(block, step)]
        if self.share > 1:
            part = (rows * factor).sum(2, keepdim=True)
            place.copy_(part) if fresh else place.add_(part)
        elif fresh:
            torch.mul(rows, factor, out=place)
        else:
            place.addcmul_(rows, factor)

    def _place(self, block: Block, step: int) -> Block:
        shift = self.layout.shift(step)
        rows = slice(block[3].start + shift, block[3].stop + shift) if shift else block[3]
        return block[0], block[1], _ALL, rows

    def _cut(self, query: Tensor, step: int) -> Any:
        batch, heads, _, width = query.shape
        most = max(ELEMENTS // max(width, 1), 1)
        inner = query.stride(1) < query.stride(2)  # all heads of a row lie together
        for part in self.layout.parts(step):
            for first, count, _ in part.queries:
                if query.device.type != "cpu":
                    yield part.batch, _ALL, _ALL, slice(first, first + count)
                    continue
                rows = max(most // heads, 1) if inner else max(most // self.share, 1)
                rows = min(rows, count)
                groups = self.groups if inner else max(most // (rows * self.share), 1)
                for b in range(*part.batch.indices(batch)):
                    for g in range(0, self.groups, groups):
                        for start in range(first, first + count, rows):
                            stop = min(start + rows, first + count)
                            yield slice(b, b + 1), slice(g, g + groups), _ALL, slice(start, stop)


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


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
