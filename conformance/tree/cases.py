"""What the checks of trees run on, and cases worth keeping by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance import draw
from conformance.casefile import storable
from conformance.tree import drawing as drawing
from oracle import masks as masks_oracle
from oracle import tree as oracle
from oracle.types import (
    CandidateTree,
    DraftMapCase,
    DraftTreeCase,
    FlattenCase,
    GrowthCase,
    Ids,
    MaskCase,
    SelectionCase,
)

Table = dict[tuple[int, ...], tuple[float, ...]]
KINDS = ("generic", "sparse", "certain", "equal")
"""Of rows: ordinary ones, with zeros, with one token of all mass, with all tokens alike."""


@storable
@dataclass(frozen=True, eq=False)
class Parents:
    """The parent vector of a tree, [n], parent[i] < i, −1 = the root."""

    parent: Ids

    def drawn(self) -> str:
        rows = self.parent.tolist()
        return "\n".join(drawing.outline(rows, [f"row {i}" for i in range(len(rows))]))


@storable
@dataclass(frozen=True, eq=False)
class Flattenings:
    """One call of `flatten_tree`."""

    cases: tuple[FlattenCase, ...]

    def drawn(self) -> str:
        return _members(self.cases)


@storable
@dataclass(frozen=True, eq=False)
class Masks:
    """One call of `tree_mask`."""

    cases: tuple[MaskCase, ...]

    def drawn(self) -> str:
        return _members(self.cases)


@storable
@dataclass(frozen=True, eq=False)
class Draftings:
    """One call of `draft_tree`."""

    cases: tuple[DraftTreeCase, ...]

    def drawn(self) -> str:
        return _members(self.cases)


def _members(cases: Sequence[object]) -> str:
    if len(cases) == 1:
        return draw.drawn(cases[0])
    return "\n".join(f"member {i}: " + draw.drawn(case).replace("\n", "\n  ") for i, case in enumerate(cases))


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if isinstance(case, GrowthCase):
        oracle.grow_tree(case)
    elif isinstance(case, SelectionCase):
        oracle.select_nodes(case)
    elif isinstance(case, Parents):
        oracle.tree_visibility(case.parent)
    elif isinstance(case, Flattenings):
        oracle.flatten_tree(case.cases)
    elif isinstance(case, Masks):
        masks_oracle.tree_mask(case.cases)
    elif isinstance(case, Draftings):
        oracle.draft_tree(case.cases)


def candidates(parent: Sequence[int], confidence: Sequence[float], token: Sequence[int] | None = None) -> CandidateTree:
    """A candidate tree with these parents and confidences; by default node i is of token 3i + 2 modulo 31."""
    depth: list[int] = []
    value: list[float] = []
    for above, c in zip(parent, confidence):
        depth.append(1 if above == -1 else depth[above] + 1)
        value.append((0.0 if above == -1 else value[above]) + math.log(max(c, 1e-12)))
    tokens = [(3 * i + 2) % 31 for i in range(len(depth))] if token is None else token
    return CandidateTree(
        parent=np.array(parent, dtype=np.int64).reshape(-1),
        token=np.array(tokens, dtype=np.int64).reshape(-1),
        confidence=np.array(confidence, dtype=np.float64).reshape(-1),
        log_value=np.array(value, dtype=np.float64).reshape(-1),
        depth=np.array(depth, dtype=np.int64).reshape(-1),
    )


def weights(kind: str, seed: int, path: tuple[int, ...], vocabulary: int) -> tuple[float, ...]:
    """The drafter's row after `path`: rows of different paths differ, unless all of a row is tied."""
    generator = np.random.default_rng([seed, *(v + 1 for v in path)])
    if kind == "equal":
        return (1.0 / 2 ** math.ceil(math.log2(max(vocabulary, 2))),) * vocabulary
    if kind == "certain":
        row = [0.0] * vocabulary
        row[int(generator.integers(vocabulary))] = 1.0
        return tuple(row)
    parts = generator.exponential(size=vocabulary) ** 2 + 0.01
    if kind == "sparse":
        parts[generator.random(vocabulary) < 0.4] = 0.0
    omitted = generator.choice([0.0, 0.0, 0.3])
    total = float(parts.sum()) * (1 + omitted)
    return tuple(float(p / total) if total else 0.0 for p in parts)


def table(kind: str, seed: int, depth: int, vocabulary: int, tokens: Sequence[int] | None = None) -> Table:
    """A row for every path of fewer than `depth` tokens; with a map, of the target ids `tokens`."""
    ids = tuple(range(vocabulary)) if tokens is None else tuple(tokens)
    found: Table = {}
    layer: list[tuple[int, ...]] = [()]
    for _ in range(depth):
        for path in layer:
            found[path] = weights(kind, seed, path, vocabulary)
        layer = [(*path, token) for path in layer for token in ids]
    return found


def chain_table(confidences: Sequence[float], vocabulary: int = 2) -> Table:
    """A drafter that offers one token with these confidences, one after the other; the token is level modulo V."""
    found: Table = {}
    path: tuple[int, ...] = ()
    for level, c in enumerate(confidences):
        row = [0.0] * vocabulary
        row[level % vocabulary] = c
        found[path] = tuple(row)
        path = (*path, level % vocabulary)
    return found


def growth(rows: Mapping[tuple[int, ...], Sequence[float]], expand: int, branch: int, depth: int) -> GrowthCase:
    return GrowthCase({path: tuple(map(float, row)) for path, row in rows.items()}, expand, branch, depth)


def absolute(ids: Sequence[int], width: int | None = None) -> DraftMapCase:
    """A map given by target ids; `width` is the target's vocabulary, marked in t2d."""
    t2d = None if width is None else np.isin(np.arange(width), ids)
    return DraftMapCase(np.array(ids, dtype=np.int64), t2d, "absolute")


def offset(ids: Sequence[int], width: int | None = None) -> DraftMapCase:
    """The same map as released checkpoints hold it."""
    found = absolute(ids, width)
    return DraftMapCase(found.d2t - np.arange(len(ids)), found.t2d, "offset")


WORKED_ROWS = {(): (0.6, 0.4, 0.0), (0,): (0.8, 0.2, 0.0), (1,): (0.05, 0.95, 0.0)}
WORKED = growth(WORKED_ROWS, 2, 2, 2)
"""A 0.60, A1 0.48, B 0.40, B1 0.38, A2 0.12: a budget of 4 takes A, A1, B, B1, and breadth first A2 before B1."""
DEEP_FIRST = growth({(): (0.9, 0.1), (0,): (0.9, 0.1), (0, 0): (0.9, 0.1), (1,): (0.5, 0.5)}, 1, 2, 3)
"""A deep node, 0.729, that is better than the shallow 0.1: breadth first takes the wrong ones."""
ONE_BRANCH = growth(
    {
        (): (0.7, 0.25, 0.05),
        (0,): (0.15, 0.45, 0.4),
        (1,): (0.5, 0.25, 0.25),
        (0, 1): (0.1, 0.2, 0.7),
        (0, 2): (0.625, 0.25, 0.125),
        (1, 0): (0.5, 0.3, 0.2),
    },
    2,
    2,
    3,
)
"""Both winners of the second layer come from branch 0 (sgl-project/sglang#7523)."""
WORKED_TREE = candidates([-1, -1, 0, 0, 1], [0.6, 0.4, 0.8, 0.2, 0.95])
CHAIN = candidates([-1, 0, 1, 2], [0.9, 0.8, 0.7, 0.6])
BUSHY = candidates([-1, -1, -1, 0, 0, 2, 3, 3, 5, 6], [0.5, 0.3, 0.15, 0.6, 0.3, 0.9, 0.5, 0.45, 0.8, 0.7])
"""Gaps in the paths, a leaf at each depth, parents that are not neighbours."""
FORTY = candidates(range(-1, 39), [1e-11, *[1e-12] * 39])
"""Its product is 1e-479: no float64 holds it."""
TWO_OF_FORTY = candidates([-1, -1, *range(78)], [1e-11, 1e-12] * 40)
"""Two chains side by side, one better than the other: from the thirtieth level on both products are zero."""
TIED = candidates([-1, -1, -1, 0, 1, 2, 3], [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5])
CERTAIN = candidates([-1, 0, 1, 2, 3], [1.0] * 5)
CERTAIN_BELOW = candidates([-1, -1, 0, 1, 2, 3], [0.5, 0.25, 1.0, 1.0, 1.0, 1.0])
IMPOSSIBLE = candidates([-1, -1, 0, 2, 3], [0.001, 0.0, 1e-5, 1e-3, 1e-2])
"""Node 1 is impossible, and still outranks node 3 and node 4: log 1e-12 is greater than log 1e-13."""
TREES = (WORKED_TREE, CHAIN, BUSHY)
WIDE_PARENTS = tuple(np.array(p, dtype=np.int64) for p in ([-1] * 5, [-1, 0, -1, 1, 3, 2], [-1, -1, 1, 0, 2, 0, 4]))
"""Parent vectors whose nodes are not ordered by depth are among them."""
EDGE_SIZES = (1, 7, 8, 15, 16, 17, 31, 32, 33, 59, 63, 64)
"""Rows, with the root one more: at the edges of words of 8, 16 and 32 bits."""
WITNESSES = {
    "certain": SelectionCase(CERTAIN, 2),
    "tied": SelectionCase(TIED, 2),
    "forty": SelectionCase(FORTY, 20),
    "worked": SelectionCase(WORKED_TREE, 4),
}
