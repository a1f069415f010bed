"""Right publications through paged storage that do it in another way: odd blocks, copies of everything, no sharing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapters.faulty.publish_paged import Interruptible
from oracle import paged
from oracle.blocks import Request, Work


class SevenSlots(Interruptible, block_size=7):
    """Blocks whose size is no power of two."""


class CopiesEverything(Interruptible, block_size=2):
    """Copies all rows of a request into fresh blocks before it appends to them."""

    class store(paged.Store):
        def __init__(self, blocks: int, block_size: int) -> None:
            super().__init__(3 * blocks, block_size)

        def writable(self, work: Work, request: Request, first: int) -> list[int]:
            for block in request.blocks:
                work.share(block)
            table = super().writable(work, request, 0)
            for block in request.blocks:
                work.give(block)
            return table


class SharesNothing(Interruptible):
    """Gives every request blocks of its own, whatever prefix others have."""

    class store(paged.Store):
        def _places(self, request: Request) -> list[tuple[int, float, float, float | None]]:
            return []


class MovesFromACopy(Interruptible):
    """Reads all rows that move before it writes one, and so needs no order."""

    class store(paged.Store):
        def gather(self, table: list[int], kinds: Sequence[int], moves: Mapping[int, int]) -> None:
            for kind in kinds:
                held = [self.read(kind, self.slot(table, source)) for source in moves.values()]
                for to, value in zip(moves, held):
                    self.write(kind, self.slot(table, to), value)
