"""Rows moved by index, within a pool or from one to another: read first, all of them, and then written."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.errors import BadInput


def on_cpu(tensor: Tensor) -> bool:
    """Whether the host may look at it."""
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
    two different sources. Needs memory for the rows that move, and no more. validate: whether slots are looked at; None
    = on a CPU alone. Raises `BadInput`, before anything is written.
    """
    origin = pool if origin is None else origin
    _structure(pool, source, destination, origin, moves, dim)
    source, destination = source.reshape(-1), destination.reshape(-1)
    if on_cpu(pool):
        if moves is not None:
            place = moves.reshape(-1).nonzero().view(-1)
            source, destination = source.index_select(0, place), destination.index_select(0, place)
        if validate is not False:
            _check(source, destination, pool.shape[dim], origin.shape[dim], moves is not None)
        if source.numel():
            pool.index_copy_(dim, destination, origin.index_select(dim, source))
        return
    if validate:
        counted = torch.ones_like(source, dtype=torch.bool) if moves is None else moves.reshape(-1)
        _check(source[counted], destination[counted], pool.shape[dim], origin.shape[dim], moves is not None)
    if not source.numel() or not pool.shape[dim] or not origin.shape[dim]:
        return
    if moves is None:
        pool.index_copy_(dim, destination, origin.index_select(dim, source))
        return
    # what does not count does once more what the first one does that counts; where none does, slot 0 gets its own row
    moves = moves.reshape(-1)
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
    rest = [n for axis, n in enumerate(pool.shape) if axis != dim]
    if origin.ndim != pool.ndim or [n for axis, n in enumerate(origin.shape) if axis != dim] != rest:
        raise BadInput("origin", (), "has rows of the pool's shape", (tuple(origin.shape), tuple(pool.shape)))
    if origin.dtype != pool.dtype or origin.device != pool.device:
        raise BadInput("origin", (), f"is {pool.dtype} on {pool.device}", (origin.dtype, origin.device))
    for name, tensor in (("source", source), ("destination", destination)):
        if tensor.dtype != torch.int64 or tensor.device != pool.device:
            raise BadInput(name, (), f"is int64 on {pool.device}", (tensor.dtype, tensor.device))
    if destination.shape != source.shape:
        raise BadInput("destination", (), f"has the shape of the sources, {tuple(source.shape)}", destination.shape)
    if moves is not None and (moves.dtype != torch.bool or moves.shape != source.shape or moves.device != pool.device):
        raise BadInput("moves", (), f"is bool {tuple(source.shape)} on {pool.device}", (moves.dtype, moves.shape))


def _check(source: Tensor, destination: Tensor, size: int, held: int, masked: bool) -> None:
    which = " of those that count" if masked else ""
    for name, slots, most in (("source", source, held), ("destination", destination, size)):
        if slots.numel() and (int(slots.min()) < 0 or int(slots.max()) >= most):
            place = int(((slots < 0) | (slots >= most)).nonzero()[0])
            raise BadInput(name, (place,), f"lies in [0, {most})" + which, int(slots[place]))
    order = destination.sort(stable=True)
    again = (order.values[1:] == order.values[:-1]) & (source[order.indices][1:] != source[order.indices][:-1])
    if again.any():
        place = int(order.indices[1:][again][0])
        rule = "is the destination of one source" + which
        raise BadInput("destination", (place,), rule, int(destination[place]))
