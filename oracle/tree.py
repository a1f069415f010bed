"""EAGLE-2 trees: growing candidates from a drafter's table, keeping the best ones, laying them out for verification.

Everywhere nodes are ordered by (−log value, depth, node id). No value increases along a path, so whatever this order
takes first is closed under ancestors, and no ancestor ever has to be added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oracle.candidates import check_candidates
from oracle.errors import BadInput
from oracle.growth import Drafts
from oracle.tensors import int64, listed, member, whole
from oracle.types import CandidateTree, DraftTreeCase, Flags, FlattenCase, FlatTree, GrowthCase, Ids, SelectionCase
from oracle.validation import as_array, integers, parents

FLOOR = 1e-12
"""Confidences count as no less than this in a log value; what is stored as confidence stays as it is."""
ROOT = -1


def grow_tree(case: GrowthCase) -> CandidateTree:
    """Grow a tree layer by layer (TREE 2xx). Raises `BadInput`. Source: EAGLE-2 §4.1.

    The frontier of a layer is its best `expand_width` nodes; each gets its `branch_width` most probable tokens as
    children, lower id first among equals, impossible ones included.
    """
    drafts = Drafts(case, "case")
    parent: list[int] = []
    token: list[int] = []
    confidence: list[float] = []
    log_value: list[float] = []
    depth: list[int] = []
    prefix: list[tuple[int, ...]] = []
    frontier = [ROOT]
    for layer in range(1, drafts.max_depth + 1):
        latest = []
        for node in frontier:
            above, value = ((), 0.0) if node == ROOT else (prefix[node], log_value[node])
            for child, probability in drafts.best(above):
                latest.append(len(parent))
                parent.append(node)
                token.append(child)
                confidence.append(probability)
                log_value.append(value + math.log(max(probability, FLOOR)))
                depth.append(layer)
                prefix.append((*above, child))
        frontier = sorted(latest, key=lambda i: (-log_value[i], i))[: drafts.expand_width]
    return CandidateTree(
        parent=_ids(parent),
        token=_ids(token),
        confidence=np.array(confidence, dtype=np.float64),
        log_value=np.array(log_value, dtype=np.float64),
        depth=_ids(depth),
    )


def select_nodes(case: SelectionCase) -> Ids:
    """The best `budget` nodes, in selection order (TREE 3xx). Raises `BadInput`. Source: EAGLE-2 §4.2."""
    member(case, SelectionCase)
    budget = whole(case.budget, "budget", 0)
    nodes = check_candidates(case.tree, "tree")
    order = sorted(range(len(nodes.parent)), key=lambda i: (-nodes.log_value[i], nodes.depth[i], i))
    return _ids(order[:budget])


def flatten_tree(cases: Sequence[FlattenCase]) -> list[FlatTree]:
    """Each case's selected nodes as rows, with its mask, paths, links and positions (TREE 4xx–6xx). Raises `BadInput`.

    Every case is read before the first is answered.
    """
    listed(cases, "cases", FlattenCase)
    return [_flatten(case, f"cases[{i}]") for i, case in enumerate(cases)]


def draft_tree(cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
    """Grow, select and flatten, case by case (TREE 7xx). Raises `BadInput`."""
    listed(cases, "cases", DraftTreeCase)
    answers = []
    for i, case in enumerate(cases):
        if not isinstance(case, DraftTreeCase):
            raise BadInput(f"cases[{i}]", (), "a case is an oracle.types.DraftTreeCase", type(case).__name__)
        tree = grow_tree(case.growth)
        answers.append(FlattenCase(tree, select_nodes(SelectionCase(tree, case.budget)), case.base))
    return flatten_tree(answers)


def tree_visibility(parent: Ids) -> Flags:
    """Ancestors and self: bool [n, n], row × column (TREE-501). parent[i] < i, −1 = the root. Raises `BadInput`."""
    above = parents(parent, "parent")
    visible = np.zeros((len(above), len(above)), dtype=bool)
    for i in range(len(above)):
        node = i
        while node != ROOT:
            visible[i, node] = True
            node = above[node]
    return visible


def leaf_paths(parent: Ids) -> Ids:
    """One row a leaf, in ascending leaf row: int64 [leaves, deepest], right-padded with −1 (TREE-602). `BadInput`."""
    above = parents(parent, "parent")
    paths = []
    for leaf in range(len(above)):
        if leaf in above:
            continue
        path = [leaf]
        while above[path[-1]] != ROOT:
            path.append(above[path[-1]])
        paths.append(path[::-1])
    deepest = max(map(len, paths), default=0)
    padded = [path + [-1] * (deepest - len(path)) for path in paths]
    return np.array(padded, dtype=np.int64).reshape(len(paths), deepest)


def sibling_links(parent: Ids) -> tuple[Ids, Ids]:
    """First child and next sibling of each row: int64 [n] each, −1 = none (TREE-604, TREE-605). Raises `BadInput`."""
    above = parents(parent, "parent")
    first = [-1] * len(above)
    following = [-1] * len(above)
    latest: dict[int, int] = {}
    for i, node in enumerate(above):
        if node in latest:
            following[latest[node]] = i
        elif node != ROOT:
            first[node] = i
        latest[node] = i
    return _ids(first), _ids(following)


def parents_from_paths(paths: Ids) -> Ids:
    """The parent vector that a leaf table describes: int64 [n]. Raises `BadInput` where it describes no tree."""
    table = as_array(paths, "paths")
    if table.ndim != 2 or (table.size and table.dtype.kind not in "iu"):
        raise BadInput("paths", (), "is a matrix of integers, one leaf a row", table.shape)
    above: dict[int, int] = {}
    for r, row in enumerate(table.tolist()):
        last = ROOT
        for c, node in enumerate(row):
            if node == -1:
                if any(later != -1 for later in row[c:]):
                    raise BadInput("paths", (r, c), "padding stands at the right end of a path", node)
                break
            if node <= last or above.setdefault(node, last) != last:
                raise BadInput("paths", (r, c), "a row of the tree has one parent, an earlier row", node)
            last = node
    if sorted(above) != list(range(len(above))):
        raise BadInput("paths", (), "every row of the tree is on a path", sorted(above))
    return _ids([above[i] for i in range(len(above))])


def parents_from_links(first_child: Ids, next_sibling: Ids) -> Ids:
    """The parent vector that sibling links describe: int64 [n]; the root's list starts at row 0. Raises `BadInput`."""
    first = integers(first_child, "first_child")
    following = integers(next_sibling, "next_sibling")
    if len(first) != len(following):
        raise BadInput("next_sibling", (), f"has one entry for each of {len(first)} rows", len(following))
    above: dict[int, int] = {}
    pending = [(ROOT, 0)] if first else []
    while pending:
        parent, node = pending.pop()
        while node != -1:
            if not 0 <= node < len(first) or node <= parent or node in above:
                raise BadInput("first_child", (parent,), "links lead once to each row, from an earlier one", node)
            above[node] = parent
            pending.append((node, first[node]))
            node = following[node]
    if len(above) != len(first):
        missing = min(set(range(len(first))) - set(above))
        raise BadInput("next_sibling", (missing,), "links lead to every row", missing)
    return _ids([above[i] for i in range(len(first))])


def _flatten(case: FlattenCase, field: str) -> FlatTree:
    if not isinstance(case, FlattenCase):
        raise BadInput(field, (), "a case is an oracle.types.FlattenCase", type(case).__name__)
    base = whole(case.base, f"{field}.base", 0)
    nodes = check_candidates(case.tree, f"{field}.tree")
    selected = integers(case.selected, f"{field}.selected")
    chosen: set[int] = set()
    for i, node in enumerate(selected):
        if not 0 <= node < len(nodes.parent):
            raise BadInput(f"{field}.selected", (i,), f"is a node id in [0, {len(nodes.parent)})", node)
        if node in chosen:
            raise BadInput(f"{field}.selected", (i,), "no node is selected twice", node)
        chosen.add(node)
    for i, node in enumerate(selected):
        if nodes.parent[node] != ROOT and nodes.parent[node] not in chosen:
            raise BadInput(f"{field}.selected", (i,), f"the parent {nodes.parent[node]} of a node is selected", node)
    rows = sorted(selected, key=lambda i: (nodes.depth[i], i))
    row_of = {node: row for row, node in enumerate(rows)}
    parent = _ids([ROOT if nodes.parent[i] == ROOT else row_of[nodes.parent[i]] for i in rows])
    depth = _ids([nodes.depth[i] for i in rows])
    first_child, next_sibling = sibling_links(parent)
    return FlatTree(
        node=_ids(rows),
        parent=parent,
        token=_ids([nodes.token[i] for i in rows]),
        depth=depth,
        visible=tree_visibility(parent),
        paths=leaf_paths(parent),
        first_child=first_child,
        next_sibling=next_sibling,
        position=_ids([int64(base + d, f"{field}.base", ()) for d in (0, *depth.tolist())]),
    )


def _ids(values: Sequence[int]) -> Ids:
    return np.array(values, dtype=np.int64).reshape(-1)
