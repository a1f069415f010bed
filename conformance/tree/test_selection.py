"""Selection: as many as the budget says, closed under ancestors, the best of all layers, in one order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest

from conformance import draw
from conformance.check import Check
from conformance.roads import tree as road
from conformance.tree import asking, judge, strategies
from conformance.tree.cases import (
    CERTAIN,
    CERTAIN_BELOW,
    FORTY,
    IMPOSSIBLE,
    TIED,
    TREES,
    TWO_OF_FORTY,
    WORKED_TREE,
    candidates,
)
from conformance.tree.named import BROAD, DEEP_TREE, EQUAL_ACROSS, LATER_FIRST
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle import tree as oracle
from oracle.types import CandidateTree, SelectionCase

LONG = candidates([*range(-1, 6), 0, 1, 2], [0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.1, 0.14, 0.12])
PLAIN = (*TREES, DEEP_TREE, BROAD, LONG)


def every(
    check: Check, trees: tuple[CandidateTree, ...], kind: str, body: Callable[[SelectionCase, list[int]], None]
) -> None:
    """Run `body` at every budget of the named trees, then on drawn ones, with the implementation's answer."""
    check.require("select_nodes")

    def ask(case: SelectionCase) -> None:
        agreed(check, case)
        body(case, asking.selected(check, case))

    check.for_all(strategies.selections(kind), ask, first=budgets(trees))


def budgets(trees: tuple[CandidateTree, ...]) -> list[SelectionCase]:
    return [SelectionCase(tree, budget) for tree in trees for budget in range(1, len(tree.parent) + 1)]


def agreed(check: Check, case: SelectionCase) -> list[int]:
    """The right selection in float64, by both roads."""
    right = road.rank(case.tree)[: case.budget]
    if not check.is_oracle and oracle.select_nodes(case).tolist() != right:
        raise HarnessError("the oracle and the second road disagree about a selection")
    if not road.closed(case.tree.parent.tolist(), right):
        raise HarnessError("the order of this tree is not closed under ancestors")
    return right


@pytest.mark.clauses("TREE-301")
def test_the_budget_is_spent_on_different_nodes(check: Check) -> None:
    check.require("select_nodes")
    check.for_all(strategies.selections("generic"), lambda case: counted(check, case), first=budgets(PLAIN))


@pytest.mark.clauses("TREE-309")
def test_a_budget_above_the_candidates_takes_all(check: Check) -> None:
    check.require("select_nodes")
    beyond = [SelectionCase(tree, budget) for tree in TREES for budget in (len(tree.parent) + 1, 59)]
    check.for_each(beyond, lambda case: counted(check, case))


def counted(check: Check, case: SelectionCase) -> None:
    found, wanted = asking.selected(check, case), min(case.budget, len(case.tree.parent))
    if len(found) != wanted:
        raise ClauseViolation(f"a budget of {case.budget} selects {wanted} nodes, found {len(found)}")
    if len(set(found)) != len(found):
        raise ClauseViolation(f"the selection {found} names a node twice")


@pytest.mark.clauses("TREE-302")
def test_a_selection_is_closed_under_ancestors(check: Check) -> None:
    every(check, PLAIN, "generic", closed)


@pytest.mark.clauses("TREE-303")
def test_the_best_nodes_of_all_layers_are_selected(check: Check) -> None:
    def body(case: SelectionCase, found: list[int]) -> None:
        judge.better_left_out(case.tree, found, check.arithmetic)
        check.decided(judge.decided(case.tree, case.budget, check.arithmetic))

    every(check, PLAIN, "generic", body)


@pytest.mark.clauses("TREE-304")
def test_a_smaller_budget_selects_the_beginning(check: Check) -> None:
    def body(case: SelectionCase, found: list[int]) -> None:
        order = by_value(check, found, case)
        values = case.tree.log_value
        for i, (one, other) in enumerate(itertools.pairwise(order)):
            slack = sum(judge.stored_bound(check.arithmetic, float(values[n])) for n in (one, other))
            if values[other] > values[one] + slack:
                raise ClauseViolation(
                    f"place {i + 1} of the selection {order} is node {other} (value {draw.number(values[other])}), "
                    f"after node {one} (value {draw.number(values[one])})"
                )
            if not road.closed(case.tree.parent.tolist(), order[: i + 1]):
                raise ClauseViolation(f"the first {i + 1} of the selection {order} are not closed under ancestors")

    every(check, PLAIN, "generic", body)


@pytest.mark.clauses("TREE-305")
def test_equal_values_come_by_depth_and_id(check: Check) -> None:
    def body(case: SelectionCase, found: list[int]) -> None:
        right = agreed(check, case)
        if check.convention("selection_order", "value") == "node":
            right, found = sorted(right), sorted(found)
        if found != right:
            values = [draw.number(case.tree.log_value[i]) for i in found]
            raise ClauseViolation(f"nodes {right} are selected in this order; found {found} with the values {values}")

    check.require("select_nodes")
    cases = budgets((TIED, EQUAL_ACROSS, LATER_FIRST, candidates([-1] * 7, [0.125] * 7)))
    check.for_each(cases, lambda case: body(case, asking.selected(check, case)))


@pytest.mark.clauses("TREE-306")
def test_a_certain_child_never_displaces_its_parent(check: Check) -> None:
    shuffled = candidates([-1, -1, 0, 1, 2, 3], [0.25, 0.5, 1.0, 1.0, 1.0, 1.0])
    near = candidates([-1, -1, 0, 1, 2, 3], [0.25, 0.5, 1 - 2**-30, 1 - 2**-12, 1 - 2**-40, 1 - 2**-9])
    families = candidates([-1] + [0] * 3 + [1, 2, 3], [1.0, 0.5, 0.25, 0.25, 1.0, 1.0, 1.0])
    every(check, (CERTAIN, CERTAIN_BELOW, shuffled, near, families), "certain", closed)


@pytest.mark.clauses("TREE-307")
def test_values_no_product_can_hold_are_ordered(check: Check) -> None:
    def body(case: SelectionCase, found: list[int]) -> None:
        closed(case, found)
        judge.better_left_out(case.tree, found, check.arithmetic)

    check.require("select_nodes")
    cases = budgets((FORTY, TWO_OF_FORTY))
    check.for_each(cases, lambda case: body(case, asking.selected(check, case)))


@pytest.mark.clauses("TREE-308")
def test_the_order_is_that_of_stored_values(check: Check) -> None:
    """Values that confidences alone do not give: floored ones, and ones that were computed in another precision."""
    check.require("select_nodes")
    shifted = dataclasses.replace(WORKED_TREE, log_value=WORKED_TREE.log_value - [0.0, 0.25, 0.5, 0.1, 0.7])

    def body(case: SelectionCase) -> None:
        found = asking.selected(check, case)
        agreed(check, case)
        closed(case, found)
        judge.better_left_out(case.tree, found, check.arithmetic)

    check.for_each(budgets((IMPOSSIBLE, shifted)), body)


def closed(case: SelectionCase, found: list[int]) -> None:
    if words := judge.not_closed(case.tree, found):
        raise ClauseViolation(words)


def by_value(check: Check, found: list[int], case: SelectionCase) -> list[int]:
    """The selection, where its order says something; which order it has is observed."""
    right = agreed(check, case)
    if right != sorted(right) and set(found) == set(right):
        check.observe("selection_order", "node" if found == sorted(found) else "value")
    if check.convention("selection_order", "value") == "node":
        raise Inapplicable("the selection comes as a set, in node order")
    return found
