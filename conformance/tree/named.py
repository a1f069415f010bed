"""Cases of trees by name: those of single checks that the golden vectors share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance.tree.cases import WORKED_ROWS, WORKED_TREE, absolute, candidates, growth, offset, table
from oracle.types import CandidateTree, FlattenCase, GrowthCase

DIAGONAL = candidates([-1, -1, 0, 1, 2, 3], [0.6, 0.3, 0.7, 0.8, 0.5, 0.9])
BY_DEPTH = candidates([-1, 0, -1, 1, 2, 0], [0.5, 0.6, 0.4, 0.7, 0.8, 0.3])
"""Its ids do not follow depth: rows come by depth all the same."""
CROSSED = growth(
    {
        (): (0.5, 0.45, 0.05),
        (0,): (0.4, 0.35, 0.25),
        (1,): (0.02, 0.95, 0.03),
        (0, 0): (0.5, 0.3, 0.2),
        (0, 1): (0.25, 0.6, 0.15),
        (1, 1): (0.1, 0.2, 0.7),
        (1, 2): (0.3, 0.1, 0.6),
    },
    2,
    2,
    3,
)
"""The best node of the second layer hangs from the second one of the first."""
FLOORED = growth({(): (0.999, 1e-14), (0,): (0.0, 1e-3), (1,): (0.5, 0.5)}, 2, 2, 2)
HALF = growth({(): (0.5, 0.5), **{(v,): (0.25, 0.25) for v in (0, 1)}}, 1, 2, 2)
PART_TIED = growth({(): (0.2, 0.3, 0.2, 0.3), **{(v,): (0.25, 0.125, 0.25, 0.125) for v in range(4)}}, 2, 3, 2)
ZEROS = growth({(): (0.5, 0.0, 0.5, 0.0), (0,): (0.0, 0.0, 0.25, 0.0), (2,): (1.0, 0.0, 0.0, 0.0)}, 2, 3, 2)
MAPS: Sequence[Sequence[int]] = ([1, 4, 6], [5, 2, 3], [2, 0, 1], [0, 1, 2])
"""Gaps; permuted with gaps; permuted over the whole vocabulary, of equal width; the identity."""
KINDS_OF_MAPS = ("gaps", "equal width")
WIDER = growth(table("generic", 5, 2, 3), 2, 7, 2)
"""Wider than its vocabulary."""
FAMILIES = np.array([-1, -1, 0, 0, 1, 1, 3, 4])
SIBLINGS = np.array([-1, -1])
INNER_LEAVES = candidates([-1, -1, -1, 0, 2, 3, 4, 4], [0.4, 0.3, 0.2, 0.7, 0.8, 0.6, 0.5, 0.3])
"""A leaf at depth 1 among parents, and two that are siblings."""
BROAD = candidates([-1] * 6 + [0, 0, 5], [0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.5, 0.3, 0.9])
DEEP_TREE = candidates([-1, -1, 0, 0, 2, 2, 4, 4], [0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1])
"""Everything good is deep: breadth first takes the wrong nodes."""
EQUAL_ACROSS = candidates([-1, -1, -1, 0], [0.5, 0.25, 0.25, 0.5])
"""Node 3 has the value of nodes 1 and 2, and is deeper."""
LATER_FIRST = candidates([-1, -1, 0, 1], [0.25, 0.5, 0.125, 0.5])
EMPTY = candidates([], [])
NOTHING = np.zeros(0, dtype=np.int64)


def whole(tree: CandidateTree, base: int = 0) -> FlattenCase:
    return FlattenCase(tree, np.arange(len(tree.parent)), base)


def part(tree: CandidateTree, nodes: Sequence[int], base: int = 0) -> FlattenCase:
    return FlattenCase(tree, np.array(nodes, dtype=np.int64), base)


def mapped(convention: str, depth: int, kind: str = "") -> list[GrowthCase]:
    """Growths with each map, or with those of a kind."""
    made = offset if convention == "offset" else absolute
    cases = []
    for seed, ids in enumerate(MAPS):
        if kind and (kind == "gaps") != (max(ids) > 2):
            continue
        width = 3 if max(ids) == 2 else 8
        rows = table("generic", 40 + seed, depth, 3, ids)
        cases.append(GrowthCase(rows, 2, 2, depth, made(ids, width)))
        cases.append(GrowthCase(rows, 3, 3, depth, made(ids)))
    return cases


def but(**fields: Any) -> CandidateTree:
    """The worked tree with other vectors; `name=(node, value)` changes one entry."""
    made = {}
    for name, value in fields.items():
        array = getattr(WORKED_TREE, name).copy()
        if isinstance(value, tuple):
            array[value[0]] = value[1]
        made[name] = array if isinstance(value, tuple) else np.array(value)
    return dataclasses.replace(WORKED_TREE, **made)


def having(path: tuple[int, ...], row: tuple[float, ...]) -> GrowthCase:
    return growth({**WORKED_ROWS, path: row}, 2, 2, 2)
