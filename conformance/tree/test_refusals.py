"""Refusals: what is no drafter's table, no candidate tree and no selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.check import Check
from conformance.handout import copy
from conformance.tree.cases import (
    BUSHY,
    WORKED,
    WORKED_ROWS,
    WORKED_TREE,
    Draftings,
    Flattenings,
    Masks,
    Parents,
    growth,
)
from conformance.tree.named import but, having
from oracle.types import CandidateTree, DraftTreeCase, FlattenCase, GrowthCase, MaskCase, SelectionCase

GROWING = ["grow_tree", "draft_tree"]
CANDIDATES = ["select_nodes", "flatten_tree"]


def refused(check: Check, operation: str, cases: list[Any]) -> None:
    check.require(operation)

    def body(case: Any) -> None:
        handed = copy(case)
        argument = handed.parent if isinstance(case, Parents) else list(getattr(handed, "cases", ())) or handed
        check.refuses(operation, argument)

    check.for_each(cases, body)


def grown(check: Check, operation: str, cases: list[GrowthCase]) -> None:
    """Growths that are refused, by themselves and as part of a drafting."""
    wrapped = [Draftings((DraftTreeCase(WORKED, 3), DraftTreeCase(case, 3))) for case in cases]
    refused(check, operation, list(cases) if operation == "grow_tree" else list(wrapped))


def judged(check: Check, operation: str, trees: list[CandidateTree]) -> None:
    """Candidate trees that are refused, by a selection and by a layout of their roots' children."""
    if operation == "select_nodes":
        return refused(check, operation, [SelectionCase(tree, 3) for tree in trees])
    right = FlattenCase(WORKED_TREE, np.arange(5))
    return refused(check, operation, [Flattenings((right, FlattenCase(tree, np.arange(5)))) for tree in trees])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-801")
@pytest.mark.parametrize("operation", GROWING)
def test_probabilities_out_of_range_are_refused(check: Check, operation: str) -> None:
    bad = (float("nan"), -0.125, 1.5)
    cases = [having((), (0.25, value, 0.25)) for value in bad]
    grown(check, operation, [*cases, *(having((0,), (value, 0.125, 0.25)) for value in bad)])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-802")
@pytest.mark.parametrize("operation", GROWING)
def test_rows_above_one_are_refused(check: Check, operation: str) -> None:
    grown(check, operation, [having((), (0.75, 0.5, 0.0)), having((1,), (0.5, 0.5, 0.25))])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-803")
@pytest.mark.parametrize("operation", GROWING)
def test_a_table_that_ends_too_early_is_refused(check: Check, operation: str) -> None:
    layers = (np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.2, 0.8]]))
    cases = [GrowthCase(layers, 2, 2, 3), GrowthCase((), 2, 2, 1), growth({(): (0.6, 0.4), (0,): (0.5, 0.5)}, 2, 2, 2)]
    grown(check, operation, cases)


@pytest.mark.hostile
@pytest.mark.clauses("TREE-804")
@pytest.mark.parametrize("operation", [*GROWING, *CANDIDATES])
def test_widths_depths_and_budgets_out_of_range_are_refused(check: Check, operation: str) -> None:
    if operation in GROWING:
        wrong = [(0, 2, 2), (2, 0, 2), (2, 2, -1), (-1, 2, 2)]
        return grown(check, operation, [growth(WORKED_ROWS, *widths) for widths in wrong])
    if operation == "select_nodes":
        return refused(check, operation, [SelectionCase(WORKED_TREE, -1), SelectionCase(BUSHY, -3)])
    return refused(check, operation, [Flattenings((FlattenCase(WORKED_TREE, np.arange(2), -1),))])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-805")
@pytest.mark.parametrize("operation", CANDIDATES)
def test_confidences_out_of_range_are_refused(check: Check, operation: str) -> None:
    bad = [but(confidence=(4, value)) for value in (float("nan"), -0.25, 1.25)]
    judged(check, operation, [*bad, but(confidence=(1, 0.75)), but(confidence=(3, 0.5))])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-806")
@pytest.mark.parametrize("operation", CANDIDATES)
def test_twins_are_refused(check: Check, operation: str) -> None:
    judged(check, operation, [but(token=(3, int(WORKED_TREE.token[2]))), but(token=(1, int(WORKED_TREE.token[0])))])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-807")
@pytest.mark.parametrize("operation", [*CANDIDATES, "tree_visibility", "tree_mask"])
def test_parents_that_are_no_earlier_node_are_refused(check: Check, operation: str) -> None:
    wrong = [[-1, -1, 2, 0, 1], [-1, -1, 3, 2, 1], [-1, -1, 0, 0, 7], [-1, -1, -2, 0, 1], [1, 0, -1, 0, 1]]
    if operation == "tree_visibility":
        return refused(check, operation, [Parents(np.array(parent)) for parent in wrong])
    if operation == "tree_mask":
        return refused(check, operation, [Masks((MaskCase(np.array(parent)),)) for parent in wrong])
    return judged(check, operation, [*(but(parent=parent) for parent in wrong), but(depth=(4, 3)), but(depth=(0, 0))])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-808")
@pytest.mark.parametrize("operation", CANDIDATES)
def test_values_that_rise_are_refused(check: Check, operation: str) -> None:
    judged(check, operation, [but(log_value=(4, -0.25)), but(log_value=(0, 0.5)), but(log_value=(2, float("nan")))])


@pytest.mark.hostile
@pytest.mark.clauses("TREE-809")
def test_a_selection_that_is_not_closed_is_refused(check: Check) -> None:
    wrong = ([4], [0, 4], [0, 2, 4], [0, 0], [0, 5], [-1], [0, 2, 2])
    right = FlattenCase(WORKED_TREE, np.arange(5))
    cases = [Flattenings((right, FlattenCase(WORKED_TREE, np.array(nodes)))) for nodes in wrong]
    refused(check, "flatten_tree", cases)


@pytest.mark.hostile
@pytest.mark.clauses("TREE-810")
@pytest.mark.parametrize("operation", [*CANDIDATES, "tree_mask"])
def test_vectors_that_do_not_fit_are_refused(check: Check, operation: str) -> None:
    if operation == "tree_mask":
        cases = [MaskCase(np.array([-1, 0]), 0, form) for form in ("", "packed64", "Allowed")]
        return refused(check, operation, [Masks((case,)) for case in cases])
    short = but(token=[2, 5, 8, 11]), but(confidence=[0.6, 0.4]), but(depth=[1, 1, 2])
    judged(check, operation, [*short, but(parent=[-1.0, -1.0, 0.0, 0.0, 1.5]), but(token=[0.5, 1.5, 2.5, 3.5, 4.5])])
