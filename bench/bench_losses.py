"""What the loss of a rollout costs from hidden states, forward and backward, beside the matrix products it needs.

    python -m bench.bench_losses [--vocabulary 32000 128256] [--steps 1 3] [--rows 2048] [--width 1024] [--rounds 5]

One thread, contestants in turn on the same inputs, medians of the process's own time, and ratios to the fast path. The
results are checked equal first. `products` are the matrix products alone, of as many rows at a time as is fastest:
target logits once, draft logits and their way back at every step. `dense` is the plain torch version. `half` supervises
every second row. Peers take part where they are installed: SpecForge's loss in torch (its kernel needs a GPU) and
speculators' eager one, both behind dense logits as their trainers make them. Memory is what the process grows by at
most, told by the kernel, each contestant in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from oracle.fast.losses import Headed, rollout_loss

Contestant = Callable[["Case"], Tensor | None]
"""Runs forward and backward; returns the loss, its gradient lies in the draft's states; None = nothing to compare."""


@dataclass(frozen=True)
class Case:
    """Draft states [T, R, d] against target states [R, d], row r of step s against row r + s, through one head."""

    draft: Tensor
    target: Tensor
    head: Tensor
    supervise: Tensor
    target_row: Tensor


def case(rows: int, width: int, vocabulary: int, steps: int, every: int = 1) -> Case:
    """Random states; the rows that have no row of the target are not supervised, nor are all but each `every`-th."""
    generator = torch.Generator().manual_seed(0)
    draft = torch.randn(steps, rows, width, generator=generator).requires_grad_()
    target = torch.randn(rows, width, generator=generator)
    head = torch.randn(vocabulary, width, generator=generator) / width**0.5
    row = torch.arange(rows) + torch.arange(steps).unsqueeze(1)
    supervise = (row < rows) & (torch.arange(rows) % every == 0)
    return Case(draft, target, head, supervise, row.clamp(max=rows - 1))


def fast(given: Case) -> Tensor:
    """The fast path."""
    made = rollout_loss(
        *(Headed(given.draft, given.head), Headed(given.target, given.head), given.supervise),
        target_row=given.target_row,
    )
    made.value.backward()  # type: ignore[no-untyped-call]
    return made.value.detach()


def dense(given: Case, loss: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None) -> Tensor:
    """All logits, softmax, log-softmax; steps by 0.8**s."""
    with torch.no_grad():
        logits = given.target @ given.head.t()
    total = torch.zeros(())
    for s, (draft, mask) in enumerate(zip(given.draft, given.supervise)):
        shifted = logits[s:] if s == 0 else functional.pad(logits[s:], (0, 0, 0, s))
        total = total + 0.8**s * (loss or _plain)(draft @ given.head.t(), shifted, mask)
    total.backward()  # type: ignore[no-untyped-call]
    return total.detach()


def _plain(draft: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    lost = -(torch.softmax(target, -1) * torch.log_softmax(draft, -1)).sum(-1)
    return lost[mask].mean()


def products(rows: int) -> Contestant:
    """The matrix products, `rows` at a time."""

    def run(given: Case) -> None:
        draft, width = given.draft.detach(), len(given.head)
        step = min(rows, draft.shape[1])
        made, back = torch.empty(step, width), torch.empty(step, given.head.shape[1])
        for start in range(0, draft.shape[1], step):
            some = slice(start, start + step)
            for states in (given.target, *draft):
                part = states[some]
                torch.mm(part, given.head.t(), out=made[: len(part)])
                if states is not given.target:
                    torch.mm(made[: len(part)], given.head, out=back[: len(part)])

    return run


def specforge(given: Case) -> Tensor:
    """`_compute_target_p` and `_compute_loss`, whose mean is over all rows."""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # a C++ compiler is nowhere promised
    model = importlib.import_module("specforge.algorithms.eagle3.model")
    core = importlib.import_module("specforge.core.loss")
    drafted = torch.ones(len(given.head), dtype=torch.bool)

    def loss(draft: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            law, _, _, counted = model._compute_target_p(target[None], drafted, mask[None, :, None].long())
        found: Tensor = core._compute_loss(draft[None], law, counted) * (len(mask) / int(mask.sum()))
        return found

    return dense(given, loss)


def speculators(given: Case) -> Tensor:
    """`loss_function` of the eager Kullback-Leibler divergence; the entropy that it takes off has no gradient."""
    utils = importlib.import_module("speculators.losses.utils")
    eager = importlib.import_module("speculators.losses.eager")

    def loss(draft: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        made: Tensor = utils.loss_function(
            draft[None], target[None], mask[None], torch.zeros(1, len(mask)), eager.kl_div_loss
        )
        return made

    return dense(given, loss)


CONTESTANTS: dict[str, Contestant] = {"fast": fast, "dense": dense, "specforge": specforge, "speculators": speculators}


def compared(given: Case, names: Sequence[str]) -> None:
    """`ValueError` unless losses and gradients agree."""
    found = {}
    for name in names:
        given.draft.grad = None
        value, grad = CONTESTANTS[name](given), given.draft.grad
        found[name] = value, grad
    value, grad = found["fast"]
    assert value is not None and grad is not None
    for name, (other, slope) in found.items():
        assert other is not None and slope is not None
        same = name == "speculators" or torch.allclose(other, value, rtol=1e-4)  # its loss lacks the entropy
        if not same or not torch.allclose(slope, grad, rtol=1e-3, atol=1e-3 * float(grad.abs().max())):
            raise ValueError(f"{name} differs: {float(other)} where fast has {float(value)}")


def timed(runs: dict[str, tuple[Contestant, Case]], rounds: int) -> dict[str, list[float]]:
    """Seconds of the process's own time, the contestants in turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (run, given) in runs.items():
            given.draft.grad = None
            start = time.process_time()
            run(given)
            found[name].append(time.process_time() - start)
    return found


def peak(name: str, shape: tuple[int, ...]) -> float:
    """Megabytes that a process grows by while the contestant runs, beyond its inputs."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown, (name, shape))


def _grown(name: str, shape: tuple[int, ...]) -> float:
    torch.set_num_threads(1)
    CONTESTANTS[name](case(64, 64, 128, 1))  # what is imported and set up once
    given = case(*shape)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts here
    before = _resident("VmRSS")
    CONTESTANTS[name](given)
    return _resident("VmHWM") - before


def _resident(field: str) -> float:
    """Megabytes, as the kernel tells them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (told,) = [line.split()[1] for line in lines if line.startswith(field)]
    return int(told) / 1024


def _installed(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each vocabulary and number of steps; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[32000, 128256])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-memory", action="store_true", help="time alone")
    parser.add_argument("--only-bound", action="store_true", help="the fast path and the products alone")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    peers = [name for name in ("specforge", "speculators") if not asked.only_bound and _installed(name)]
    names = ["fast", *([] if asked.only_bound else ["dense"]), *peers]
    tables = []
    for vocabulary in asked.vocabulary:
        for steps in asked.steps:
            shape = (asked.rows, asked.width, vocabulary, steps)
            given, halved = case(*shape), case(*shape, every=2)
            compared(case(min(asked.rows, 300), 64, 1000, steps), names)
            runs: dict[str, tuple[Contestant, Case]] = {name: (CONTESTANTS[name], given) for name in names}
            runs["half"] = (fast, halved)
            runs |= {f"products of {rows}": (products(rows), given) for rows in (256, 512, asked.rows)}
            table = _table(timed(runs, asked.rounds))
            if not asked.no_memory:
                for name in names:
                    table[name]["megabytes"] = peak(name, shape)
            print(f"R = {asked.rows}, d = {asked.width}, V = {vocabulary}, T = {steps}")
            for name, row in table.items():
                memory = f"{row['megabytes']:9.0f} MB" if "megabytes" in row else ""
                print(f"  {name:18} {row['seconds']:8.2f} s  {row['ratio']:5.2f} of the products{memory}", flush=True)
            tables.append({"rows": asked.rows, "width": asked.width, "vocabulary": vocabulary, "steps": steps} | table)
    if asked.json is not None:
        asked.json.write_text(json.dumps(tables, indent=1))


def _table(found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    bound = min(seconds for name, seconds in medians.items() if name.startswith("products"))
    return {
        name: {"seconds": seconds, "least": min(found[name]), "most": max(found[name]), "ratio": seconds / bound}
        for name, seconds in medians.items()
    }


if __name__ == "__main__":
    main()
