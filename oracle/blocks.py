"""Blocks of slots that requests hold rows in, and the catalogue that says who holds which: one swap changes it.

A change that fails must not be undone by code that may fail, too. So nothing is undone: a transaction writes to slots
that no request reaches, works on a catalogue of its own, and counts only from the moment its catalogue takes the place
of the old one. A failure before that moment leaves a catalogue that nobody reads, and with it the blocks it had taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import whole

KV, FEATURE, DRAFT = 0, 1, 2
"""What a slot holds, a number each: the target's KV and feature of a token, the drafter's row of the token after it."""
SCRATCH = -1
"""The place beside all blocks that a cycle of moves goes through."""


class OutOfBlocks(RuntimeError):
    """There are not as many free blocks as a transaction needs; it changed nothing."""


class Interrupted(RuntimeError):
    """The failure that was asked for (`Pool.fail_at`)."""


@dataclass(frozen=True)
class Request:
    """What is known of a request beside its rows.

    blocks: its table, the block of each `block_size` places in turn. length: places with KV and a feature. drafts:
    places with a drafter's row, or None where it keeps none. The others are those of `CommittedState`.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    blocks: tuple[int, ...]
    length: int
    drafts: int | None
    pending: int | None
    finished: bool
    seed: float | None
    freed: tuple[float, ...]
    finish_reason: str | None


@dataclass(frozen=True)
class Catalogue:
    """Requests by name, free blocks, handed out from the end, and how many tables hold each other block."""

    requests: Mapping[str, Request]
    free: tuple[int, ...]
    holders: Mapping[int, int]


class Work:
    """A catalogue in the making. Each block taken, shared or given back is one change."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.requests = dict(pool.catalogue.requests)
        self.free = list(pool.catalogue.free)
        self.holders = Counter(pool.catalogue.holders)

    def take(self) -> int:
        """A free block; `OutOfBlocks` where there is none."""
        if not self.free:
            raise OutOfBlocks(f"all {self.pool.blocks} blocks of {self.pool.block_size} slots are held")
        self.pool.change()
        block = self.free.pop()
        self.holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more table holds the block."""
        self.pool.change()
        self.holders[block] += 1

    def give(self, block: int) -> None:
        """One table less holds the block; the last one frees it."""
        self.pool.change()
        self.holders[block] -= 1
        if not self.holders[block]:
            del self.holders[block]
            self.free.append(block)


class Pool:
    """`blocks` blocks of `block_size` slots, a failure at any change on demand, and what requests hold."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.blocks = whole(blocks, "blocks", 0)
        self.block_size = whole(block_size, "block_size", 1)
        self.slots = np.full((3, blocks * block_size + 1), np.nan)  # the last one is the scratch slot
        # handed out in no order, so that a table is not taken for the numbers after its first block
        scattered = sorted(range(blocks), key=lambda block: (block * 37 % 11, -block))
        self.catalogue = Catalogue({}, tuple(scattered), {})
        self.changes = 0
        self.failing: int | None = None

    def fail_at(self, step: int | None) -> None:
        """Raise `Interrupted` at the step-th (0, 1, …) change from now on; None: never."""
        self.changes, self.failing = 0, step

    def change(self) -> None:
        """Called before each change: a slot written, a block taken, shared or given, the catalogue swapped."""
        if self.changes == self.failing:
            raise Interrupted(f"at change {self.changes}")
        self.changes += 1

    # ---- slots

    def slot(self, table: Mapping[int, int] | tuple[int, ...] | list[int], place: int) -> int:
        """The slot of a place in a request's table."""
        if place == SCRATCH:
            return self.blocks * self.block_size
        return table[place // self.block_size] * self.block_size + place % self.block_size

    def blocks_for(self, places: int) -> int:
        """How many blocks as many places take."""
        return -(-places // self.block_size)

    def read(self, kind: int, slot: int) -> float:
        """What a slot holds."""
        return float(self.slots[kind, slot])

    def write(self, kind: int, slot: int, value: float) -> None:
        """Change what a slot holds."""
        self.change()
        self.slots[kind, slot] = value

    # ---- transactions

    def begin(self) -> Work:
        """A catalogue to work on."""
        return Work(self)

    def commit(self, work: Work) -> None:
        """The one step that makes a transaction count."""
        made = Catalogue(dict(work.requests), tuple(work.free), dict(work.holders))
        self.change()
        self.catalogue = made

    def request(self, name: str) -> Request:
        """What is known of a request; `BadInput` where there is none of that name."""
        if name not in self.catalogue.requests:
            raise BadInput("name", (), "is a request that the store holds", name)
        return self.catalogue.requests[name]

    # ---- what must agree

    def allocated(self) -> Counter[int]:
        """Blocks that are not free, and how many tables are said to hold them."""
        free = set(self.catalogue.free)
        return Counter(
            {block: self.catalogue.holders.get(block, 0) for block in range(self.blocks) if block not in free}
        )

    def reachable(self) -> Counter[int]:
        """Blocks in the tables of requests, and in how many."""
        return Counter(block for request in self.catalogue.requests.values() for block in request.blocks)
