"""Flat rows: which nodes they are, their parents, tokens, depths and positions, each tree by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from conformance.check import Check
from conformance.roads import tree as road
from conformance.tree import asking, drawing, strategies
from conformance.tree.cases import BUSHY, CHAIN, WORKED_TREE, Flattenings, candidates
from conformance.tree.named import BY_DEPTH, DIAGONAL, part, whole
from conformance.verdicts import ClauseViolation
from oracle.types import FlattenCase, FlatTree

PLAIN = [
    whole(WORKED_TREE, 3),
    whole(CHAIN, 1),
    whole(BUSHY, 5),
    part(BUSHY, [0, 2, 5, 8], 2),
    part(BUSHY, [1, 2, 5]),
    whole(DIAGONAL),
    whole(candidates([-1, -1, 0, 1, 1], [0.6, 0.3, 0.7, 0.5, 0.25], [70001, 151643, 3, 128009, 40000]), 4097),
    whole(candidates([-1] * 8 + [i // 2 for i in range(50)], [0.11] * 8 + [0.3, 0.25] * 25, list(range(7, 65))), 40),
]
"""The fourth and fifth skip ids, so that a row is not its node; then ids and a position of more than 16 bits, a size
that engines verify by default."""


def every(check: Check, body: Callable[[FlattenCase, FlatTree], None], *more: FlattenCase) -> None:
    """Run `body` on named trees and on drawn ones, selected in node order, with the implementation's rows."""
    check.require("flatten_tree")

    def ask(call: Flattenings) -> None:
        (found,) = asking.flattened(check, call)
        body(call.cases[0], found)

    check.for_all(strategies.flattenings(), ask, first=[Flattenings((case,)) for case in (*PLAIN, *more)])


@pytest.mark.clauses("TREE-401")
def test_rows_are_the_selected_nodes_by_depth_and_id(check: Check) -> None:
    def body(case: FlattenCase, found: FlatTree) -> None:
        right = asking.expected_rows(check, case)
        if found.node is not None and found.node.tolist() != right:
            raise ClauseViolation(f"the rows are the nodes {right}, found {found.node.tolist()}")
        if len(found.parent) != len(right):
            raise ClauseViolation(f"{len(right)} nodes are selected, and there are {len(found.parent)} rows")

    every(check, body, whole(BY_DEPTH))


@pytest.mark.clauses("TREE-402")
def test_a_parent_is_the_row_of_the_nodes_parent(check: Check) -> None:
    every(check, lambda case, found: parents(check, case, found))


def parents(check: Check, case: FlattenCase, found: FlatTree) -> None:
    """`ClauseViolation` at the first wrong edge, both trees drawn."""
    rows = asking.expected_rows(check, case)
    right = expected_parents(case, rows)
    ours = found.parent.tolist()
    if ours == right:
        return
    wrong = next((i for i, (a, b) in enumerate(zip(ours, right)) if a != b), min(len(ours), len(right)))
    labels = [f"row {i} = token {int(case.tree.token[node])}" for i, node in enumerate(rows)]
    lines = [f"row {wrong} hangs below {place(right, wrong)}, and not below {place(ours, wrong)}", "expected:"]
    lines += ["  " + line for line in drawing.outline(right, labels, [wrong])] + ["found:"]
    labels = [f"row {i} = token {int(token)}" for i, token in enumerate(found.token)]
    raise ClauseViolation("\n".join([*lines, *("  " + line for line in drawing.outline(ours, labels, [wrong]))]))


def expected_parents(case: FlattenCase, rows: Sequence[int]) -> list[int]:
    above = case.tree.parent.tolist()
    return [-1 if above[node] == -1 else list(rows).index(above[node]) for node in rows]


def place(parent: Sequence[int], row: int) -> str:
    if row >= len(parent):
        return "any row"
    return "the root" if parent[row] == -1 else f"row {parent[row]}"


@pytest.mark.clauses("TREE-403")
def test_a_token_is_that_of_the_node(check: Check) -> None:
    def body(case: FlattenCase, found: FlatTree) -> None:
        right = [int(case.tree.token[node]) for node in asking.expected_rows(check, case)]
        if found.token.tolist() != right:
            raise ClauseViolation(f"the rows have the tokens {right}, found {found.token.tolist()}")

    every(check, body)


@pytest.mark.clauses("TREE-404")
def test_depth_counts_the_ancestors(check: Check) -> None:
    def body(case: FlattenCase, found: FlatTree) -> None:
        asking.shown([found], "depth")
        rows = asking.expected_rows(check, case)
        right = road.depths(expected_parents(case, rows))
        if found.depth.tolist() != right:  # type: ignore[union-attr]
            raise ClauseViolation(f"the rows have the depths {right}, found {found.depth.tolist()}")  # type: ignore[union-attr]

    every(check, body)


@pytest.mark.clauses("TREE-405")
def test_a_row_stands_at_the_base_plus_its_depth(check: Check) -> None:
    def body(case: FlattenCase, found: FlatTree) -> None:
        asking.shown([found], "position")
        rows = asking.expected_rows(check, case)
        depth = road.depths(expected_parents(case, rows))
        observe(check, case.base, depth, found)
        right = positions(check, case.base, depth, len(found.position))  # type: ignore[arg-type]
        if found.position.tolist() != right:  # type: ignore[union-attr]
            raise ClauseViolation(
                f"the root stands at {case.base} and the rows are {depth} deep, so positions are {right}, found "
                f"{found.position.tolist()}"  # type: ignore[union-attr]
            )

    every(check, body)


def positions(check: Check, base: int, depth: Sequence[int], size: int) -> list[int]:
    """Positions from the declared base, of the rows, and of the root where it is part of the verification input."""
    start = base + int(float(check.convention("position_base", "0")))
    right = [start, *(start + d for d in depth)]
    return right if size > len(depth) else right[1:]


def observe(check: Check, base: int, depth: Sequence[int], found: FlatTree) -> None:
    """Whether the root is part of the verification input, and what positions count from, as it was seen."""
    if found.position is None or not depth or len(found.position) not in (len(depth), len(depth) + 1):
        return
    rooted = len(found.position) > len(depth)
    check.observe("root_in_verification", "yes" if rooted else "no")
    starts = set((found.position - base - np.array([0, *depth] if rooted else depth)).tolist())
    if len(starts) == 1:
        check.observe("position_base", str(starts.pop()))


@pytest.mark.clauses("TREE-406")
def test_the_order_of_selection_changes_nothing(check: Check) -> None:
    check.require("flatten_tree")
    first = [
        part(WORKED_TREE, [1, 4, 0, 2, 3]),
        part(CHAIN, [3, 2, 1, 0], 2),
        part(BUSHY, [2, 5, 8, 0, 4, 3, 7]),
        part(DIAGONAL, [1, 3, 0, 5, 2, 4]),
    ]

    def body(call: Flattenings) -> None:
        (found,), (case,) = asking.flattened(check, call), call.cases
        right = [int(case.tree.token[node]) for node in asking.expected_rows(check, case)]
        if found.token.tolist() != right:
            raise ClauseViolation(f"the rows have the tokens {right}, found {found.token.tolist()}")
        parents(check, case, found)

    check.for_all(strategies.flattenings(ordered=False), body, first=[Flattenings((case,)) for case in first])


@pytest.mark.clauses("TREE-407")
def test_each_tree_of_a_batch_is_its_own(check: Check) -> None:
    check.require("flatten_tree")
    first = Flattenings((whole(CHAIN, 4), whole(BUSHY, 2), part(WORKED_TREE, [1, 4]), whole(WORKED_TREE, 9)))
    alike = Flattenings((whole(CHAIN, 1), part(BUSHY, [0, 1, 2, 5], 3), part(BUSHY, [2, 5, 8, 0], 7)))

    def body(call: Flattenings) -> None:
        for member, (case, found) in enumerate(zip(call.cases, asking.flattened(check, call))):
            rows = asking.expected_rows(check, case)
            above = expected_parents(case, rows)
            right: dict[str, list[object]] = {
                "parent": list(above),
                "token": [int(case.tree.token[node]) for node in rows],
                "position": list(
                    positions(
                        check, case.base, road.depths(above), 0 if found.position is None else len(found.position)
                    )
                ),
            }
            for name, wanted in right.items():
                value = getattr(found, name)
                if value is not None and value.tolist() != wanted:
                    raise ClauseViolation(f"member {member}: {name} is {wanted}, found {value.tolist()}")

    check.for_all(strategies.flattenings(members=3), body, first=[first, alike])
