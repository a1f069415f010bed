"""What the `visibility` operations of all trainers share: values in, outputs of a trainer's own attention out.

A trainer rolls its drafter out over a batch, and its attention is watched: queries and keys are zeros, so that every
query scores every key alike, the value of each step and row is given, and what comes out for a row is the weighted sum
of what it sees. With a value of its own for every row, a one in a column, the output spells the weights, and a state is
seen where its weight is not 0. The loop, its masks, its caches and its softmax are the trainer's.

An adapter says how its batches are made (`Trainer`) and runs them; which rows they hold is read off what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.interface import NotApplicable
from adapters.samples import Sample, counted_from_zero, samples
from oracle.types import Attended, AttentionCase, Flags, Ids, RolloutCase, Rows, TokenBatch, VisibilityGraph

FILLER = 2.0**20
"""The value of a row without a node. A trainer's rows are finite, so it is; an output that holds it shows a leak."""


@dataclass(frozen=True)
class Document:
    """Addresses start … stop − 1 of a case, and their positions; they begin at a row of a batch row.

    count: how many rows it has: as many as tokens, or one less where a trainer cuts the last one off.
    """

    case: int
    start: int
    stop: int
    position: Ids
    batch: int
    row: int
    count: int

    @property
    def length(self) -> int:
        """Its number of tokens."""
        return self.stop - self.start

    @property
    def rows(self) -> slice:
        """Its rows."""
        return slice(self.row, self.row + self.count)

    def anchored(self, step: int, absolute: bool) -> list[tuple[int, int]]:
        """(row, anchor) of its rows at a step."""
        return [(self.row + k, self.start + k - step * absolute) for k in range(self.count)]


@dataclass(frozen=True)
class Seen:
    """What a rollout showed: output [T, B, N, W] of the attention, position [T, B, N] that it turned its queries and
    keys by, and which rows it kept, [T, B, N]."""

    output: Rows
    position: Ids
    kept: Flags


@dataclass(frozen=True)
class Trainer:
    """How a trainer's batches are made, and how they are run.

    attend: documents, steps, values [T, B, N, W] → what was seen. length: documents, steps → N. packs: whether all
    documents lie in one batch row; else each has its own, and a case is one document. cut: how many rows less than
    tokens a document has. absolute: its row anchor. counted: whether it counts positions itself.
    """

    attend: Callable[[Sequence[Document], int, Rows], Seen]
    length: Callable[[Sequence[Document], int], int]
    packs: bool = False
    cut: int = 0
    absolute: bool = False
    counted: bool = True


def longest(given: Sequence[Document], steps: int) -> int:
    """N of a batch whose documents are padded to the longest."""
    return max(document.length for document in given)


def visibility(trainer: Trainer, case: RolloutCase) -> VisibilityGraph:
    """The rows that a trainer keeps, and whom each gives weight to."""
    given, steps = documents(trainer, [case]), int(case.steps)
    rows = sum(document.count for document in given)
    value = np.zeros((steps, *_shape(trainer, given, steps), max(1, steps * rows)))
    column: dict[tuple[int, int, int], int] = {}
    for s in range(steps):
        for document in given:
            for n in range(document.rows.start, document.rows.stop):
                column[s, document.batch, n] = len(column)
                value[s, document.batch, n, column[s, document.batch, n]] = 1
    seen = trainer.attend(given, steps, value)
    nodes = _nodes(trainer, given, steps, seen.kept)
    columns = [column[s, b, n] for s, _, b, n in nodes]
    shown = [seen.output[s, b, n, columns] != 0 for s, _, b, n in nodes]
    return VisibilityGraph(
        step=np.array([s for s, _, _, _ in nodes], dtype=np.int64),
        anchor=np.array([a for _, a, _, _ in nodes], dtype=np.int64),
        position=np.array([seen.position[s, b, n] for s, _, b, n in nodes], dtype=np.int64),
        visible=np.array(shown, dtype=bool).reshape(len(nodes), len(nodes)),
    )


def attention(trainer: Trainer, cases: Sequence[AttentionCase]) -> list[Attended]:
    """Each case's outputs; cases of the same number of steps share a batch, their values padded to one width."""
    found: dict[int, Attended] = {}
    for steps in dict.fromkeys(int(case.rollout.steps) for case in cases):
        chosen = [i for i, case in enumerate(cases) if int(case.rollout.steps) == steps]
        given = documents(trainer, [cases[i].rollout for i in chosen])
        values = [_values(cases[i]) for i in chosen]
        width = max(v.shape[2] for v in values)
        value = np.full((steps, *_shape(trainer, given, steps), width), FILLER)
        for document in given:
            own = values[document.case]
            for s in range(steps):
                for n, a in document.anchored(s, trainer.absolute):
                    if document.start <= a and a + s + 1 < document.stop:
                        value[s, document.batch, n, : own.shape[2]] = own[s, a]
        seen = trainer.attend(given, steps, value)
        for k, i in enumerate(chosen):
            nodes = _nodes(trainer, [d for d in given if d.case == k], steps, seen.kept)
            d = values[k].shape[2]
            rows = [seen.output[s, b, n, :d] for s, _, b, n in nodes]
            found[i] = Attended(
                step=np.array([s for s, _, _, _ in nodes], dtype=np.int64),
                anchor=np.array([a for _, a, _, _ in nodes], dtype=np.int64),
                output=np.array(rows, dtype=np.float64).reshape(len(nodes), d),
            )
    return [found[i] for i in range(len(cases))]


def documents(trainer: Trainer, cases: Sequence[RolloutCase]) -> list[Document]:
    """The documents of some cases; `NotApplicable` for what a trainer's samples cannot say."""
    found: list[Document] = []
    row = 0
    for c, case in enumerate(cases):
        if case.steps < 1:
            raise NotApplicable("a rollout of no steps has no loss")
        batch = token_batch(case)
        own = samples(batch)
        if not own:
            raise NotApplicable("a batch holds tokens")
        if not trainer.packs and len(own) > 1:
            raise NotApplicable("a row of its batch is one sample: the trainer packs nothing")
        if trainer.counted:
            counted_from_zero(batch, own)
        for sample in own:
            place = (0, row) if trainer.packs else (len(found), 0)
            count = sample.length - trainer.cut
            found.append(Document(c, sample.start, sample.stop, batch.position[0, sample.addresses], *place, count))
            row += count
    return found


def token_batch(case: RolloutCase) -> TokenBatch:
    """A case as a batch of one row."""
    position = np.arange(case.length) if case.position is None else np.asarray(case.position)
    valid = np.asarray(case.valid)
    tokens = np.zeros((1, case.length), dtype=np.int64)
    return TokenBatch(tokens, valid[None], np.asarray(case.segment)[None], position[None], valid[None])


def as_samples(given: Sequence[Document]) -> list[Sample]:
    """Documents as the samples 0 … length − 1 of a batch row each."""
    return [Sample(i, 0, document.length) for i, document in enumerate(given)]


def placed(blocks: Sequence[Flags], given: Sequence[Document], rows: int, length: int) -> Flags:
    """Masks of a case's steps as its `rollout_mask`: bool [T, length, T · length].

    blocks: the mask of each step, rows × (s + 1) · rows; one of another size raises `ValueError`. Rows of documents go
    to their addresses; what is no document's has no row, and sees and is seen by nobody.
    """
    steps = len(blocks)
    mask = np.zeros((steps, length, steps, length), dtype=bool)
    for s, block in enumerate(blocks):
        parts = block.reshape(rows, s + 1, rows)
        for query in given:
            for key in given:
                seen = slice(key.start, key.start + key.count)
                mask[s, query.start : query.start + query.count, : s + 1, seen] = parts[query.rows, :, key.rows]
    return mask.reshape(steps, length, steps * length)


@contextmanager
def probed(attention: Any, value: Sequence[Any] | Callable[[Any], Any]) -> Iterator[list[Any]]:
    """While it lasts, an attention's queries and keys are zeros and its values those given; yields its outputs.

    value: a tensor for each call, or what makes one of the projection's input. An output is what `o_proj` is fed.
    """
    outputs: list[Any] = []
    waiting = value if callable(value) else _handing_out(value)

    def zeros(projection: Any) -> Callable[[Any], Any]:
        return lambda fed: fed.new_zeros((*fed.shape[:-1], projection.out_features))

    attention.q_proj.forward, attention.k_proj.forward = zeros(attention.q_proj), zeros(attention.k_proj)
    attention.v_proj.forward = waiting
    hook = attention.o_proj.register_forward_pre_hook(lambda _, fed: outputs.append(fed[0].detach()))
    try:
        yield outputs
    finally:
        hook.remove()
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            del projection.forward


def widened(torch: Any, value: Rows, multiple: int = 16) -> Any:
    """Values as a float32 tensor whose width is a multiple: few widths, few models."""
    missing = -value.shape[-1] % multiple
    return torch.nn.functional.pad(torch.tensor(value, dtype=torch.float32), (0, missing))


def stacked(outputs: Sequence[Any], positions: Sequence[Any], kept: Flags, value: Rows) -> Seen:
    """Tensors a step as `Seen`; positions [1 or B, N], kept [B, N] or [T, B, N]."""
    shape = value.shape[:3]
    output = np.stack([one.double().numpy()[..., : value.shape[3]] for one in outputs])
    position = np.broadcast_to(np.stack([one.numpy() for one in positions]), shape).astype(np.int64)
    return Seen(output, position, np.broadcast_to(kept, shape))


def _values(case: AttentionCase) -> Rows:
    value, shape = np.asarray(case.value), (int(case.rollout.steps), int(case.rollout.length))
    if value.ndim != 3 or value.shape[:2] != shape:
        raise NotApplicable(f"values {list(value.shape)} are not those of the rows of {list(shape)}")
    return value


def _handing_out(value: Sequence[Any]) -> Callable[[Any], Any]:
    left = iter(value)
    return lambda fed: next(left)


def _shape(trainer: Trainer, given: Sequence[Document], steps: int) -> tuple[int, int]:
    return max(document.batch for document in given) + 1, trainer.length(given, steps)


def _nodes(trainer: Trainer, given: Sequence[Document], steps: int, kept: Flags) -> list[tuple[int, int, int, int]]:
    """(step, anchor, batch row, row) of every row that is kept, by step and anchor."""
    return sorted(
        (s, a, document.batch, n)
        for s in range(steps)
        for document in given
        for n, a in document.anchored(s, trainer.absolute)
        if kept[s, document.batch, n]
    )
