"""A right tree builder, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full beside it. Nodes are ids in creation order, −1 is the
root. What is refused stands in `adapters.faulty.refusing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from adapters.faulty.declared import Declared
from adapters.faulty.refusing import Checks
from oracle.types import (
    CandidateTree,
    DraftTreeCase,
    FlattenCase,
    FlatTree,
    GrowthCase,
    MaskCase,
    SelectionCase,
)

Path = tuple[int, ...]
OPERATIONS = ("grow_tree", "select_nodes", "flatten_tree", "tree_visibility", "tree_mask", "draft_tree")


class Trees(Checks, Declared, cost=dict.fromkeys(OPERATIONS, 2e-4)):
    """A right builder; every step is a method that a fault may override."""

    # ---- operations

    @classmethod
    def grow_tree(cls, case: GrowthCase) -> CandidateTree:
        cls.check_growth(case)
        return cls.candidates(*cls.grown(case))

    @classmethod
    def candidates(
        cls, paths: list[Path], parent: list[int], confidence: list[float], value: list[float]
    ) -> CandidateTree:
        return CandidateTree(
            parent=ids(cls.told_parents(parent)),
            token=ids([path[-1] for path in paths]),
            confidence=np.array(confidence, dtype=float).reshape(-1),
            log_value=np.array(value, dtype=float).reshape(-1),
            depth=ids([cls.depth(path) for path in paths]),
        )

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> np.ndarray:
        cls.check_tree(case.tree)
        if case.budget < 0:
            raise ValueError("budget")
        return ids(cls.chosen(case.tree, case.budget))

    @classmethod
    def flatten_tree(cls, cases: Sequence[FlattenCase]) -> list[FlatTree]:
        for case in cases:
            cls.check_tree(case.tree)
            cls.check_selection(case)
        return cls.batch([cls.flat(case) for case in cases])

    @classmethod
    def tree_visibility(cls, parent: np.ndarray) -> np.ndarray:
        cls.check_parents(parent.tolist())
        return cls.visible(parent.tolist())

    @classmethod
    def tree_mask(cls, cases: Sequence[MaskCase]) -> list[np.ndarray]:
        for case in cases:
            cls.check_parents(case.parent.tolist())
            cls.check_form(case.form)
        return cls.batch_masks([cls.form(cls.verified(case.parent.tolist(), case.prefix), case.form) for case in cases])

    @classmethod
    def draft_tree(cls, cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        for case in cases:
            cls.check_growth(case.growth)
        return cls.batch_drafts([cls.drafted(case) for case in cases])

    @classmethod
    def drafted(cls, case: DraftTreeCase) -> FlatTree:
        tree = cls.candidates(*cls.grown(case.growth))
        return cls.flat(FlattenCase(tree, ids(cls.chosen(tree, case.budget)), case.base))

    # ---- growth

    @classmethod
    def grown(cls, case: GrowthCase) -> tuple[list[Path], list[int], list[float], list[float]]:
        paths: list[Path] = []
        parent: list[int] = []
        confidence: list[float] = []
        value: list[float] = []
        frontier = [-1]
        for _ in range(cls.layers(case)):
            latest = []
            for node in frontier:
                above = paths[node] if node >= 0 else ()
                for token, probability in cls.children(case, above):
                    latest.append(len(paths))
                    paths.append((*above, cls.published(case, token)))
                    parent.append(node)
                    confidence.append(cls.stored(case, above, probability))
                    value.append(cls.value(value[node] if node >= 0 else 0.0, probability))
            frontier = cls.frontier(case, latest, value)
        return paths, parent, confidence, value

    @classmethod
    def layers(cls, case: GrowthCase) -> int:
        return case.max_depth

    @classmethod
    def depth(cls, path: Path) -> int:
        return len(path)

    @classmethod
    def told_parents(cls, parent: list[int]) -> list[int]:
        return parent

    @classmethod
    def row(cls, case: GrowthCase, above: Path) -> np.ndarray:
        if isinstance(case.table, Mapping):
            return np.asarray(case.table[above], dtype=float)
        return np.asarray(np.asarray(case.table[len(above)])[above], dtype=float)

    @classmethod
    def children(cls, case: GrowthCase, above: Path) -> list[tuple[int, float]]:
        """Draft ids and probabilities, ranked."""
        row = cls.row(case, above)
        order = sorted(range(len(row)), key=lambda v: (-row[v], cls.published(case, v)))
        return [(v, float(row[v])) for v in order[: cls.branch(case)]]

    @classmethod
    def branch(cls, case: GrowthCase) -> int:
        return case.branch_width

    @classmethod
    def published(cls, case: GrowthCase, draft: int) -> int:
        """The target id of a draft id."""
        given = case.draft_map
        if given is None:
            return draft
        return int(given.d2t[draft]) + (draft if given.convention == "offset" else 0)

    @classmethod
    def stored(cls, case: GrowthCase, above: Path, probability: float) -> float:
        return probability

    @classmethod
    def value(cls, above: float, probability: float) -> float:
        return above + math.log(max(probability, 1e-12))

    @classmethod
    def frontier(cls, case: GrowthCase, latest: list[int], value: list[float]) -> list[int]:
        return sorted(latest, key=lambda node: (-value[node], node))[: case.expand_width]

    # ---- selection

    @classmethod
    def chosen(cls, tree: CandidateTree, budget: int) -> list[int]:
        return sorted(range(len(tree.parent)), key=lambda node: cls.key(tree, node))[: cls.spent(budget)]

    @classmethod
    def spent(cls, budget: int) -> int:
        return budget

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (-float(tree.log_value[node]), float(tree.depth[node]), node)

    # ---- rows

    @classmethod
    def flat(cls, case: FlattenCase) -> FlatTree:
        tree = case.tree
        rows = cls.rows(tree, case.selected.tolist())
        parent = [cls.row_of(rows, int(tree.parent[node]), case) for node in rows]
        first, following = cls.links(parent)
        return FlatTree(
            node=ids(rows),
            parent=ids(parent),
            token=ids([cls.token(tree, node, row) for row, node in enumerate(rows)]),
            depth=ids(cls.depths(tree, rows)),
            visible=cls.flat_visible(parent),
            paths=cls.table(parent, cls.leaves(parent)),
            first_child=ids(first),
            next_sibling=ids(following),
            position=ids(cls.positions(case.base, cls.depths(tree, rows))),
        )

    @classmethod
    def rows(cls, tree: CandidateTree, selected: list[int]) -> list[int]:
        return sorted(selected, key=lambda node: (int(tree.depth[node]), node))

    @classmethod
    def row_of(cls, rows: list[int], node: int, case: FlattenCase) -> int:
        return -1 if node == -1 else rows.index(node)

    @classmethod
    def token(cls, tree: CandidateTree, node: int, row: int) -> int:
        return int(tree.token[node])

    @classmethod
    def depths(cls, tree: CandidateTree, rows: list[int]) -> list[int]:
        return [int(tree.depth[node]) for node in rows]

    @classmethod
    def positions(cls, base: int, depth: list[int]) -> list[int]:
        return [base, *(base + d for d in depth)]

    @classmethod
    def flat_visible(cls, parent: list[int]) -> np.ndarray:
        return cls.visible(parent)

    @classmethod
    def batch(cls, trees: list[FlatTree]) -> list[FlatTree]:
        return trees

    @classmethod
    def batch_drafts(cls, trees: list[FlatTree]) -> list[FlatTree]:
        return trees

    # ---- visibility and masks

    @classmethod
    def visible(cls, parent: list[int]) -> np.ndarray:
        found = np.zeros((len(parent), len(parent)), dtype=bool)
        for row, above in enumerate(parent):
            if above >= 0:
                found[row] = found[above]
            found[row, row] = True
        return found

    @classmethod
    def verified(cls, parent: list[int], prefix: int) -> np.ndarray:
        rows = len(parent) + 1
        found = np.zeros((rows, prefix + rows), dtype=bool)
        found[:, : prefix + 1] = True
        found[1:, prefix + 1 :] = cls.visible(parent)
        return found

    @classmethod
    def form(cls, seen: np.ndarray, form: str) -> np.ndarray:
        if form == "allowed":
            return seen
        if form == "blocked":
            return ~seen
        if form == "additive":
            return np.where(seen, 0.0, cls.hidden())
        return cls.pack(seen, int(form.removeprefix("packed")))

    @classmethod
    def hidden(cls) -> float:
        return -np.inf

    @classmethod
    def pack(cls, seen: np.ndarray, width: int) -> np.ndarray:
        rows, columns = seen.shape
        words = np.zeros((rows, cls.words(columns, width)), dtype=f"uint{width}")
        for r, c in np.argwhere(seen).tolist():
            word, bit = cls.place(c, width)
            if word < words.shape[1]:
                words[r, word] |= words.dtype.type(1 << bit)
        return words

    @classmethod
    def words(cls, columns: int, width: int) -> int:
        return -(-columns // width)

    @classmethod
    def place(cls, column: int, width: int) -> tuple[int, int]:
        return column // width, column % width

    @classmethod
    def batch_masks(cls, masks: list[np.ndarray]) -> list[np.ndarray]:
        return masks

    # ---- paths and links

    @classmethod
    def leaves(cls, parent: list[int]) -> list[int]:
        return [row for row in range(len(parent)) if row not in parent]

    @classmethod
    def table(cls, parent: list[int], leaves: list[int]) -> np.ndarray:
        paths = [cls.walk(parent, leaf) for leaf in leaves]
        width = max(map(len, paths), default=0)
        return np.array([cls.padded(path, width, parent) for path in paths], dtype=np.int64).reshape(len(paths), width)

    @classmethod
    def walk(cls, parent: list[int], leaf: int) -> list[int]:
        path = [leaf]
        while parent[path[0]] >= 0 and len(path) <= len(parent):  # a faulty parent vector has no end
            path.insert(0, parent[path[0]])
        return path

    @classmethod
    def padded(cls, path: list[int], width: int, parent: list[int]) -> list[int]:
        return path + [-1] * (width - len(path))

    @classmethod
    def links(cls, parent: list[int]) -> tuple[list[int], list[int]]:
        first, following = [-1] * len(parent), [-1] * len(parent)
        for row in reversed(range(len(parent))):
            later = [other for other in range(row + 1, len(parent)) if parent[other] == parent[row]]
            following[row] = later[0] if later else -1
            if parent[row] >= 0:
                first[parent[row]] = row
        return first, following


def ids(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64).reshape(-1)
