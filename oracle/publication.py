"""Reading one round of a request: what was held, verified and decided, found right or refused, and where it is cut.

Flat and paged storage read the same; what they make of it is their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import int64, tensor, whole
from oracle.types import PADDING_ROW, ROOT_ROW, CommittedState, Decision, Limits, PublishCase, Verified
from oracle.validation import integers


@dataclass(frozen=True)
class Round:
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


def read(case: PublishCase, field: str, kept: bool) -> Round:
    """One request's round. Raises `BadInput`, its fields under `field`.

    kept: the drafter keeps its rows, so `verified.draft_kv` is read where the state holds such rows.
    """
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

    path = integers(tuple(decision.path) or ids([]), f"{field}.decision.path")
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
    return Round(
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
    stop_tokens = frozenset(integers(tuple(limits.stop_tokens) or ids([]), f"{field}.stop_tokens"))
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


def ids(values: Sequence[int]) -> np.ndarray:
    """Token ids as a vector of int64."""
    return np.array(values, dtype=np.int64).reshape(-1)


def floats(values: Sequence[float]) -> np.ndarray:
    """Rows as a vector of float64."""
    return np.array(values, dtype=np.float64).reshape(-1)
