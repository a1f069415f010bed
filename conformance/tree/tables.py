"""Judging a leaf table against the right parents, and reading tables and links back into parents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.roads import tree as road
from conformance.verdicts import ClauseViolation
from oracle.types import Ids


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
    """One line a leaf, told by its last row."""
    wanted = [path[-1] for path in road.leaf_paths(parent)]
    ends = [path[-1] if path else -1 for path in told(found)]
    if sorted(ends) != sorted(wanted):
        lost = sorted(set(wanted) - set(ends))
        more = f"; no path ends at leaf {lost[0]}" if lost else ""
        raise ClauseViolation(f"the leaves are the rows {wanted}, and the paths end at {ends}{more}")


def walks(parent: Sequence[int], found: Ids) -> None:
    wanted = {path[-1]: path for path in road.leaf_paths(parent)}
    for path in told(found):
        if path and path != wanted.get(path[-1]):
            raise ClauseViolation(f"the path to leaf {path[-1]} is {list(wanted[path[-1]])}, found {list(path)}")


def padding(parent: Sequence[int], found: Ids) -> None:
    deepest = right(parent).shape[1]
    if found.shape[1] != deepest:
        raise ClauseViolation(f"the deepest path has {deepest} rows, and the table has {found.shape[1]} columns")
    for line in found.tolist():
        path = [row for row in line if row != -1]
        if line != path + [-1] * (deepest - len(path)):
            raise ClauseViolation(f"the path {path} stands in the table as {line}, and not padded on its right")


def order(parent: Sequence[int], found: Ids) -> None:
    ends = [path[-1] for path in told(found) if path]
    if ends != sorted(ends):
        raise ClauseViolation(f"the leaves {sorted(ends)} come in the order {ends}")


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
