"""Who sees whom in a rollout (HASS, training-time test), in torch: which nodes there are, a predicate, and a layout.

Node (s, a) is step s at anchor a. It sees the nodes of step 0 of its segment up to its anchor, and those of later steps
up to its own at its own anchor alone (VISIBILITY 4xx, 5xx). Which nodes exist is one flag for each step and address;
everything else is said without a square of rows, and is made dense only when asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.layout import Document, Layout
from oracle.fast.rows import TokenBatch, View
from oracle.words import ROW_ANCHORS

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class RolloutNodes:
    """Nodes ordered by (step, batch, anchor): vectors int64 [N]; a node stands at the position of its anchor plus its
    step."""

    step: Tensor
    batch: Tensor
    anchor: Tensor
    position: Tensor


@dataclass(frozen=True, eq=False)
class RolloutVisibility:
    """exists: bool [T, B, S], whether there is the node of a step at an anchor. segment, position: int64 [B, S]."""

    exists: Tensor
    segment: Tensor
    position: Tensor

    def nodes(self) -> RolloutNodes:
        """The nodes, one after another; the host learns how many there are."""
        step, batch, anchor = self.exists.nonzero(as_tuple=True)
        return RolloutNodes(step, batch, anchor, self.position[batch, anchor] + step)

    def dense(self) -> Tensor:
        """bool [N, N], query × key: who sees whom among the nodes. The host learns how many there are."""
        step, batch, anchor = self.exists.nonzero(as_tuple=True)
        query = (step.unsqueeze(1), batch.unsqueeze(1), anchor.unsqueeze(1))
        return self._sees(*query, step, anchor) & (query[1] == batch)

    def predicate(self, row_anchor: str = "start", step: int | None = None) -> Predicate:
        """(b, h, query, key) → bool, a `mask_mod` of `torch.nn.attention.flex_attention`.

        Rows of a step are a block of S, and blocks lie one behind another: T · S keys, and as many queries, or the S of
        one step. The node at anchor a has row a of its step's block ("start"), or a + its step ("absolute"). A row
        without a node sees nothing, and nobody sees it. Raises `BadInput`.
        """
        shift = _shift(row_anchor)
        steps, _, length = self.exists.shape
        if step is not None and (isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < steps):
            raise BadInput("step", (), f"is None, or one of the {steps} steps", step)
        first = 0 if step is None else step * length

        def sees(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
            query = query + first
            s, t = query // length, key // length
            a, c = query % length - s * shift, key % length - t * shift
            inside = (a >= 0) & (c >= 0)
            return inside & self._sees(s, b, a.clamp(min=0), t, c.clamp(min=0))

        return sees

    @cached_property
    def _runs(self) -> list[Document]:
        """Documents in the order of their first rows; what a segment holds in several runs is one document."""
        exists = self.exists[0].cpu().numpy()
        segment = self.segment.cpu().numpy()
        edge = np.diff(exists.astype(np.int8), axis=1, prepend=0, append=0)
        batch, start = np.nonzero(edge > 0)
        stop = np.nonzero(edge < 0)[1]
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        named = segment[batch, start].tolist()
        for b, name, first, last in zip(batch.tolist(), named, start.tolist(), stop.tolist()):
            found.setdefault((b, name), []).append((first, last - first))
        return [Document(slice(b, b + 1), tuple(runs)) for (b, _), runs in found.items()]

    def layout(self, row_anchor: str = "start") -> Layout:
        """The compact form: documents, and which of their rows exist at each step. The host learns the lengths.

        Raises `BadInput`.
        """
        _, _, length = self.exists.shape
        return Layout(length, tuple(self._runs), absolute=bool(_shift(row_anchor)), shrinks=True)

    def _sees(self, s: Tensor, b: Tensor, a: Tensor, t: Tensor, c: Tensor) -> Tensor:
        """Whether node (s, a) sees node (t, c), both of batch row b."""
        both = self.exists[s, b, a] & self.exists[t, b, c]
        causal = (t == 0) & (c <= a) & (self.segment[b, a] == self.segment[b, c])
        own = (t > 0) & (t <= s) & (c == a)
        return both & (causal | own)


def rollout_visibility(batch: TokenBatch, steps: int, *, validate: bool | None = None) -> RolloutVisibility:
    """Which nodes a rollout of `steps` ≥ 1 steps has, step 0 included, and who sees whom (VISIBILITY 2xx–6xx).

    Node (s, a) exists where a … a+s+1 are valid and in one segment. Of the batch, tokens and supervision take no part;
    only `valid` is read at an invalid address. validate: whether positions are looked at; None = on a CPU alone.
    Nothing waits for the device then. Raises `BadInput`.
    """
    return RolloutVisibility(View(batch, validate).nodes(steps), batch.segment, batch.position)


def rollout_mask(visibility: RolloutVisibility, row_anchor: str = "start") -> Tensor:
    """The dense mask, bool [B, T, S, T · S], step × row × (key step, key row), where nothing smaller will do.

    Rows without a node see nothing, and nobody sees them (VISIBILITY 7xx). Raises `BadInput`.
    """
    steps, rows, length = visibility.exists.shape
    row = torch.arange(steps * length, device=visibility.exists.device)
    batch = torch.arange(rows, device=row.device).view(-1, 1, 1)
    seen = visibility.predicate(row_anchor)(batch, batch, row.unsqueeze(1), row)
    return seen.view(rows, steps, length, steps * length)


def _shift(row_anchor: str) -> int:
    """By how much a row of a step is above its anchor, for each step."""
    if not isinstance(row_anchor, str) or row_anchor not in ROW_ANCHORS:
        raise BadInput("row_anchor", (), f"is one of {', '.join(ROW_ANCHORS)}", row_anchor)
    return ROW_ANCHORS.index(row_anchor)
