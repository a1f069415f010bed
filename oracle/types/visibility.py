"""Visibility: which states a drafter's row sees when it is unrolled over its own predictions in training."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.types.arrays import Flags, Ids, Rows
from oracle.words import ROW_ANCHORS as ROW_ANCHORS


@dataclass(frozen=True, eq=False)
class RolloutCase:
    """One batch row of `length` addresses, unrolled for `steps` steps, step 0 counted.

    segment: int64 [length]. valid: bool [length]. position: int64 [length], strictly increasing over the valid
    addresses of a segment; None = the address. Only `valid` is read at an invalid address.
    """

    length: int
    steps: int
    segment: Ids
    valid: Flags
    position: Ids | None = None


@dataclass(frozen=True, eq=False)
class VisibilityGraph:
    """The nodes of a rollout, ordered by (step, anchor): vectors [n] int64; visible: bool [n, n], query × key.

    An implementation that keeps rows that no node has (`last_row` pad) answers for them as well.
    """

    step: Ids
    anchor: Ids
    position: Ids
    visible: Flags


@dataclass(frozen=True, eq=False)
class RolloutMaskCase:
    """The mask of a rollout that is wanted. row_anchor: one of `ROW_ANCHORS`."""

    rollout: RolloutCase
    row_anchor: str = "start"


@dataclass(frozen=True, eq=False)
class AttentionCase:
    """One attention over all nodes of a rollout in which every query scores every key alike.

    value: float64 [steps, length, d], the value of the node of step s at anchor a; what is no node is never read. The
    output of a node is the mean of the values that it sees.
    """

    rollout: RolloutCase
    value: Rows


@dataclass(frozen=True, eq=False)
class Attended:
    """Output of an attention. step, anchor: int64 [n], ordered by (step, anchor). output: float64 [n, d]."""

    step: Ids
    anchor: Ids
    output: Rows
