"""Batches drawn by Hypothesis: ragged, greedy or mixed, with limits and numbers of drafts of their own."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.decode.cases import Requests

TEMPERATURES = [0.0, 0.0, 0.5, 1.0, 2.0]


@st.composite
def batches(
    draw: st.DrawFn,
    least: int = 1,
    most: int = 5,
    drafts: bool = False,
    sampled: bool = False,
    one_limit: bool = False,
    shortest: int = 8,
) -> Requests:
    """`least` to `most` requests; `drafts`: numbers of drafts of their own; `sampled`: temperatures of their own.

    shortest: the lowest limit; what low limits break, the clauses about limits say.
    """
    count = draw(st.integers(least, most))

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(values, min_size=count, max_size=count)))

    seed = draw(st.integers(100, 2**16))
    lengths = each(st.integers(1, 10))
    limits = (draw(st.integers(shortest, 16)),) if one_limit else each(st.integers(shortest, 16))
    return Requests(
        seed,
        lengths,
        limits,
        each(st.integers(0, 6)) if drafts else (),
        tuple(draw(st.lists(st.sampled_from(TEMPERATURES), min_size=count, max_size=count))) if sampled else (),
    )


@st.composite
def stopped(draw: st.DrawFn, most: int = 1) -> Requests:
    """Up to three requests, and `most` stop tokens at most that one of them comes to."""
    lengths = tuple(draw(st.lists(st.integers(1, 8), min_size=1, max_size=3)))
    limit = draw(st.integers(2, 16))
    places = st.tuples(st.integers(0, len(lengths) - 1), st.integers(0, limit - 1))
    stops = tuple(draw(st.lists(places, min_size=most, max_size=most)))
    return Requests(draw(st.integers(100, 2**16)), lengths, (limit,), stops=stops)
