"""Tree builders with one fault each: what they do not refuse."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from adapters.faulty.growing import Path, Trees
from oracle.types import CandidateTree, DraftTreeCase, FlattenCase, FlatTree, GrowthCase, SelectionCase


class AnyProbability(Trees):
    """Grows from NaN, negative and too large probabilities (sgl-project/sglang#7477)."""

    refutes = "TREE-801"

    @classmethod
    def check_row(cls, row: np.ndarray) -> None:
        if ((row >= 0) & (row <= 1)).all():
            super().check_row(row)

    @classmethod
    def value(cls, above: float, probability: float) -> float:
        return super().value(above, probability) if probability >= 0 else above


class AnyMass(Trees):
    """Grows from rows that sum to more than one."""

    refutes = "TREE-802"

    @classmethod
    def check_row(cls, row: np.ndarray) -> None:
        cls.check_range(row)


class RootRowForWhatIsMissing(Trees):
    """Falls back to the root's row where the table has none."""

    refutes = "TREE-803"

    @classmethod
    def row(cls, case: GrowthCase, above: Path) -> np.ndarray:
        try:
            return super().row(case, above)
        except (KeyError, IndexError):
            return super().row(case, ()) if len(case.table) else np.array([1.0])

    @classmethod
    def check_growth(cls, case: GrowthCase) -> None:
        super().check_growth(dataclasses.replace(case, max_depth=min(case.max_depth, 0)))


class NegativeIsZero(Trees):
    """Takes negative budgets, depths and bases for zero, and widths below one for one."""

    refutes = "TREE-804"

    @classmethod
    def grow_tree(cls, case: GrowthCase) -> CandidateTree:
        return super().grow_tree(cls.clamped(case))

    @classmethod
    def draft_tree(cls, cases: Any) -> list[FlatTree]:
        return super().draft_tree([DraftTreeCase(cls.clamped(c.growth), c.budget, c.base) for c in cases])

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> np.ndarray:
        return super().select_nodes(SelectionCase(case.tree, max(case.budget, 0)))

    @classmethod
    def flatten_tree(cls, cases: Any) -> list[FlatTree]:
        return super().flatten_tree([dataclasses.replace(case, base=max(case.base, 0)) for case in cases])

    @classmethod
    def clamped(cls, case: GrowthCase) -> GrowthCase:
        widths = max(case.expand_width, 1), max(case.branch_width, 1), max(case.max_depth, 0)
        return GrowthCase(case.table, *widths, case.draft_map)


class AnyConfidence(Trees):
    """Selects among confidences that are none."""

    refutes = "TREE-805"

    @classmethod
    def check_confidences(cls, tree: CandidateTree) -> None:
        """Checks nothing."""


class TwinsKept(Trees):
    """Keeps two children of one parent with one token."""

    refutes = "TREE-806"

    @classmethod
    def check_twins(cls, tree: CandidateTree) -> None:
        """Checks nothing."""


class AnyParent(Trees):
    """Takes every parent as it comes, itself and later nodes included."""

    refutes = "TREE-807"

    @classmethod
    def check_parents(cls, parent: list[Any]) -> None:
        if not all(isinstance(above, int) for above in parent):
            raise TypeError("parents are integers")

    @classmethod
    def check_depths(cls, tree: CandidateTree) -> None:
        """Checks nothing."""


class RisingValues(Trees):
    """Takes a child whose value is above its parent's, and one that is no number."""

    refutes = "TREE-808"

    @classmethod
    def check_values(cls, tree: CandidateTree) -> None:
        """Checks nothing."""


class OrphansBelowTheRoot(Trees):
    """Hangs a row whose parent is not selected below the root."""

    refutes = "TREE-809"

    @classmethod
    def check_selection(cls, case: FlattenCase) -> None:
        known = set(range(len(case.tree.parent)))
        if case.base < 0 or set(case.selected.tolist()) - known:
            raise ValueError("selected")

    @classmethod
    def row_of(cls, rows: list[int], node: int, case: FlattenCase) -> int:
        return rows.index(node) if node in rows else -1


class AnyForm(Trees):
    """Takes a form of mask that it does not know for the usual one."""

    refutes = "TREE-810"

    @classmethod
    def check_form(cls, form: str) -> None:
        """Checks nothing."""

    @classmethod
    def form(cls, seen: np.ndarray, form: str) -> np.ndarray:
        known = ("blocked", "additive", "packed8", "packed16", "packed32")
        return super().form(seen, form if form in known else "allowed")
