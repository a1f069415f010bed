"""Experts that a verification touches: candidate rows of an MoE target are routed each for itself, and weights are read
for the union of them, where decoding one token after the other reads those of one row at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.metrics import ratio
from oracle.tensors import listed, tensor, whole
from oracle.types import Flags, Ids


@dataclass(frozen=True)
class ExpertReads:
    """By layer, how many experts' weights are read.

    verification: the experts of all rows of a round together, each once. sequential: those of the rows that a decode
    without drafts would have run, too, row by row, an expert as often as a row calls for it.
    """

    verification: tuple[int, ...]
    sequential: tuple[int, ...]

    @property
    def factor(self) -> tuple[float | None, ...]:
        """By layer: verification / sequential; None where no row was kept."""
        return tuple(map(ratio, self.verification, self.sequential))


def experts_touched(routed: Ids, experts: int, kept: Flags, rows: Flags | None = None) -> ExpertReads:
    """The experts of one verification. Raises `BadInput`.

    routed: int [L, R, k], the experts of each row in each layer, distinct ids in [0, experts). kept: bool [R], the root
    row and the accepted nodes that the stop cut leaves. rows: bool [R], the rows that are no padding, all by default;
    padding is not read.
    """
    ids = tensor(routed, "routed", "iu", ("L", "R", "k"))
    layers, size, _ = ids.shape
    count = whole(experts, "experts", 1)
    real = np.ones(size, dtype=bool) if rows is None else tensor(rows, "rows", "b", (size,))
    stays = tensor(kept, "kept", "b", (size,))
    for r in np.flatnonzero(stays & ~real)[:1].tolist():
        raise BadInput("kept", (r,), "a row of padding is not kept", True)
    verification, sequential = [], []
    for layer in range(layers):
        seen: set[int] = set()
        one_by_one = 0
        for r in np.flatnonzero(real).tolist():
            called = [int(e) for e in ids[layer, r]]
            for j, expert in enumerate(called):
                if not 0 <= expert < count:
                    raise BadInput("routed", (layer, r, j), f"an expert's id lies in [0, {count})", expert)
                if expert in called[:j]:
                    raise BadInput("routed", (layer, r, j), "a row calls an expert once", expert)
            seen.update(called)
            one_by_one += len(called) if stays[r] else 0
        verification.append(len(seen))
        sequential.append(one_by_one)
    return ExpertReads(tuple(verification), tuple(sequential))


def add_reads(parts: Sequence[ExpertReads]) -> ExpertReads:
    """The reads of several verifications of one model, layer by layer. Raises `BadInput`."""
    listed(parts, "parts", ExpertReads)
    for i, part in enumerate(parts):
        if len(part.verification) != len(parts[0].verification):
            raise BadInput(f"parts[{i}]", (), "all parts have the same layers", len(part.verification))
    return ExpertReads(
        tuple(map(sum, zip(*(part.verification for part in parts)))),
        tuple(map(sum, zip(*(part.sequential for part in parts)))),
    )
