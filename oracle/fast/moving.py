"""Rows moved by index, within a pool or from one to another: read first, all of them, and then written."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def on_cpu(tensor: Tensor) -> bool:
    """Whether the host may look at it: NumPy, on the same memory, is quicker with numbers this few, and copies rows."""
    return tensor.device.type == "cpu"


def move_rows(
    pool: Tensor,
    source: Tensor,
    destination: Tensor,
    *,
    origin: Tensor | None = None,
    moves: Tensor | None = None,
    dim: int = 0,
    validate: bool | None = None,
) -> None:
    """pool[destination] = origin[source] along `dim`, in place; the origin is the pool itself unless given.

    source, destination: int64 of one shape. moves: bool of it, which of them count, None = all; the others are not read
    and may hold anything. A slot may be a source and a destination, several times a source; no slot is a destination of
    two different sources. Needs memory for the rows that move, and no more. No gradient is kept of it. validate:
    whether slots are looked at; None = on a CPU alone. Raises `BadInput`, before anything is written.
    """
    origin = pool if origin is None else origin
    _structure(pool, source, destination, origin, moves, dim)
    if validate or (validate is None and pool.device.type == "cpu"):
        _check(source, destination, moves, pool.shape[dim], origin.shape[dim])
    moved(pool, source, destination, origin, moves, dim)


def moved(
    pool: Tensor, source: Tensor, destination: Tensor, origin: Tensor, moves: Tensor | None = None, dim: int = 0
) -> None:
    """`move_rows` of what is known to be right."""
    source, destination = source.reshape(-1), destination.reshape(-1)
    moves = None if moves is None else moves.reshape(-1)
    if on_cpu(pool):
        start, end = source.numpy(), destination.numpy()
        if moves is not None:
            place = np.flatnonzero(moves.numpy())
            start, end = start[place], end[place]
        if start.size:
            write(pool, end, words(origin).numpy().take(start, dim), dim)
    elif source.numel() and pool.shape[dim] and origin.shape[dim]:
        _move(pool, source, destination, origin, moves, dim)


def words(tensor: Tensor) -> Tensor:
    """The same memory as numbers of the same size that anything can be done with, which not every dtype has."""
    return tensor.view(_WORDS[tensor.element_size()])


def write(pool: Tensor, destination: np.ndarray, rows: np.ndarray, dim: int) -> None:
    """The only place where a pool on a CPU changes."""
    words(pool).numpy()[(slice(None),) * dim + (destination,)] = rows


def _move(pool: Tensor, source: Tensor, destination: Tensor, origin: Tensor, moves: Tensor | None, dim: int) -> None:
    """Without the host."""
    same = origin is pool
    pool = words(pool)
    origin = pool if same else words(origin)
    if moves is None:
        pool.index_copy_(dim, destination, origin.index_select(dim, source))
        return
    # what does not count does once more what the first one does that counts; where none does, slot 0 gets its own row
    first = moves.to(torch.int8).argmax().view(1)
    any_moves = moves.index_select(0, first)
    nowhere = torch.zeros_like(first)
    start = torch.where(any_moves, source.index_select(0, first), nowhere)
    end = torch.where(any_moves, destination.index_select(0, first), nowhere)
    read = origin.index_select(dim, torch.where(moves, source, start))
    if origin is not pool:
        shape = [1] * pool.ndim
        read = torch.where(any_moves.view(shape), read, pool.narrow(dim, 0, 1))
    pool.index_copy_(dim, torch.where(moves, destination, end), read)


def _structure(
    pool: Tensor, source: Tensor, destination: Tensor, origin: Tensor, moves: Tensor | None, dim: int
) -> None:
    for name, tensor in (("pool", pool), ("source", source), ("destination", destination), ("origin", origin)):
        if not isinstance(tensor, Tensor):
            raise BadInput(name, (), "is a tensor", type(tensor).__name__)
    if isinstance(dim, bool) or not isinstance(dim, int) or not 0 <= dim < pool.ndim:
        raise BadInput("dim", (), f"is one of the pool's {pool.ndim} axes", dim)
    rest, device = _without(pool.shape, dim), pool.device
    if origin is not pool:
        if origin.ndim != pool.ndim or _without(origin.shape, dim) != rest:
            raise BadInput("origin", (), "has rows of the pool's shape", (tuple(origin.shape), tuple(pool.shape)))
        if origin.dtype != pool.dtype or origin.device != device:
            raise BadInput("origin", (), f"is {pool.dtype} on {device}", (origin.dtype, origin.device))
    for name, tensor in (("source", source), ("destination", destination)):
        if tensor.dtype != torch.int64 or tensor.device != device:
            raise BadInput(name, (), f"is int64 on {device}", (tensor.dtype, tensor.device))
    if destination.shape != source.shape:
        raise BadInput("destination", (), f"has the shape of the sources, {tuple(source.shape)}", destination.shape)
    if moves is not None and (moves.dtype != torch.bool or moves.shape != source.shape or moves.device != device):
        raise BadInput("moves", (), f"is bool {tuple(source.shape)} on {device}", (moves.dtype, moves.shape))


def _without(shape: torch.Size, dim: int) -> list[int]:
    return [*shape[:dim], *shape[dim + 1 :]]


def _check(source: Tensor, destination: Tensor, moves: Tensor | None, size: int, held: int) -> None:
    counted: Any = ... if moves is None else moves.cpu().numpy()
    start, end = (slots.cpu().numpy()[counted].reshape(-1) for slots in (source, destination))
    which = "" if moves is None else " of those that count"
    for name, slots, most in (("source", start, held), ("destination", end, size)):
        wrong = (slots < 0) | (slots >= most)
        if wrong.any():
            place = int(wrong.argmax())
            raise BadInput(name, (place,), f"lies in [0, {most})" + which, int(slots[place]))
    order = end.argsort(kind="stable")
    again = (end[order][1:] == end[order][:-1]) & (start[order][1:] != start[order][:-1])
    if again.any():
        place = int(order[1:][again][0])
        raise BadInput("destination", (place,), "is the destination of one source" + which, int(end[place]))
