"""The leaf table and the sibling links of a flat tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from conformance.check import Check
from conformance.roads import tree as road
from conformance.tree import asking, strategies, tables
from conformance.tree.cases import Flattenings, candidates
from conformance.tree.named import INNER_LEAVES, part, whole
from conformance.tree.test_flattening import PLAIN, expected_parents
from conformance.verdicts import ClauseViolation, HarnessError
from oracle import tree as oracle
from oracle.types import FlattenCase, Ids

MORE = (whole(INNER_LEAVES, 1), part(INNER_LEAVES, [0, 2, 4]), whole(candidates([-1] * 4, [0.4, 0.3, 0.2, 0.1])))


def every(check: Check, name: str, body: Callable[[list[int], Ids], None]) -> None:
    """Run `body` on the right parents of named and drawn trees, with what the implementation shows under `name`."""
    check.require("flatten_tree")

    def ask(call: Flattenings) -> None:
        (found,), (case,) = asking.flattened(check, call), call.cases
        asking.shown([found], name)
        body(right_parents(check, case), getattr(found, name))

    check.for_all(strategies.flattenings(), ask, first=[Flattenings((case,)) for case in (*PLAIN, *MORE)])


def right_parents(check: Check, case: FlattenCase) -> list[int]:
    parent = expected_parents(case, asking.expected_rows(check, case))
    if not check.is_oracle:
        given = np.array(parent, dtype=np.int64)
        same = tables.right(parent).tolist() == oracle.leaf_paths(given).tolist()
        if not same or [list(v) for v in road.links(parent)] != [v.tolist() for v in oracle.sibling_links(given)]:
            raise HarnessError("the oracle and the second road disagree about leaf table or links")
    return parent


@pytest.mark.clauses("TREE-601")
def test_there_is_a_path_for_each_leaf(check: Check) -> None:
    every(check, "paths", tables.leaves)


@pytest.mark.clauses("TREE-602")
def test_a_path_leads_from_the_root_to_its_leaf(check: Check) -> None:
    every(check, "paths", tables.walks)


@pytest.mark.clauses("TREE-603")
def test_a_path_is_padded_on_its_right(check: Check) -> None:
    every(check, "paths", tables.padding)


@pytest.mark.clauses("TREE-604")
def test_paths_come_in_the_order_of_their_leaves(check: Check) -> None:
    every(check, "paths", tables.order)


@pytest.mark.clauses("TREE-605")
def test_the_first_child(check: Check) -> None:
    every(check, "first_child", lambda parent, found: linked("first child", road.links(parent)[0], found))


@pytest.mark.clauses("TREE-606")
def test_the_next_sibling(check: Check) -> None:
    every(check, "next_sibling", lambda parent, found: linked("next sibling", road.links(parent)[1], found))


def linked(name: str, right: Sequence[int], found: Ids) -> None:
    for row, (wanted, ours) in enumerate(zip(right, found.tolist())):
        if wanted != ours:
            raise ClauseViolation(f"the {name} of row {row} is {wanted}, found {ours}")
