"""The causal part of a rollout's attention: each document through the device's fused kernel, forward and backward.

What a layout leaves out is never read. A document of several runs is copied together first, with zeros for the queries
that have no node at the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from oracle.fast.layout import Layout, Part

Rows = tuple[tuple[int, int, int], ...]

BLOCK = 256
"""Queries, and keys, whose scores are held at once where one thread goes backward: they stay in a core's cache."""


def causal(query: Tensor, key: Tensor, value: Tensor, layout: Layout, step: int, scale: float) -> tuple[Tensor, Tensor]:
    """Output [B, H, S, d], by row of the step, and log-sum-exp [B, H, S], by anchor; the caller may write to both.

    query: [B, H, S, d] of a step. key, value: [B, G, S, d] of step 0. Zeros where no node is.
    """
    share, shift = query.shape[1] // key.shape[1], layout.shift(step)
    if share == 1 and layout.full(step):
        return _fused(query, key, value, scale)
    output = (torch.empty_like if layout.covers(step) else torch.zeros_like)(query)
    lse = torch.zeros(query.shape[:3], dtype=accumulated(query.dtype), device=query.device)
    for part, heads in _parts(layout, step, share):
        q, k, v = _read(query, part, heads, shift), _of_keys(key, part), _of_keys(value, part)
        found, sums = _fused(q, k, v, scale)
        for first, count, place in part.queries:
            rows = slice(place, place + count)
            output[part.batch, heads, first + shift : first + shift + count] = found[:, :, rows]
            lse[part.batch, heads, first : first + count] = sums[:, :, rows]
    return output, lse


def causal_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    layout: Layout,
    step: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, from output and log-sum-exp of the whole; the caller may write to all."""
    share, shift = query.shape[1] // key.shape[1], layout.shift(step)
    if share == 1 and layout.full(step):
        return _fused_backward(grad, query, key, value, output, lse, scale)
    make = torch.empty_like if share == 1 and layout.covers(step) else torch.zeros_like
    grad_query, grad_key, grad_value = (make(x) for x in (query, key, value))
    for part, heads in _parts(layout, step, share):
        g, q, o = (_read(x, part, heads, shift) for x in (grad, query, output))
        sums = _read(lse, part, heads, 0)
        found = _fused_backward(g, q, _of_keys(key, part), _of_keys(value, part), o, sums, scale)
        for first, count, place in part.queries:
            rows = slice(place, place + count)
            grad_query[part.batch, heads, first + shift : first + shift + count] = found[0][:, :, rows]
        for first, count, place in part.keys:
            rows = slice(place, place + count)
            for whole, part_of_it in ((grad_key, found[1]), (grad_value, found[2])):
                into = whole[part.batch, :, first : first + count]
                into.copy_(part_of_it[:, :, rows]) if share == 1 else into.add_(part_of_it[:, :, rows])
    return grad_query, grad_key, grad_value


def _parts(layout: Layout, step: int, share: int) -> Iterator[tuple[Part, slice]]:
    """Documents, and the heads that read the groups in turn."""
    for part in layout.parts(step):
        for r in range(share):
            yield part, slice(r, None, share)


def _of_keys(tensor: Tensor, part: Part) -> Tensor:
    return _taken(tensor[part.batch], part.keys, part.total, 0)


def _read(tensor: Tensor, part: Part, heads: slice, shift: int) -> Tensor:
    return _taken(tensor[part.batch, heads], part.queries, part.total, shift)


def _taken(tensor: Tensor, rows: Rows, total: int, shift: int) -> Tensor:
    """Rows of [b, h, S, …] one behind another: a view where they are so, else a copy, zeros where none is."""
    if len(rows) == 1 and rows[0][1] == total:
        first = rows[0][0] + shift
        return tensor[:, :, first : first + total]
    found = tensor.new_zeros((*tensor.shape[:2], total, *tensor.shape[3:]))
    for first, count, place in rows:
        found[:, :, place : place + count] = tensor[:, :, first + shift : first + shift + count]
    return found


def _fused(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The device's fused causal attention of one document: output, and log-sum-exp [B, H, S]."""
    if query.numel() == 0:
        return torch.zeros_like(query), query.new_zeros(query.shape[:3], dtype=accumulated(query.dtype))
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
    if query.numel() == 0:
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    if query.device.type == "cpu":
        precise = query.dtype in (torch.float32, torch.float64)
        if precise and query.shape[2] >= BLOCK and torch.get_num_threads() == 1:
            return _blocks_backward(grad, query, key, value, output, lse, scale)
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


def _blocks_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as products of blocks, head by head: quicker than the fused kernel where no other thread takes a head.

    Query and what comes from above lie one behind the other, as key and value do: one product gives s and dP of a pair
    of blocks, and one adds to the gradients of value and key.
    """
    length, width = query.shape[2:]
    grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    rows = query.new_empty((3, length, width))  # from above, query, from above: both orders of the two lie in it
    inner = query.new_empty((2, length, 1))  # log-sum-exp, Σ dO · O
    columns = query.new_empty((2, length, width))  # key, value
    sums = query.new_empty((2, length, width))  # gradients of value and key
    grad_rows = query.new_empty((length, width))
    held = query.new_empty(2 * BLOCK * BLOCK)
    pairs = []  # every head has its turn in the same memory, so blocks of it are cut once
    for stop in range(BLOCK, length + BLOCK, BLOCK):
        i = slice(stop - BLOCK, min(stop, length))
        for start in range(0, stop, BLOCK):
            j = slice(start, min(start + BLOCK, length))
            both = held[: 2 * (i.stop - i.start) * (j.stop - j.start)].view(2, i.stop - i.start, -1)
            products = (rows[1:, i], columns[:, j].mT, both, inner[:, i], *both, start + BLOCK == stop)
            pairs.append((*products, sums[:, j], both.mT, rows[:2, i], grad_rows[i], columns[0, j]))
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            rows[0] = rows[2] = grad[b, h]
            torch.mul(query[b, h], scale, out=rows[1])
            inner[0, :, 0] = lse[b, h]
            torch.sum(rows[0] * output[b, h], -1, keepdim=True, out=inner[1])
            columns[0], columns[1] = key[b, h], value[b, h]
            sums.zero_()
            grad_rows.zero_()
            for left, right, both, less, p, slope, diagonal, into, turned, swapped, grad_row, keys in pairs:
                torch.bmm(left, right, out=both).sub_(less)
                p.exp_()
                if diagonal:
                    p.tril_()
                slope.mul_(p)
                into.baddbmm_(turned, swapped)
                grad_row.addmm_(slope, keys)
            torch.mul(grad_rows, scale, out=grads[0][b, h])
            grads[2][b, h], grads[1][b, h] = sums
    return grads


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """What sums of a dtype are made in; that of log-sum-exp."""
    return torch.float64 if dtype == torch.float64 else torch.float32
