"""Publication in torch: what one verified round leaves behind, for a batch of requests at once and in place.

`plan_round` decides from tokens alone what a round publishes; `move_rows` moves rows by index; `publish` does the whole
of it on states held in buffers of fixed capacity. There is no loop over requests or rows, and unless numbers are looked
at (`validate`) nothing waits for the device. What a row is, is the engine's: its contents, or the slot that it lies in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.moving import move_rows as move_rows
from oracle.fast.moving import moved
from oracle.fast.rounds import Arrays, host, refuse, told
from oracle.fast.rounds import Decision as Decision
from oracle.fast.rounds import Limits as Limits
from oracle.fast.rounds import Round as Round
from oracle.fast.rounds import Verified as Verified
from oracle.fast.rounds import plan_round as plan_round
from oracle.words import DRAFT_KV

COUNTERS = ("prompt", "length", "pending", "reason", "kv_length", "feature_length", "draft_length")


@dataclass(frozen=True, eq=False)
class State:
    """What B requests hold, in buffers that `publish` writes to, all contiguous and on one device.

    tokens: int64 [B, M], prompt and output one behind the other. kv, features: [B, M, …], one row a token but the
    pending one. draft_kv: [B, M, …], the drafter's rows, one a token but the first; None where it keeps none.
    counters: int64 [7, B], in the order of `COUNTERS`: tokens of the prompt, and of the sequence; the last token where
    it has no KV yet, else −1; why the request ended, 0 = it did not, 1 = stop, 2 = length; rows of kv, of features and
    of draft_kv (any number where there is none). What stands behind these numbers belongs to nobody. They lie in one
    tensor, so that they change at once.
    """

    tokens: Tensor
    counters: Tensor
    kv: Tensor
    features: Tensor
    draft_kv: Tensor | None = None

    @property
    def prompt(self) -> Tensor:
        return self.counters[0]

    @property
    def length(self) -> Tensor:
        return self.counters[1]

    @property
    def pending(self) -> Tensor:
        return self.counters[2]

    @property
    def reason(self) -> Tensor:
        return self.counters[3]

    @property
    def kv_length(self) -> Tensor:
        return self.counters[4]

    @property
    def feature_length(self) -> Tensor:
        return self.counters[5]

    @property
    def draft_length(self) -> Tensor:
        return self.counters[6]


@dataclass(frozen=True, eq=False)
class Published:
    """What `publish` did. round: what was published. seed: int64 [B], the row of `features` that the next draft starts
    from, −1 = there is none. redraft: bool [B, D + 1], new tokens whose drafter row is the drafter's to write: that of
    entry i, at draft_length before the round + i, is made from the features row of the same number."""

    round: Round
    seed: Tensor
    redraft: Tensor


def publish(
    state: State,
    verified: Verified,
    decision: Decision,
    limits: Limits | None = None,
    draft_kv: str = "recomputed",
    *,
    drafter: Callable[[Published], None] | None = None,
    validate: bool | None = None,
) -> Published:
    """Publish a round of each request, in place (PUBLISH 2xx–8xx).

    draft_kv: "recomputed", the drafter makes its row of every new token from features; or "kept", rows of accepted
    drafts are those that drafting made. drafter: writes the rows that are its to write, `Published.redraft`; it is
    called when all others are there. New rows are written behind those that are held, and then the counters, at once: a
    failure before leaves every state as it was, and nothing is written where anything is refused. Rows that move within
    a buffer are read before they are written. validate: whether numbers are looked at; None = on a CPU alone. Without
    it a row or token that does not fit into its buffer is left out. Raises `BadInput`.
    """
    if not isinstance(draft_kv, str) or draft_kv not in DRAFT_KV:
        raise BadInput("draft_kv", (), f"is one of {', '.join(DRAFT_KV)}", draft_kv)
    keeps = draft_kv == "kept" and state.draft_kv is not None
    _structure(state, verified, keeps)
    checked = state.tokens.device.type == "cpu" if validate is None else validate
    if checked:
        _check(state)
    found = plan_round(state.pending, state.length - state.prompt, verified, decision, limits, validate=checked)
    if checked:
        _check_room(state, verified, found)

    xp = Arrays(state.tokens)
    count, kept, taken, path_rows = (xp.of(each) for each in (found.count, found.kept, found.rows, found.path_rows))
    prompt, length, _, _, held, held_features, held_drafts = xp.of(state.counters)
    batch, depth = path_rows.shape
    request, place = xp.range(batch)[:, None], xp.range(depth + 1)
    new, rows = place < count[:, None], place < kept[:, None]
    move = Moves(xp, request, place)
    move(state.kv, held, taken, rows, verified.kv)
    move(state.features, held_features, taken, rows, verified.features)
    move(state.tokens, length, place, new, found.tokens)
    redraft = new
    if keeps and state.draft_kv is not None and verified.drafted is not None and verified.drafted.shape[1]:
        drafted = xp.of(verified.drafted)[request, path_rows] & (place[:-1] < xp.of(found.accepted)[:, None])
        move(state.draft_kv, held_drafts, path_rows, drafted, verified.draft_kv)
        redraft = new & ~xp.join([drafted, xp.like(new[:, :1], False)])
    features = held_features + kept
    pending = xp.of(found.pending)
    made = Published(found, xp.tensor(xp.where(pending >= 0, features - 1, -1)), xp.tensor(redraft))
    if drafter is not None:
        drafter(made)
    after = (prompt, length + count, pending, xp.of(found.reason), held + kept, features, held_drafts + count)
    state.counters.copy_(xp.tensor(xp.join([each[:, None] for each in after])).T)
    return made


class Moves:
    """Rows put behind those that a buffer holds; what does not fit into it is left out."""

    def __init__(self, xp: Arrays, request: Any, place: Any) -> None:
        self.xp, self.request, self.place = xp, request, place

    def __call__(self, buffer: Tensor, held: Any, rows: Any, counted: Any, origin: Tensor | None) -> None:
        """Write origin[b, rows[b, i]] to buffer[b, held[b] + i], where it counts."""
        batch, capacity = buffer.shape[:2]
        pool, base = buffer.view(batch * capacity, *buffer.shape[2:]), held[:, None]
        destination = base + self.place[: counted.shape[1]]
        counted = counted & (destination < capacity)
        size = capacity
        if origin is None:
            rows = base + rows
            counted = counted & (rows < capacity)
        else:
            size = origin.shape[1]
        moved(
            pool,
            self.xp.tensor(self.request * size + rows),
            self.xp.tensor(self.request * capacity + destination),
            pool if origin is None else origin.flatten(0, 1),
            self.xp.tensor(counted),
        )


def _check(state: State) -> None:
    """`BadInput` at the first request whose numbers do not fit together."""
    tokens, counters = host(state.tokens), host(state.counters)
    prompt, length, pending, reason, kv, features, drafts = counters
    refuse(reason != 0, "state.reason", "a finished request publishes nothing", reason)
    refuse(prompt < 1, "state.prompt", "has at least one token", prompt)
    refuse(length < prompt, "state.length", "is no less than the prompt", length)
    capacity = tokens.shape[1]
    refuse(length > capacity, "state.length", f"is at most {capacity}", length)
    latest = tokens[np.arange(len(tokens)), length - 1]
    waits = pending >= 0
    refuse(pending < -1, "state.pending", "is a token, or −1", pending)
    refuse(waits & (pending != latest), "state.pending", "is the last token of the sequence", pending)
    held = length - waits
    refuse(kv != held, "state.kv_length", "is one row a token but the pending one", kv)
    refuse(features != held, "state.feature_length", "is one row a row of KV", features)
    if state.draft_kv is not None:
        refuse(drafts != length - 1, "state.draft_length", "is one row a token but the first", drafts)


def _check_room(state: State, verified: Verified, found: Round) -> None:
    """`BadInput` at the first request whose buffers are too short."""
    capacity, length = state.tokens.shape[1], host(state.length)
    over = length + host(found.count) > capacity
    refuse(over, "state.length", f"the {capacity} places of a buffer hold the round", length)
    for name, held in (("kv", state.kv_length), ("features", state.feature_length)):
        if getattr(verified, name) is None and found.rows.shape[1]:
            far = host(held) + host(found.rows).max(1) >= capacity
            refuse(far, f"state.{name}", f"its {capacity} places hold the rows that are kept", host(held))


def _structure(state: State, verified: Verified, kept: bool) -> None:
    if not isinstance(state, State):
        raise BadInput("state", (), "is an oracle.fast.publish.State", type(state).__name__)
    if not isinstance(verified, Verified):
        raise BadInput("verified", (), "is an oracle.fast.publish.Verified", type(verified).__name__)
    tokens = state.tokens
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.dtype != torch.int64:
        raise BadInput("state.tokens", (), "is an int64 tensor [B, M]", told(tokens))
    batch, capacity = tokens.shape
    counters = state.counters
    if not isinstance(counters, Tensor) or counters.dtype != torch.int64 or counters.shape != (len(COUNTERS), batch):
        raise BadInput("state.counters", (), f"is an int64 tensor [{len(COUNTERS)}, {batch}]", told(counters))
    if counters.device != tokens.device:
        raise BadInput("state.counters", (), f"lies on {tokens.device}", counters.device)
    row_node = verified.row_node
    rows = row_node.shape[1] if isinstance(row_node, Tensor) and row_node.ndim == 2 else 0
    for name in ("kv", "features", "draft_kv", "tokens"):
        buffer = getattr(state, name)
        if buffer is None and name == "draft_kv":
            continue
        if not isinstance(buffer, Tensor) or buffer.shape[:2] != (batch, capacity):
            raise BadInput(f"state.{name}", (), f"is a tensor [{batch}, {capacity}, …]", told(buffer))
        if buffer.device != tokens.device or not buffer.is_contiguous():
            raise BadInput(f"state.{name}", (), f"is contiguous, on {tokens.device}", (buffer.device, buffer.stride()))
        origin = getattr(verified, name, None)
        if origin is None and (name != "draft_kv" or not kept):
            continue
        shape = (batch, rows, *buffer.shape[2:])
        if not isinstance(origin, Tensor) or origin.shape != shape:
            raise BadInput(f"verified.{name}", (), f"is a tensor of shape {shape}", told(origin))
        if origin.dtype != buffer.dtype or origin.device != buffer.device:
            rule = f"is {buffer.dtype} on {buffer.device}"
            raise BadInput(f"verified.{name}", (), rule, (origin.dtype, origin.device))
    drafted = verified.drafted
    if kept and (not isinstance(drafted, Tensor) or drafted.dtype != torch.bool or drafted.shape != (batch, rows)):
        raise BadInput("verified.drafted", (), f"is a boolean tensor of shape {(batch, rows)}", told(drafted))
