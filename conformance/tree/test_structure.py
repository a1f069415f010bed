"""Structure: the form of every answer, the empty ones, and cases left as they were. Refusals stand in test_refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.check import Check
from conformance.handout import copy, written
from conformance.tree import asking, strategies
from conformance.tree.cases import (
    BUSHY,
    WIDE_PARENTS,
    WORKED,
    WORKED_ROWS,
    WORKED_TREE,
    Draftings,
    Flattenings,
    Masks,
    Parents,
    growth,
    offset,
)
from conformance.tree.named import EMPTY, NOTHING
from conformance.verdicts import ClauseViolation
from oracle.types import MASK_FORMS, DraftTreeCase, FlattenCase, GrowthCase, MaskCase, SelectionCase

OPERATIONS = ["grow_tree", "select_nodes", "flatten_tree", "tree_visibility", "draft_tree"]
ALL = FlattenCase(BUSHY, np.arange(10))


@pytest.mark.clauses("TREE-101")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_vector_has_one_entry_a_node(check: Check, operation: str) -> None:
    """Reading an answer judges its form."""
    check.require(operation)
    if operation == "grow_tree":
        check.for_all(strategies.growths(), lambda case: asking.grown(check, case), first=[WORKED])
    elif operation == "select_nodes":
        check.for_all(
            strategies.selections(), lambda case: asking.selected(check, case), first=[SelectionCase(BUSHY, 4)]
        )
    elif operation == "flatten_tree":
        check.for_all(strategies.flattenings(), lambda call: asking.flattened(check, call), first=[Flattenings((ALL,))])
    elif operation == "tree_visibility":
        check.for_all(
            strategies.parents(), lambda case: asking.visible(check, case), first=[Parents(p) for p in WIDE_PARENTS]
        )
    else:
        first = [Draftings((DraftTreeCase(WORKED, 4),))]
        made = strategies.draftings().map(lambda case: Draftings((case,)))
        check.for_all(made, lambda call: asking.drafted(check, call), first=first)


@pytest.mark.clauses("TREE-102")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_gives_nothing(check: Check, operation: str) -> None:
    check.require(operation)
    bare = growth(WORKED_ROWS, 2, 2, 0)
    empty = (FlattenCase(WORKED_TREE, NOTHING, 3), FlattenCase(EMPTY, NOTHING))
    cases: dict[str, list[Any]] = {
        "grow_tree": [bare],
        "select_nodes": [SelectionCase(WORKED_TREE, 0), SelectionCase(EMPTY, 3), SelectionCase(EMPTY, 0)],
        "flatten_tree": [Flattenings((case,)) for case in empty],
        "tree_visibility": [Parents(NOTHING)],
        "draft_tree": [Draftings((DraftTreeCase(WORKED, 0, 2),)), Draftings((DraftTreeCase(bare, 3),))],
    }

    def body(case: Any) -> None:
        if operation == "grow_tree":
            size = len(asking.grown(check, case).parent)
        elif operation == "select_nodes":
            size = len(asking.selected(check, case))
        elif operation == "tree_visibility":
            size = len(asking.visible(check, case))
        else:
            (tree,) = asking.flattened(check, case) if operation == "flatten_tree" else asking.drafted(check, case)
            size = len(tree.parent)
            if tree.paths is not None and tree.paths.shape != (0, 0):
                raise ClauseViolation(f"there is no leaf, and the leaf table has the shape {tree.paths.shape}")
        if size:
            raise ClauseViolation(f"there is no node to answer with, and the answer has {size}")

    check.for_each(cases[operation], body)


@pytest.mark.clauses("TREE-103")
@pytest.mark.parametrize("operation", [*OPERATIONS, "tree_mask"])
def test_the_case_is_left_alone(check: Check, operation: str) -> None:
    check.require(operation)
    wanted = [MaskCase(np.array([-1, 0, 0, 1]), prefix, form) for prefix in (0, 2) for form in MASK_FORMS]
    layers = GrowthCase((np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.2, 0.8]])), 2, 2, 2, offset([0, 1], 2))
    cases: dict[str, list[Any]] = {
        "grow_tree": [layers, GrowthCase(layers.table, 2, 2, 2)],
        "select_nodes": [SelectionCase(BUSHY, 4)],
        "flatten_tree": [Flattenings((ALL, FlattenCase(WORKED_TREE, np.array([1, 0, 4]))))],
        "tree_visibility": [Parents(p) for p in WIDE_PARENTS],
        "tree_mask": [Masks((case,)) for case in wanted],
        "draft_tree": [Draftings((DraftTreeCase(case, 3),)) for case in (layers, GrowthCase(layers.table, 2, 2, 2))],
    }

    def body(case: Any) -> None:
        handed = copy(case)
        argument = handed.parent if isinstance(case, Parents) else list(getattr(handed, "cases", ())) or handed
        check.call(operation, argument)
        if names := written(case, handed):
            raise ClauseViolation(f"{operation} wrote into {', '.join(names)}")

    check.for_each(cases[operation], body)
