"""Tree builders with one fault each, in whole draftings: what their other operations answer is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from adapters.faulty.growing import Path, Trees
from adapters.faulty.tree_growth import LastTokenAlone
from adapters.faulty.tree_masks import SiblingsVisible
from adapters.faulty.tree_rows import PositionsByRow
from adapters.faulty.tree_selection import CountsTheRoot, DeeperFirstOfEquals
from oracle.types import CandidateTree, DraftTreeCase, FlattenCase, FlatTree, GrowthCase


class Drafts(Trees):
    """A right builder that has its draftings done by another one."""

    by: ClassVar[type[Trees]] = Trees

    @classmethod
    def drafted(cls, case: DraftTreeCase) -> FlatTree:
        return cls.by.drafted(case)


class _FirstToken(Trees):
    @classmethod
    def token(cls, tree: CandidateTree, node: int, row: int) -> int:
        return int(tree.token[tree.parent.tolist().index(int(tree.parent[node]))])


class _BreadthFirst(Trees):
    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (float(tree.depth[node]), -float(tree.log_value[node]), node)


class _Repaired(Trees):
    """Where a parent is not selected, the row hangs from the one that a search for it ends at."""

    @classmethod
    def row_of(cls, rows: list[int], node: int, case: FlattenCase) -> int:
        return -1 if node == -1 else min(int(np.searchsorted(rows, node)), len(rows) - 1)


class _DeeperFirst(_Repaired, DeeperFirstOfEquals):
    """Both at once."""


class _HalfPrecision(_Repaired):
    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (-float(np.float16(tree.log_value[node])), -float(tree.depth[node]), node)


class _RowsByValue(Trees):
    @classmethod
    def rows(cls, tree: CandidateTree, selected: list[int]) -> list[int]:
        return sorted(selected, key=lambda node: cls.key(tree, node))


class _Product(Trees):
    @classmethod
    def frontier(cls, case: GrowthCase, latest: list[int], value: list[float]) -> list[int]:
        return sorted(latest, key=lambda node: (-np.exp(value[node]), node))[: case.expand_width]

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (-float(np.exp(tree.log_value[node])), float(tree.depth[node]), node)


class _MapIgnored(Trees):
    @classmethod
    def published(cls, case: GrowthCase, draft: int) -> int:
        return draft

    @classmethod
    def row(cls, case: GrowthCase, above: Path) -> np.ndarray:
        if case.draft_map is None:
            return super().row(case, above)
        return super().row(case, tuple(Trees.published(case, draft) for draft in above))


class SiblingsShareAToken(Drafts):
    """Drafts the first child's token for all children of a node."""

    refutes = "TREE-701"
    by = _FirstToken


class DraftsAfterTheLastToken(Drafts):
    """Drafts after the last token of a path, and not after the path."""

    refutes = "TREE-702"
    by = LastTokenAlone


class DraftsOneLess(Drafts):
    """Counts the root in the budget of a drafting (SafeAILab/EAGLE's total_tokens, taken as it stands)."""

    refutes = "TREE-703"
    by = CountsTheRoot


class DraftsBreadthFirst(Drafts):
    """Fills the budget of a drafting layer by layer."""

    refutes = "TREE-704"
    by = _BreadthFirst


class KeepsTheDeeperOfEquals(Drafts):
    """Keeps a certain child before its parent, and hangs it where a search for that parent ends (SafeAILab/EAGLE)."""

    refutes = "TREE-705"
    by = _DeeperFirst


class RanksInHalfPrecision(Drafts, dtype="float16"):
    """Ranks in float16, where a likely child has its parent's value, and mends the parent by a search."""

    refutes = "TREE-705"
    by = _HalfPrecision


class DraftsInOrderOfValue(Drafts):
    """Lays a drafting out in the order in which its nodes were selected."""

    refutes = "TREE-706"
    by = _RowsByValue


class DraftsAtPositionsByRow(Drafts):
    """Counts the positions of a drafting row by row."""

    refutes = "TREE-707"
    by = PositionsByRow


class DraftsSeeTheirSiblings(Drafts):
    """Lets the rows of a drafting see their siblings."""

    refutes = "TREE-707"
    by = SiblingsVisible


class DraftsByProduct(Drafts):
    """Ranks the candidates of a drafting by products, which vanish."""

    refutes = "TREE-708"
    by = _Product


class OneTableForTheBatch(Trees):
    """Drafts every member of a batch from the first one's table."""

    refutes = "TREE-709"

    @classmethod
    def draft_tree(cls, cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        table = cases[0].growth.table
        return [
            cls.drafted(dataclasses.replace(case, growth=dataclasses.replace(case.growth, table=table)))
            for case in cases
            if cls.check_growth(case.growth) is None
        ]


class RefusesALargeDrafting(Trees):
    """Raises where the budget of a drafting is larger than the tree it grows."""

    refutes = "TREE-710"

    @classmethod
    def drafted(cls, case: DraftTreeCase) -> FlatTree:
        if case.budget > len(cls.grown(case.growth)[0]) > 0:
            raise RuntimeError("selected index k out of range")
        return super().drafted(case)


class DraftsDraftIds(Drafts):
    """Publishes the draft ids of a reduced vocabulary."""

    refutes = "TREE-711"
    by = _MapIgnored
