"""What one round of each request of a batch publishes, decided from its tokens: nothing is moved yet.

Every answer is padded to what the longest path could give, so no number has to reach the host. The same lines run in
torch on a device and in NumPy on a CPU, where torch would take longer to be called than to do what is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast import moving
from oracle.words import PADDING_ROW, ROOT_ROW

NONE, STOP, LENGTH = 0, 1, 2
"""Why a request ends: `Round.reason`."""


@dataclass(frozen=True, eq=False)
class Verified:
    """The rows of a verification, in the order of its input; a shorter one of the batch is filled with padding.

    row_node: int64 [B, R], the node of a row, −1 = the root, −2 = padding. row_token: int64 [B, R], the token that it
    consumed. kv, features: [B, R, …] as of the state; None = they lie in the state's buffer already, row r of a request
    r places behind those that it holds, and move from there. draft_kv: [B, R, …] with drafted, bool [B, R], which of
    them drafting made; None where the drafter keeps none.
    """

    row_node: Tensor
    row_token: Tensor
    kv: Tensor | None = None
    features: Tensor | None = None
    draft_kv: Tensor | None = None
    drafted: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Decision:
    """path: int64 [B, D], accepted nodes in order. accepted: int64 [B], how many. frontier: int64 [B], a token."""

    path: Tensor
    accepted: Tensor
    frontier: Tensor


@dataclass(frozen=True, eq=False)
class Limits:
    """stop_tokens: int64 [B, K], filled with −1, or None. max_new_tokens: int64 [B] of the whole output, −1 = no limit;
    None = none has one."""

    stop_tokens: Tensor | None = None
    max_new_tokens: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Round:
    """What a round publishes; B requests, N = D + 1.

    rows: int64 [B, N], the verification rows that are kept, in order, −1 behind; kept: int64 [B], how many.
    tokens: int64 [B, N], the new tokens, −1 behind; count: int64 [B], how many. path_rows: int64 [B, D], rows of the
    path's nodes; accepted: int64 [B], how many of its tokens are published. freed: bool [B, R], rows that are given
    back. pending: int64 [B], the token that is pending now, −1 = none. reason: int64 [B], `NONE`, `STOP` or `LENGTH`.
    """

    rows: Tensor
    kept: Tensor
    tokens: Tensor
    count: Tensor
    path_rows: Tensor
    accepted: Tensor
    freed: Tensor
    pending: Tensor
    reason: Tensor


def plan_round(
    pending: Tensor,
    output: Tensor,
    verified: Verified,
    decision: Decision,
    limits: Limits | None = None,
    *,
    validate: bool | None = None,
) -> Round:
    """A round of each request (PUBLISH 2xx–7xx).

    pending: int64 [B], the token without KV, −1 = none. output: int64 [B], how many tokens a request has put out.
    validate: whether numbers are looked at; None = on a CPU alone. Raises `BadInput`.
    """
    limits = Limits() if limits is None else limits
    _structure(pending, output, verified, decision, limits)
    checked = pending.device.type == "cpu" if validate is None else validate
    if checked:
        _check(pending, output, verified, decision, limits)
    xp = Arrays(pending)
    waiting, held, row_node, row_token = (
        xp.of(each) for each in (pending, output, verified.row_node, verified.row_token)
    )
    path, accepted, frontier = (xp.of(each) for each in (decision.path, decision.accepted, decision.frontier))
    rows, depth = row_node.shape[1], path.shape[1]
    if not rows:
        row_node = row_token = xp.like(waiting, PADDING_ROW)[:, None]
    request, place = xp.range(len(waiting))[:, None], xp.range(depth + 1)
    path_rows = first(row_node[:, None] == path[:, :, None])

    drafted = row_token[request, path_rows]
    end = frontier[:, None]
    tokens = xp.where(place < accepted[:, None], xp.join([drafted, end]), end)
    reason = xp.like(tokens, NONE)
    if limits.max_new_tokens is not None:
        room = xp.of(limits.max_new_tokens) - held
        reason = xp.where(place + 1 == room[:, None], LENGTH, reason)
    if limits.stop_tokens is not None:
        stops = (tokens[:, :, None] == xp.of(limits.stop_tokens)[:, None]).any(2)
        reason = xp.where(stops, STOP, reason)
    reason = xp.where(place <= accepted[:, None], reason, NONE)
    ends = reason != NONE
    last = xp.where(ends.any(1), first(ends), accepted)
    whole = last == accepted  # the frontier is published, the path is not cut
    if checked:
        negative = host(whole & (frontier < 0))
        refuse(negative, "decision.frontier", "a token id is no less than 0", host(frontier))
    count = last + 1
    kept_drafts = xp.where(whole, accepted, count)

    rooted = waiting >= 0
    kept = kept_drafts + rooted
    behind = xp.join([first(row_node == ROOT_ROW)[:, None], path_rows])
    shifted = xp.where(rooted[:, None], place, place + 1)
    taken = behind[request, xp.where(shifted > depth, 0, shifted)]
    counted = place < kept[:, None]
    freed = xp.join([row_node != PADDING_ROW, xp.like(rooted, False)[:, None]])
    freed[request, xp.where(counted, taken, freed.shape[1] - 1)] = False
    return Round(
        rows=xp.tensor(xp.where(counted, taken, -1)),
        kept=xp.tensor(kept),
        tokens=xp.tensor(xp.where(place < count[:, None], tokens, -1)),
        count=xp.tensor(count),
        path_rows=xp.tensor(path_rows),
        accepted=xp.tensor(kept_drafts),
        freed=xp.tensor(freed[:, :rows]),
        pending=xp.tensor(xp.where(whole, frontier, -1)),
        reason=xp.tensor(reason[request[:, 0], last]),
    )


class Arrays:
    """Either library under one name: NumPy, on the memory of tensors on a CPU, or torch."""

    def __init__(self, where: Tensor) -> None:
        self.device, self.host = where.device, moving.on_cpu(where)
        library: Any = np if self.host else torch
        self.where, self.like, self._join = library.where, library.full_like, library.concatenate

    def of(self, tensor: Tensor) -> Any:
        return tensor.numpy() if self.host else tensor

    def tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(values) if self.host else values

    def range(self, count: int) -> Any:
        return np.arange(count) if self.host else torch.arange(count, device=self.device)

    def join(self, values: list[Any]) -> Any:
        """Side by side."""
        return self._join(values, 1)


def first(flags: Any) -> Any:
    """Where the first of the last axis is that is set; 0 where none is."""
    return flags.argmax(-1) if isinstance(flags, np.ndarray) else flags.to(torch.int8).argmax(-1)


def host(values: Any) -> np.ndarray:
    """On the host, which waits for them where they are not."""
    found: np.ndarray = values.cpu().numpy() if isinstance(values, Tensor) else values
    return found


def _check(pending: Tensor, output: Tensor, verified: Verified, decision: Decision, limits: Limits) -> None:
    """`BadInput` at the first number that breaks a rule."""
    node, token, path = (host(tensor) for tensor in (verified.row_node, verified.row_token, decision.path))
    waiting, accepted, held = (host(tensor) for tensor in (pending, decision.accepted, output))
    refuse(node < PADDING_ROW, "verified.row_node", "is a node, −1 for the root or −2 for padding", node)
    there = node != PADDING_ROW
    refuse(there & (token < 0), "verified.row_token", "a token id is no less than 0", token)
    if _twice(np.sort(node, 1)).any():
        order = node.argsort(1, kind="stable")
        again = np.zeros_like(there)
        np.put_along_axis(again, order[:, 1:], _twice(np.take_along_axis(node, order, 1)), 1)
        refuse(again, "verified.row_node", "a node has one row", node)
    root = node == ROOT_ROW
    refuse((waiting >= 0) & ~root.any(1), "pending", "a pending token has its root row, −1", waiting)
    refuse(root & (waiting < 0)[:, None], "verified.row_node", "there is no root row where none is pending", node)
    refuse(root & (token != waiting[:, None]), "verified.row_token", "the root row holds the pending token", token)
    depth = path.shape[1]
    refuse((accepted < 0) | (accepted > depth), "decision.accepted", f"is 0 … {depth}", accepted)
    place = np.arange(depth)
    counted = place < accepted[:, None]
    known = (node[:, None] == path[:, :, None]).any(2) & (path >= 0)
    refuse(counted & ~known, "decision.path", "is a node that has a verification row", path)
    before = (place[:, None] > place) & (path[:, :, None] == path[:, None])
    refuse(counted & before.any(2), "decision.path", "no node is accepted twice", path)
    refuse(held < 0, "output", "is a number of tokens", held)
    if limits.max_new_tokens is not None:
        most = host(limits.max_new_tokens)
        full = (most >= 0) & (held >= most)
        refuse(full, "limits.max_new_tokens", "there is room for one more token than are held", most)


def _twice(ordered: np.ndarray) -> np.ndarray:
    """Of sorted nodes, which are the node before them."""
    found: np.ndarray = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != PADDING_ROW)
    return found


def refuse(wrong: np.ndarray, field: str, rule: str, values: np.ndarray) -> None:
    """`BadInput` at the first entry that is wrong."""
    if np.count_nonzero(wrong):
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise BadInput(field, index, rule, int(values[index]))


def _structure(pending: Tensor, output: Tensor, verified: Verified, decision: Decision, limits: Limits) -> None:
    kinds = (("verified", verified, Verified), ("decision", decision, Decision), ("limits", limits, Limits))
    for name, value, kind in kinds:
        if not isinstance(value, kind):
            raise BadInput(name, (), f"is an oracle.fast.rounds.{kind.__name__}", type(value).__name__)
    if not isinstance(pending, Tensor) or pending.ndim != 1:
        raise BadInput("pending", (), "is a tensor [B]", told(pending))
    batch = len(pending)
    rows = _columns(verified.row_node, "verified.row_node", "[B, R]")
    depth = _columns(decision.path, "decision.path", "[B, D]")
    whole: list[tuple[str, object, tuple[int, ...]]] = [
        ("pending", pending, (batch,)),
        ("output", output, (batch,)),
        ("verified.row_node", verified.row_node, (batch, rows)),
        ("verified.row_token", verified.row_token, (batch, rows)),
        ("decision.path", decision.path, (batch, depth)),
        ("decision.accepted", decision.accepted, (batch,)),
        ("decision.frontier", decision.frontier, (batch,)),
    ]
    if limits.stop_tokens is not None:
        stops = _columns(limits.stop_tokens, "limits.stop_tokens", "[B, K]")
        whole.append(("limits.stop_tokens", limits.stop_tokens, (batch, stops)))
    if limits.max_new_tokens is not None:
        whole.append(("limits.max_new_tokens", limits.max_new_tokens, (batch,)))
    for name, values, shape in whole:
        if not isinstance(values, Tensor) or values.shape != shape:
            raise BadInput(name, (), f"is a tensor of shape {shape}", told(values))
        if values.dtype != torch.int64 or values.device != pending.device:
            raise BadInput(name, (), f"is int64 on {pending.device}", (values.dtype, values.device))


def _columns(values: object, field: str, shape: str) -> int:
    if not isinstance(values, Tensor) or values.ndim != 2:
        raise BadInput(field, (), f"is a tensor {shape}", told(values))
    return values.shape[1]


def told(values: object) -> object:
    """What to say of an argument that is not what it should be."""
    return (tuple(values.shape), values.dtype) if isinstance(values, Tensor) else type(values).__name__
