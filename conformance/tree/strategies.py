"""What the checks of trees draw: drafters, candidate trees, selections, parent vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from conformance.tree.cases import Flattenings, Masks, Parents, candidates, table, weights
from oracle.types import CandidateTree, DraftTreeCase, FlattenCase, GrowthCase, MaskCase, SelectionCase


@st.composite
def growths(draw: st.DrawFn, kind: str = "generic", one_width: bool = False) -> GrowthCase:
    """A drafter over two to five tokens, and widths that may exceed the vocabulary."""
    vocabulary = draw(st.integers(2, 5))
    depth = draw(st.integers(1, {2: 4, 3: 4, 4: 3, 5: 3}[vocabulary]))
    width = draw(st.integers(1, vocabulary))
    branch = width if one_width or draw(st.booleans()) else draw(st.integers(1, vocabulary + 1))
    return GrowthCase(table(kind, draw(st.integers(0, 999)), depth, vocabulary), width, branch, depth)


@st.composite
def draftings(draw: st.DrawFn, kind: str = "generic") -> DraftTreeCase:
    """A growth whose two widths are mostly equal, as engines have them, a budget and a base."""
    case = draw(growths(kind, one_width=draw(st.sampled_from([True, True, True, False]))))
    return DraftTreeCase(case, draw(st.integers(1, min(9, candidates_of(case)))), draw(st.integers(0, 5)))


def candidates_of(case: GrowthCase) -> int:
    """How many nodes the growth makes."""
    made = frontier = 0
    branch = min(case.branch_width, len(case.table[()]))  # type: ignore[call-overload]
    for layer in range(case.max_depth):
        frontier = branch * (min(case.expand_width, frontier) if layer else 1)
        made += frontier
    return made


@st.composite
def parent_vectors(draw: st.DrawFn, layered: bool, most: int = 9) -> list[int]:
    """Parents of up to `most` nodes; `layered` ones stand in order of depth, families together."""
    size = draw(st.integers(0, most))
    parent: list[int] = []
    depth: list[int] = []
    for i in range(size):
        low, high = -1, i - 1
        if layered and i:
            low = parent[-1]  # families come in the order of their parents
            high = max([low, *(j for j in range(i) if depth[j] == depth[-1])])
            high = max(high, low)
        above = draw(st.integers(low, high))
        parent.append(above)
        depth.append(1 if above == -1 else depth[above] + 1)
    return parent


@st.composite
def trees(draw: st.DrawFn, kind: str = "generic", most: int = 9) -> CandidateTree:
    """A candidate tree, layer by layer; siblings share the mass of a row, the likelier one first."""
    parent = draw(parent_vectors(layered=True, most=most))
    seed = draw(st.integers(0, 999))
    confidence = [0.0] * len(parent)
    for above in sorted(set(parent)):
        family = [i for i, p in enumerate(parent) if p == above]
        rows = weights("generic" if kind == "certain" else kind, seed, (above + 1,), len(family) + 1)
        shares = sorted(rows[: len(family)], reverse=True)
        if kind == "certain" and len(family) == 1:
            shares = [1.0]
        for node, share in zip(family, shares):
            confidence[node] = share
    return candidates(parent, confidence)


@st.composite
def selections(draw: st.DrawFn, kind: str = "generic") -> SelectionCase:
    tree = draw(trees(kind).filter(lambda tree: len(tree.parent) > 0))
    return SelectionCase(tree, draw(st.integers(1, len(tree.parent))))


@st.composite
def flattenings(draw: st.DrawFn, members: int = 1, ordered: bool = True) -> Flattenings:
    """Trees and ancestor-closed parts of them; `ordered` ones are selected in node order."""
    return Flattenings(tuple(draw(flatten_cases(ordered)) for _ in range(members)))


@st.composite
def flatten_cases(draw: st.DrawFn, ordered: bool = True) -> FlattenCase:
    tree = draw(trees(most=10))
    chosen: list[int] = []
    for node, above in enumerate(tree.parent.tolist()):
        if (above == -1 or above in chosen) and draw(st.sampled_from([True, True, True, False])):
            chosen.append(node)
    selected = chosen if ordered else draw(st.permutations(chosen))
    return FlattenCase(tree, np.array(selected, dtype=np.int64), draw(st.integers(0, 6)))


@st.composite
def parents(draw: st.DrawFn, layered: bool = False) -> Parents:
    return Parents(np.array(draw(parent_vectors(layered)), dtype=np.int64))


@st.composite
def masks(draw: st.DrawFn, form: str, prefix: bool = False, members: int = 1) -> Masks:
    """Masks of trees that stand in order of depth; a packed one alone is of one word."""

    def one() -> MaskCase:
        one_word = form.startswith("packed") and members == 1
        parent = np.array(draw(parent_vectors(layered=True, most=4 if one_word else 9)), dtype=np.int64)
        return MaskCase(parent, draw(st.integers(1, 3 if one_word else 9)) if prefix else 0, form)

    return Masks(tuple(one() for _ in range(members)))
