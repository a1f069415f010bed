"""Who sees whom among rows, without a square of them: a predicate, blocks of it, or documents in order.

A row sees itself and the earlier rows of its segment in its batch row (ROWS 502–505). Rows come in the order of their
addresses and positions increase within a segment, so "earlier" is the order of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oracle.errors import BadInput

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Documents:
    """Rows as documents, each of them causal: `order` int64 [R] puts them one behind another, None = they are already;
    `lengths`, of the documents in that order. Padding is a document a row."""

    order: Tensor | None
    lengths: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class RowVisibility:
    """batch, segment: int64 [R], of rows in the order of their addresses; a batch row of −1 is padding, which sees
    itself alone, and which nobody else sees."""

    batch: Tensor
    segment: Tensor

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def predicate(self) -> Predicate:
        """(b, h, query, key) → bool, a `mask_mod` of `torch.nn.attention.flex_attention`."""
        batch, segment = self.batch, self.segment

        def sees(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same = (batch[query] == batch[key]) & (segment[query] == segment[key]) & (batch[query] >= 0)
            return (same & (key <= query)) | (key == query)

        return sees

    def dense(self) -> Tensor:
        """bool [R, R], query × key."""
        row = torch.arange(len(self), device=self.batch.device)
        return self.predicate(row, row, row.unsqueeze(1), row.unsqueeze(0))

    def documents(self) -> Documents:
        """The rows by document, for attention that takes lengths. The host learns the lengths."""
        order, start = self._sorted
        places = start.nonzero().view(-1).tolist()
        ends = [*places[1:], len(self)]
        straight = bool((order[1:] > order[:-1]).all())
        return Documents(None if straight else order, tuple(end - place for place, end in zip(places, ends)))

    def block_mask(self, block: int = 128) -> BlockMask:
        """The predicate for `flex_attention`, with the blocks that it has to look at, made without looking at R · R
        pairs and without waiting for the device. Raises `BadInput`."""
        from torch.nn.attention.flex_attention import BlockMask

        if isinstance(block, bool) or not isinstance(block, int) or block < 1:
            raise BadInput("block", (), "is a whole number of at least 1", block)
        if not len(self):
            raise BadInput("block", (), "there are rows to make blocks of", 0)
        device, size = self.batch.device, -(-len(self) // block)
        group, first = self._groups
        last = len(self) - 1
        row = torch.arange(size * block, device=device).clamp_(max=last).view(size, block)
        reach = first[row].amin(1) // block
        least, most = group[row].aminmax(dim=1)
        alone = (least == most) & (self.batch[row].amin(1) >= 0)
        blocks = torch.arange(size, device=device)
        query, key = blocks.unsqueeze(1), blocks.unsqueeze(0)
        whole = (alone.unsqueeze(1) & alone & (least.unsqueeze(1) == least)) & (key < query)
        part = (key <= query) & (key >= reach.unsqueeze(1)) & ~whole
        (counts, places), (full_counts, full_places) = _indices(part), _indices(whole)
        return BlockMask.from_kv_blocks(
            counts[None, None],
            places[None, None],
            full_counts[None, None],
            full_places[None, None],
            BLOCK_SIZE=block,
            mask_mod=self.predicate,
            seq_lengths=(len(self), len(self)),
        )

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The rows by (batch, segment), padding last; and where a document starts in that order."""
        batch = torch.where(self.batch < 0, torch.iinfo(torch.int64).max, self.batch)
        order = self.segment.sort(stable=True).indices
        order = order.index_select(0, batch.index_select(0, order).sort(stable=True).indices)
        # documents by their first row, so that rows that lie document by document stay where they are
        start = self._starts(order)
        number = start.cumsum(0) - 1
        order = order.index_select(0, _first_of(order, number).sort(stable=True).indices)
        return order, self._starts(order)

    def _starts(self, order: Tensor) -> Tensor:
        batch, segment = self.batch.index_select(0, order), self.segment.index_select(0, order)
        start = torch.ones_like(order, dtype=torch.bool)
        start[1:] = (batch[1:] != batch[:-1]) | (segment[1:] != segment[:-1]) | (batch[1:] < 0)
        return start

    @cached_property
    def _groups(self) -> tuple[Tensor, Tensor]:
        """int64 [R] each: a number of the row's document, and the first row of it."""
        order, start = self._sorted
        number = start.cumsum(0) - 1
        group, first = torch.empty_like(order), torch.empty_like(order)
        group[order], first[order] = number, _first_of(order, number)
        return group, first


def _first_of(order: Tensor, number: Tensor) -> Tensor:
    """int64 [R]: the least row of each entry's document."""
    least = torch.full_like(order, len(order)).scatter_reduce_(0, number, order, "amin")
    return least.index_select(0, number)


def _indices(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Counts and places of flags [Q, K], as int32: the places that are set first, in order."""
    order = flags.to(torch.int8).sort(dim=1, descending=True, stable=True).indices
    return flags.sum(1, dtype=torch.int32), order.to(torch.int32)
