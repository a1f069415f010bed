"""Documents packed into rows of a fixed number, straight from their tensors, into buffers that are used again.

Each document gives its soft rows (`oracle.fast.rows`), one document behind another; what no longer fits is left out,
and padding stands behind. Where a document starts the host knows, so nothing is searched for and no number is looked
at but flags. A buffer that is used again costs no allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.row_visibility import RowVisibility
from oracle.words import OWNERS


@dataclass(frozen=True, eq=False)
class Document:
    """One document of L tokens: tokens int64 [L], mask bool [L], a flag a token, both on a CPU; features [L, D], what
    the drafter is fed, and states [L, d], what its targets are made of, of any floating-point dtype and device."""

    tokens: Tensor
    features: Tensor
    states: Tensor
    mask: Tensor


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows of documents, [S] each: feature [S, D] = f[t], token int64 = x[t+1], target [S, d] = f[t+1], supervise bool,
    position int64 = t, document int64, −1 = padding. Rows of padding hold zeros and −1, and are not supervised.

    lengths: rows of each document, without padding; a document without rows has none.
    """

    feature: Tensor
    token: Tensor
    target: Tensor
    supervise: Tensor
    position: Tensor
    document: Tensor
    lengths: tuple[int, ...] = ()

    @property
    def visibility(self) -> RowVisibility:
        """Who sees whom."""
        return RowVisibility(self.document, self.document)


def row_buffers(
    size: int, widths: tuple[int, int], dtype: torch.dtype, device: torch.device | str = "cpu"
) -> PackedRows:
    """Buffers of `size` rows for features and targets of two widths. Raises `BadInput`."""
    for field, values in (("size", (size,)), ("widths", widths)):
        for i, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BadInput(field, (i,) if field == "widths" else (), "is a whole number of at least 0", value)
    vector = torch.full((4, size), -1, dtype=torch.int64, device=device)
    return PackedRows(
        feature=torch.zeros((size, widths[0]), dtype=dtype, device=device),
        token=vector[0].zero_(),
        target=torch.zeros((size, widths[1]), dtype=dtype, device=device),
        supervise=torch.zeros(size, dtype=torch.bool, device=device),
        position=vector[1],
        document=vector[2],
    )


def pack_rows(documents: Sequence[Document], out: PackedRows, owner: str = "source") -> PackedRows:
    """The rows of the documents, written into `out`; the answer is `out` with lengths of its own.

    owner: whose flag supervises a row t, that of x[t], "source", of x[t+1], "advanced", or of x[t+2], "label"; a row
    whose label does not exist is not supervised. Features are converted to the dtype of the buffers. Raises `BadInput`,
    before anything is written.
    """
    if not isinstance(owner, str) or owner not in OWNERS:
        raise BadInput("owner", (), f"is one of {', '.join(OWNERS)}", owner)
    ahead = OWNERS.index(owner)
    size = room = out.token.numel()
    widths = out.feature.shape[1], out.target.shape[1]
    kept, lengths = [], []
    for i, document in enumerate(documents):
        rows = min(_length(document, i, widths) - 1, room)
        if rows > 0:
            kept.append(document)
            lengths.append(rows)
            room -= rows
    end = size - room
    _join([document.features[:rows] for document, rows in zip(kept, lengths)], out.feature, end)
    _join([document.states[1 : rows + 1] for document, rows in zip(kept, lengths)], out.target, end)

    vectors = (out.token, out.supervise, out.position, out.document)
    on_host = out.token.device.type == "cpu"  # then NumPy writes to the buffers, which it does quicker than torch
    token, supervise, position, number = [(v if on_host else v.new_empty(size, device="cpu")).numpy() for v in vectors]
    counting = np.arange(max(lengths, default=0))
    first = 0
    for i, (document, rows) in enumerate(zip(kept, lengths)):
        last = first + rows
        token[first:last] = document.tokens.numpy()[1 : rows + 1]
        flags = document.mask.numpy()[ahead : ahead + rows]
        supervise[first : first + len(flags)] = flags
        if len(flags) < rows:
            supervise[last - 1] = False
        position[first:last] = counting[:rows]
        number[first:last] = i
        first = last
    if end < size:
        token[end:], supervise[end:], position[end:], number[end:] = 0, False, -1, -1
    if not on_host:
        for vector, host in zip(vectors, (token, supervise, position, number)):
            vector.copy_(torch.from_numpy(host), non_blocking=True)
    return PackedRows(out.feature, out.token, out.target, out.supervise, out.position, out.document, tuple(lengths))


def _join(pieces: list[Tensor], out: Tensor, end: int) -> None:
    """Write the pieces one behind another, up to `end`, and zeros behind them."""
    device, part = out.device, out
    if end < len(out):
        out[end:] = 0
        part = out[:end]
    if pieces and all([piece.device == device for piece in pieces]):
        torch.cat(pieces, out=part)
    else:
        first = 0
        for piece in pieces:
            part[first : first + len(piece)].copy_(piece, non_blocking=True)
            first += len(piece)


def _length(document: object, i: int, widths: tuple[int, int]) -> int:
    if not isinstance(document, Document):
        raise BadInput(f"documents[{i}]", (), "is an oracle.fast.collation.Document", type(document).__name__)
    tokens, mask = document.tokens, document.mask
    if not isinstance(tokens, Tensor) or tokens.ndim != 1 or tokens.dtype != torch.int64 or not tokens.is_cpu:
        raise BadInput(f"documents[{i}].tokens", (), "is an int64 tensor [L] on a CPU", _told(tokens))
    length = tokens.numel()
    if not isinstance(mask, Tensor) or mask.shape != (length,) or mask.dtype != torch.bool or not mask.is_cpu:
        raise BadInput(f"documents[{i}].mask", (), f"is a boolean tensor of shape {(length,)} on a CPU", _told(mask))
    _numbers(document.features, (length, widths[0]), i, "features")
    _numbers(document.states, (length, widths[1]), i, "states")
    return length


def _numbers(found: object, shape: tuple[int, int], i: int, name: str) -> None:
    if not isinstance(found, Tensor) or found.shape != shape or not found.is_floating_point():
        raise BadInput(f"documents[{i}].{name}", (), f"is a floating-point tensor of shape {shape}", _told(found))


def _told(values: object) -> object:
    return (tuple(values.shape), values.dtype) if isinstance(values, Tensor) else type(values).__name__
