"""Chains drawn by Hypothesis: heterogeneous by construction, small, and rich in edges.

Rows of one case all differ, vocabulary and chain length never coincide by habit, and coins are
multiples of 2⁻²⁴, so that implementations with float32 coins are handed the very same ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from conformance.acceptance.cases import LAST_COIN, Batch, chain, coins
from oracle.types import Coins, VerifyCase

SAMPLED_AND_POINT = ("iid", "point")

_digit = st.integers(0, 63)
# digit by digit, since Hypothesis mostly draws small numbers from a range as wide as this
_grid = st.tuples(_digit, _digit, _digit, _digit).map(lambda d: ((d[0] * 64 + d[1]) * 64 + d[2]) * 64 + d[3])
coin = st.one_of(_grid.map(lambda k: k / 2**24), st.sampled_from([0.0, 0.25, 0.5, 0.75, LAST_COIN]))
inner_coin = _grid.map(lambda k: max(k, 1) / 2**24)
small_coin = _grid.map(lambda k: max(k >> 4, 1) / 2**24)
"""Below 1/16, so that most drafts are accepted and walks go deep."""
seeds = st.integers(0, 2**31 - 1)


@st.composite
def rows(draw: st.DrawFn, count: int, vocabulary: int, positive: Sequence[int | None] = ()) -> list[list[float]]:
    """`count` different laws over `vocabulary` tokens; row i gives `positive[i]`, if any, some mass."""
    found: list[list[float]] = []
    for i in range(count):
        weights = draw(st.lists(st.integers(0, 12), min_size=vocabulary, max_size=vocabulary))
        if draw(st.integers(0, 5)) == 0:  # one-hot rows are an edge of their own
            weights = [0] * vocabulary
        token = positive[i] if i < len(positive) else None
        if token is not None and weights[token] == 0:
            weights[token] = draw(st.integers(1, 12))
        if sum(weights) == 0:
            weights[draw(st.integers(0, vocabulary - 1))] = 1
        row = [w / sum(weights) for w in weights]
        shift = 0
        while row in found and shift < vocabulary:  # equal rows would hide a wrong index
            shift += 1
            weights[(i + shift) % vocabulary] += i + shift
            row = [w / sum(weights) for w in weights]
        found.append(row)
    return found


@st.composite
def chains(
    draw: st.DrawFn,
    drafts: tuple[int, int] = (1, 3),
    vocabulary: tuple[int, int] = (2, 5),
    proposals: Sequence[str] = SAMPLED_AND_POINT,
) -> VerifyCase:
    """A chain whose drafts have draft mass: what a drafter can really propose."""
    size = draw(st.integers(*vocabulary))
    count = draw(st.integers(*drafts))
    proposal = draw(st.sampled_from(list(proposals)))
    tokens = draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
    target = draw(rows(count + 1, size))
    draft = None if proposal == "point" else draw(rows(count + 1, size, tokens))
    return chain(tokens, target, draft, proposal)


@st.composite
def greedy_chains(draw: st.DrawFn, drafts: tuple[int, int] = (1, 4), matches: bool | None = None) -> VerifyCase:
    """A chain whose rows have one clear maximum; its drafts often hit it (always, where `matches`)."""
    size = draw(st.integers(3, 6))
    count = draw(st.integers(*drafts))
    best = draw(st.lists(st.integers(0, size - 1), min_size=count + 1, max_size=count + 1))
    target = []
    for i, token in enumerate(best):
        weights = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
        weights[token] = 8 + i
        target.append([w / sum(weights) for w in weights])
    hits = [True if matches else draw(st.integers(0, 2)) > 0 for _ in range(count)]
    tokens = [best[i] if hit else (best[i] + 1 + draw(st.integers(0, size - 2))) % size for i, hit in enumerate(hits)]
    return chain(tokens, target, None, "point")


@st.composite
def greedy_judgements(draw: st.DrawFn) -> VerifyCase:
    """A chain whose drafts all hit the maximum, but perhaps for the last one: no walk stops before it."""
    case = draw(greedy_chains((1, 4), matches=True))
    if draw(st.booleans()):
        size = case.target_probs.shape[1]
        case.token[-1] = (case.token[-1] + draw(st.integers(1, size - 1))) % size
    return case


@st.composite
def with_coins(draw: st.DrawFn, cases: st.SearchStrategy[VerifyCase], accept: st.SearchStrategy[float] = coin) -> Batch:
    """One case and its coins."""
    case = draw(cases)
    return Batch((case,), (draw(coins_for(case, accept)),))


@st.composite
def coins_for(draw: st.DrawFn, case: VerifyCase, accept: st.SearchStrategy[float] = coin) -> Coins:
    nodes = len(case.parent)
    return coins(draw(st.lists(accept, min_size=nodes, max_size=nodes)), draw(coin))


@st.composite
def ragged(draw: st.DrawFn, drafts: tuple[int, int] = (0, 3), members: tuple[int, int] = (2, 4)) -> Batch:
    """A batch over one vocabulary whose members differ in length, rows and kind; no two are equal."""
    size = draw(st.integers(2, 5))
    count = draw(st.integers(*members))
    cases = []
    for _ in range(count):
        cases.append(draw(chains(drafts, (size, size))))
    return Batch(tuple(cases), tuple(draw(coins_for(case)) for case in cases), draw(seeds))


@st.composite
def ragged_greedy(draw: st.DrawFn, members: tuple[int, int] = (2, 4)) -> Batch:
    """A ragged batch of chains with clear maxima over one vocabulary."""
    cases = draw(st.lists(greedy_chains((0, 3)), min_size=members[0], max_size=members[1]))
    size = max(case.target_probs.shape[1] for case in cases)
    return Batch(tuple(_widened(case, size) for case in cases))


def _widened(case: VerifyCase, size: int) -> VerifyCase:
    """The same case over a larger vocabulary whose further tokens have no mass."""
    padding = ((0, 0), (0, size - case.target_probs.shape[1]))
    return VerifyCase(case.parent, case.token, np.pad(case.target_probs, padding), case.proposal)
