"""Batches drawn by Hypothesis: every flag, position and token its own, so that a wrong address shows."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.rows.cases import batch
from oracle.types import OWNERS, RolloutRowsCase, SupervisionCase, TokenBatch


@st.composite
def _tokens(draw: st.DrawFn, rows: int, length: int) -> list[list[int]]:
    ids = draw(st.permutations(range(1, rows * length + 1)))
    return [list(ids[b * length : (b + 1) * length]) for b in range(rows)]


@st.composite
def _positions(draw: st.DrawFn, segment: list[int], valid: list[int]) -> list[int]:
    """Strictly increasing over the valid addresses of each segment; as often as not 0, 1, 2, … in each."""
    plain = draw(st.booleans())
    last: dict[int, int] = {}
    found = []
    for t, s in enumerate(segment):
        if not valid[t]:
            found.append(last.get(s, 0))
            continue
        step = 1 if plain else draw(st.integers(1, 3))
        last[s] = last[s] + step if s in last else (0 if plain else draw(st.integers(0, 5)))
        found.append(last[s])
    return found


@st.composite
def _flags(draw: st.DrawFn, rows: int, length: int) -> list[list[int]]:
    return [draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)) for _ in range(rows)]


@st.composite
def _made(draw: st.DrawFn, segment: list[list[int]], valid: list[list[int]], flags: bool) -> TokenBatch:
    rows, length = len(segment), len(segment[0])
    tokens = draw(_tokens(rows, length))
    return batch(
        [[token if ok else 0 for token, ok in zip(*pair)] for pair in zip(tokens, valid)],
        valid,
        segment,
        [draw(_positions(segment[b], valid[b])) for b in range(rows)],
        draw(_flags(rows, length)) if flags else None,
    )


@st.composite
def full(draw: st.DrawFn, flags: bool = True, most: int = 7) -> TokenBatch:
    """One segment that fills one batch row."""
    length = draw(st.integers(2, most))
    return draw(_made([[draw(st.integers(0, 4))] * length], [[1] * length], flags))


@st.composite
def padded(draw: st.DrawFn, flags: bool = True) -> TokenBatch:
    """One segment a batch row, each row with ids of its own: padding on either side, or holes."""
    rows, length = draw(st.integers(1, 3)), draw(st.integers(2, 7))
    collated = draw(st.booleans())  # as collators make it: whole samples, padded on the right
    valid = []
    for _ in range(rows):
        if collated:
            held = draw(st.integers(1, length))
            valid.append([1] * held + [0] * (length - held))
            continue
        kind = draw(st.sampled_from(["right", "left", "holes"]))
        if kind == "holes":
            valid.append(draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)))
            continue
        held = draw(st.integers(0, length))
        ones, zeros = [1] * held, [0] * (length - held)
        valid.append(ones + zeros if kind == "right" else zeros + ones)
    return draw(_made([[3 * b + 1] * length for b in range(rows)], valid, flags))


@st.composite
def packed(draw: st.DrawFn, flags: bool = True) -> TokenBatch:
    """Several segments, one after the other, some of a single token; one or two batch rows, whose ids all differ."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    segment = []
    for b in range(draw(st.integers(1, 2))):
        ids = draw(st.permutations(range(5)))[: len(sizes)]
        segment.append([5 * b + i for i, size in zip(ids, draw(st.permutations(sizes))) for _ in range(size)])
    return draw(_made(segment, [[1] * len(row) for row in segment], flags))


@st.composite
def repeated(draw: st.DrawFn, flags: bool = True) -> TokenBatch:
    """Several full batch rows whose segments have the same id."""
    rows, length = draw(st.integers(2, 3)), draw(st.integers(2, 5))
    return draw(_made([[7] * length] * rows, [[1] * length] * rows, flags))


@st.composite
def reused(draw: st.DrawFn, flags: bool = True) -> TokenBatch:
    """Packs whose segments have the same two ids, each cut somewhere else."""
    length, segment = draw(st.integers(3, 5)), []
    for b in range(draw(st.integers(2, 3))):
        cut = draw(st.integers(1, length - 1))
        segment.append([(7, 2)[b % 2]] * cut + [(2, 7)[b % 2]] * (length - cut))
    return draw(_made(segment, [[1] * length for _ in segment], flags))


@st.composite
def apart(draw: st.DrawFn) -> TokenBatch:
    """Several full batch rows, each of a segment with an id of its own."""
    rows, length = draw(st.integers(2, 3)), draw(st.integers(2, 5))
    return draw(_made([[2 * b + 1] * length for b in range(rows)], [[1] * length] * rows, False))


@st.composite
def interrupted(draw: st.DrawFn, flags: bool = True) -> TokenBatch:
    """A segment that comes back after a hole or after another segment."""
    first, middle, last = (draw(st.integers(2, 3)) for _ in range(3))
    hole = draw(st.booleans())
    segment = [[6] * first + [6 if hole else 1] * middle + [6] * last]
    return draw(_made(segment, [[1] * first + [0 if hole else 1] * middle + [1] * last], flags))


def anything(flags: bool = True) -> st.SearchStrategy[TokenBatch]:
    """Any of these."""
    return st.one_of(full(flags), padded(flags), packed(flags), repeated(flags), reused(flags), interrupted(flags))


@st.composite
def masks(draw: st.DrawFn, batches: st.SearchStrategy[TokenBatch]) -> SupervisionCase:
    """A token mask over a batch, and its owner."""
    given = draw(batches)
    return SupervisionCase(
        given, batch(draw(_flags(*given.valid.shape))).tokens.astype(bool), draw(st.sampled_from(OWNERS))
    )


@st.composite
def rollouts(draw: st.DrawFn, batches: st.SearchStrategy[TokenBatch]) -> RolloutRowsCase:
    """A batch and its steps, now and then more of them than tokens."""
    return RolloutRowsCase(draw(batches), draw(st.sampled_from([1, 2, 2, 3, 3, 4, 9])))
