"""The fast paths that stay on a device: run on torch's `meta` device, which has shapes and no numbers.

Whoever asks it for a number, or for how many entries are true, gets an error, and so does whoever mixes it with a
tensor of the host. So what runs there neither waits for a device nor forgets one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bench.device_tasks import tasks
from oracle.fast.acceptance import Drafts, propose, verify_random, verify_sampled, warp
from oracle.fast.coins import coins
from oracle.fast.masks import tree_mask
from oracle.fast.moving import move_rows
from oracle.fast.noise import feature_noise
from oracle.fast.publish import Limits, State, Verified, publish
from oracle.fast.rounds import Decision
from oracle.fast.rows import TokenBatch, gather_rows
from oracle.fast.tree import sibling_links, tree_visibility, visible_words
from oracle.fast.visibility import rollout_visibility

META = torch.device("meta")
TASKS = {task.name: task for task in tasks(META, small=True) if task.captured}


def whole(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64, device=META)


def real(*shape: int) -> Tensor:
    return torch.rand(shape, device=META)


def flags(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool, device=META)


def batch() -> TokenBatch:
    return TokenBatch(whole(2, 8), flags(2, 8), whole(2, 8), whole(2, 8), flags(2, 8))


@pytest.mark.parametrize(
    "ask", [lambda: bool(flags(1).any()), lambda: flags(3).nonzero(), lambda: real(2) + torch.ones(2), real(1).item]
)
def test_the_device_refuses_what_a_gpu_waits_for(ask: Callable[[], object]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        ask()


@pytest.mark.parametrize("name", TASKS)
def test_what_the_bench_says_stays_on_a_device_does(name: str) -> None:
    TASKS[name].call()


TREES = Drafts(whole(3, 4), whole(3, 4) - 1, whole(3))
CALLS: dict[str, Callable[[], object]] = {
    "trees without replacement": lambda: verify_random(
        TREES, 1, real(3, 5, 9), real(3, 5, 9), "without_replacement", requests=whole(3), positions=whole(3)
    ),
    "trees, iid": lambda: verify_random(TREES, 1, real(3, 5, 9), real(3, 5, 9), "iid", draft_logits=True),
    "coins given": lambda: verify_sampled(TREES, coins(1, whole(3), 4), real(3, 5, 9)),
    "ragged rows": lambda: verify_random(TREES, 1, [real(5, 9), real(4, 9), real(5, 9)]),
    "visibility": lambda: tree_visibility(whole(3, 4) - 1),
    "words": lambda: visible_words(whole(3, 70) - 1, length=whole(3)),
    "links": lambda: sibling_links(whole(3, 4) - 1),
    "mask": lambda: tree_mask(whole(3, 4) - 1, whole(3), "packed32", longest=7),
    "a rollout's nodes": lambda: rollout_visibility(batch(), 3),
    "noise": lambda: feature_noise(real(5, 3), whole(5, 1)),
    "rows of features": lambda: gather_rows(batch(), real(2, 8, 3), size=16),
    "warping": lambda: warp(real(3, 9), real(3), whole(3), real(3), real(3)),
    "proposing": lambda: propose(lambda path: real(*path.shape[:2], 9), [-1, -1, 0], "iid", 1, 2, device=META),
    "some of the moves": lambda: move_rows(real(9, 2), whole(3), whole(3), moves=flags(3)),
    "publication": lambda: publish(
        State(whole(3, 20), whole(7, 3), real(3, 20, 2), real(3, 20, 2), real(3, 20, 2)),
        Verified(whole(3, 5), whole(3, 5), None, None, real(3, 5, 2), flags(3, 5)),
        Decision(whole(3, 4), whole(3), whole(3)),
        Limits(whole(3, 2), whole(3)),
        "kept",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_stays_on_a_device(name: str) -> None:
    CALLS[name]()


def test_the_adapter_of_a_gpu_asks_for_all_that_the_one_of_a_cpu_does() -> None:
    from adapters import fast
    from adapters.interface import OPERATIONS

    assert [name for name in OPERATIONS if hasattr(fast.cuda, name)] == [n for n in OPERATIONS if hasattr(fast, n)]
    made = fast._on("meta", lambda values: torch.tensor(values))([1, 2])
    assert made.device == META
