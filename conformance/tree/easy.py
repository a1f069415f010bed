"""Easy cases of the tree contract, one or two an operation: what the smoke step asks of an adapter."""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance.tree.cases import CHAIN, WORKED, WORKED_ROWS, WORKED_TREE, growth
from oracle.types import MASK_FORMS, DraftTreeCase, FlattenCase, MaskCase, SelectionCase

PARENTS = np.array([-1, -1, 0, 1])
STATIC = growth({(): (0.5, 0.3, 0.2), (0,): (0.6, 0.3, 0.1)}, 1, 1, 2)


def easy(operation: str, _: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Arguments of `operation`, and the fields of its answer, or of each member of it."""
    trees = [FlattenCase(CHAIN, np.arange(4)), FlattenCase(WORKED_TREE, np.array([0, 1, 2, 4]), 3)]
    cases: dict[str, tuple[list[Any], tuple[str, ...]]] = {
        "grow_tree": ([WORKED, STATIC], ("parent", "token", "confidence", "log_value", "depth")),
        "select_nodes": ([SelectionCase(WORKED_TREE, 3)], ()),
        "flatten_tree": ([[tree] for tree in trees], ("parent", "token")),
        "tree_visibility": ([PARENTS], ()),
        "tree_mask": ([[MaskCase(PARENTS, prefix, form)] for form in MASK_FORMS for prefix in (0, 2)], ()),
        "draft_tree": (
            [[DraftTreeCase(case, 2, 1)] for case in (WORKED, STATIC, growth(WORKED_ROWS, 2, 2, 1))],
            ("parent", "token"),
        ),
    }
    return cases[operation]
