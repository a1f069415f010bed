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
    draft = None if case.draft_probs is None else np.pad(case.draft_probs, padding)
    return VerifyCase(case.parent, case.token, np.pad(case.target_probs, padding), case.proposal, draft)


@st.composite
def trees(
    draw: st.DrawFn,
    nodes: tuple[int, int] = (2, 5),
    proposals: Sequence[str] = ("point", "iid", "without_replacement"),
    peaked: bool = False,
    twins: bool = False,
) -> VerifyCase:
    """A tree with a fork at the root; the same token ids come back at different nodes.

    Siblings differ, but for the twins of an "iid" proposal, and each has draft mass where it was drawn.
    `peaked` rows have one clear maximum, which some child often carries. `twins`: the fork carries one token
    twice, independent proposals only.
    """
    size, count = draw(st.integers(3, 4)), draw(st.integers(*nodes))
    proposal = draw(st.sampled_from(list(proposals)))
    parent = [-1, -1, *(draw(st.integers(-1, i - 1)) for i in range(2, count))][:count]
    tokens: list[int] = []
    for i in range(count):
        taken = [tokens[j] for j in range(i) if parent[j] == parent[i]] if proposal != "iid" else []
        free = [v for v in range(size) if v not in taken]
        if not free:  # a full house: hang the node one level deeper
            parent[i] = i - 1
            free = list(range(size))
        tokens.append(tokens[0] if twins and i == 1 else draw(st.sampled_from(free)))
    target, draft = draw(rows(count + 1, size)), draw(rows(count + 1, size))
    for i in range(-1, count):
        children = [tokens[j] for j in range(count) if parent[j] == i]
        weights = [w + (1 / size if v in children else 0) for v, w in enumerate(draft[i + 1])]
        draft[i + 1] = [w / sum(weights) for w in weights]
        if peaked:
            best = draw(st.sampled_from([*children, *children, *range(size)]))
            weights = [w / 4 + (1.0 + i / 8 if v == best else 0.0) for v, w in enumerate(target[i + 1])]
            target[i + 1] = [w / sum(weights) for w in weights]
    return VerifyCase(
        np.array(parent, dtype=np.int64),
        np.array(tokens, dtype=np.int64),
        np.array(target),
        proposal,
        None if proposal == "point" else np.array(draft),
    )


def twins(peaked: bool = False) -> st.SearchStrategy[VerifyCase]:
    """Trees whose fork at the root carries one token twice."""
    return trees((3, 5), ("iid",), peaked, twins=True)


@st.composite
def mixed(draw: st.DrawFn, peaked: bool = False) -> Batch:
    """Trees and chains in one call, over one vocabulary, with coins and a seed."""
    members = [draw(trees(peaked=peaked)), draw(trees(peaked=peaked)), draw(greedy_chains() if peaked else chains())]
    size = max(case.target_probs.shape[1] for case in members)
    cases = tuple(_widened(members[i], size) for i in draw(st.permutations(range(len(members)))))
    return Batch(cases, tuple(draw(coins_for(case, inner_coin)) for case in cases), draw(seeds))


@st.composite
def second_siblings(draw: st.DrawFn, proposal: str) -> Batch:
    """A fork whose first sibling is rejected for certain and whose second one has a threshold inside (0, 1).

    The fork stands at the root, or below a node that is accepted for certain.
    """
    first, second = draw(st.sampled_from([(0, 2), (3, 1), (2, 3), (1, 0)]))
    others = [v for v in range(4) if v not in (first, second)]
    share = draw(st.sampled_from([0.25, 0.375, 0.625]))
    low, more = draw(st.sampled_from([0.0625, 0.125])), draw(st.sampled_from([0.03125, 0.0625]))
    p, q = [0.0] * 4, [0.0] * 4
    p[first], p[second], q[first], q[second] = low, 0.25 + more, 0.5, 0.25
    for v, part in zip(others, (share, 1 - share)):
        p[v], q[v] = part * (0.75 - low - more), (1 - part) * 0.25
    deep = draw(st.booleans())
    below = draw(rows(2, 4))
    target = [[float(v == others[0]) for v in range(4)], p] if deep else [p]
    draft = [[0.25, 0.125, 0.5, 0.125], q] if deep else [q]
    tokens, parent = ([others[0], first, second], [-1, 0, 0]) if deep else ([first, second], [-1, -1])
    case = VerifyCase(
        np.array(parent, dtype=np.int64),
        np.array(tokens, dtype=np.int64),
        np.array([*target, *below]),
        proposal,
        None if proposal == "point" else np.array([*draft, *draw(rows(2, 4))]),
    )
    return Batch((case,), (coins([0.5] * deep + [LAST_COIN, 0.5], 0.5),))
