"""Rows of logits for the checks of warping: heterogeneous, multiples of 1/4, with and without ties.

Such numbers are held by every dtype, so an implementation in a narrow one is handed the very same rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from oracle.types import WarpCase

TEMPERATURES = (0.5, 2.0, 0.25, 1.5, 0.7)
MASSES = (0.5, 0.9, 0.3, 0.95, 0.7)
SHARES = (0.1, 0.3, 0.05, 0.6)


@st.composite
def row(draw: st.DrawFn, size: int, ties: bool = False, masked: bool = False) -> list[float]:
    """`size` logits in [−4, 4]; all different unless `ties`, of which there are then some."""
    quarters = draw(st.lists(st.integers(-16, 16), min_size=size, max_size=size, unique=True))
    if ties:
        copies = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3))
        for i in copies:
            quarters[i] = quarters[(i + 1) % size]
    found = [q / 4 for q in quarters]
    if masked:
        for i in draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 2)):
            found[i] = -math.inf
    return found


@st.composite
def one_row(
    draw: st.DrawFn,
    temperature: Sequence[float] = (1.0,),
    filters: Sequence[str] = (),
    ties: bool = False,
    masked: bool = False,
) -> WarpCase:
    """A case of one row, as a vector or as a matrix of one, with the filters that are asked for."""
    size = draw(st.integers(3, 7))
    entries = np.array(draw(row(size, ties, masked)))
    return WarpCase(
        entries[None] if draw(st.booleans()) else entries,
        draw(st.sampled_from(temperature)),
        draw(st.integers(1, size - 1)) if "top_k" in filters else 0,
        draw(st.sampled_from(MASSES)) if "top_p" in filters else 1.0,
        draw(st.sampled_from(SHARES)) if "min_p" in filters else 0.0,
    )


@st.composite
def combined(draw: st.DrawFn) -> WarpCase:
    """One row, one filter with a temperature, or several filters."""
    pairs = [("top_k", "top_p"), ("top_p", "min_p"), ("top_k", "min_p"), ("top_k", "top_p", "min_p")]
    alone = [("top_k",), ("top_p",), ("min_p",)]
    if draw(st.booleans()):
        return draw(one_row(TEMPERATURES, draw(st.sampled_from(alone))))
    return draw(one_row((1.0, *TEMPERATURES), draw(st.sampled_from(pairs))))


@st.composite
def side_by_side(draw: st.DrawFn) -> WarpCase:
    """Two to four rows under one set of parameters, each filter in use or not."""
    size, count = draw(st.integers(3, 6)), draw(st.integers(2, 4))
    rows = draw(st.lists(row(size), min_size=count, max_size=count, unique_by=tuple))
    which = draw(st.sampled_from([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]))
    return WarpCase(
        np.array(rows),
        draw(st.sampled_from(TEMPERATURES)),
        draw(st.integers(1, size - 1)) if which[0] else 0,
        draw(st.sampled_from(MASSES)) if which[1] else 1.0,
        draw(st.sampled_from(SHARES)) if which[2] else 0.0,
    )


@st.composite
def own_parameters(draw: st.DrawFn, filters: Sequence[str]) -> WarpCase:
    """Two to four rows, each with parameters of its own; some filters of `filters` are off for some rows."""
    size, count = draw(st.integers(4, 6)), draw(st.integers(2, 4))
    rows = draw(st.lists(row(size), min_size=count, max_size=count, unique_by=tuple))
    which = draw(st.sampled_from([name for name in filters if name != "temperature"] or ["temperature"]))

    def each(options: Sequence[float]) -> np.ndarray:
        return np.array(draw(st.lists(st.sampled_from(options), min_size=count, max_size=count)))

    return WarpCase(
        np.array(rows),
        np.array(draw(st.permutations([*TEMPERATURES, 1.0]))[:count]),
        each(range(1, size)).astype(np.int64) if which == "top_k" else 0,
        each((1.0, *MASSES)).astype(np.float64) if which == "top_p" else 1.0,
        each((0.0, *SHARES)).astype(np.float64) if which == "min_p" else 0.0,
    )
