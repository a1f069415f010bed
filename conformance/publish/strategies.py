"""Rounds drawn by Hypothesis: chains and trees, permuted rows, padding, ends, and batches of them.

A size and a seed are drawn; the seed decides the rest, so that a round costs little to draw and shrinks by its size.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from conformance.publish.cases import PAD, ROOT, Rounds, a_round, walk
from oracle.types import Limits, PublishCase

_SEEDS = st.integers(0, 2**20)
_SIZES = {least: st.integers(least, 8) for least in (0, 1)}


@st.composite
def rounds(
    draw: st.DrawFn,
    shape: str = "chain",
    accepts: str = "some",
    mapped: bool = False,
    twins: bool = False,
    rooted: bool = True,
    endings: Sequence[str] = ("never",),
    request: int = 0,
) -> PublishCase:
    """A round that nothing ends, unless `endings` says otherwise: "path", "frontier", "limit" or "both".

    accepts: "some", one draft at least; "none"; "any". mapped: rows in any order, with padding. twins: tokens repeat
    at different nodes, siblings excepted.
    """
    size = draw(_SIZES[1 if accepts == "some" else 0])
    return made(random.Random(draw(_SEEDS)), size, shape, accepts, mapped, twins, rooted, endings, request)


def made(
    chance: random.Random,
    size: int,
    shape: str,
    accepts: str,
    mapped: bool,
    twins: bool,
    rooted: bool,
    endings: Sequence[str],
    request: int,
) -> PublishCase:
    """The round of `size` nodes that `chance` decides."""
    tree = [i - 1 if shape == "chain" else chance.randint(-1, i - 1) for i in range(size)]
    nodes = range(size)
    end = chance.choice({"some": [*nodes], "none": [ROOT], "any": [ROOT, *nodes]}[accepts])
    number = request or chance.randint(1, 9)
    tokens = alike(chance, tree, number) if twins else [100 * number + 20 + i for i in nodes]
    order = [*([ROOT] if rooted else []), *nodes]
    if mapped:
        order += [PAD] * chance.randint(0, 3)
        chance.shuffle(order)
    output = chance.randint(0, 4)
    path = [tokens[node] for node in walk(tree, end)]
    frontier = 100 * number + 99
    ending = chance.choice(list(endings))
    stops = {"path": path or [frontier], "frontier": [frontier], "both": [*path, frontier]}.get(ending)
    limited = ending in ("limit", "both")
    return a_round(
        tree,
        end,
        tokens=tokens,
        order=order,
        prompt=chance.randint(1, 5),
        output=output,
        pending=rooted,
        stop_tokens=(7, chance.choice(stops)) if stops else (),
        max_new_tokens=output + chance.randint(1, len(path) + 1) if limited else None,
        request=number,
        unread=[node for node in nodes if chance.random() < 0.5] if chance.random() < 0.5 else None,
    )


def alike(chance: random.Random, tree: Sequence[int], request: int) -> list[int]:
    """Tokens of few values, siblings with different ones; the pending token and the frontier's are among them."""
    tokens: list[int] = []
    values = [100 * request + offset for offset in (1, 10, 11, 12, 13, 99, 20, 21, 22)]
    for i, above in enumerate(tree):
        taken = {tokens[j] for j in range(i) if tree[j] == above}
        tokens.append(chance.choice([value for value in values if value not in taken]))
    return tokens


def anything(endings: Sequence[str] = ("never",), rooted: bool | None = None) -> st.SearchStrategy[PublishCase]:
    """Any round that ends in one of these ways, or in none; with a root row and without, unless `rooted` says."""
    return st.builds(
        lambda size, seed: _any(random.Random(seed), size, endings, 0, rooted),
        _SIZES[0],
        _SEEDS,
    )


def _any(
    chance: random.Random, size: int, endings: Sequence[str], request: int, rooted: bool | None = None
) -> PublishCase:
    root = chance.random() < 0.7 if rooted is None else rooted
    return made(chance, size, "tree", "any", True, root and chance.random() < 0.5, root, endings, request)


@st.composite
def stopping_elsewhere(draw: st.DrawFn) -> PublishCase:
    """A round that goes on, though tokens of its prompt, its rejected nodes and its padding are stop tokens."""
    case = draw(rounds("tree", "any", mapped=True))
    nodes, tokens = case.verified.row_node.tolist(), case.verified.row_token.tolist()
    held = {*case.decision.path, ROOT}
    rejected = [token for node, token in zip(nodes, tokens) if node not in held]
    return dataclasses.replace(case, limits=Limits((int(case.state.prompt[0]), *rejected)))


@st.composite
def batches(draw: st.DrawFn, plain: bool = False, least: int = 2) -> Rounds:
    """Two to five requests, ragged; `plain` ones have drafts, accept some and go on."""
    chance = random.Random(draw(_SEEDS))
    found = []
    for request in chance.sample(range(1, 10), draw(st.integers(least, 5))):
        size = chance.randint(1, 6)
        if plain:
            found.append(made(chance, size, "tree", "some", False, False, True, ("never",), request))
        else:
            found.append(_any(chance, size - 1, ("never", "path", "frontier", "limit", "both"), request))
    return Rounds(tuple(found))
