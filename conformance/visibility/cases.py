"""What the checks of visibility run on, and cases worth keeping by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.casefile import storable
from conformance.visibility import drawing
from oracle import visibility as oracle
from oracle.types import AttentionCase, Flags, RolloutCase, RolloutMaskCase


@storable
@dataclass(frozen=True, eq=False)
class Rollouts:
    """Rollouts that are asked for together, or one after the other."""

    rollouts: tuple[RolloutCase, ...]

    def drawn(self) -> str:
        parts = [f"rollout {m}:\n{drawing.rollout(case)}" for m, case in enumerate(self.rollouts)]
        return "\n".join(parts)


def rollout(
    length: int,
    steps: int,
    segment: Sequence[int] | None = None,
    valid: Sequence[int] | None = None,
    position: Sequence[int] | None = None,
) -> RolloutCase:
    """A rollout in arrays of its own; by default all is valid and of segment 0, positions are the addresses."""
    return RolloutCase(
        length,
        steps,
        np.array([0] * length if segment is None else segment, dtype=np.int64),
        np.array([1] * length if valid is None else valid, dtype=bool),
        None if position is None else np.array(position, dtype=np.int64),
    )


def traced(case: RolloutCase, scale: float = 1.0, elsewhere: float | None = None) -> AttentionCase:
    """Values that spell their node: `scale` in an entry of its own, 0 in all others.

    With `elsewhere` every entry at an address that no node has is that number.
    """
    size = case.steps * case.length
    value = scale * np.eye(size, max(size, 1)).reshape(case.steps, case.length, max(size, 1))
    if elsewhere is not None:
        from conformance.roads import visibility as road

        held: Flags = np.zeros((case.steps, case.length), dtype=bool)
        for node in road.nodes(case):
            held[node] = True
        value[~held] = elsewhere
    return AttentionCase(case, value)


def poisoned(case: RolloutCase) -> RolloutCase:
    """The rollout with foreign segments and wild positions wherever nothing is valid."""
    bad, place = ~case.valid, np.arange(case.length)
    held = place if case.position is None else case.position
    return dataclasses.replace(
        case,
        segment=np.where(bad, np.where(place % 2, -1 - place, case.segment + place % 3 - 1), case.segment),
        position=np.where(bad, (place * 5) % 7 - 3, held),
    )


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if isinstance(case, RolloutCase):
        oracle.rollout_visibility(case)
    elif isinstance(case, RolloutMaskCase):
        oracle.rollout_mask(case)
    elif isinstance(case, AttentionCase):
        oracle.rollout_attention([case])
    elif isinstance(case, Rollouts):
        for one in case.rollouts:
            oracle.rollout_visibility(one)


FULL = rollout(5, 3)
"""Five tokens of one segment, three steps: four nodes, three, two."""
ONE_STEP = rollout(4, 1, segment=[3] * 4, position=[2, 3, 4, 5])
DEEP = rollout(10, 7, segment=[5] * 10, position=range(10))
"""Seven steps, as many as EAGLE-3 trains with."""
SHORT = rollout(3, 5)
"""More steps than tokens."""
WIDE = rollout(13, 4)
LONG = rollout(131, 2)
"""Longer than the blocks that masks are made of."""
SKIPS = rollout(6, 3, position=[0, 2, 3, 7, 8, 12])
"""Positions that skip: those of anchor plus step are not those of the addresses."""
SINGLE = rollout(1, 4)
"""One token: no node."""
WHOLE = (FULL, ONE_STEP, DEEP, SHORT, SINGLE, WIDE, SKIPS)
"""One full segment, in every size."""
RIGHT = rollout(7, 4, valid=[1, 1, 1, 1, 1, 0, 0])
LEFT = rollout(7, 3, valid=[0, 0, 1, 1, 1, 1, 1], position=[0, 0, 0, 1, 2, 3, 4])
BOTH = rollout(9, 5, valid=[0, 0, 0, 1, 1, 1, 1, 1, 0], segment=[2] * 9, position=[0, 0, 0, 4, 5, 6, 7, 8, 0])
HOLE = rollout(9, 3, valid=[1, 1, 1, 0, 1, 1, 1, 1, 1], position=[0, 1, 2, 0, 3, 4, 5, 6, 7])
"""One sample with a token missing in the middle: its later nodes see its earlier ones."""
SPARSE = rollout(6, 2, valid=[1, 0, 1, 0, 0, 1])
"""Tokens without a next one: no node."""
PADDED = (RIGHT, LEFT, BOTH)
PACKED = rollout(9, 3, segment=[4, 4, 4, 4, 1, 1, 1, 1, 1], position=[0, 1, 2, 3, 0, 1, 2, 3, 4])
"""Two sequences in one row."""
CROWDED = rollout(10, 3, segment=[6, 6, 6, 2, 9, 9, 9, 9, 0, 0], position=[0, 1, 2, 0, 0, 1, 2, 3, 0, 1])
"""Four sequences, one of a single token."""
DEEPLY_PACKED = rollout(15, 6, segment=[3] * 8 + [8] * 7, position=[*range(8), *range(7)])
FAR = rollout(
    6,
    2,
    segment=[-1, -1, -1, 2**40 - 1, 2**40 - 1, 2**40 - 1],
    position=[131_072, 131_073, 131_080, 5, 131_072, 2**33],
)
"""Segments that are one where ids are cut to 32 bits, and positions beyond."""
PACKS = (PACKED, CROWDED, DEEPLY_PACKED, FAR)
REUSED = rollout(10, 3, segment=[7, 7, 7, 2, 2, 2, 7, 7, 7, 7], position=[0, 1, 2, 0, 1, 2, 3, 4, 5, 6])
"""A segment id that comes back: the same segment."""
BRIEF = rollout(7, 4, segment=[7, 7, 2, 7, 7, 7, 7], position=[0, 1, 0, 2, 3, 4, 5])
"""A segment that comes back within the reach of one node."""
BROKEN = (HOLE, REUSED, BRIEF)
ALL_AT_ONCE = rollout(
    14,
    4,
    segment=[1, 1, 5, 5, 5, 5, 8, 8, 8, 8, 5, 5, 5, 1],
    valid=[0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0],
    position=[9, 9, 0, 2, 3, 4, 0, 0, 1, 2, 5, 6, 9, 1],
)
"""Padding on both sides, two segments, a hole in one of them, and the other comes back."""
EDGES = (*WHOLE, *PADDED, SPARSE, *BROKEN, *PACKS, ALL_AT_ONCE)

WITNESSES: Mapping[str, Any] = {
    "full": FULL,
    "one_step": ONE_STEP,
    "deep": DEEP,
    "short": SHORT,
    "wide": WIDE,
    "skips": SKIPS,
    "right": RIGHT,
    "left": LEFT,
    "hole": HOLE,
    "packed": PACKED,
    "far": FAR,
    "reused": REUSED,
    "all_at_once": ALL_AT_ONCE,
    "together": Rollouts((FULL, RIGHT, WIDE)),
}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them."""
