"""The second road to visibility: ends of runs and a predicate of two pairs of numbers, instead of a graph.

A run is a stretch of neighbouring valid addresses of one segment; node (s, a) exists where the run of a ends behind
a + s. It sees (0, b) where b is of its segment and not behind a, and (t, a) up to its own step.
"""

from __future__ import annotations

import numpy as np

from oracle.types import Flags, Ids, RolloutCase, VisibilityGraph

Node = tuple[int, int]


def ends(case: RolloutCase) -> list[int]:
    """The last address of the run of each address, read from the end; −1 where it is invalid."""
    found = [-1] * int(case.length)
    for t in reversed(range(int(case.length))):
        if case.valid[t]:
            goes_on = t + 1 < case.length and found[t + 1] >= 0 and case.segment[t + 1] == case.segment[t]
            found[t] = found[t + 1] if goes_on else t
    return found


def nodes(case: RolloutCase) -> list[Node]:
    """(step, anchor) of every node, in order."""
    last = ends(case)
    return [(s, a) for s in range(int(case.steps)) for a in range(int(case.length)) if a + s + 1 <= last[a]]


def graph(case: RolloutCase, position: str = "anchor_plus_step", base: int = 0) -> VisibilityGraph:
    """The right answer; `position` "own" counts a node's position at address a + s instead of at its anchor."""
    found = nodes(case)
    step, anchor = (np.array([node[i] for node in found], dtype=np.int64) for i in (0, 1))
    held: Ids = np.arange(case.length) if case.position is None else np.asarray(case.position, dtype=np.int64)
    stands = held[anchor + step] if position == "own" else held[anchor] + step
    segment = np.asarray(case.segment)[anchor]
    s, a, t, b = step[:, None], anchor[:, None], step[None], anchor[None]
    earlier = (t == 0) & (b <= a) & (segment[:, None] == segment[None])
    own = (b == a) & (t <= s)
    return VisibilityGraph(step, anchor, stands + base, earlier | own)


def mask(case: RolloutCase, row_anchor: str) -> Flags:
    """The right mask: bool [steps, length, steps · length]."""
    right = graph(case)
    block = int(case.length)
    row = right.anchor + right.step * (row_anchor == "absolute")
    flat = right.step * block + row
    found = np.zeros((case.steps * block, case.steps * block), dtype=bool)
    found[np.ix_(flat, flat)] = right.visible
    return found.reshape(case.steps, block, case.steps * block)


def weights(case: RolloutCase) -> np.ndarray:
    """The weight of every node for every node, float64 [n, n]: equal ones among those that are seen."""
    visible = graph(case).visible
    return np.asarray(visible / np.maximum(visible.sum(axis=1, keepdims=True), 1))
