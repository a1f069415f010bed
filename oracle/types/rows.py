"""Training rows: which addresses a trainer gathers, and which of its rows are supervised.

x[t] is the token at address t of a batch row, f[t] the target feature computed there, p[t] the target's law of
x[t+1]. Row t is fed f[t] and the embedding of x[t+1]; its targets are f[t+1] and p[t+1].
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.types.arrays import Flags, Ids, Rows
from oracle.words import OWNERS as OWNERS


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """A batch of token sequences, padded or packed; every array is [B, S].

    tokens: int64 ids. valid: bool, whether the address holds a token. segment: int64, the sequence that the token
    belongs to; ids of different batch rows are different sequences. position: int64, strictly increasing over the
    valid addresses of a segment. supervise: bool, a flag of the row whose source is this address.
    Only `valid` is read at an invalid address.
    """

    tokens: Ids
    valid: Flags
    segment: Ids
    position: Ids
    supervise: Flags


@dataclass(frozen=True, eq=False)
class RowPlan:
    """Rows of a batch, ordered by (batch, source): vectors [R], `visible` bool [R, R], query × key.

    source, advanced, target: int64 addresses of the feature, the token and the target feature of the row. label:
    int64, the observed token id at source + 2 in hard rows, −1 where there is none and in all soft rows. supervise:
    bool. position: int64, that of the source.
    """

    batch: Ids
    source: Ids
    advanced: Ids
    target: Ids
    label: Ids
    supervise: Flags
    position: Ids
    visible: Flags


@dataclass(frozen=True, eq=False)
class SupervisionCase:
    """A trainer's unshifted token mask, bool [B, S], and whose flag it is: "source", "advanced" or "label"."""

    batch: TokenBatch
    token_mask: Flags
    owner: str


@dataclass(frozen=True, eq=False)
class GatherCase:
    """A batch with the target features [B, S, d] that its rows are gathered from."""

    batch: TokenBatch
    features: Rows


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """What a trainer's draft model is fed, one entry a row, ordered by (batch, source).

    batch: int64 [R], the batch row. feature: float64 [R, d]. token: int64 [R]. target: float64 [R, d], the feature
    that the row is trained towards (or that its target law is computed from). supervise: bool [R]. position: int64 [R].
    """

    batch: Ids
    feature: Rows
    token: Ids
    target: Rows
    supervise: Flags
    position: Ids


@dataclass(frozen=True, eq=False)
class RolloutRowsCase:
    """A batch rolled out for `steps` ≥ 1 steps, step 0 included."""

    batch: TokenBatch
    steps: int


@dataclass(frozen=True, eq=False)
class RolloutRows:
    """Nodes (step, anchor) of a rollout, ordered by (step, batch, anchor): vectors [N].

    consumed: int64, the address of the token that the node is fed. target: int64, the address of its target feature
    and law. supervise: bool. position: int64. state_from: int64, the index of the node whose state it is fed, −1 for
    the target's feature at the anchor.
    """

    step: Ids
    batch: Ids
    anchor: Ids
    consumed: Ids
    target: Ids
    supervise: Flags
    position: Ids
    state_from: Ids
