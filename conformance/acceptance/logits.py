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
def at_a_threshold(draw: st.DrawFn, name: str) -> WarpCase:
    """One row whose threshold lies a little beside what decides: the mass of a set, or the ratio of two tokens."""
    entries = draw(row(draw(st.integers(3, 7))))
    weights = sorted((math.exp(x) for x in entries), reverse=True)
    cut = draw(st.integers(1, len(weights) - 1))
    beside = draw(st.sampled_from((-(2.0**-9), 2.0**-9)))
    given = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    if name == "top_k":
        given["top_k"] = cut
    elif name == "top_p":
        given["top_p"] = min(max(sum(weights[:cut]) / sum(weights) + beside, 2.0**-9), 1.0)
    else:
        given["min_p"] = min(weights[cut] / weights[0] * (1 + beside), 1.0)
    return WarpCase(np.array(entries), 1.0, int(given["top_k"]), given["top_p"], given["min_p"])


@st.composite
def side_by_side(draw: st.DrawFn) -> WarpCase:
    """Two to six rows under one set of parameters, up to two filters in use; some rows have ties or masked tokens."""
    size = draw(st.integers(3, 6))
    which = draw(st.sampled_from([(), ("top_k",), ("top_p",), ("min_p",), ("top_k", "top_p"), ("top_p", "min_p")]))
    rows = draw(rows_of(size, which))
    return WarpCase(
        np.array(rows),
        draw(st.sampled_from(TEMPERATURES)),
        draw(st.integers(1, size - 1)) if "top_k" in which else 0,
        draw(st.sampled_from(MASSES)) if "top_p" in which else 1.0,
        draw(st.sampled_from(SHARES)) if "min_p" in which else 0.0,
    )


@st.composite
def rows_of(draw: st.DrawFn, size: int, filters: Sequence[str]) -> list[list[float]]:
    """Two to six different rows; ties only where no filter cuts between tokens, which is judged row by row."""
    kinds = row(size) | row(size, masked=True)
    if "top_k" not in filters and "top_p" not in filters:
        kinds |= row(size, ties=True)
    return draw(st.lists(kinds, min_size=2, max_size=6, unique_by=tuple))


@st.composite
def own_parameters(draw: st.DrawFn, filters: Sequence[str]) -> WarpCase:
    """Two to six rows, each with parameters of its own, zero temperature and filters that are off among them."""
    size = draw(st.integers(4, 6))
    known = [name for name in filters if name != "temperature"]
    which = draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
    rows = draw(rows_of(size, which))

    def each(options: Sequence[float], kind: type) -> np.ndarray:
        return np.array([draw(st.sampled_from(options)) for _ in rows], dtype=kind)

    return WarpCase(
        np.array(rows),
        each((*TEMPERATURES, 1.0, 0.0), np.float64) if "temperature" in filters else 1.0,
        each(range(size), np.int64) if "top_k" in which else 0,
        each((1.0, *MASSES), np.float64) if "top_p" in which else 1.0,
        each((0.0, *SHARES), np.float64) if "min_p" in which else 0.0,
    )
