"""Publication: what a request holds between two rounds, and what one round makes of it.

KV, features and a drafter's rows are one float64 a row, so that a row can spell its own address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle.types.acceptance import Decision
from oracle.types.arrays import Ids, Rows
from oracle.words import DRAFT_KV as DRAFT_KV
from oracle.words import PADDING_ROW as PADDING_ROW
from oracle.words import ROOT_ROW as ROOT_ROW

FINISH_REASONS = ("stop", "length")

NOT_SHOWN: Any = "not shown"
"""What a field of a state holds where the implementation has no such thing; None is an answer."""


@dataclass(frozen=True, eq=False)
class CommittedState:
    """What a request holds once a round is published.

    prompt, output: int64 [P], [O]; the sequence is one after the other. kv, features: float64 [n], one a token of the
    sequence, all but the pending one. pending: the token whose KV is not there yet, the last of the sequence; or None.
    finished: whether it ended. seed: the feature that the draft starts from, or None. freed: float64, the KV of the
    verification rows given back by this publication, in their order. finish_reason: one of `FINISH_REASONS`, or None.
    draft_kv: float64, the drafter's rows, one a token of the sequence but its first; None where it keeps none. A field
    that an implementation has no notion of is `NOT_SHOWN`; prompt and output are always there.
    """

    prompt: Ids
    output: Ids
    kv: Rows
    features: Rows
    pending: int | None
    finished: bool
    seed: float | None = None
    freed: Rows | tuple[float, ...] = ()
    finish_reason: str | None = None
    draft_kv: Rows | None = None


@dataclass(frozen=True, eq=False)
class Verified:
    """The rows of one verification, in the order of its input; vectors [R].

    row_node: int64, the node of a row, −1 = the root, −2 = padding. row_token: int64, the token it consumed. kv,
    features: float64, what the target made of it. draft_kv: float64, what the drafter made of it, NaN where it never
    consumed the token; None where it keeps none.
    """

    row_node: Ids
    row_token: Ids
    kv: Rows
    features: Rows
    draft_kv: Rows | None = None


@dataclass(frozen=True)
class Limits:
    """Where a request ends: stop tokens, which are output, and how many tokens its whole output may have."""

    stop_tokens: tuple[int, ...] = ()
    max_new_tokens: int | None = None


@dataclass(frozen=True, eq=False)
class PublishCase:
    """One request's round: what it held, what was verified, what was decided, and where it ends."""

    state: CommittedState
    verified: Verified
    decision: Decision
    limits: Limits = Limits()
