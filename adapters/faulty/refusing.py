"""What a right tree builder refuses, rule by rule: a fault is a subclass of `Trees` that leaves one of them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oracle.types import MASK_FORMS, CandidateTree, FlattenCase, GrowthCase


class Checks:
    """Every rule is a method that a fault may override."""

    @classmethod
    def check_growth(cls, case: GrowthCase) -> None:
        if case.expand_width < 1 or case.branch_width < 1 or case.max_depth < 0:
            raise ValueError("widths")
        if not isinstance(case.table, Mapping) and len(case.table) < case.max_depth:
            raise ValueError("the table is too short")
        rows = case.table.values() if isinstance(case.table, Mapping) else [r for t in case.table for r in flat_rows(t)]
        for row in rows:
            cls.check_row(np.asarray(row, dtype=float))

    @classmethod
    def check_row(cls, row: np.ndarray) -> None:
        cls.check_range(row)
        cls.check_sum(float(row.sum()))

    @classmethod
    def check_range(cls, row: np.ndarray) -> None:
        if not ((row >= 0) & (row <= 1)).all():
            raise ValueError("a probability lies in [0, 1]")

    @classmethod
    def check_sum(cls, total: float) -> None:
        if total > 1 + 1e-9:
            raise ValueError("a row sums to at most one")

    @classmethod
    def check_parents(cls, parent: list[Any]) -> None:
        for node, above in enumerate(parent):
            if not isinstance(above, int) or not -1 <= above < node:
                raise ValueError(f"parent[{node}]")

    @classmethod
    def check_tree(cls, tree: CandidateTree) -> None:
        cls.check_vectors(tree)
        parent = tree.parent.tolist()
        cls.check_parents(parent)
        cls.check_depths(tree)
        cls.check_twins(tree)
        cls.check_confidences(tree)
        cls.check_values(tree)

    @classmethod
    def check_vectors(cls, tree: CandidateTree) -> None:
        if len({np.shape(v) for v in (tree.parent, tree.token, tree.confidence, tree.log_value, tree.depth)}) != 1:
            raise ValueError("vectors of different lengths")
        if len(tree.token) and (tree.token.dtype.kind, tree.parent.dtype.kind) != ("i", "i"):
            raise TypeError("ids are integers")

    @classmethod
    def check_depths(cls, tree: CandidateTree) -> None:
        for node, above in enumerate(tree.parent.tolist()):
            if tree.depth[node] != (1 if above == -1 else tree.depth[above] + 1):
                raise ValueError(f"depth[{node}]")

    @classmethod
    def check_twins(cls, tree: CandidateTree) -> None:
        if len(set(zip(tree.parent.tolist(), tree.token.tolist()))) < len(tree.parent):
            raise ValueError("twins")

    @classmethod
    def check_confidences(cls, tree: CandidateTree) -> None:
        cls.check_range(tree.confidence)
        for above in set(tree.parent.tolist()):
            cls.check_sum(float(tree.confidence[tree.parent == above].sum()))

    @classmethod
    def check_values(cls, tree: CandidateTree) -> None:
        for node, above in enumerate(tree.parent.tolist()):
            if not tree.log_value[node] <= (0.0 if above == -1 else tree.log_value[above]):
                raise ValueError(f"log_value[{node}]")

    @classmethod
    def check_selection(cls, case: FlattenCase) -> None:
        selected = case.selected.tolist()
        known = set(range(len(case.tree.parent)))
        if case.base < 0 or set(selected) - known or len(set(selected)) < len(selected):
            raise ValueError("selected")
        if {int(case.tree.parent[node]) for node in selected} - {-1, *selected}:
            raise ValueError("a parent is not selected")

    @classmethod
    def check_form(cls, form: str) -> None:
        if form not in MASK_FORMS:
            raise ValueError(form)


def flat_rows(layer: np.ndarray) -> np.ndarray:
    return np.asarray(layer).reshape(-1, np.shape(layer)[-1])
