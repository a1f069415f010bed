"""Attention of a rollout: its last step and all of them, beside plain causal attention and beside trainers.

    python -m pytest bench/bench_visibility.py

Seven steps, 16 heads of 64, forward and backward, float32, tensors as projections give them. Two minutes on one core;
`BENCH_FULL=1` has the trainers, and all seven steps, at 2048 rows as well: ten minutes, and 8 GiB.

`causal attention` is torch's own over the rows of step 0 alone: what no attention of a step can do without. Trainers
get their masks made beforehand, and one tensor of all the keys that they keep. How much time it takes to ask the system
for memory again depends on the allocator more than on code, and a process that trains asks seldom. So there are races
where it does as it likes (`given back`), and races where it keeps what it has, for all contestants (`kept`).
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bench.rollout_steps import Call, Inputs, answered, by_head, leaf, made
from bench.side_by_side import Contestant, Target, bound, peer, race
from oracle import types
from oracle import visibility as oracle
from oracle.fast.attention import rollout_attention, rollout_step_attention
from oracle.fast.layout import Layout
from oracle.fast.rows import TokenBatch
from oracle.fast.visibility import rollout_mask, rollout_visibility

FULL = os.environ.get("BENCH_FULL") == "1"
STEPS, ROWS = 7, 2048
TRAINERS = ("specforge", "modelopt", "speculators")
LENGTHS = (700, 300, 512, 600, 400, 900, 350, 334)
"""Of packed documents, of 4096 rows."""


def keeps_memory() -> None:
    """The allocator of this process, and of those it starts, gives nothing back to the system from now on."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for option, most in ((-1, 2**31 - 1), (-3, 2**30)):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            libc.mallopt(option, most)
    os.environ |= {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


class Given:
    """The tensors of a file, and calls on them."""

    def __init__(self, inputs: Inputs) -> None:
        self.rows, self.heads, _ = inputs["query"].shape
        self.query, self.above = leaf(inputs["query"]), torch.from_numpy(inputs["above"]).view(1, self.rows, -1)
        self.keys, self.values = ([leaf(x) for x in inputs[name]] for name in ("keys", "values"))

    def step(self, attention: Callable[[Tensor, list[Tensor], list[Tensor]], Tensor]) -> Call:
        """Forward and backward of an attention of tensors [1, heads, S, width]."""

        def call() -> Inputs:
            fed = [[by_head(x, self.heads) for x in tensors] for tensors in ([self.query], self.keys, self.values)]
            output = attention(fed[0][0], fed[1], fed[2]).transpose(1, 2).reshape(1, self.rows, -1)
            return answered(output, self.query, self.keys, self.values, self.above)

        return call

    def causal(self, lengths: tuple[int, ...] | None = None, times: int = 1) -> Callable[[], object]:
        """torch's causal attention of each document, over the rows of step 0."""

        def call() -> None:
            query, key, value = (by_head(x, self.heads) for x in (self.query, self.keys[0], self.values[0]))
            above = by_head(self.above, self.heads)
            for _ in range(times):
                start = 0
                for length in lengths or (self.rows,):
                    rows = slice(start, start + length)
                    parts = [x[:, :, rows] for x in (query, key, value)]
                    output = scaled_dot_product_attention(*parts, is_causal=True)
                    torch.autograd.grad(output, parts, above[:, :, rows])
                    start += length

        return call


def dense(query: Tensor, keys: list[Tensor], values: list[Tensor], lengths: tuple[int, ...] | None = None) -> Tensor:
    """The plain torch version: all keys in a row, and a mask of all of them."""
    rows = query.shape[2]
    causal = torch.block_diag(*[torch.ones(length, length).tril() for length in lengths or (rows,)])
    seen = torch.cat([causal, *[torch.eye(rows)] * (len(keys) - 1)], 1).bool()
    return scaled_dot_product_attention(query, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=seen)


def same(found: Inputs, other: Inputs) -> None:
    """Entry by entry as float32 sums of 16 S terms of the size of the largest may differ: √ of as many roundings."""
    for name, numbers in found.items():
        terms = 16 * len(numbers)
        bound_ = 2**-23 * math.sqrt(terms) * max(1.0, float(np.abs(numbers).max()))
        assert np.abs(numbers - other[name]).max() <= bound_, name


def trainers(inputs: Inputs) -> list[Any]:
    return [peer(f"adapters.{name}", f"bench.peers.{name}:step_attention", inputs) for name in TRAINERS]


@pytest.mark.parametrize("rows", [512, 2048] if FULL else [512])
def test_trainers(benchmark: Any, rows: int) -> None:
    inputs = made(rows, STEPS)
    given = Given(inputs)
    contestants = [
        Contestant("fast", given.step(rollout_step_attention)),
        bound("causal attention", given.causal()),
        *trainers(inputs),
    ]
    if rows <= 512:
        contestants.append(Contestant("dense", given.step(dense)))
    race(
        *(benchmark, f"last of {STEPS} steps beside trainers, S = {rows}, memory given back", contestants),
        same=same,
        rounds=8 if rows <= 512 else 3,
        memory=rows <= 512,
        targets=[Target(name if name != "modelopt" else "nvidia", times=5 if rows == ROWS else 1) for name in TRAINERS],
        growth=("rows", rows),
    )


@pytest.mark.parametrize("memory", ["given back", "kept"])
def test_last_step(benchmark: Any, memory: str) -> None:
    if memory == "kept":
        keeps_memory()
    given = Given(made(ROWS, STEPS))
    race(
        benchmark,
        f"last of {STEPS} steps, S = {ROWS}, memory {memory}",
        [Contestant("fast", given.step(rollout_step_attention)), bound("causal attention", given.causal())],
        same=same,
        rounds=11,
        targets=[Target("causal attention", within=1.2)],
    )


@pytest.mark.parametrize("rows", [ROWS] if FULL else [1024])
def test_all_steps(benchmark: Any, rows: int) -> None:
    keeps_memory()
    given = Given(made(rows, STEPS))
    queries = [leaf(made(rows, STEPS)["query"]) for _ in range(STEPS)]

    def call() -> None:
        fed = [[by_head(x, given.heads) for x in tensors] for tensors in (queries, given.keys, given.values)]
        outputs = rollout_attention(*fed)
        above = by_head(given.above, given.heads)
        torch.autograd.grad(outputs, [*queries, *given.keys, *given.values], [above] * STEPS)

    race(
        benchmark,
        f"all {STEPS} steps, S = {rows}",
        [Contestant("fast", call), bound(f"causal attention, {STEPS} times", given.causal(times=STEPS))],
        same=same,
        rounds=8,
        targets=[Target("causal attention", within=1.2)],
    )


@pytest.mark.parametrize("rows", [1024, 4096] if FULL else [1024])
def test_packed_documents(benchmark: Any, rows: int) -> None:
    keeps_memory()
    given, lengths = Given(made(rows, STEPS)), tuple(length * rows // 4096 for length in LENGTHS)
    lengths = (*lengths[:-1], rows - sum(lengths[:-1]))
    whole, shrinking = Layout.packed(lengths), Layout.packed(lengths, shrinks=True)
    contestants = [
        Contestant("fast", given.step(lambda q, k, v: rollout_step_attention(q, k, v, whole))),
        Contestant(
            "fast, each step a row less",
            given.step(lambda q, k, v: rollout_step_attention(q, k, v, shrinking)),
            compared=False,
        ),
        bound("causal attention of each document", given.causal(lengths)),
        Contestant("one document", given.step(rollout_step_attention), compared=False),
    ]
    if rows <= 1024:
        contestants.append(Contestant("dense", given.step(lambda q, k, v: dense(q, k, v, lengths))))
    title = f"last of {STEPS} steps, {len(lengths)} documents, S = {rows}"
    race(benchmark, title, contestants, same=same, rounds=8, growth=("rows", rows))


@pytest.mark.parametrize("steps", [1, 2, 4, 7, 10])
def test_steps(benchmark: Any, steps: int) -> None:
    keeps_memory()
    given = Given(made(512, steps))
    contestants = [
        Contestant("fast", given.step(rollout_step_attention)),
        Contestant("dense", given.step(dense)),
        bound("causal attention", given.causal()),
    ]
    title = f"last of {steps} steps, S = 512"
    race(benchmark, title, contestants, same=same, rounds=5, memory=True, growth=("steps", steps))


@pytest.mark.parametrize("length", [64, 512, 4096])
def test_visibility(benchmark: Any, length: int) -> None:
    lengths = [n * length // 4096 for n in LENGTHS[:-1]]
    segment = torch.repeat_interleave(torch.arange(8), torch.tensor([*lengths, length - sum(lengths)]))[None]
    valid, position = torch.ones_like(segment, dtype=torch.bool), torch.arange(length)[None]
    batch, steps = TokenBatch(segment, valid, segment, position, valid), 3
    case = types.RolloutCase(length, steps, segment[0].numpy(), valid[0].numpy(), position[0].numpy())
    contestants = [
        Contestant("fast", lambda: rollout_visibility(batch, steps).layout()),
        Contestant("fast, mask", lambda: rollout_mask(rollout_visibility(batch, steps))[0].numpy(), compared=False),
    ]
    if length <= 64:
        masked = types.RolloutMaskCase(case)
        assert np.array_equal(contestants[1].answer(), oracle.rollout_mask(masked))
        contestants.append(Contestant("oracle, mask", lambda: oracle.rollout_mask(masked), compared=False))
    if length > 512:
        contestants.pop(1)  # 3 · 4096 rows in a square
    title = f"nodes and documents of {steps} steps, S = {length}"
    race(benchmark, title, contestants, same=lambda *_: None, rounds=9, growth=("addresses", length))
