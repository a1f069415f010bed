"""Publication: what one verified round leaves behind, as one transaction.

Everything is read and refused before anything is built, and what comes out shares no memory with what came in, so a
failure leaves the old state whole. Rows are found by node, through the verification's own row map, never by token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from oracle.publication import Round, floats, ids, read
from oracle.tensors import listed, one_of
from oracle.types import DRAFT_KV, ROOT_ROW, CommittedState, PublishCase


def publish(cases: Sequence[PublishCase], draft_kv: str = "recomputed") -> list[CommittedState]:
    """Publish a round of each request (PUBLISH 2xx–8xx). Raises `BadInput`; then no case was answered.

    draft_kv: "recomputed", a drafter's row of a new token is made from the target's feature before it; or "kept", the
    row of an accepted draft is the one that drafting made, and the others are made from features.
    """
    listed(cases, "cases", PublishCase)
    kept = one_of(draft_kv, "draft_kv", DRAFT_KV) == "kept"
    rounds = [read(case, f"cases[{i}]", kept) for i, case in enumerate(cases)]
    return [_publish(found) for found in rounds]


def _publish(found: Round) -> CommittedState:
    root = [ROOT_ROW] if ROOT_ROW in found.rows else []
    appended = [found.rows[node] for node in root + found.accepted]
    features = found.features + [found.row_features[row] for row in appended]
    return CommittedState(
        prompt=ids(found.prompt),
        output=ids(found.output + found.new),
        kv=floats(found.kv + [found.row_kv[row] for row in appended]),
        features=floats(features),
        pending=found.pending,
        finished=found.reason is not None,
        seed=None if found.pending is None else features[-1],
        freed=tuple(found.row_kv[row] for row in sorted(found.rows.values()) if row not in appended),
        finish_reason=found.reason,
        draft_kv=None if found.draft_kv is None else floats(found.draft_kv + _drafter_rows(found, features)),
    )


def _drafter_rows(found: Round, features: list[float]) -> list[float]:
    """The drafter's row of each new token: made from the target's feature before it, or kept from drafting."""
    first = len(found.prompt) + len(found.output)  # the place of the first new token in the sequence
    rows = [features[first + i - 1] for i in range(len(found.new))]
    if found.row_draft_kv is not None:
        for i, node in enumerate(found.accepted):
            drafted = found.row_draft_kv[found.rows[node]]
            if not math.isnan(drafted):
                rows[i] = drafted
    return rows
