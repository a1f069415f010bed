"""Whole draftings: growth, selection and layout in one run, judged by the paths that come out."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from conformance.check import Check
from conformance.roads import tree as road
from conformance.tree import asking, drafting, drawing, offered, pictures, strategies, tables
from conformance.tree.cases import Draftings, growth, table
from conformance.tree.named import KINDS_OF_MAPS, mapped
from conformance.tree.test_flattening import observe, positions
from conformance.verdicts import ClauseViolation, HarnessError, Undecidable
from oracle import tree as oracle
from oracle.types import DraftTreeCase, FlatTree


def every(check: Check, body: Callable[[DraftTreeCase, FlatTree], object]) -> None:
    """Run `body` on named and drawn draftings, with the implementation's tree."""
    check.require("draft_tree")
    made = strategies.draftings().map(lambda case: Draftings((case,)))
    check.for_all(made, lambda call: one(check, call, body), first=alone(drafting.PLAIN))


def each(check: Check, cases: list[DraftTreeCase], body: Callable[[DraftTreeCase, FlatTree], object]) -> None:
    check.require("draft_tree")
    check.for_each(alone(cases), lambda call: one(check, call, body))


def alone(cases: list[DraftTreeCase]) -> list[Draftings]:
    return [Draftings((case,)) for case in cases]


def one(check: Check, call: Draftings, body: Callable[[DraftTreeCase, FlatTree], object]) -> None:
    (found,) = asking.drafted(check, call)
    agreed(check, call.cases[0])
    body(call.cases[0], found)


def agreed(check: Check, case: DraftTreeCase) -> None:
    """Both roads draft a tree of the same size; where they choose within rounding, both choices stand."""
    if not check.is_oracle:
        ours = len(oracle.draft_tree([case])[0].parent)
        if ours != len(road.kept(road.grown(case.growth), case.budget)):
            raise HarnessError("the oracle and the second road disagree about the size of a drafting")


@pytest.mark.clauses("TREE-701")
def test_rows_stand_after_their_parents(check: Check) -> None:
    def body(case: DraftTreeCase, found: FlatTree) -> None:
        whole = offered.paths(found.parent, found.token)
        for row, path in enumerate(whole):
            if path in whole[:row]:
                raise ClauseViolation(f"rows {whole.index(path)} and {row} are both {offered.named(path)}")

    every(check, body)


@pytest.mark.clauses("TREE-702")
def test_every_edge_is_one_that_was_offered(check: Check) -> None:
    every(check, lambda case, found: drafting.edges(check, case, found))


@pytest.mark.clauses("TREE-703")
def test_as_many_nodes_are_verified_as_the_budget_says(check: Check) -> None:
    every(check, lambda case, found: counted(case, found))


@pytest.mark.clauses("TREE-710")
def test_a_budget_above_the_candidates_drafts_all(check: Check) -> None:
    grown = [drafting.WIDE, drafting.CHAIN, drafting.PLAIN[-2].growth]
    cases = [DraftTreeCase(case, strategies.candidates_of(case) + more, 2) for case in grown for more in (0, 1, 30)]
    each(check, cases, counted)


def counted(case: DraftTreeCase, found: FlatTree) -> None:
    wanted = min(case.budget, strategies.candidates_of(case.growth))
    if len(found.parent) != wanted:
        raise ClauseViolation(
            f"a budget of {case.budget} verifies {wanted} nodes below the root, found {len(found.parent)}"
        )


@pytest.mark.clauses("TREE-704")
def test_the_best_candidates_are_drafted(check: Check) -> None:
    every(check, lambda case, found: drafting.best(check, case, offered.paths(found.parent, found.token)))


@pytest.mark.clauses("TREE-705")
@pytest.mark.parametrize("rounded", [False, True], ids=["equal", "rounded"])
def test_a_certain_child_keeps_its_parent(check: Check, rounded: bool) -> None:
    """Its value is its parent's, exactly, or once it is rounded to the declared dtype."""

    def body(case: DraftTreeCase, found: FlatTree) -> None:
        whole = drafting.edges(check, case, found)
        if lost := [path for path in whole if path[:-1] and path[:-1] not in whole]:
            raise ClauseViolation(f"{offered.named(lost[0])} is kept without {offered.named(lost[0][:-1])}")

    each(check, drafting.certain(drafting.unit(check), rounded), body)


@pytest.mark.clauses("TREE-706")
def test_rows_come_in_the_order_of_growth(check: Check) -> None:
    def body(case: DraftTreeCase, found: FlatTree) -> None:
        drafting.ordered(check, case, found, offered.paths(found.parent, found.token))

    every(check, body)


@pytest.mark.clauses("TREE-707")
def test_all_of_a_drafting_is_of_one_tree(check: Check) -> None:
    def body(case: DraftTreeCase, found: FlatTree) -> None:
        parent = found.parent.tolist()
        depth = road.depths(parent)
        if found.depth is not None and found.depth.tolist() != depth:
            raise ClauseViolation(f"by their parents the rows are {depth} deep, found {found.depth.tolist()}")
        if found.position is not None:
            observe(check, case.base, depth, found)
            right = positions(check, case.base, depth, len(found.position))
            if found.position.tolist() != right:
                raise ClauseViolation(f"positions are {right}, found {found.position.tolist()}")
        if found.visible is not None and not np.array_equal(found.visible, road.visible(parent)):
            rows = pictures.rows(parent)
            kin = functools.partial(drawing.kinship, parent)
            raise ClauseViolation(
                drawing.edge("the drafted tree", road.visible(parent), found.visible, rows, rows, kin)
            )
        if found.paths is not None:
            for judged in (tables.leaves, tables.walks, tables.padding, tables.order):
                judged(parent, found.paths)
        tables.agree(found)

    every(check, body)


@pytest.mark.clauses("TREE-708")
@pytest.mark.parametrize("which", ["normalised", "omitting mass"])
def test_a_chain_whose_product_vanishes_is_kept(check: Check, which: str) -> None:
    case = drafting.deep() if which == "normalised" else drafting.vanishing()
    if not drafting.told_apart(check, case):
        raise Undecidable("the candidates of these chains lie within rounding of each other")

    def body(case: DraftTreeCase, found: FlatTree) -> None:
        drafting.best(check, case, drafting.edges(check, case, found))

    each(check, [case], body)


@pytest.mark.clauses("TREE-709")
def test_each_drafting_of_a_batch_is_its_own(check: Check) -> None:
    check.require("draft_tree")
    plain = drafting.PLAIN
    three = [DraftTreeCase(growth(table("generic", seed, 3, 3), 2, 2, 3), 5, seed) for seed in (1, 2, 3)]
    first = [Draftings(tuple(plain[:4])), Draftings((plain[4], plain[0], plain[6])), Draftings(tuple(three))]

    def body(call: Draftings) -> None:
        for member, (case, found) in enumerate(zip(call.cases, asking.drafted(check, call))):
            try:
                counted(case, found)
                drafting.best(check, case, drafting.edges(check, case, found))
            except ClauseViolation as violation:
                raise ClauseViolation(f"member {member}: {violation.reason}") from None

    check.for_each(first, body)


@pytest.mark.clauses("TREE-711")
@pytest.mark.parametrize("kind", KINDS_OF_MAPS)
def test_drafted_tokens_are_target_ids(check: Check, kind: str) -> None:
    read: list[str] = []

    def body(case: DraftTreeCase, found: FlatTree) -> None:
        drafting.best(check, case, drafting.edges(check, case, found))
        read.append("" if case.growth.draft_map is None else case.growth.draft_map.convention)

    cases = [*mapped("offset", 3, kind), *mapped("absolute", 3, kind)]
    each(check, [DraftTreeCase(case, 5, 1) for case in cases], body)
    offered.observe_map(check, read)
