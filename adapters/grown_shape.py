"""A drafter's laws under which a growing tree comes out with a given shape.

Engines that grow trees have no entry for a finished one: they make masks and leaf tables of what they grew. So the
shape is put into the drafter. The nodes of the tree get log probabilities that fall in the order in which the engine
has to expand them, every other token a negligible one; all are whole numbers, exact in any float dtype that holds them.
"""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapters.interface import NotApplicable
from oracle.types import Ids, Rows

ROOT = -1
NEGLIGIBLE = -(2.0**20)
"""Log probability of a token that is no node of the tree."""


@dataclass(frozen=True)
class GrownShape:
    """A drafter whose best `nodes` candidates are the tree, and how far it is grown.

    rows: prefix of target ids → log probabilities [draft vocabulary]; any other prefix has `nothing`. width: expanded
    nodes a layer, and children of each. offsets: what is added to a draft id to make it a target id.
    """

    rows: dict[tuple[int, ...], Rows]
    nothing: Rows
    offsets: Ids
    width: int
    depth: int
    nodes: int

    def row(self, prefix: tuple[int, ...]) -> Rows:
        """Log probabilities after `prefix`."""
        return self.rows.get(prefix, self.nothing)


def grown_shape(parent: Sequence[int], token: Sequence[int]) -> GrownShape:
    """The drafter of a tree whose rows stand layer by layer; children of one parent have different tokens.

    Raises `NotApplicable` where no growth lays the rows out in this order.
    """
    if not parent:
        raise NotApplicable("no tree without a drafted node is ever laid out")
    depth = _depths(parent)
    layers = [[i for i, d in enumerate(depth) if d == layer + 1] for layer in range(max(depth))]
    if [i for layer in layers for i in layer] != list(range(len(parent))):
        raise NotApplicable("rows of a grown tree stand layer by layer")
    width = max(len(layer) for layer in layers)
    distinct = sorted(set(token))
    nothing = np.full(len(distinct) + width, NEGLIGIBLE)
    # ids that are filled up with are negative, so no token of the tree is one of them
    targets = np.array([*distinct, *range(-1, -width - 1, -1)], dtype=np.int64)
    place = {t: i for i, t in enumerate(distinct)}
    score = [0.0] * len(parent)
    prefix: list[tuple[int, ...]] = [()] * len(parent)
    rows: dict[tuple[int, ...], Rows] = {(): nothing.copy()}
    for number, layer in enumerate(layers):
        below = layers[number + 1] if number + 1 < len(layers) else []
        for rank, node in enumerate(_order(parent, layer, below)):
            score[node] = -float((number + 1) * (width + 1) + rank)
        for node in layer:
            above = parent[node]
            before, value = ((), 0.0) if above == ROOT else (prefix[above], score[above])
            rows[before][place[token[node]]] = score[node] - value
            prefix[node] = (*before, token[node])
            rows[prefix[node]] = nothing.copy()
    offsets = targets - np.arange(len(targets))
    return GrownShape(rows, nothing, offsets, width, len(layers), len(parent))


def layered(parent: Sequence[int]) -> list[int]:
    """The nodes in the order in which growth lays a tree out: layers, parents in that order, siblings by id."""
    order = [i for i, above in enumerate(parent) if above == ROOT]
    for node in order:  # grows while it is read
        order += [i for i, above in enumerate(parent) if above == node]
    return order


def _order(parent: Sequence[int], layer: Sequence[int], below: Sequence[int]) -> list[int]:
    """The layer from its most probable node on: siblings by row, and expanded nodes as the next layer has them."""
    expanded: list[int] = []
    for node in below:
        if not expanded or expanded[-1] != parent[node]:
            expanded.append(parent[node])
    if len(set(expanded)) < len(expanded):
        raise NotApplicable("children of one parent stand side by side in a grown tree")
    sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter({node: () for node in layer})
    latest: dict[int, int] = {}
    for node in layer:
        if parent[node] in latest:
            sorter.add(node, latest[parent[node]])
        latest[parent[node]] = node
    for first, second in itertools.pairwise(expanded):
        sorter.add(second, first)
    try:
        return list(sorter.static_order())
    except graphlib.CycleError:
        raise NotApplicable("siblings are expanded in their own order, so their children stand in it") from None


def _depths(parent: Sequence[int]) -> list[int]:
    depth: list[int] = []
    for above in parent:
        depth.append(1 if above == ROOT else depth[above] + 1)
    return depth
