"""Documents packed into rows of a fixed number, straight from their tensors, into buffers that are used again.

Each document gives its soft rows (`oracle.fast.rows`), one document behind another; what no longer fits is left out,
and padding stands behind. Where a document starts the host knows, so nothing is searched for and no number is looked
at but flags. A buffer that is used again costs no allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.row_visibility import RowVisibility
from oracle.types import OWNERS


@dataclass(frozen=True, eq=False)
class Document:
    """One document of L tokens: tokens int64 [L], mask bool [L], a flag a token; features [L, D], what the drafter is
    fed, and states [L, d], what its targets are made of, in any floating-point dtypes."""

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
    lengths, kept = [], []
    for i, document in enumerate(documents):
        rows = min(max(_length(document, i, out) - 1, 0), room)
        if rows:
            kept.append((document, rows))
            lengths.append(rows)
            room -= rows
    end = size - room
    _joined(out.feature, [document.features[:rows] for document, rows in kept], end)
    _joined(out.target, [document.states[1 : rows + 1] for document, rows in kept], end)
    token, supervise, position, number = (
        _on_the_host(vector) for vector in (out.token, out.supervise, out.position, out.document)
    )
    counting = np.arange(max(lengths, default=0))
    first = 0
    for i, (document, rows) in enumerate(kept):
        last = first + rows
        token[first:last] = _on_the_host(document.tokens)[1 : rows + 1]
        flags = _on_the_host(document.mask)[ahead : ahead + rows]
        supervise[first : first + len(flags)] = flags
        supervise[first + len(flags) : last] = False
        position[first:last] = counting[:rows]
        number[first:last] = i
        first = last
    for host, padding in ((token, 0), (supervise, False), (position, -1), (number, -1)):
        host[end:] = padding
    if out.token.device.type != "cpu":
        pairs = ((out.token, token), (out.supervise, supervise), (out.position, position), (out.document, number))
        for vector, host in pairs:
            vector.copy_(torch.from_numpy(host), non_blocking=True)
    return replace(out, lengths=tuple(lengths))


def _on_the_host(vector: Tensor) -> np.ndarray:
    """The vector itself on a CPU, where NumPy is quicker with vectors this short; a copy of it elsewhere."""
    found: np.ndarray = vector.numpy() if vector.device.type == "cpu" else vector.cpu().numpy()
    return found


def _joined(out: Tensor, pieces: list[Tensor], end: int) -> None:
    """Write the pieces one behind another, up to `end`, and zeros behind them."""
    dtype, device = out.dtype, out.device
    if pieces and all([piece.dtype == dtype and piece.device == device for piece in pieces]):
        torch.cat(pieces, out=out[:end])
    else:
        first = 0
        for piece in pieces:
            out[first : first + len(piece)].copy_(piece, non_blocking=True)
            first += len(piece)
    if end < out.shape[0]:
        out[end:] = 0


def _length(document: object, i: int, out: PackedRows) -> int:
    if not isinstance(document, Document):
        raise BadInput(f"documents[{i}]", (), "is an oracle.fast.collation.Document", type(document).__name__)
    tokens = document.tokens
    if not isinstance(tokens, Tensor) or tokens.ndim != 1 or tokens.dtype != torch.int64:
        raise BadInput(f"documents[{i}].tokens", (), "is an int64 tensor [L]", _told(tokens))
    length = tokens.numel()
    for name, found, of in (("features", document.features, out.feature), ("states", document.states, out.target)):
        shape = (length, of.shape[1])
        if not isinstance(found, Tensor) or not found.is_floating_point() or found.shape != shape:
            raise BadInput(f"documents[{i}].{name}", (), f"is a floating-point tensor of shape {shape}", _told(found))
    mask = document.mask
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (length,):
        raise BadInput(f"documents[{i}].mask", (), f"is a boolean tensor of shape {(length,)}", _told(mask))
    return length


def _told(values: object) -> object:
    return (tuple(values.shape), values.dtype) if isinstance(values, Tensor) else type(values).__name__
