"""Rounds drawn by Hypothesis: chains and trees, permuted rows, padding, ends, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from conformance.publish.cases import PAD, ROOT, Rounds, a_round, walk
from oracle.types import PublishCase

SHAPES = ("chain", "tree")


@st.composite
def trees(draw: st.DrawFn, shape: str, least: int = 0, most: int = 8) -> list[int]:
    """The parent of each node."""
    size = draw(st.integers(least, most))
    if shape == "chain":
        return list(range(-1, size - 1))
    return [draw(st.integers(-1, i - 1)) for i in range(size)]


@st.composite
def rounds(
    draw: st.DrawFn,
    shape: str = "chain",
    accepts: str = "some",
    mapped: bool = False,
    twins: bool = False,
    rooted: bool = True,
    ending: str = "never",
    request: int = 0,
) -> PublishCase:
    """A round that nothing ends, unless `ending` is "stop", "limit" or "both".

    accepts: "some", one draft at least; "none"; "any". mapped: rows in any order, with padding. twins: tokens repeat
    at different nodes, siblings excepted.
    """
    tree = draw(trees(shape, 1 if accepts == "some" else 0))
    nodes = range(len(tree))
    ends = {"some": nodes, "none": [ROOT], "any": [ROOT, *nodes]}[accepts]
    end = draw(st.sampled_from(list(ends)))
    number = request or draw(st.integers(1, 9))
    tokens = draw(alike(tree, number)) if twins else [100 * number + 20 + i for i in nodes]
    order = [*([ROOT] if rooted else []), *nodes]
    if mapped:
        order = draw(st.permutations(order + [PAD] * draw(st.integers(0, 3))))
    prompt, output = draw(st.integers(1, 5)), draw(st.integers(0, 4))
    stop_tokens, limit = (), None
    path = [tokens[node] for node in walk(tree, end)]
    if ending in ("stop", "both"):
        stop_tokens = (7, draw(st.sampled_from([*path, 100 * number + 99])))
    if ending in ("limit", "both"):
        limit = output + draw(st.integers(1, len(path) + 1))
    return a_round(
        tree,
        end,
        tokens=tokens,
        order=order,
        prompt=prompt,
        output=output,
        pending=rooted,
        stop_tokens=stop_tokens,
        max_new_tokens=limit,
        request=number,
        unread=draw(st.one_of(st.none(), st.sets(st.sampled_from(list(nodes))).map(sorted))) if tree else None,
    )


@st.composite
def alike(draw: st.DrawFn, tree: Sequence[int], request: int) -> list[int]:
    """Tokens of few values, siblings with different ones; the pending token and the frontier's are among them."""
    tokens: list[int] = []
    values = [100 * request + offset for offset in (1, 10, 11, 12, 13, 99, 20, 21, 22)]
    for i, above in enumerate(tree):
        taken = {tokens[j] for j in range(i) if tree[j] == above}
        tokens.append(draw(st.sampled_from([value for value in values if value not in taken])))
    return tokens


def anything(ending: Sequence[str] = ("never",), request: int = 0) -> st.SearchStrategy[PublishCase]:
    """Any round that ends in one of these ways."""
    return st.one_of(
        [
            rounds("tree", "any", mapped=True, twins=twins, rooted=rooted, ending=how, request=request)
            for how in ending
            for twins, rooted in ((False, True), (True, True), (False, False))
        ]
    )


@st.composite
def batches(draw: st.DrawFn, plain: bool = False, least: int = 2) -> Rounds:
    """Two to five requests, ragged; `plain` ones have drafts, accept some and go on."""
    numbers = draw(st.permutations(range(1, 10)))[: draw(st.integers(least, 5))]
    ways = ("never", "never", "stop", "limit", "both")
    made = [draw(rounds("tree", request=q) if plain else anything(ways, request=q)) for q in numbers]
    return Rounds(tuple(made))
