"""The loss of a rollout from hidden states, forward and backward, beside the matrix products that it needs.

    python -m pytest bench/bench_losses.py

2048 rows of width 1024 over 8000 tokens, one step: two minutes on one core. `BENCH_FULL=1` takes 32 000 and 128 256
tokens, one and three steps: an hour, and 6 GiB. Contestants that hold the logits whole do not take part where these
would need more.

All answers are compared, in loss and gradient. The bound is the matrix products alone: target logits once, draft logits
and their way back at every step, as many rows at a time as the fast path has, and all at once. `dense` is the plain
torch version. Peers get dense logits, as their trainers make them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from bench.side_by_side import Contestant, Target, bound, peer, race
from bench.whole_logits import rollout
from oracle.fast.distillation import ROWS
from oracle.fast.losses import Headed, rollout_loss
from oracle.losses import rollout_loss as oracle_loss
from oracle.types import RolloutLossCase

Inputs = dict[str, np.ndarray]

FULL = os.environ.get("BENCH_FULL") == "1"
SHAPES = [(32_000, 1), (32_000, 3), (128_256, 1), (128_256, 3)] if FULL else [(8_000, 1)]
"""Tokens and steps."""
ALL_ROWS, WIDTH = 2048, 1024
MOST = 6 * 2**30
"""Bytes that a contestant which holds logits may take, four numbers for each of them."""


def made(rows: int, width: int, vocabulary: int, steps: int, every: int = 1) -> Inputs:
    """Random states; the rows that have no row of the target are not supervised, nor are all but each `every`-th."""
    generator = torch.Generator().manual_seed(0)
    row = np.arange(rows) + np.arange(steps)[:, np.newaxis]
    return {
        "draft": torch.randn(steps, rows, width, generator=generator).numpy(),
        "target": torch.randn(rows, width, generator=generator).numpy(),
        "head": (torch.randn(vocabulary, width, generator=generator) / width**0.5).numpy(),
        "supervise": (row < rows) & (np.arange(rows) % every == 0),
    }


def fast(inputs: Inputs) -> Callable[[], Inputs]:
    """The fast path."""
    draft = torch.from_numpy(inputs["draft"]).requires_grad_()
    target, head, supervise = (torch.from_numpy(inputs[name]) for name in ("target", "head", "supervise"))
    steps, rows = supervise.shape
    row = (torch.arange(rows) + torch.arange(steps).unsqueeze(1)).clamp(max=rows - 1)

    def call() -> Inputs:
        loss = rollout_loss(Headed(draft, head), Headed(target, head), supervise, target_row=row).value
        (gradient,) = torch.autograd.grad(loss, draft)
        return {"value": loss.detach().numpy(), "gradient": gradient.numpy()}

    return call


def plain(draft: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Softmax, log-softmax, product, mean."""
    lost = -(torch.softmax(target, -1) * torch.log_softmax(draft, -1)).sum(-1)
    return lost[mask].mean()


def oracle(inputs: Inputs) -> Callable[[], Inputs]:
    """The oracle, in float64, and its gradient brought back through the head."""
    draft, target, head = (inputs[name].astype(np.float64) for name in ("draft", "target", "head"))
    steps = len(draft)

    def call() -> Inputs:
        logits = target @ head.T
        shifted = np.stack([np.roll(logits, -s, axis=0) for s in range(steps)])
        found = oracle_loss(RolloutLossCase(draft @ head.T, shifted, inputs["supervise"]))
        return {"value": np.asarray(found.value), "gradient": found.grad["draft_logits"] @ head}

    return call


def products(inputs: Inputs, most: int) -> Callable[[], None]:
    """The matrix products of the supervised rows, `most` at a time."""
    head = torch.from_numpy(inputs["head"])
    supervise = torch.from_numpy(inputs["supervise"])
    target = torch.from_numpy(inputs["target"])[supervise[0]]
    drafts = [states[mask] for states, mask in zip(torch.from_numpy(inputs["draft"]), supervise)]

    def call() -> None:
        logits, back = torch.empty(most, len(head)), torch.empty(most, head.shape[1])
        for states in (target, *drafts):
            for part in states.split(most):
                torch.mm(part, head.t(), out=logits[: len(part)])
                if states is not target:
                    torch.mm(logits[: len(part)], head, out=back[: len(part)])

    return call


def same(expected: Inputs, found: Inputs) -> None:
    """What is told, within what float32 makes of sums over a vocabulary."""
    for name, value in found.items():
        assert_allclose(value, expected[name], rtol=1e-3, atol=1e-4 * float(np.abs(expected[name]).max()))


def told(vocabulary: int, steps: int) -> str:
    return f"the loss of {ALL_ROWS} rows of width {WIDTH}, {vocabulary} tokens, steps: {steps}"


@pytest.mark.parametrize(("vocabulary", "steps"), SHAPES)
def test_loss(benchmark: Any, vocabulary: int, steps: int) -> None:
    inputs = made(ALL_ROWS, WIDTH, vocabulary, steps)
    race(
        benchmark,
        told(vocabulary, steps),
        [
            Contestant("fast", fast(inputs)),
            bound(f"products, {ROWS} rows at a time", products(inputs, ROWS)),
            bound("products, all rows at once", products(inputs, ALL_ROWS)),
        ],
        same=same,
        rounds=5 if FULL else 15,
        memory=True,
        targets=[Target("products, all", within=1.1), Target(f"products, {ROWS}", within=1.1)],
    )


@pytest.mark.parametrize(("vocabulary", "steps"), [(v, t) for v, t in SHAPES if 16 * t * ALL_ROWS * v <= MOST])
def test_beside_logits_held_whole(benchmark: Any, vocabulary: int, steps: int) -> None:
    inputs = made(ALL_ROWS, WIDTH, vocabulary, steps)
    race(
        benchmark,
        f"{told(vocabulary, steps)}, beside logits held whole",
        [
            Contestant("fast", fast(inputs)),
            Contestant("dense", rollout(inputs, plain)),
            peer("adapters.specforge", "bench.peers.specforge:rollout_loss", inputs),
            peer("adapters.speculators", "bench.peers.speculators:rollout_loss", inputs),
        ],
        same=same,
        rounds=5,
        memory=True,
    )


@pytest.mark.parametrize(("vocabulary", "steps"), SHAPES[:1])
def test_half_the_rows(benchmark: Any, vocabulary: int, steps: int) -> None:
    half, whole = made(ALL_ROWS, WIDTH, vocabulary, steps, every=2), made(ALL_ROWS, WIDTH, vocabulary, steps)
    race(
        benchmark,
        f"every second of {ALL_ROWS} rows supervised, {vocabulary} tokens",
        [Contestant("fast", fast(half)), Contestant("all rows", fast(whole), compared=False)],
        same=same,
        rounds=5,
        memory=True,
        targets=[Target("all rows", times=1.8)],
    )


def test_beside_the_oracle(benchmark: Any) -> None:
    inputs = made(64, 64, 1000, 3)
    race(
        benchmark,
        "the loss of 64 rows of width 64, 1000 tokens, steps: 3",
        [Contestant("fast", fast(inputs)), Contestant("oracle", oracle(inputs))],
        same=same,
        rounds=5,
    )


def grows(benchmark: Any, axis: str, rows: int, vocabulary: int, steps: int) -> None:
    """A race of small width, for a plot."""
    inputs = made(rows, 256, vocabulary, steps)
    race(
        benchmark,
        f"{rows} rows of width 256, {vocabulary} tokens, steps: {steps}",
        [
            Contestant("fast", fast(inputs)),
            bound("products", products(inputs, ROWS)),
            Contestant("dense", rollout(inputs, plain)),
        ],
        same=same,
        rounds=5,
        memory=True,
        growth=(axis, {"rows": rows, "vocabulary": vocabulary, "steps": steps}[axis]),
    )


@pytest.mark.parametrize("rows", [512, 1024, 2048])
def test_growth_with_rows(benchmark: Any, rows: int) -> None:
    grows(benchmark, "rows", rows, 4000, 1)


@pytest.mark.parametrize("vocabulary", [2000, 8000, 32_000])
def test_growth_with_the_vocabulary(benchmark: Any, vocabulary: int) -> None:
    grows(benchmark, "vocabulary", 512, vocabulary, 1)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_growth_with_steps(benchmark: Any, steps: int) -> None:
    grows(benchmark, "steps", 512, 4000, steps)
