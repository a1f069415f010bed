"""Judging a leaf table against the right parents, and reading tables and links back into parents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.roads import tree as road
from conformance.verdicts import ClauseViolation
from oracle.types import FlatTree, Ids


def right(parent: Sequence[int]) -> Ids:
    """The leaf table of a parent vector."""
    paths = road.leaf_paths(parent)
    deepest = max(map(len, paths), default=0)
    table = np.full((len(paths), deepest), -1, dtype=np.int64)
    for line, path in zip(table, paths):
        line[: len(path)] = path
    return table


def told(found: Ids) -> list[tuple[int, ...]]:
    """The rows of each line, its padding left out."""
    return [tuple(row for row in line if row != -1) for line in found.tolist()]


def leaves(parent: Sequence[int], found: Ids) -> None:
    """One line a leaf, and each leaf in one of them."""
    wanted = [path[-1] for path in road.leaf_paths(parent)]
    if lost := [leaf for leaf in wanted if not np.any(found == leaf)]:
        raise ClauseViolation(f"the leaves are the rows {wanted}, and no path leads to leaf {lost[0]}")
    if len(found) != len(wanted):
        raise ClauseViolation(f"the leaves are the rows {wanted}, and the table has {len(found)} paths")


def walks(parent: Sequence[int], found: Ids) -> None:
    """Each leaf's path is what some line begins with, padding left out."""
    for path in road.leaf_paths(parent):
        if path not in [line[: len(path)] for line in told(found)]:
            raise ClauseViolation(f"the path to leaf {path[-1]} is {list(path)}, and the table is {found.tolist()}")


def padding(parent: Sequence[int], found: Ids) -> None:
    """Behind each path stands −1, as far as the deepest one goes."""
    deepest = right(parent).shape[1]
    if found.shape[1] != deepest:
        raise ClauseViolation(f"the deepest path has {deepest} rows, and the table has {found.shape[1]} columns")
    for path in road.leaf_paths(parent):
        wanted = [*path, *[-1] * (deepest - len(path))]
        if wanted not in found.tolist():
            raise ClauseViolation(
                f"the path to leaf {path[-1]} is padded to {wanted}, and the table is {found.tolist()}"
            )


def order(parent: Sequence[int], found: Ids) -> None:
    """Lines come by leaf."""
    if found.tolist() != right(parent).tolist():
        ends = [path[-1] for path in road.leaf_paths(parent)]
        raise ClauseViolation(f"the paths come by their leaves {ends}, and the table is {found.tolist()}")


def parents_from_table(found: Ids) -> list[int]:
    """The parents that a leaf table tells."""
    above: dict[int, int] = {}
    for path in told(found):
        for node, one in zip(path, (-1, *path)):
            if above.setdefault(node, one) != one:
                raise ClauseViolation(f"row {node} hangs below {above[node]} on one path, and below {one} on another")
    return [above.get(i, -2) for i in range(max(above, default=-1) + 1)]


def parents_from_links(first: Sequence[int], following: Sequence[int]) -> list[int]:
    """The parents that sibling links tell."""
    above: dict[int, int] = {}
    pending = [(-1, 0)] if len(first) else []
    while pending:
        parent, node = pending.pop()
        while node != -1:
            if node in above or not 0 <= node < len(first):
                raise ClauseViolation(f"the links lead to row {node} twice, or out of the tree")
            above[node] = parent
            pending.append((node, first[node]))
            node = following[node]
    return [above.get(i, -2) for i in range(len(first))]


def agree(found: FlatTree) -> None:
    """`ClauseViolation` unless the leaf table and the links, turned back into parents, are the answer's own."""
    own = found.parent.tolist()
    if found.paths is not None:
        told = parents_from_table(found.paths)
        if told != own:
            raise ClauseViolation(f"the parents are {own}, and the leaf table says {told}")
    if found.first_child is not None and found.next_sibling is not None:
        told = parents_from_links(found.first_child.tolist(), found.next_sibling.tolist())
        if told != own:
            raise ClauseViolation(f"the parents are {own}, and the sibling links say {told}")
