"""The fast path of a rollout's attention: against a dense masked softmax, forward and backward, and what it stores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.visibility import cases
from oracle.errors import BadInput
from oracle.fast import attention, causal
from oracle.fast.attention import rollout_attention, rollout_step_attention
from oracle.fast.layout import Document, Layout
from oracle.fast.rows import TokenBatch
from oracle.fast.visibility import rollout_visibility
from oracle.types import RolloutCase, RolloutMaskCase
from oracle.visibility import rollout_mask

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True)
class Dense:
    """A softmax of which every score is stored, in float64. The arrays are [B, H, T · S, T · S] or [B, H, T · S, d]."""

    query: Tensor
    key: Tensor
    value: Tensor
    seen: Tensor
    scale: float

    def weights(self) -> Tensor:
        scores = (self.query @ self.key.mT * self.scale).masked_fill(~self.seen, -math.inf)
        return scores.softmax(-1).nan_to_num(0.0)  # a row that sees nothing gives nothing

    def output(self) -> Tensor:
        return self.weights() @ self.value

    def bounds(self, upstream: Tensor, dtype: torch.dtype, share: int) -> list[Tensor]:
        """How far output and gradients of query, key and value may be off, entry by entry.

        Sums are float32 at least: γ(n) of their magnitudes for n terms. What is stored in the dtype is rounded: inputs
        of a product, a part of the output before and after it is joined, and gradients once for each block of 32
        queries that adds to them. A weight is off by its score's error, its own rounding and the sum's.
        """
        own = UNIT[dtype]
        unit = min(own, UNIT[torch.float32])
        q, k, v, g = (x.detach().abs() for x in (self.query, self.key, self.value, upstream))
        n, width, rows = self.seen.shape[-1], q.shape[-1], self.seen.shape[-1] * share
        stored = own * (4 + rows / 32) if own > unit else 0.0
        with torch.no_grad():
            w, out = self.weights(), self.output()
            score = unit * (width + 4) * float((q @ k.mT * self.scale).masked_fill(~self.seen, 0).max())
            weight = 2 * score + unit * (2 * n + 16) + stored
            of_output = (weight + unit * n + stored) * (w @ v)
            dot = (upstream @ self.value.mT).abs() + (upstream * out).sum(-1, keepdim=True).abs()
            of_dot = unit * width * ((g @ v.mT) + (g * out.abs()).sum(-1, keepdim=True))
            of_dot = of_dot + (g * of_output).sum(-1, keepdim=True)
            slope = w * dot
            of_slope = w * (of_dot + (weight + stored) * dot) + (unit * rows + stored) * slope
            return [
                2 * bound  # of second order
                for bound in (
                    of_output,
                    self.scale * of_slope @ k,
                    self.scale * of_slope.mT @ q,
                    (weight + unit * rows + stored) * (w.mT @ g),
                )
            ]


def drawn(
    heads: int, groups: int, shape: tuple[int, int, int, int], dtype: torch.dtype, turned: bool
) -> list[list[Tensor]]:
    """Queries, keys, values and what comes from above, of every step; turned: all heads of a row lie together."""
    steps, batch, length, width = shape
    generator = torch.Generator().manual_seed(heads * length + width)

    def one(h: int) -> Tensor:
        made = torch.randn(batch, length, h, width, generator=generator).to(dtype).transpose(1, 2)
        return made if turned else made.contiguous()

    return [[one(h) for _ in range(steps)] for h in (heads, groups, groups, heads)]


def compared(tensors: list[list[Tensor]], seen: Tensor, layout: Layout | None, last: bool = False) -> None:
    """The fast path and the dense one, on tensors that hold NaN wherever no node is. seen: [T · S, T · S]."""
    queries, keys, values, upstream = tensors
    steps, dtype = len(queries), queries[0].dtype
    batch, heads, length, width = queries[0].shape
    share = heads // keys[0].shape[1]
    held = seen.diagonal().view(steps, length)
    for given in tensors:
        for s in range(steps):
            given[s] = given[s].masked_fill(~held[s, :, None], math.nan)
    leaves = [x.requires_grad_() for given in tensors[:3] for x in (given[-1:] if last and given is queries else given)]
    if last:
        found = (rollout_step_attention(queries[-1], keys, values, layout),)
        upstream = upstream[-1:]
    else:
        found = rollout_attention(queries, keys, values, layout)
    gradients = torch.autograd.grad(found, leaves, upstream)

    def flat(given: Sequence[Tensor], each: int = 1) -> Tensor:
        joined = torch.cat([x.detach().double() for x in given], 2).nan_to_num(0.0)
        return joined.repeat_interleave(each, 1)

    dense = Dense(flat(queries), flat(keys, share), flat(values, share), seen, 1 / math.sqrt(width))
    above = flat(upstream)
    if last:
        above = torch.cat([torch.zeros(batch, heads, (steps - 1) * length, width, dtype=torch.float64), above], 2)
    inputs = [x.requires_grad_() for x in (dense.query, dense.key, dense.value)]
    output = dense.output()
    right = [output.detach(), *torch.autograd.grad(output, inputs, above)]
    bounds = dense.bounds(above, dtype, share)
    count = len(found)
    told = (found, gradients[:count], gradients[count : count + steps], gradients[count + steps :])
    for i, (parts, expected, bound) in enumerate(zip(told, right, bounds)):
        if i in (2, 3):
            expected, bound = (x.unflatten(1, (-1, share)).sum(2) for x in (expected, bound))
        assert {x.dtype for x in parts} == {dtype}
        whole = torch.cat([x.detach().double() for x in parts], 2)
        expected, bound = expected[:, :, -whole.shape[2] :], bound[:, :, -whole.shape[2] :]
        unheld = ~held.reshape(-1)[-whole.shape[2] :]
        assert (whole[:, :, unheld] == 0).all()
        excess = (whole - expected).abs() - bound - UNIT[dtype] * expected.abs()
        assert float(excess.max()) <= 0, f"{('output', 'query', 'key', 'value')[i]}: {float(excess.max())} too far"


def packed(lengths: Sequence[int], steps: int) -> Tensor:
    """Who sees whom where every row has a node at every step."""
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    rows = len(document)
    seen = torch.zeros(steps, rows, steps, rows, dtype=torch.bool)
    for s in range(steps):
        seen[s, :, 0] = (document[:, None] == document) & torch.ones(rows, rows, dtype=torch.bool).tril()
        for t in range(1, s + 1):
            seen[s, :, t] = torch.eye(rows, dtype=torch.bool)
    return seen.view(steps * rows, steps * rows)


@pytest.mark.parametrize("dtype", UNIT, ids=str)
@pytest.mark.parametrize(
    ("heads", "groups", "width", "steps", "lengths", "turned"),
    [
        (6, 2, 5, 4, [10, 0, 20, 7], False),
        (3, 3, 8, 1, [33], True),
        (4, 1, 4, 3, [1, 1, 2], False),
        (2, 2, 16, 3, [90], False),
        (4, 2, 8, 3, [50, 20], True),
    ],
)
@pytest.mark.parametrize(("last", "threads"), [(False, 1), (True, 1), (True, 2)])
def test_values_and_gradients_are_those_of_a_dense_softmax(
    heads: int,
    groups: int,
    width: int,
    steps: int,
    lengths: list[int],
    turned: bool,
    dtype: torch.dtype,
    last: bool,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention, "ELEMENTS", 256)  # several blocks
    monkeypatch.setattr(causal, "BLOCK", 32)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    tensors = drawn(heads, groups, (steps, 2, sum(lengths), width), dtype, turned)
    compared(tensors, packed(lengths, steps), Layout.packed(lengths), last)


@pytest.mark.parametrize("anchor", ["start", "absolute"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", [*cases.PADDED, *cases.BROKEN, cases.CROWDED, cases.DEEP, cases.ALL_AT_ONCE])
def test_what_has_no_node_is_never_read(case: RolloutCase, anchor: str, last: bool) -> None:
    seen = rollout_mask(RolloutMaskCase(case, anchor)).reshape(case.steps * case.length, -1)
    valid, segment = (torch.from_numpy(x)[None] for x in (case.valid, case.segment))
    position = torch.from_numpy(np.arange(case.length) if case.position is None else case.position)[None]
    visibility = rollout_visibility(TokenBatch(segment, valid, segment, position, valid), case.steps)
    tensors = drawn(4, 2, (case.steps, 1, case.length, 3), torch.float32, False)
    compared(tensors, torch.from_numpy(seen), visibility.layout(anchor), last)


def test_a_batch_of_different_rows_is_that_of_each_alone() -> None:
    lengths, steps = [5, 9, 2], 3
    valid = torch.arange(10) <= torch.tensor(lengths)[:, None]
    segment, position = torch.zeros(3, 10, dtype=torch.int64), torch.arange(10).repeat(3, 1)
    layout = rollout_visibility(TokenBatch(segment, valid, segment, position, valid), steps).layout()
    queries, keys, values, _ = (torch.stack(x) for x in drawn(2, 1, (steps, 3, 10, 4), torch.float64, False))
    found = rollout_attention(queries, keys, values, layout)
    for b, length in enumerate(lengths):
        own = [list(x[:, b : b + 1, :, :length]) for x in (queries, keys, values)]
        alone = rollout_attention(*own, Layout.packed([length], shrinks=True))
        for one, other in zip(found, alone):
            assert torch.equal(one[b : b + 1, :, :length], other)
            assert not one[b, :, length:].any()


@pytest.mark.parametrize("shape", [(2, 1, 0, 3), (2, 0, 4, 3), (1, 1, 1, 3)])
def test_nothing_is_nothing(shape: tuple[int, int, int, int]) -> None:
    queries, keys, values, above = drawn(2, 1, shape, torch.float32, False)
    found = rollout_attention(queries, [k.requires_grad_() for k in keys], values)
    assert [x.shape for x in found] == [x.shape for x in queries]
    gradients = torch.autograd.grad(found, keys, above)
    assert [x.shape for x in gradients] == [x.shape for x in keys]


def test_nothing_is_stored_whose_size_grows_with_the_square_of_the_rows() -> None:
    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            for one in made if isinstance(made, (tuple, list)) else (made,):
                if isinstance(one, Tensor):
                    self.size = max(self.size, one.numel())
            return made

    queries, keys, values, _ = drawn(2, 2, (3, 1, 1024, 64), torch.float32, False)
    with Largest() as mode:
        rollout_step_attention(queries[-1].requires_grad_(), keys, values).sum().backward()
    assert 0 < mode.size <= 2 * queries[0].numel()


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    queries, keys, values, _ = drawn(2, 2, (3, 1, 5, 4), torch.float64, False)
    for x in (*queries, *keys, *values):
        x.requires_grad_()
    rollout_attention(queries, keys, values)[1].sum().backward()
    assert [x.grad is None for x in (*queries, *keys)] == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda q, k, v: (q[0], k, v, None), "queries[0]"),
        (lambda q, k, v: (q, k, v[:1], None), "values"),
        (lambda q, k, v: (q, k[:0], v[:0], None), "values"),
        (lambda q, k, v: (q, [k[0], k[1][:, :1]], v, None), "keys[1]"),
        (lambda q, k, v: (q, k, [v[0], v[1].float()], None), "values[1]"),
        (lambda q, k, v: (q, k, v, Layout.packed([3, 3])), "layout"),
        (lambda q, k, v: (q, k, v, Layout(7, (Document(slice(2, 3), ((0, 3),)),))), "layout"),
    ],
)
def test_bad_input_is_told(change: Any, told: str) -> None:
    queries, keys, values, _ = drawn(4, 2, (2, 2, 7, 3), torch.float64, False)
    query, keys, values, layout = change(queries[1], keys, values)
    with pytest.raises(BadInput) as error:
        rollout_step_attention(query, keys, values, layout)
    assert str(error.value).startswith(told)


def test_bad_layouts_are_told() -> None:
    queries, keys, values, _ = drawn(2, 2, (2, 1, 4, 3), torch.float64, False)
    refused: list[tuple[str, Any]] = [
        ("queries", lambda: rollout_attention(queries[:1], keys, values)),
        ("lengths[1]", lambda: Layout.packed([8, -1])),
        ("documents[0]", lambda: Layout(4, (Document(slice(None), ((2, 3),)),))),
        ("documents[1]", lambda: Layout(4, (Document(slice(None), ((0, 3),)), Document(slice(None), ((2, 2),))))),
        ("absolute", lambda: Layout.packed([4], absolute=True)),
    ]
    for told, call in refused:
        with pytest.raises(BadInput) as error:
            call()
        assert str(error.value).startswith(told)
