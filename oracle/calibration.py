"""A drafter's confidence beside what the verifier did: in buckets, with counts, so that workers' results add up.

Confidence orders and prunes a tree; it is no probability of acceptance until it is measured to be one. Only tested
nodes say anything: a node below a refused one was neither accepted nor refused.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from oracle.errors import BadInput
from oracle.metrics import ratio
from oracle.tensors import finite, listed, tensor
from oracle.types import Decision, Flags, Ids, Rows
from oracle.validation import parents

TENTHS = tuple(i / 10 for i in range(11))


@dataclass(frozen=True)
class Calibration:
    """Buckets [edges[i], edges[i + 1]), the last one with its right edge.

    tested, accepted: nodes by bucket. confidence: the exact sum of theirs. In an empty bucket ratios are None.
    """

    edges: tuple[float, ...]
    tested: tuple[int, ...]
    accepted: tuple[int, ...]
    confidence: tuple[Fraction, ...]

    @property
    def observed(self) -> tuple[float | None, ...]:
        """By bucket: accepted / tested."""
        return tuple(map(ratio, self.accepted, self.tested))

    @property
    def claimed(self) -> tuple[float | None, ...]:
        """By bucket: the mean confidence."""
        return tuple(float(total / count) if count else None for total, count in zip(self.confidence, self.tested))

    @property
    def error(self) -> float | None:
        """The expected calibration error: |accepted − claimed| over all buckets, by tested node."""
        apart = sum(abs(count - total) for count, total in zip(self.accepted, self.confidence))
        return float(apart / sum(self.tested)) if any(self.tested) else None


def calibrate(
    confidence: Rows, accepted: Flags, tested: Flags | None = None, edges: Sequence[float] = TENTHS
) -> Calibration:
    """Sort nodes into buckets by their confidence. Raises `BadInput`.

    confidence: floats [N] in [0, 1]; accepted: bool [N]; tested: bool [N], all by default; what an untested node holds
    is not read. edges: strictly increasing from 0 to 1. A confidence is compared with the edges as it is, unrounded.
    Source: EAGLE-2 Figure 6.
    """
    held = tensor(confidence, "confidence", "f", ("N",))
    flags = tensor(accepted, "accepted", "b", (len(held),))
    asked = np.ones(len(held), dtype=bool) if tested is None else tensor(tested, "tested", "b", (len(held),))
    borders = _edges(edges)
    size = len(borders) - 1
    counts, hits, sums = [0] * size, [0] * size, [Fraction(0)] * size
    for i in np.flatnonzero(asked):
        value = finite(held[i], "confidence", "a tested node has a confidence in [0, 1]", (int(i),))
        if not 0 <= value <= 1:
            raise BadInput("confidence", (int(i),), "a tested node has a confidence in [0, 1]", value)
        bucket = min(bisect.bisect_right(borders, value), size) - 1
        counts[bucket] += 1
        hits[bucket] += bool(flags[i])
        sums[bucket] += Fraction(value)
    return Calibration(borders, tuple(counts), tuple(hits), tuple(sums))


def add_calibrations(parts: Sequence[Calibration]) -> Calibration:
    """The calibration of all nodes of the parts, which have the same edges. Raises `BadInput`."""
    listed(parts, "parts", Calibration)
    if not parts:
        raise BadInput("parts", (), "there is at least one part, which has the edges", 0)
    for i, part in enumerate(parts):
        if part.edges != parts[0].edges:
            raise BadInput(f"parts[{i}].edges", (), "all parts have the same edges", part.edges)
    return Calibration(
        parts[0].edges,
        tuple(map(sum, zip(*(part.tested for part in parts)))),
        tuple(map(sum, zip(*(part.accepted for part in parts)))),
        tuple(sum(sums, Fraction(0)) for sums in zip(*(part.confidence for part in parts))),
    )


def outcomes(parent: Ids, decision: Decision) -> tuple[Flags, Flags]:
    """Which nodes of a tree were tested, and which accepted: bool [n] both. Raises `BadInput`.

    A verifier tests the children of the last accepted node in node order, up to the first that it accepts (coin scheme
    per_node; in the others a whole sibling group is decided at once, and the later siblings count as untested, too).
    """
    above = parents(parent, "parent")
    tested, accepted = np.zeros(len(above), dtype=bool), np.zeros(len(above), dtype=bool)
    here = -1
    for i, node in enumerate(decision.path):
        if not 0 <= node < len(above) or above[node] != here:
            raise BadInput("decision.path", (i,), f"an accepted node is a child of the one before it, {here}", node)
        tested[[child for child in range(node + 1) if above[child] == here]] = True
        accepted[node] = True
        here = node
    tested[[child for child in range(len(above)) if above[child] == here]] = True
    return tested, accepted


def _edges(values: Sequence[float]) -> tuple[float, ...]:
    borders = tuple(finite(value, "edges", index=(i,)) for i, value in enumerate(values))
    if len(borders) < 2 or borders[0] != 0 or borders[-1] != 1:
        raise BadInput("edges", (), "begins with 0 and ends with 1", borders)
    for i in range(1, len(borders)):
        if borders[i] <= borders[i - 1]:
            raise BadInput("edges", (i,), "is larger than the edge before it", borders[i])
    return borders
