"""A batch as the samples that a trainer's collator takes: one document each, without padding, without holes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adapters.interface import NotApplicable
from oracle.types import Flags, TokenBatch


@dataclass(frozen=True)
class Sample:
    """The document at addresses start … stop − 1 of a batch row."""

    batch: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Its number of tokens."""
        return self.stop - self.start

    @property
    def addresses(self) -> slice:
        """Its addresses in its batch row."""
        return slice(self.start, self.stop)


def samples(batch: TokenBatch) -> list[Sample]:
    """The documents of a batch, in order; `NotApplicable` where the batch is not made of documents.

    A sample is a list of tokens, so a segment with a hole in it, and one that another segment interrupts, is none.
    """
    kinds = {"tokens": "iu", "valid": "b", "segment": "iu", "position": "iu", "supervise": "b"}
    arrays = {name: np.asarray(getattr(batch, name)) for name in kinds}
    shape = arrays["tokens"].shape
    if len(shape) != 2 or any(a.shape != shape or a.dtype.kind not in kinds[name] for name, a in arrays.items()):
        raise NotApplicable("a collator takes samples: arrays that do not fit each other are no list of samples")
    valid, segment = arrays["valid"], arrays["segment"]
    found: list[Sample] = []
    for b in range(valid.shape[0]):
        seen: set[int] = set()
        start = 0
        for t in range(valid.shape[1] + 1):
            inside = t < valid.shape[1] and t > start and valid[b, t] and segment[b, t] == segment[b, start]
            if inside and valid[b, start]:
                continue
            if t > start and valid[b, start]:
                if int(segment[b, start]) in seen:
                    raise NotApplicable("a sample is contiguous: the trainer has no notion of a hole in a document")
                seen.add(int(segment[b, start]))
                found.append(Sample(b, start, t))
            start = t
    return found


def counted_from_zero(batch: TokenBatch, found: list[Sample]) -> None:
    """`NotApplicable` unless each document's positions are 0, 1, 2, …, as a trainer that makes its own has them."""
    for sample in found:
        if not np.array_equal(batch.position[sample.batch, sample.addresses], np.arange(sample.length)):
            raise NotApplicable("the trainer counts positions itself, from the first token of each document")


def advanced_mask(batch: TokenBatch, found: list[Sample]) -> Flags:
    """The token mask whose flags, each owned by the advanced token, supervise the sources that the batch says.

    The flag of a document's first token, which no row owns, is set: a trainer that reads it shows it.
    """
    mask = np.zeros(batch.valid.shape, dtype=bool)
    for sample in found:
        mask[sample.batch, sample.start] = True
        mask[sample.batch, sample.start + 1 : sample.stop] = batch.supervise[
            sample.batch, sample.start : sample.stop - 1
        ]
    return mask
