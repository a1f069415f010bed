"""Attention of a step of a rollout: causal over the rows of step 0, and beside it one key of each later step.

A query at anchor a sees the step-0 rows of its document up to a, and of every later step the row at its own anchor
(VISIBILITY 4xx). The causal part runs through a fused attention that tells its log-sum-exp; each later step is one
score a query, a diagonal, and joins it by log-sum-exp. Backward, the fused kernel is given the joint log-sum-exp and
the joint output instead of its own: P = exp(s − lse) and dS = P · (dP − Σ dO · O) hold for any part of a softmax
if lse and O are those of the whole. So nothing of size S · S, let alone (S · T)², is ever stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oracle.errors import BadInput

ROWS = 512
"""Rows of one head that are worked on at once: what they need stays in a core's cache."""


def rollout_step_attention(
    query: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    documents: Sequence[int] | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention of one step of a rollout, differentiable once in every tensor.

    query: [B, H, S, d], of step len(keys) − 1. keys, values: one of each step up to it, step 0 first, [B, G, S, d]
    where G divides H (grouped queries: head h reads group h // (H / G)). documents: lengths that sum to S, of the
    documents packed one behind another in every batch row; None = one. scale: None = 1/√d.

    Returns [B, H, S, d] of the query's dtype; sums and the softmax are float32 at least. Raises `BadInput`.
    """
    _validate(query, keys, values)
    lengths = _lengths(documents, query.shape[2])
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else float(scale)
    output: Tensor = _StepAttention.apply(query, lengths, scale, len(keys), *keys, *values)  # type: ignore[no-untyped-call]
    return output


class _StepAttention(torch.autograd.Function):
    """Saves the inputs, the output, the joint log-sum-exp and one weight a query and later step."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, lengths: tuple[int, ...], scale: float, steps: int, *tensors: Tensor
    ) -> Tensor:
        keys, values = tensors[:steps], tensors[steps:]
        output, lse = _causal(query, keys[0], values[0], lengths, scale)
        weights = lse.new_empty((steps - 1, *lse.shape))
        for place, group in _blocks(query, keys[0]):
            scores = lse.new_empty((steps, *lse[place].shape))
            scores[0] = lse[place]
            q = query[place].to(lse.dtype) * scale
            for t in range(1, steps):
                torch.sum(q * keys[t][group], -1, out=scores[t])
            joint = torch.logsumexp(scores, 0)
            lse[place] = joint
            shares = scores.sub_(joint).exp_()
            weights[(slice(None), *place)] = shares[1:]
            mixed = output[place].to(lse.dtype) * shares[0].unsqueeze(-1)
            for t in range(1, steps):
                mixed.addcmul_(shares[t].unsqueeze(-1), values[t][group].to(lse.dtype))
            output[place] = mixed
        ctx.save_for_backward(query, output, lse, weights, *tensors)
        ctx.lengths, ctx.scale, ctx.steps = lengths, scale, steps
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, output, lse, weights, *tensors = ctx.saved_tensors
        steps: int = ctx.steps
        keys, values = tensors[:steps], tensors[steps:]
        grad_query, grad_key, grad_value = _causal_backward(
            grad, query, keys[0], values[0], output, lse, ctx.lengths, ctx.scale
        )
        grouped = query.shape[1] != keys[0].shape[1]
        make = torch.zeros_like if grouped else torch.empty_like
        grad_keys = [make(key, dtype=lse.dtype) for key in keys[1:]]
        grad_values = [make(value, dtype=lse.dtype) for value in values[1:]]
        for place, group in _blocks(query, keys[0]):
            upstream, q = grad[place].to(lse.dtype), query[place].to(lse.dtype)
            inner = (upstream * output[place]).sum(-1)
            joined = grad_query[place].to(lse.dtype)
            for t in range(steps - 1):
                share = weights[(t, *place)]
                product = (upstream * values[t + 1][group]).sum(-1)
                score = product.sub_(inner).mul_(share).mul_(ctx.scale).unsqueeze(-1)
                joined.addcmul_(score, keys[t + 1][group].to(lse.dtype))
                if grouped:
                    grad_keys[t][group].addcmul_(score, q)
                    grad_values[t][group].addcmul_(share.unsqueeze(-1), upstream)
                else:
                    torch.mul(score, q, out=grad_keys[t][group])
                    torch.mul(share.unsqueeze(-1), upstream, out=grad_values[t][group])
            grad_query[place] = joined
        later = [g.to(x.dtype) for g, x in zip((*grad_keys, *grad_values), (*keys[1:], *values[1:]))]
        return (
            *(grad_query, None, None, None),
            *(grad_key, *later[: steps - 1], grad_value, *later[steps - 1 :]),
        )


Place = tuple[int | slice, int | slice, slice]
_ALL = slice(None)


def _blocks(query: Tensor, key: Tensor) -> Iterator[tuple[Place, Place]]:
    """Where a block stands in the queries, and where in the keys of its groups: some rows of a head, or, on a GPU, all
    heads that read the groups in turn."""
    batch, heads, rows, _ = query.shape
    share = heads // key.shape[1]
    if query.device.type != "cpu":
        for r in range(share):
            yield (_ALL, slice(r, None, share), _ALL), (_ALL, _ALL, _ALL)
        return
    for b in range(batch):
        for h in range(heads):
            for start in range(0, rows, ROWS):
                part = slice(start, min(start + ROWS, rows))
                yield (b, h, part), (b, h // share, part)


def _parts(lengths: tuple[int, ...], share: int) -> Iterator[tuple[slice, slice]]:
    """Heads that read the groups in turn, and the rows of a document."""
    for r in range(share):
        start = 0
        for length in lengths:
            yield slice(r, None, share), slice(start, start + length)
            start += length


def _causal(query: Tensor, key: Tensor, value: Tensor, lengths: tuple[int, ...], scale: float) -> tuple[Tensor, Tensor]:
    """Output [B, H, S, d] and log-sum-exp [B, H, S] of the causal part; both are the caller's to write to."""
    share = query.shape[1] // key.shape[1]
    if share == 1 and len(lengths) == 1:
        return _fused(query, key, value, scale)
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = query.new_empty(query.shape[:3], dtype=_accumulated(query.dtype))
    for heads, rows in _parts(lengths, share):
        part = _fused(query[:, heads, rows], key[:, :, rows], value[:, :, rows], scale)
        output[:, heads, rows], lse[:, heads, rows] = part
    return output, lse


def _causal_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    lengths: tuple[int, ...],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value; the first is the caller's to write to."""
    share = query.shape[1] // key.shape[1]
    if share == 1 and len(lengths) == 1:
        return _fused_backward(grad, query, key, value, output, lse, scale)
    grad_query = torch.empty_like(query)
    grad_key, grad_value = torch.zeros_like(key), torch.zeros_like(value)
    for heads, rows in _parts(lengths, share):
        fed = (grad[:, heads, rows], query[:, heads, rows], key[:, :, rows], value[:, :, rows])
        part = _fused_backward(*fed, output[:, heads, rows], lse[:, heads, rows], scale)
        grad_query[:, heads, rows] = part[0]
        grad_key[:, :, rows] += part[1]
        grad_value[:, :, rows] += part[2]
    return grad_query, grad_key, grad_value


def _fused(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The device's fused causal attention of one document: output, and log-sum-exp [B, H, S]."""
    if query.shape[2] == 0:
        return torch.zeros_like(query), query.new_zeros(query.shape[:3], dtype=_accumulated(query.dtype))
    if query.device.type == "cpu":
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, True, scale=scale
        )
        return output, lse
    output, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, None, True, 0.0, True, scale=scale
    )
    return output, lse[:, :, : query.shape[2]].contiguous()


def _fused_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Its backward: gradients of query, key and value."""
    if query.shape[2] == 0:
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    if query.device.type == "cpu":
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, key, value, output, lse, 0.0, True, scale=scale
        )
        return found[0], found[1], found[2]
    # the kernel reads rows of log-sum-exp in blocks of 32, and no random state where nothing is dropped
    padded = torch.nn.functional.pad(lse, (0, -lse.shape[2] % 32), value=math.inf)
    state = torch.zeros((), dtype=torch.int64, device="cpu")
    found = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
        *(grad, query, key, value, None, output, padded, state, state, 0.0, [True, True, True, False], True),
        scale=scale,
    )
    return found[0], found[1], found[2]


def _accumulated(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _validate(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    if query.ndim != 4 or not query.dtype.is_floating_point:
        raise BadInput("query", (), "is a floating-point tensor [B, H, S, d]", (tuple(query.shape), query.dtype))
    if not keys or len(keys) != len(values):
        raise BadInput("values", (), "there is one of each step, as of keys, step 0 at least", len(values))
    batch, heads, rows, width = query.shape
    groups = keys[0].shape[1] if keys[0].ndim == 4 else 0
    if groups < 1 or heads % groups:
        raise BadInput("keys", (0,), f"has a number of groups that divides the {heads} heads", tuple(keys[0].shape))
    for name, tensors in (("keys", keys), ("values", values)):
        for s, found in enumerate(tensors):
            if found.shape != (batch, groups, rows, width):
                raise BadInput(name, (s,), f"has shape {(batch, groups, rows, width)}", tuple(found.shape))
            if found.dtype != query.dtype or found.device != query.device:
                raise BadInput(name, (s,), f"is {query.dtype} on {query.device}", (found.dtype, found.device))


def _lengths(documents: Sequence[int] | None, rows: int) -> tuple[int, ...]:
    if documents is None:
        return (rows,)
    lengths = tuple(int(length) for length in documents)
    for i, length in enumerate(lengths):
        if length < 0:
            raise BadInput("documents", (i,), "is a length", length)
    if sum(lengths) != rows:
        raise BadInput("documents", (), f"sum to the {rows} rows", sum(lengths))
    return lengths
