"""What `bench/gpu.py` times: each fast path at a size that a GPU is asked for, with what it cannot leave out.

A task says how many bytes have to be read or written once, whatever the algorithm, and how many operations its matrix
products have; the time that these take at the card's own measured rates is its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.fast.acceptance import Drafts, verify_greedy, verify_random
from oracle.fast.attention import rollout_step_attention
from oracle.fast.losses import Headed, rollout_loss
from oracle.fast.moving import move_rows
from oracle.fast.rows import TokenBatch, soft_rows
from oracle.fast.tree import Candidates, keep_best


@dataclass(frozen=True)
class Task:
    """call: what is timed. size: in words. moved: bytes. products: multiplications and additions.

    captured: whether the call can be part of a CUDA graph: nothing of it waits for the host.
    """

    name: str
    size: str
    call: Callable[[], object]
    moved: float
    products: float = 0.0
    captured: bool = False


def tasks(device: torch.device, small: bool) -> list[Task]:
    """All of them; `small` for a dry run on a CPU."""
    return [
        *(losses(device, small, dtype) for dtype in (torch.float32, torch.bfloat16)),
        *(attention(device, small, dtype) for dtype in (torch.float32, torch.bfloat16)),
        rows(device, small),
        trees(device, small),
        *acceptance(device, small),
        moving(device, small),
    ]


def losses(device: torch.device, small: bool, dtype: torch.dtype) -> Task:
    """A rollout's loss from hidden states, forward and backward: three products a draft step, one for the target."""
    steps, count, width, size = (2, 64, 32, 500) if small else (3, 4096, 2048, 128256)
    draft = torch.randn(steps, count, width, device=device, dtype=dtype).requires_grad_()
    target = torch.randn(steps, count, width, device=device, dtype=dtype)
    head = torch.randn(size, width, device=device, dtype=dtype) / width**0.5
    supervise = torch.ones(steps, count, dtype=torch.bool, device=device)

    def call() -> Tensor:
        draft.grad = None
        made = rollout_loss(Headed(draft, head), Headed(target, head), supervise, validate=False)
        made.value.backward()  # type: ignore[no-untyped-call]
        return made.value

    products = steps * 3 * 2.0 * count * width * size
    moved = (draft.nbytes * 2 + target.nbytes + head.nbytes) * 1.0
    return Task(f"rollout_loss, {_told(dtype)}", f"T={steps} R={count} d={width} V={size}", call, moved, products)


def attention(device: torch.device, small: bool, dtype: torch.dtype) -> Task:
    """The last step of a rollout, forward and backward: seven products of half a square."""
    steps, heads, rows_, width = (2, 2, 64, 16) if small else (7, 16, 2048, 64)
    made = [torch.randn(1, heads, rows_, width, device=device, dtype=dtype) for _ in range(2 * steps + 1)]
    query, keys, values = made[0].requires_grad_(), made[1 : steps + 1], made[steps + 1 :]
    for tensor in (*keys, *values):
        tensor.requires_grad_()

    def call() -> Tensor:
        for tensor in made:
            tensor.grad = None
        found = rollout_step_attention(query, keys, values)
        found.sum().backward()  # type: ignore[no-untyped-call]
        return found

    products = 7 * 2.0 * heads * rows_ * rows_ / 2 * width
    size = f"T={steps} H={heads} S={rows_} d={width}"
    moved = 2.0 * sum(tensor.nbytes for tensor in made)
    return Task(f"rollout_step_attention, {_told(dtype)}", size, call, moved, products)


def rows(device: torch.device, small: bool) -> Task:
    """Planning of packed documents; every field of the batch and of the plan once."""
    batch, length, documents = (2, 64, 4) if small else (8, 4096, 8)
    segment = (torch.arange(length, device=device) * documents // length).expand(batch, length).contiguous()
    flags = torch.ones(batch, length, dtype=torch.bool, device=device)
    position = torch.arange(length, device=device).expand(batch, length).contiguous()
    tokens = torch.randint(1000, (batch, length), device=device)
    given = TokenBatch(tokens, flags, segment, position, flags)
    moved = batch * length * (3 * 8 + 2) + batch * length * (8 * 8 + 1.0)
    return Task(
        "soft_rows", f"B={batch} S={length}", lambda: soft_rows(given, size=batch * length), moved, captured=True
    )


def trees(device: torch.device, small: bool) -> Task:
    """Selection and layout of a batch of candidate trees; what is read and what is written once."""
    batch, width, depth, budget = (3, 3, 3, 8) if small else (64, 10, 7, 60)
    parents, depths = [-1] * width, [1] * width
    for level in range(1, depth):
        last = range(len(parents) - width * (width if level > 1 else 1), len(parents))
        grown = [one for one in list(last)[:width] for _ in range(width)]
        parents, depths = parents + grown, depths + [level + 1] * len(grown)
    count = len(parents)
    parent = torch.tensor(parents, device=device).expand(batch, count).contiguous()
    confidence = torch.rand(batch, count, device=device).clamp(min=1e-3) / width
    value = confidence.log()
    for node, above in enumerate(parents):
        if above >= 0:
            value[:, node] += value[:, above]
    token = torch.arange(count, device=device).expand(batch, count).contiguous()
    given = Candidates(
        *(parent, token, confidence, value, torch.tensor(depths, device=device).expand(batch, count).contiguous()),
        layered=True,
        deepest=depth,
    )
    moved = batch * (count * (8 * 3 + 4 * 2) + budget * (8 * 8 + budget + 8.0 * depth))
    return Task(
        "keep_best",
        f"B={batch} candidates={count} budget={budget}",
        lambda: keep_best(given, budget, validate=False, vectorised=True),
        moved,
        captured=True,
    )


def acceptance(device: torch.device, small: bool) -> list[Task]:
    """Chains from logits: of K + 1 rows, those up to the first rejection have to be normalised; all, where none is."""
    batch, drafted, size = (3, 2, 50) if small else (64, 5, 128256)
    token = torch.randint(size, (batch, drafted), device=device)
    target = torch.randn(batch, drafted + 1, size, device=device)
    draft = target[:, :drafted] + 0.3 * torch.randn(batch, drafted, size, device=device)
    drafts = Drafts(token)

    def sampled() -> object:
        return verify_random(
            *(drafts, 1, target, draft, "iid"), target_logits=True, draft_logits=True, validate=False, vectorised=True
        )

    words = f"B={batch} K={drafted} V={size}"
    # drafts drawn at random are rejected at once: a row of each law a request
    least = 2.0 * batch * size * target.element_size()
    return [
        Task(
            "verify_greedy",
            words,
            lambda: verify_greedy(drafts, target, validate=False, vectorised=True),
            least / 2,
            captured=True,
        ),
        Task("verify_random, from logits", words, sampled, least, captured=True),
    ]


def moving(device: torch.device, small: bool) -> Task:
    """Accepted rows of a KV pool moved to where they belong, read once and written once."""
    slots, width, moves = (64, 8, 16) if small else (65536, 8 * 128 * 2, 4096)
    pool = torch.randn(slots, width, device=device, dtype=torch.float32 if small else torch.bfloat16)
    order = torch.randperm(slots, device=device)
    source, destination = order[:moves], order[moves // 2 : moves // 2 + moves]
    return Task(
        "move_rows",
        f"slots={slots} width={width} moves={moves}",
        lambda: move_rows(pool, source, destination, validate=False),
        2.0 * moves * width * pool.element_size(),
        captured=True,
    )


def _told(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
