"""Random tables of rational rows, for the laws."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import strategies as st

from oracle.law import Table


@st.composite
def tables(draw: st.DrawFn, vocabulary: int, depth: int, zeros: bool = True) -> Table:
    """A row for every prefix of up to `depth` tokens; zeros and one-hot rows among them."""
    weights = st.lists(st.integers(0 if zeros else 1, 5), min_size=vocabulary, max_size=vocabulary)
    rows: dict[tuple[int, ...], tuple[Fraction, ...]] = {}
    for length in range(depth + 1):
        for prefix in itertools.product(range(vocabulary), repeat=length):
            row = draw(weights)
            if sum(row) == 0:
                row[draw(st.integers(0, vocabulary - 1))] = 1
            rows[prefix] = tuple(Fraction(w, sum(row)) for w in row)
    return rows
