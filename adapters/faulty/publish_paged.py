"""Paged storage with one fault each: moves, page edges, tables, shared blocks, and what a failure leaves.

The right store is the reference's (`oracle.paged`), which the flat oracle judges; a fault overrides one of its steps.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from adapters.interface import Declaration
from oracle import paged
from oracle.blocks import DRAFT, FEATURE, KV, Work
from oracle.publication import Round
from oracle.types import CommittedState, PublishCase


class Stored:
    """Publishes through a store of its own kind; a fault names the store, and says whether it can be interrupted."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    store: ClassVar[type[paged.Store]] = paged.Store
    block_size: ClassVar[int]
    interrupted_publish: ClassVar[Any] = None

    def __init_subclass__(cls, block_size: int = 4) -> None:
        cls.block_size = block_size
        cost = dict.fromkeys(("publish", "interrupted_publish"), 1e-3)
        cls.DECLARATION = Declaration(cls.__name__, "1.0", cost=cost)

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        store, turns = paged.loaded(cls.store, cases, cls.block_size, "recomputed")
        return store.publish(turns)


class Interruptible(Stored):
    """One whose publication can be made to fail."""

    @classmethod
    def interrupted_publish(cls, cases: Sequence[PublishCase], step: int) -> list[CommittedState] | None:
        store, turns = paged.loaded(cls.store, cases, cls.block_size, "recomputed")
        return paged.interrupted(store, turns, step, "recomputed")


# ---- moves and places


class MovesKvInPathOrder(Stored):
    """Moves KV in the order of the path, over rows that are still to be moved."""

    refutes = "PUBLISH-305"

    class store(paged.Store):
        def gather(self, table: list[int], kinds: Sequence[int], moves: dict[int, int]) -> None:
            for to, source in moves.items() if KV in kinds else ():
                self.write(KV, self.slot(table, to), self.read(KV, self.slot(table, source)))
            super().gather(table, [kind for kind in kinds if kind != KV], moves)


class MovesFeaturesBackwards(Stored):
    """Moves features last row first, over rows that are still to be moved."""

    refutes = "PUBLISH-402"

    class store(paged.Store):
        def gather(self, table: list[int], kinds: Sequence[int], moves: dict[int, int]) -> None:
            for to, source in reversed(moves.items()) if FEATURE in kinds else ():
                self.write(FEATURE, self.slot(table, to), self.read(FEATURE, self.slot(table, source)))
            super().gather(table, [kind for kind in kinds if kind != FEATURE], moves)


class PageEdgeOffByOne(Stored):
    """Moves KV that belongs to the first place of a block into the block before it."""

    refutes = "PUBLISH-303"

    class store(paged.Store):
        def gather(self, table: list[int], kinds: Sequence[int], moves: dict[int, int]) -> None:
            before = self.slots[KV].copy()
            super().gather(table, kinds, moves)
            for to, source in moves.items() if KV in kinds else ():
                if to % self.block_size == 0 and 0 < to != source:
                    self.slots[KV, self.slot(table, to)] = before[self.slot(table, to)]
                    self.slots[KV, self.slot(table, to - 1)] = before[self.slot(table, source)]


class PadsWithTheFirstSlot(Stored):
    """Writes the KV of padding to the first slot of the table, which is no place for it (vllm-project/vllm#32628)."""

    refutes = "PUBLISH-305"

    class store(paged.Store):
        def append(self, table: list[int], start: int, found: Round) -> None:
            super().append(table, start, found)
            held = set(found.rows.values())
            for row in range(len(found.row_kv)):
                if row not in held:
                    self.write(KV, self.slot(table, 0), found.row_kv[row])


class AnotherBlockSizeForDraftRows(Stored):
    """Finds the slots of new draft rows with the block size of another pool (vllm-project/vllm#31540)."""

    refutes = "PUBLISH-802"

    class store(paged.Store):
        def draft(self, table: list[int], start: int, drafts: int, found: Round) -> None:
            for place in range(drafts, drafts + len(found.new)):
                value = self.read(FEATURE, self.slot(table, place))
                wrong = place // 3 * 4 + place % 3
                if wrong // 4 < len(table):
                    self.write(DRAFT, self.slot(table, max(wrong, drafts)), value)


class GivesBackWholeBlocks(Stored):
    """Gives back the rejected rows of blocks that nothing accepted is left in, and forgets the others."""

    refutes = "PUBLISH-701"

    class store(paged.Store):
        def publish_one(self, work: Work, name: str, found: Round) -> None:
            start = work.requests[name].length
            super().publish_one(work, name, found)
            request = work.requests[name]
            first = len(request.blocks) * self.block_size  # what stands behind the last block held
            whole = {kv for row, kv in enumerate(found.row_kv) if start + row >= first}
            freed = tuple(kv for kv in request.freed if kv in whole)
            work.requests[name] = dataclasses.replace(request, freed=freed)


class TableOfTheFirstMember(Stored):
    """Looks up the source of a move in the table of the batch's first member (NVIDIA/TensorRT-LLM#3456)."""

    refutes = "PUBLISH-901"

    class store(paged.Store):
        first: list[int] | None = None

        def gather(self, table: list[int], kinds: Sequence[int], moves: dict[int, int]) -> None:
            first = self.first = table if self.first is None else self.first
            super().gather(table, kinds, moves)
            reaches = self.blocks_for(max(moves.values(), default=0) + 1) <= len(first)
            for to, source in moves.items() if KV in kinds and reaches and table is not first else ():
                if to != source:
                    self.write(KV, self.slot(table, to), self.read(KV, self.slot(first, source)))


class WritesSharedBlocksInPlace(Stored, block_size=2):
    """Writes into a block that another request holds, too, without making a copy of its own."""

    refutes = "PUBLISH-1106"

    class store(paged.Store):
        def writable(self, work: Work, request: Any, first: int) -> list[int]:
            return list(request.blocks)


# ---- failures


class CommitsMemberByMember(Interruptible):
    """Makes the round of each member count as soon as it is done."""

    refutes = "PUBLISH-1201"

    class store(paged.Store):
        def publish_one(self, work: Work, name: str, found: Round) -> None:
            super().publish_one(work, name, found)
            self.commit(work)


class SwapsTheTableFirst(Interruptible):
    """Swaps in the new tables and lengths, and moves the rows afterwards."""

    refutes = "PUBLISH-1201"

    class store(paged.Store):
        def publish(self, turns: Sequence[paged.Turn], draft_kv: str = "recomputed") -> list[CommittedState]:
            if self.failing is None:
                return super().publish(turns, draft_kv)
            done = copy.deepcopy(self)
            done.fail_at(None)
            states = done.publish(turns, draft_kv)
            self.change()
            self.catalogue = done.catalogue
            for kind, slot in np.argwhere(self.slots != done.slots).tolist():
                self.write(kind, slot, done.read(kind, slot))
            return states


class UndoLogWithoutDraftRows(Interruptible):
    """Writes into committed rows and restores KV and features after a failure, but not the drafter's rows."""

    refutes = "PUBLISH-1201"

    class store(paged.Store):
        def draft(self, table: list[int], start: int, drafts: int, found: Round) -> None:
            held = [self.slot(table, place) for place in range(drafts)]
            kept = [self.read(DRAFT, slot) for slot in held]
            for slot in held[-1:]:  # put aside while the rows behind it are written
                self.write(DRAFT, slot, float("nan"))
            super().draft(table, start, drafts, found)
            for slot, row in zip(held[-1:], kept[-1:]):
                self.write(DRAFT, slot, row)


class LeavesTheLengthOfAFailedRound(Interruptible):
    """Counts the rows of a verification as held while it runs, and takes them off only where it comes to its end."""

    refutes = "PUBLISH-1201"

    class store(paged.Store):
        def append(self, table: list[int], start: int, found: Round) -> None:
            for name, request in self.catalogue.requests.items():
                if request.length == start and tuple(table[: len(request.blocks)]) == request.blocks:
                    longer = dataclasses.replace(request, blocks=tuple(table), length=start + len(found.row_kv))
                    held = {**self.catalogue.requests, name: longer}
                    self.catalogue = dataclasses.replace(self.catalogue, requests=held)
                    break
            super().append(table, start, found)


class TakesAFailedRoundForPublished(Interruptible):
    """Notes a round as published when it begins, and refuses the one that comes after a failure."""

    refutes = "PUBLISH-1202"
    begun: ClassVar[list[bytes]] = []

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        begun, cls.begun = cls.begun, []
        if begun and begun == [case.verified.kv.tobytes() for case in cases]:
            raise RuntimeError("this round was published before")
        return super().publish(cases)

    @classmethod
    def interrupted_publish(cls, cases: Sequence[PublishCase], step: int) -> list[CommittedState] | None:
        found = super().interrupted_publish(cases, step)
        cls.begun = [] if found is None else [case.verified.kv.tobytes() for case in cases]
        return found


class TemporaryRowsStayAfterAFailure(Interruptible):
    """Keeps what a failed round appended, and finds it before the rows of the next one."""

    refutes = "PUBLISH-1202"
    left: ClassVar[int] = 0

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        states, left, cls.left = super().publish(cases), cls.left, 0
        if not left:
            return states
        return [dataclasses.replace(s, kv=np.append(s.kv, c.verified.kv[:1])) for s, c in zip(states, cases)]

    @classmethod
    def interrupted_publish(cls, cases: Sequence[PublishCase], step: int) -> list[CommittedState] | None:
        found = super().interrupted_publish(cases, step)
        cls.left = 0 if found is None else step
        return found
