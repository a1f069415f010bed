"""Rollouts drawn by Hypothesis: one full segment, padded ones, packs, segments that are interrupted."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from conformance.visibility.cases import Rollouts, rollout
from oracle.types import RolloutCase

STEPS = [1, 2, 2, 3, 3, 4, 5, 7]


@st.composite
def _made(draw: st.DrawFn, segment: list[int], valid: list[int]) -> RolloutCase:
    """Positions are the addresses, start anew in each segment, or skip."""
    kind = draw(st.sampled_from(["none", "plain", "skipping"]))
    gaps = random.Random(draw(st.integers(0, 2**16)) if kind == "skipping" else 0)
    last: dict[int, int] = {}
    position = []
    for t, s in enumerate(segment):
        if valid[t]:
            first, on = (gaps.randint(0, 5), gaps.randint(1, 3)) if kind == "skipping" else (0, 1)
            last[s] = last[s] + on if s in last else first
        position.append(last.get(s, 0))
    steps = draw(st.sampled_from(STEPS))
    return rollout(len(segment), steps, segment, valid, None if kind == "none" else position)


@st.composite
def full(draw: st.DrawFn, least: int = 1) -> RolloutCase:
    """One segment that fills its row."""
    length = draw(st.integers(least, 9))
    return draw(_made([draw(st.integers(0, 4))] * length, [1] * length))


@st.composite
def padded(draw: st.DrawFn) -> RolloutCase:
    """One segment, with padding on either side."""
    left, held, right = draw(st.integers(0, 4)), draw(st.integers(0, 6)), draw(st.integers(0, 3))
    return draw(_made([draw(st.integers(0, 4))] * (left + held + right), [0] * left + [1] * held + [0] * right))


@st.composite
def packed(draw: st.DrawFn) -> RolloutCase:
    """Several segments one after the other, some of a single token."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=2, max_size=3))
    ids = draw(st.permutations(range(5)))[: len(sizes)]
    segment = [i for i, size in zip(ids, sizes) for _ in range(size)]
    return draw(_made(segment, [1] * len(segment)))


@st.composite
def interrupted(draw: st.DrawFn, by: tuple[str, ...] = ("hole", "segment")) -> RolloutCase:
    """A segment that comes back after a hole or after another segment."""
    first, middle, last = (draw(st.integers(2, 4)) for _ in range(3))
    hole = draw(st.sampled_from(by)) == "hole"
    segment = [6] * first + [6 if hole else 1] * middle + [6] * last
    return draw(_made(segment, [1] * first + [0 if hole else 1] * middle + [1] * last))


@st.composite
def mixed(draw: st.DrawFn) -> RolloutCase:
    """Two segments that alternate, with holes and padding anywhere."""
    runs = draw(
        st.lists(st.tuples(st.sampled_from([0, 1, 1, 1]), st.sampled_from([2, 7]), st.integers(1, 4)), max_size=4)
    )
    segment = [s for _, s, size in runs for _ in range(size)]
    return draw(_made(segment, [ok for ok, _, size in runs for _ in range(size)]))


def anything() -> st.SearchStrategy[RolloutCase]:
    """Any of these."""
    return st.one_of(full(), padded(), packed(), interrupted(), mixed())


def together() -> st.SearchStrategy[Rollouts]:
    """Two to four of them, ragged."""
    return st.lists(anything(), min_size=2, max_size=4).map(lambda cases: Rollouts(tuple(cases)))
