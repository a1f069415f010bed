"""Rows of logits worth keeping by name: extremes, ties, filters that are off, and what conventions disagree on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from oracle.types import WarpCase


def row(
    logits: Sequence[float], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> WarpCase:
    """One row of logits and its parameters."""
    return WarpCase(np.array([logits], dtype=np.float64), temperature, top_k, top_p, min_p)


EXTREME_ROWS = (
    row([0.25, 1.0, 0.75, -2.0], 2.0**-20),
    row([0.25, 1.0, 1.0, -2.0], 2.0**-60),  # two tokens share the limit
    row([0.0, -0.25, 0.5, 0.25], 2.0**20),
    row([200.0, 198.5, 199.0, 0.0]),  # exp overflows float32 where the maximum is not taken off
    row([1000.0, 999.5, 998.0, -1000.0]),  # and float64
    row([-1000.0, -1001.0, -1000.5]),  # or all of it underflows
    row([10000.0, -10000.0, 9999.75, 0.0]),
    row([-10000.0, -10000.25, -9999.5], 0.5),
    row([2.0**100, -(2.0**100), 0.0]),
)

OFF_ROWS = (
    row([0.25, 1.0, -0.75, 0.5], 2.0, top_k=0),
    row([0.25, 1.0, -0.75, 0.5], 0.5, top_k=4),
    row([0.25, 1.0, -0.75, 0.5], 0.5, top_k=9),
    row([-0.25, 2.0, 0.75], 1.0, top_k=2**31 - 1),
    row([-4.0, 40.0, 0.0, -8.0], top_p=1.0),  # rounded, the first token has all of the mass
    row([-4.0, 40.0, 0.0, -8.0], min_p=0.0),
    row([-4.0, 40.0, 0.0, -8.0], 1.0, 4, 1.0, 0.0),
)

WITNESSES: Mapping[str, WarpCase] = {
    # the two most probable tokens fall short of the mass, so the least probable one is needed as well
    "nucleus_of_all_tokens": row([0.0, 0.25, 0.5], top_p=0.9),
    "heated_nucleus_of_all_tokens": row([0.0, 0.25, 0.5], 2.0, top_p=0.9),
    "nucleus_of_all_unmasked_tokens": row([-math.inf, 0.25, 0.5], top_p=0.9),
    "nuclei_of_all_tokens_side_by_side": WarpCase(np.array([[0.0, 0.25, 0.5], [0.25, 0.0, 0.75]]), 0.5, 0, 0.9),
    "nucleus_of_all_tokens_beside_others": WarpCase(
        np.array([[0.75, -0.25, 0.0, 0.5], [0.0, 0.25, 0.5, -0.25], [-1.0, 0.25, 0.5, 2.0]]),
        np.array([0.5, 1.0, 2.0]),
        0,
        np.array([0.5, 0.95, 0.7]),
    ),
    "all_tokens_tied": row([0.25] * 5, top_k=2),
    "tied_at_the_cut_of_a_nucleus": row([0.0, 1.0, 1.0, 1.0, -1.0], top_p=0.45),
}
"""Cases that show a known deviation, as `conformance.acceptance.cases.WITNESSES` lists them."""

TIED_ROWS = (
    row([1.0, 2.0, 2.0, 2.0, 0.0], top_k=2),
    WITNESSES["all_tokens_tied"],
    row([-0.5, 0.75, -0.5, 0.75, -0.5], 0.5, top_k=1),
    WITNESSES["tied_at_the_cut_of_a_nucleus"],
    row([0.25] * 5, top_p=0.5),
    row([2.0, 0.5, -1.0, 0.5, 0.5], top_p=0.7),
)

ORDER_ROWS = (
    row([0.25, 0.75, -0.5, 1.0, -0.75, 2.0], 0.5, 3, 0.75),
    row([0.0, 1.5, 1.25, 2.0, -0.25, -2.0], 2.0, 3, 0.625),
    row([-1.25, 1.5, 0.0, 0.75, -1.0, 0.5], 2.0, 0, 0.625, 0.5),
    row([-1.0, 0.75, -2.0, 1.0, 1.5, 1.25], 0.5, 2, 0.5, 0.0625),
    row([1.0, 1.75, -0.5, -1.0, -1.25, 2.0], 0.5, 0, 0.5, 0.5),
    row([1.0, 0.5, 0.25, 1.75, -0.5], 0.5, 0, 0.625, 0.125),
)
"""Any two filter orders that can differ at all differ on one of these, by more than any dtype's rounding;
`tests/test_conventions.py` measures it. The first two need no min-p."""

TIES_OF_THE_KTH = (
    row([1.0, 2.0, 2.0, 2.0, 0.0], top_k=2),
    row([0.5, -1.0, 0.5, 1.5, 0.5], 0.5, top_k=3),
)
"""The two treatments of tokens tied with the k-th differ on these."""

FLAT_BESIDE_PEAKED = WarpCase(
    np.array([[0.0, 0.25, -0.25, 0.5], [-1.0, 4.0, 0.5, 0.0], [0.5, -1.5, 0.25, -0.5]]), 1.0, 0, 1.0, 0.3
)
"""The largest probability of one row would cut the others to nothing."""

COLD_BESIDE_WARM = WarpCase(
    np.array([[0.25, 1.0, -0.5, 0.75], [0.5, -1.0, 0.25, 1.5], [1.0, 0.75, -0.25, 0.0]]), np.array([0.0, 1.0, 0.5])
)
"""Rows of temperature zero, one and a half: a batch is neither greedy nor not."""

_LONG = [((17 * v + 5) % 41) / 8 - 2.5 for v in range(41)]

THRESHOLD_ROWS = {
    "top_k": (row(_LONG, top_k=17), row([0.3, -1.7, 0.9, 0.1], top_k=2)),
    "top_p": (row(_LONG, top_p=0.6), row([0.3, -1.7, 0.9, 0.1], top_p=0.8)),
    "min_p": (
        row(_LONG, min_p=0.05),
        row([0.5, 2.0, 2.0, 1.75], min_p=1.0),
        row([0.5, 2.0, 1.75], min_p=1.0),
    ),
}
"""A vocabulary longer than those that are drawn, logits off every grid, and min-p at its end of range."""

NO_LAWS = (
    row([0.25, math.nan, 1.0]),
    row([math.nan] * 3),
    row([0.25, math.inf, 1.0]),
    row([math.inf, math.inf, 0.0], 0.5),
    row([-math.inf] * 3),
    row([0.25, math.nan, 1.0], 1.0, 2),
    row([0.25, math.nan, 1.0], 0.0),
    WarpCase(np.array([[0.25, 0.5, 1.0], [0.5, math.nan, 0.25], [1.0, -0.5, 0.25]]), 2.0),
)
