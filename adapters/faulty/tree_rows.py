"""Tree builders with one fault each: flat rows, paths and links."""

from __future__ import annotations

import dataclasses

import numpy as np

from adapters.faulty.growing import Trees
from oracle.types import CandidateTree, FlattenCase, FlatTree

# ---- flat rows


class RowsById(Trees):
    """Lays rows out by node id alone."""

    refutes = "TREE-401"

    @classmethod
    def rows(cls, tree: CandidateTree, selected: list[int]) -> list[int]:
        return sorted(selected)


class ParentOneRowEarly(Trees):
    """Points one row above the parent."""

    refutes = "TREE-402"

    @classmethod
    def row_of(cls, rows: list[int], node: int, case: FlattenCase) -> int:
        return max(super().row_of(rows, node, case) - 1, -1)

    draft_tree = None  # type: ignore[assignment]


class TokenOfTheRow(Trees):
    """Takes the token of the node whose id is the number of the row."""

    refutes = "TREE-403"

    @classmethod
    def token(cls, tree: CandidateTree, node: int, row: int) -> int:
        return int(tree.token[row])

    draft_tree = None  # type: ignore[assignment]


class FlatDepthFromZero(Trees):
    """Counts the depth of rows from zero."""

    refutes = "TREE-404"

    @classmethod
    def depths(cls, tree: CandidateTree, rows: list[int]) -> list[int]:
        return [depth - 1 for depth in super().depths(tree, rows)]

    draft_tree = None  # type: ignore[assignment]


class PositionsByRow(Trees):
    """Gives every row a position of its own, as in a chain."""

    refutes = "TREE-405"

    @classmethod
    def positions(cls, base: int, depth: list[int]) -> list[int]:
        return [base, *(base + 1 + row for row in range(len(depth)))]

    draft_tree = None  # type: ignore[assignment]


class TheRootTakesNoPosition(Trees):
    """Puts the root's children at the root's own position."""

    refutes = "TREE-405"

    @classmethod
    def positions(cls, base: int, depth: list[int]) -> list[int]:
        return [base, *(base + d - 1 for d in depth)]

    draft_tree = None  # type: ignore[assignment]


class SearchesInTheOrderOfSelection(Trees):
    """Searches parents in the selection as it came, which it takes to be sorted."""

    refutes = "TREE-406"

    @classmethod
    def row_of(cls, rows: list[int], node: int, case: FlattenCase) -> int:
        if node == -1 or sorted(rows) != rows:
            return super().row_of(rows, node, case)
        return min(int(np.searchsorted(case.selected, node)), len(rows) - 1)

    draft_tree = None  # type: ignore[assignment]


class RowsOfTheWholeBatch(Trees):
    """Counts parents over the batch and not from each tree's own first row (mlc-ai/mlc-llm#2949)."""

    refutes = "TREE-407"

    @classmethod
    def batch(cls, trees: list[FlatTree]) -> list[FlatTree]:
        start, found = 0, []
        for tree in trees:
            moved = np.where(tree.parent >= 0, tree.parent + start, -1)
            found.append(dataclasses.replace(tree, parent=moved))
            start += len(tree.parent)
        return found


class OneBaseForTheBatch(Trees):
    """Counts the positions of every tree from the first one's base."""

    refutes = "TREE-407"

    @classmethod
    def batch(cls, trees: list[FlatTree]) -> list[FlatTree]:
        position = [np.asarray(tree.position) for tree in trees]
        moved = [own - own[0] + position[0][0] for own in position]
        return [dataclasses.replace(tree, position=own) for tree, own in zip(trees, moved)]


# ---- paths and links


class ShallowLeafLost(Trees):
    """Takes leaves from the deepest layer and the one above it alone."""

    refutes = "TREE-601"

    @classmethod
    def leaves(cls, parent: list[int]) -> list[int]:
        found = super().leaves(parent)
        deepest = max((len(cls.walk(parent, leaf)) for leaf in found), default=0)
        return [leaf for leaf in found if len(cls.walk(parent, leaf)) >= deepest - 1]

    draft_tree = None  # type: ignore[assignment]


class EveryRowIsALeaf(Trees):
    """Lists a path to every row."""

    refutes = "TREE-601"

    @classmethod
    def leaves(cls, parent: list[int]) -> list[int]:
        return list(range(len(parent)))

    draft_tree = None  # type: ignore[assignment]


class PathsWithoutTheFirst(Trees):
    """Leaves the root's child out of longer paths."""

    refutes = "TREE-602"

    @classmethod
    def walk(cls, parent: list[int], leaf: int) -> list[int]:
        path = super().walk(parent, leaf)
        return path[1:] if len(path) > 1 else path

    draft_tree = None  # type: ignore[assignment]


class PadsWithTheLastRow(Trees):
    """Pads with what −1 points at, the last row (FasterDecoding/Medusa#64)."""

    refutes = "TREE-603"

    @classmethod
    def padded(cls, path: list[int], width: int, parent: list[int]) -> list[int]:
        return path + [len(parent) - 1] * (width - len(path))

    draft_tree = None  # type: ignore[assignment]


class PadsOnTheLeft(Trees):
    """Pads paths on their left."""

    refutes = "TREE-603"

    @classmethod
    def padded(cls, path: list[int], width: int, parent: list[int]) -> list[int]:
        return [-1] * (width - len(path)) + path

    draft_tree = None  # type: ignore[assignment]


class PathsSorted(Trees):
    """Sorts paths by their rows, as EAGLE does where it samples."""

    refutes = "TREE-604"

    @classmethod
    def table(cls, parent: list[int], leaves: list[int]) -> np.ndarray:
        found = super().table(parent, leaves)
        order = sorted(range(len(found)), key=lambda i: [v if v >= 0 else len(parent) for v in found[i].tolist()])
        return found[order]

    draft_tree = None  # type: ignore[assignment]


class LastChildFirst(Trees):
    """Starts a list of children at its end."""

    refutes = "TREE-605"

    @classmethod
    def links(cls, parent: list[int]) -> tuple[list[int], list[int]]:
        first, following = super().links(parent)
        for row, above in enumerate(parent):
            if above >= 0:
                first[above] = row
        return first, following

    draft_tree = None  # type: ignore[assignment]


class CousinsAreSiblings(Trees):
    """Links a row to the next one of its depth, whoever its parent is."""

    refutes = "TREE-606"

    @classmethod
    def links(cls, parent: list[int]) -> tuple[list[int], list[int]]:
        depth: list[int] = []
        for above in parent:
            depth.append(1 if above == -1 else depth[above] + 1)
        following = [i + 1 if i + 1 < len(depth) and depth[i + 1] == depth[i] else -1 for i in range(len(depth))]
        return super().links(parent)[0], following

    draft_tree = None  # type: ignore[assignment]
