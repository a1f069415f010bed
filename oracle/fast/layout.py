"""Where the rows of a rollout lie, in numbers that the host knows: documents, their runs, and what is left of a step.

Rows of a step are a block [B, S]. A document is what is causal in itself: one or several runs of rows that lie one
behind another. A run that ends with its tokens loses its last row with every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oracle.errors import BadInput


@dataclass(frozen=True)
class Document:
    """runs: (first row, rows) at step 0, in order. batch: the batch rows that have it, at the same rows each."""

    batch: slice
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Part:
    """A document at a step. keys: (first row, rows, place) of its rows of step 0, which lie `total` one behind another;
    queries: the same of those that have a node at the step."""

    batch: slice
    keys: tuple[tuple[int, int, int], ...]
    queries: tuple[tuple[int, int, int], ...]
    total: int


@dataclass(frozen=True)
class Layout:
    """length: S. shrinks: whether a run of n rows has n − s at step s, the first ones; else it has all at each step.
    absolute: whether the node at anchor a has row a + s of block s, and not row a. Raises `BadInput`."""

    length: int
    documents: tuple[Document, ...]
    shrinks: bool = False
    absolute: bool = False

    def __post_init__(self) -> None:
        taken: dict[tuple[object, object], list[tuple[int, int, int]]] = {}
        for i, document in enumerate(self.documents):
            for first, count in document.runs:
                if first < 0 or count < 1 or first + count > self.length:
                    raise BadInput("documents", (i,), f"a run lies in the {self.length} rows", (first, count))
                taken.setdefault((document.batch.start, document.batch.stop), []).append((first, first + count, i))
        for runs in taken.values():
            for (_, end, _), (first, _, i) in pairwise(sorted(runs)):
                if first < end:
                    raise BadInput("documents", (i,), "a row is of one document", first)
        if self.absolute and not self.shrinks:
            raise BadInput("absolute", (), "a run loses a row with every step where rows are absolute", self.absolute)

    @classmethod
    def packed(cls, lengths: Sequence[int], *, shrinks: bool = False, absolute: bool = False) -> Layout:
        """Documents of some lengths, one behind another in every batch row. Raises `BadInput`."""
        documents, first = [], 0
        for i, count in enumerate(lengths):
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise BadInput("lengths", (i,), "is a length", count)
            if count:
                documents.append(Document(slice(None), ((first, count),)))
            first += count
        return cls(first, tuple(documents), shrinks, absolute)

    def shift(self, step: int) -> int:
        """How far a row of a step is above its anchor."""
        return step * self.absolute

    def parts(self, step: int) -> Iterator[Part]:
        """The documents that have a node at the step."""
        lost = step * self.shrinks
        for document in self.documents:
            place, keys = 0, []
            for first, count in document.runs:
                keys.append((first, count, place))
                place += count
            queries = tuple((first, count - lost, at) for first, count, at in keys if count > lost)
            if len(keys) == 1:  # no node of the step sees what comes after the last of them
                keys, place = list(queries), place - lost
            if queries:
                yield Part(document.batch, tuple(keys), queries, place)

    def covers(self, step: int) -> bool:
        """Whether every row of the batch has a node at the step."""
        whole = all(document.batch == slice(None) for document in self.documents)
        rows = sum(count for document in self.documents for _, count in document.runs)
        return whole and rows == self.length and not step * self.shrinks

    def full(self, step: int) -> bool:
        """Whether that is one document."""
        return len(self.documents) == 1 and self.covers(step)
