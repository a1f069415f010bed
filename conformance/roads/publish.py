"""The second road to publication: a journal with one record a token, written in full and then cut.

Every token of prompt, output, path and frontier has a record of its own, in the order of the sequence. The end is the
least of three places: behind the first new stop token, at the limit, behind the last record. What is given back is what
the verification handed out, less what the records keep, as multisets.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle.types import CommittedState, PublishCase

NOTHING = math.nan
"""What a record holds where there is nothing yet."""


@dataclass(frozen=True)
class Record:
    """A token of the sequence, and the rows that belong to it; NaN where one is not there."""

    token: int
    kv: float = NOTHING
    feature: float = NOTHING
    draft: float = NOTHING


def published(case: PublishCase, draft_kv: str = "recomputed") -> CommittedState:
    """The state of a request after its round."""
    before = held(case)
    whole = [*before, *new(case, draft_kv)]
    end = first_end(case, whole)
    journal = whole[:end]
    size = len(case.state.prompt)
    drafters = None
    if case.state.draft_kv is not None:
        # a record without a draft row has it made of the feature before it
        made = [b.draft if not math.isnan(b.draft) else a.feature for a, b in itertools.pairwise(journal)]
        drafters = numbers(made)
    last = journal[-1]
    waits = math.isnan(last.kv)
    stored = journal[:-1] if waits else journal
    reason = "stop" if last.token in case.limits.stop_tokens else "length"
    return CommittedState(
        prompt=np.array([record.token for record in journal[:size]], dtype=np.int64),
        output=np.array([record.token for record in journal[size:]], dtype=np.int64),
        kv=numbers([record.kv for record in stored]),
        features=numbers([record.feature for record in stored]),
        pending=last.token if waits else None,
        finished=end is not None,
        seed=journal[-2].feature if waits else None,
        freed=given_back(case, journal[len(case.state.kv) :]),
        finish_reason=None if end is None else reason,
        draft_kv=drafters,
    )


def held(case: PublishCase) -> list[Record]:
    """The records of the sequence; the root's row is that of the pending token."""
    state = case.state
    tokens = [int(token) for part in (state.prompt, state.output) for token in part]
    root = [row for row, node in enumerate(case.verified.row_node) if node == -1]
    kv = [*state.kv, *(case.verified.kv[row] for row in root)]
    features = [*state.features, *(case.verified.features[row] for row in root)]
    drafts = [NOTHING, *(state.draft_kv if state.draft_kv is not None else [NOTHING] * (len(tokens) - 1))]
    return [Record(*fields) for fields in zip(tokens, map(float, kv), map(float, features), map(float, drafts))]


def new(case: PublishCase, draft_kv: str) -> list[Record]:
    """The records of the path and of the frontier, whatever ends the request."""
    seen = case.verified
    drafts = seen.draft_kv if draft_kv == "kept" and seen.draft_kv is not None else [NOTHING] * len(seen.row_node)
    by_node = {
        int(node): Record(int(token), float(kv), float(feature), float(draft))
        for node, token, kv, feature, draft in zip(seen.row_node, seen.row_token, seen.kv, seen.features, drafts)
        if node != -2
    }
    return [*(by_node[node] for node in case.decision.path), Record(int(case.decision.frontier))]


def first_end(case: PublishCase, whole: Sequence[Record]) -> int | None:
    """How long the sequence is where a new stop token or the limit ends it; None where neither is reached."""
    start = len(case.state.prompt) + len(case.state.output)
    ends = [i + 1 for i, record in enumerate(whole) if i >= start and record.token in case.limits.stop_tokens]
    if case.limits.max_new_tokens is not None:
        ends.append(len(case.state.prompt) + case.limits.max_new_tokens)
    return min((e for e in ends if e <= len(whole)), default=None)


def given_back(case: PublishCase, kept: Sequence[Record]) -> tuple[float, ...]:
    """The KV that was handed out for this round and is in none of the records `kept`, in the order of rows."""
    rows = [float(kv) for kv, node in zip(case.verified.kv, case.verified.row_node) if node != -2]
    rest = Counter(rows)
    rest.subtract(record.kv for record in kept if not math.isnan(record.kv))
    return tuple(kv for kv in rows if rest[kv] > 0)


def numbers(values: Sequence[float]) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(-1)
