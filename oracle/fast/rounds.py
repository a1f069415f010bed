"""What one round of each request of a batch publishes, decided from its tokens: nothing is moved yet.

Every answer is padded to what the longest path could give, so no number has to reach the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from oracle.errors import BadInput
from oracle.types import PADDING_ROW, ROOT_ROW

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
    row_node, row_token, path = verified.row_node, verified.row_token, decision.path
    if not row_node.shape[1]:
        row_node = torch.full_like(pending, PADDING_ROW).unsqueeze(1)
        row_token = row_node
    depth = path.shape[1]
    place = torch.arange(depth + 1, device=path.device)
    path_rows = (row_node.unsqueeze(1) == path.unsqueeze(2)).to(torch.int8).argmax(2)
    length = decision.accepted.unsqueeze(1)

    drafted = pad(row_token.gather(1, path_rows), (0, 1))
    tokens = torch.where(place < length, drafted, decision.frontier.unsqueeze(1))
    reached = place <= length
    reason = torch.zeros_like(tokens)
    if limits.max_new_tokens is not None:
        room = (limits.max_new_tokens - output).unsqueeze(1)
        reason.masked_fill_(place + 1 == room, LENGTH)
    if limits.stop_tokens is not None:
        reason.masked_fill_((tokens.unsqueeze(2) == limits.stop_tokens.unsqueeze(1)).any(2), STOP)
    reason.masked_fill_(~reached, NONE)
    ends = (reason != NONE).to(torch.int8)
    last = torch.where(ends.amax(1) > 0, ends.argmax(1), decision.accepted)
    reason = reason.gather(1, last.unsqueeze(1)).squeeze(1)
    whole = last == decision.accepted  # the frontier is published, the path is not cut
    count = last + 1
    accepted = torch.minimum(count, decision.accepted)
    tokens = torch.where(place < count.unsqueeze(1), tokens, -1)

    rooted = pending >= 0
    kept = accepted + rooted
    root = (row_node == ROOT_ROW).to(torch.int8).argmax(1, keepdim=True)
    behind = torch.cat([root, path_rows], 1)
    alone = pad(path_rows, (0, 1))
    rows = torch.where(rooted.unsqueeze(1), behind, alone)
    counted = place < kept.unsqueeze(1)
    freed = pad(row_node != PADDING_ROW, (0, 1))
    freed.scatter_(1, torch.where(counted, rows, row_node.shape[1]), False)
    found = Round(
        rows=torch.where(counted, rows, -1),
        kept=kept,
        tokens=tokens,
        count=count,
        path_rows=path_rows,
        accepted=accepted,
        freed=freed[:, : verified.row_node.shape[1]],
        pending=torch.where(whole, decision.frontier, -1),
        reason=reason,
    )
    if checked:
        negative = whole & (decision.frontier < 0)
        refuse(negative, "decision.frontier", "a token id is no less than 0", decision.frontier)
    return found


def _check(pending: Tensor, output: Tensor, verified: Verified, decision: Decision, limits: Limits) -> None:
    """`BadInput` at the first number that breaks a rule."""
    node, token, path = verified.row_node, verified.row_token, decision.path
    refuse(node < PADDING_ROW, "verified.row_node", "is a node, −1 for the root or −2 for padding", node)
    refuse((node != PADDING_ROW) & (token < 0), "verified.row_token", "a token id is no less than 0", token)
    held = node.sort(dim=1, stable=True)
    again = torch.zeros_like(node, dtype=torch.bool)
    twice = (held.values[:, 1:] == held.values[:, :-1]) & (held.values[:, 1:] != PADDING_ROW)
    refuse(again.scatter_(1, held.indices[:, 1:], twice), "verified.row_node", "a node has one row", node)
    root = node == ROOT_ROW
    rooted = root.any(1)
    refuse((pending >= 0) & ~rooted, "pending", "a pending token has its root row, −1", pending)
    refuse(root & (pending < 0).unsqueeze(1), "verified.row_node", "there is no root row where none is pending", node)
    wrong = root & (token != pending.unsqueeze(1))
    refuse(wrong, "verified.row_token", "the root row holds the pending token", token)
    depth = path.shape[1]
    beyond = (decision.accepted < 0) | (decision.accepted > depth)
    refuse(beyond, "decision.accepted", f"is 0 … {depth}", decision.accepted)
    place = torch.arange(depth, device=path.device)
    counted = place < decision.accepted.unsqueeze(1)
    there = (node.unsqueeze(1) == path.unsqueeze(2)).any(2) & (path >= 0)
    refuse(counted & ~there, "decision.path", "is a node that has a verification row", path)
    before = (place.unsqueeze(1) > place) & (path.unsqueeze(2) == path.unsqueeze(1))
    refuse(counted & before.any(2), "decision.path", "no node is accepted twice", path)
    refuse(output < 0, "output", "is a number of tokens", output)
    if limits.max_new_tokens is not None:
        most = limits.max_new_tokens
        full = (most >= 0) & (output >= most)
        refuse(full, "limits.max_new_tokens", "there is room for one more token than are held", most)


def refuse(wrong: Tensor, field: str, rule: str, values: Tensor) -> None:
    """`BadInput` at the first entry that is wrong."""
    if wrong.any():
        index = tuple(wrong.nonzero()[0].tolist())
        raise BadInput(field, index, rule, int(values[index]))


def _structure(pending: Tensor, output: Tensor, verified: Verified, decision: Decision, limits: Limits) -> None:
    for name, value, kind in (
        *(("verified", verified, Verified), ("decision", decision, Decision)),
        ("limits", limits, Limits),
    ):
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
        if not isinstance(values, Tensor) or tuple(values.shape) != shape:
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
