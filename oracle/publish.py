"""Publication: what one verified round leaves behind, as one transaction.

Everything is read and refused before anything is built, and what comes out shares no memory with what came in, so a
failure leaves the old state whole. Rows are found by node, through the verification's own row map, never by token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import int64, listed, one_of, tensor, whole
from oracle.types import DRAFT_KV, PADDING_ROW, ROOT_ROW, CommittedState, Decision, Limits, PublishCase, Verified
from oracle.validation import integers


def publish(cases: Sequence[PublishCase], draft_kv: str = "recomputed") -> list[CommittedState]:
    """Publish a round of each request (PUBLISH 2xx–8xx). Raises `BadInput`; then no case was answered.

    draft_kv: "recomputed", a drafter's row of a new token is made from the target's feature before it; or "kept", the
    row of an accepted draft is the one that drafting made, and the others are made from features.
    """
    listed(cases, "cases", PublishCase)
    kept = one_of(draft_kv, "draft_kv", DRAFT_KV) == "kept"
    rounds = [_read(case, f"cases[{i}]", kept) for i, case in enumerate(cases)]
    return [_publish(found) for found in rounds]


@dataclass(frozen=True)
class _Round:
    """One request's round, read and found right.

    rows: the verification row of every node, the root's among them. accepted: nodes whose tokens are published, new:
    the tokens themselves and the frontier, where there is one (`pending`). reason: why the request ends, or None.
    """

    prompt: list[int]
    output: list[int]
    kv: list[float]
    features: list[float]
    draft_kv: list[float] | None
    rows: dict[int, int]
    row_kv: list[float]
    row_features: list[float]
    row_draft_kv: list[float] | None
    accepted: list[int]
    new: list[int]
    pending: int | None
    reason: str | None


def _publish(found: _Round) -> CommittedState:
    root = [ROOT_ROW] if ROOT_ROW in found.rows else []
    appended = [found.rows[node] for node in root + found.accepted]
    features = found.features + [found.row_features[row] for row in appended]
    return CommittedState(
        prompt=_ids(found.prompt),
        output=_ids(found.output + found.new),
        kv=_floats(found.kv + [found.row_kv[row] for row in appended]),
        features=_floats(features),
        pending=found.pending,
        finished=found.reason is not None,
        seed=None if found.pending is None else features[-1],
        freed=tuple(found.row_kv[row] for row in sorted(found.rows.values()) if row not in appended),
        finish_reason=found.reason,
        draft_kv=None if found.draft_kv is None else _floats(found.draft_kv + _drafter_rows(found, features)),
    )


def _drafter_rows(found: _Round, features: list[float]) -> list[float]:
    """The drafter's row of each new token: made from the target's feature before it, or kept from drafting."""
    first = len(found.prompt) + len(found.output)  # the place of the first new token in the sequence
    rows = [features[first + i - 1] for i in range(len(found.new))]
    if found.row_draft_kv is not None:
        for i, node in enumerate(found.accepted):
            drafted = found.row_draft_kv[found.rows[node]]
            if not math.isnan(drafted):
                rows[i] = drafted
    return rows


# ---- reading


def _read(case: PublishCase, field: str, kept: bool) -> _Round:
    if not isinstance(case, PublishCase):
        raise BadInput(field, (), "a case is an oracle.types.PublishCase", type(case).__name__)
    state, verified, decision = case.state, case.verified, case.decision
    for value, kind, name in (
        (state, CommittedState, "state"),
        (verified, Verified, "verified"),
        (decision, Decision, "decision"),
        (case.limits, Limits, "limits"),
    ):
        if not isinstance(value, kind):
            raise BadInput(f"{field}.{name}", (), f"is an oracle.types.{kind.__name__}", type(value).__name__)

    prompt = _tokens(state.prompt, f"{field}.state.prompt")
    output = _tokens(state.output, f"{field}.state.output")
    sequence = prompt + output
    if not prompt:
        raise BadInput(f"{field}.state.prompt", (), "has at least one token", 0)
    if not isinstance(state.finished, (bool, np.bool_)):
        raise BadInput(f"{field}.state.finished", (), "is a boolean", state.finished)
    if state.finished:
        raise BadInput(f"{field}.state.finished", (), "a finished request publishes nothing", True)
    if state.pending is not None:
        waiting = whole(state.pending, f"{field}.state.pending", 0)
        if waiting != sequence[-1]:
            raise BadInput(f"{field}.state.pending", (), f"is the last token of the sequence, {sequence[-1]}", waiting)
    held = len(sequence) - (state.pending is not None)
    kv = _vector(state.kv, f"{field}.state.kv", held, "token of the sequence but the pending one")
    features = _vector(state.features, f"{field}.state.features", held, "row of KV")
    draft_kv = None
    if state.draft_kv is not None:
        wanted = "token of the sequence but its first"
        draft_kv = _vector(state.draft_kv, f"{field}.state.draft_kv", len(sequence) - 1, wanted)

    stop_tokens, room = _limits(case.limits, len(output), f"{field}.limits")
    rows, row_token = _row_map(verified, f"{field}.verified")
    count = len(row_token)
    row_kv = _vector(verified.kv, f"{field}.verified.kv", count, "row")
    row_features = _vector(verified.features, f"{field}.verified.features", count, "row")
    row_draft_kv = None
    if kept and draft_kv is not None:
        if verified.draft_kv is None:
            raise BadInput(f"{field}.verified.draft_kv", (), "a drafter that keeps its rows shows them", None)
        row_draft_kv = _vector(verified.draft_kv, f"{field}.verified.draft_kv", count, "row")
    if state.pending is not None and ROOT_ROW not in rows:
        raise BadInput(f"{field}.verified.row_node", (), "a pending token has its root row, −1", sorted(rows))
    if state.pending is None and ROOT_ROW in rows:
        rule = "there is no root row where no token is pending"
        raise BadInput(f"{field}.verified.row_node", (rows[ROOT_ROW],), rule, ROOT_ROW)
    if state.pending is not None and row_token[rows[ROOT_ROW]] != state.pending:
        rule = f"the root row holds the pending token, {state.pending}"
        raise BadInput(f"{field}.verified.row_token", (rows[ROOT_ROW],), rule, row_token[rows[ROOT_ROW]])

    path = integers(tuple(decision.path) or _ids([]), f"{field}.decision.path")
    for i, node in enumerate(path):
        if node < 0 or node not in rows:
            raise BadInput(f"{field}.decision.path", (i,), "is a node that has a verification row", node)
        if node in path[:i]:
            raise BadInput(f"{field}.decision.path", (i,), "no node is accepted twice", node)
    new: list[int] = []
    reason = None
    for node in path:
        new.append(row_token[rows[node]])
        reason = _end(new, stop_tokens, room)
        if reason:
            break
    accepted = path[: len(new)]
    pending = None
    if reason is None:
        pending = whole(decision.frontier, f"{field}.decision.frontier", 0)
        new.append(int64(pending, f"{field}.decision.frontier", ()))
        reason = _end(new, stop_tokens, room)
    return _Round(
        prompt=prompt,
        output=output,
        kv=kv,
        features=features,
        draft_kv=draft_kv,
        rows=rows,
        row_kv=row_kv,
        row_features=row_features,
        row_draft_kv=row_draft_kv,
        accepted=accepted,
        new=new,
        pending=pending,
        reason=reason,
    )


def _end(new: list[int], stop_tokens: frozenset[int], room: int | None) -> str | None:
    """Why a request ends with the last of its new tokens; a stop token goes before the limit."""
    if new[-1] in stop_tokens:
        return "stop"
    return "length" if len(new) == room else None


def _limits(limits: Limits, held: int, field: str) -> tuple[frozenset[int], int | None]:
    """Stop tokens, and how many more tokens there may be."""
    if isinstance(limits.stop_tokens, (str, bytes)):
        raise BadInput(f"{field}.stop_tokens", (), "holds integers", limits.stop_tokens)
    stop_tokens = frozenset(integers(tuple(limits.stop_tokens) or _ids([]), f"{field}.stop_tokens"))
    if limits.max_new_tokens is None:
        return stop_tokens, None
    most = whole(limits.max_new_tokens, f"{field}.max_new_tokens", 0)
    if held >= most:
        raise BadInput(f"{field}.max_new_tokens", (), f"there is room for one more token than the {held} held", most)
    return stop_tokens, most - held


def _row_map(verified: Verified, field: str) -> tuple[dict[int, int], list[int]]:
    """Node → row, the root's among them; and the token of each row."""
    row_node = integers(verified.row_node, f"{field}.row_node")
    row_token = integers(verified.row_token, f"{field}.row_token")
    if len(row_token) != len(row_node):
        raise BadInput(f"{field}.row_token", (), f"has one entry for each of {len(row_node)} rows", len(row_token))
    rows: dict[int, int] = {}
    for row, node in enumerate(row_node):
        if node == PADDING_ROW:
            continue
        if node < PADDING_ROW:
            raise BadInput(f"{field}.row_node", (row,), "is a node, −1 for the root or −2 for padding", node)
        if node in rows:
            raise BadInput(f"{field}.row_node", (row,), "a node has one row", node)
        if row_token[row] < 0:
            raise BadInput(f"{field}.row_token", (row,), "a token id is no less than 0", row_token[row])
        rows[node] = row
    return rows, row_token


def _tokens(values: object, field: str) -> list[int]:
    """A sequence of token ids."""
    found = integers(values, field)
    for i, token in enumerate(found):
        if int64(token, field, (i,)) < 0:
            raise BadInput(field, (i,), "a token id is no less than 0", token)
    return found


def _vector(values: object, field: str, size: int, entry: str) -> list[float]:
    """One number a row; what it is nobody judges."""
    array = tensor(values, field, "f", ("n",))
    if len(array) != size:
        raise BadInput(field, (), f"has one entry for each {entry}: {size}", len(array))
    return [float(value) for value in array]


def _ids(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64).reshape(-1)


def _floats(values: Sequence[float]) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(-1)
