"""Rollout: which nodes there are, what each consumes, where it stands and whose state it is fed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from conformance.check import Check
from conformance.roads import rows as road
from conformance.rows import asking, strategies
from conformance.rows.cases import ANSWER, EDGES, PACKED, RAGGED, WIDE, batch, poisoned
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import RolloutRows, RolloutRowsCase

EXISTENCE = [
    pytest.param("full", marks=pytest.mark.clauses("ROWS-602")),
    pytest.param("anything", marks=pytest.mark.clauses("ROWS-603")),
]
VECTORS = [
    pytest.param("consumed", marks=pytest.mark.clauses("ROWS-604")),
    pytest.param("target", marks=pytest.mark.clauses("ROWS-605")),
    pytest.param("supervise", marks=pytest.mark.clauses("ROWS-606")),
    pytest.param("position", marks=pytest.mark.clauses("ROWS-607")),
    pytest.param("state_from", marks=pytest.mark.clauses("ROWS-608")),
]
WORDS = {
    "consumed": "consumes the token at",
    "target": "is trained towards what stands at",
    "supervise": "has the flag",
    "position": "stands at position",
    "state_from": "is fed",
}
FIRST = [
    RolloutRowsCase(batch([[11, 12, 13, 14, 15]]), 3),
    RolloutRowsCase(batch([[1, 2, 3, 4, 5, 6, 7, 8]], supervise=[[1, 0, 0, 1, 1, 0, 1, 0]]), 6),
]
"""The second one tells the flags of its steps apart, all six of them."""
MIXED = [RolloutRowsCase(poisoned(case), 3) for case in EDGES]
"""Their invalid addresses hold what no node may read."""


@pytest.mark.clauses("ROWS-601")
def test_nodes_are_ordered(check: Check) -> None:
    check.require("rollout_rows")

    def body(case: RolloutRowsCase) -> None:
        order = keys(asking.nodes(check, case)[0])
        for one, next_one in itertools.pairwise(order):
            if one >= next_one:
                raise ClauseViolation(f"{named(next_one)} comes after {named(one)}")

    check.for_all(strategies.rollouts(strategies.anything()), body, first=[*FIRST, *MIXED])


@pytest.mark.parametrize("kind", EXISTENCE)
def test_which_nodes_exist(check: Check, kind: str) -> None:
    check.require("rollout_rows")

    def body(case: RolloutRowsCase) -> None:
        found, right = keys(asking.nodes(check, case)[0]), keys(asking.expected_nodes(check, case))
        for node in right:
            if node not in found:
                raise ClauseViolation(
                    f"{named(node)} is missing: addresses {node[2]} to {node[2] + node[0] + 1} are valid and of one "
                    "segment"
                )
        for node in found:
            if node not in right:
                raise ClauseViolation(
                    f"{named(node)} is there: addresses {node[2]} to {node[2] + node[0] + 1} are not all valid and of "
                    "one segment"
                )

    batches = strategies.full() if kind == "full" else strategies.anything()
    first = FIRST if kind == "full" else [RolloutRowsCase(PACKED, 2), *MIXED]
    check.for_all(strategies.rollouts(batches), body, first=first)


@pytest.mark.parametrize("name", VECTORS)
def test_what_a_node_is_made_of(check: Check, name: str) -> None:
    check.require("rollout_rows")

    def body(case: RolloutRowsCase) -> None:
        found, right = asking.nodes(check, case)[0], asking.expected_nodes(check, case)
        answered = dict(zip(keys(found), values(found, name)))
        shift = asking.base(check) if name == "position" else 0
        for node, value in zip(keys(right), values(right, name)):
            wanted = value + shift if shift else value
            if node in answered and answered[node] != wanted:
                raise ClauseViolation(
                    f"{named(node)} {WORDS[name]} {shown(wanted)}, by {{clause}}; in the answer it {WORDS[name]} "
                    f"{shown(answered[node])}"
                )

    wide = [RolloutRowsCase(WIDE, 2)] if name == "position" else []
    check.for_all(strategies.rollouts(strategies.anything()), body, first=[*FIRST, *MIXED, *wide])


@pytest.mark.clauses("ROWS-607")
def test_where_positions_skip_the_convention_shows(check: Check) -> None:
    check.require("rollout_rows")
    skipping = RolloutRowsCase(batch([[3, 1, 4, 2]], position=[[0, 2, 3, 7]]), 3)

    def body(case: RolloutRowsCase) -> None:
        found = asking.nodes(check, case)[0]
        seen = dict(zip(keys(found), found.position.tolist()))
        for name in ("anchor_plus_step", "own"):
            right = road.rollout(case.batch, case.steps, name)
            if seen == dict(zip(keys(right), (right.position + asking.base(check)).tolist())):
                check.observe("rollout_position", name)
                if name != check.convention("rollout_position", "anchor_plus_step"):
                    raise ClauseViolation(f"rollout_position is, at work, {name!r}, which is not what is declared")
                return
        raise ClauseViolation(f"the positions {found.position.tolist()} follow neither the anchor nor the source")

    check.for_each([skipping], body)


@pytest.mark.clauses("ROWS-609")
def test_a_node_kept_as_padding_is_not_supervised(check: Check) -> None:
    check.require("rollout_rows")
    if check.convention("last_row", "drop") != "pad":
        raise Inapplicable("it keeps no node as padding")
    seen = []

    def body(case: RolloutRowsCase) -> None:
        for s, b, a, supervised in asking.nodes(check, case)[1]:
            seen.append(a)
            if supervised:
                raise ClauseViolation(f"{named((s, b, a))} has no token or no target, and is supervised")

    first = [RolloutRowsCase(case, 2) for case in (ANSWER, RAGGED)]
    check.for_all(strategies.rollouts(strategies.padded()), body, first=first)
    if not seen and "gather_rows" in check.implementation.operations:
        raise Inapplicable("its rollouts keep no node as padding; of its rows, ROWS-310 judges")
    if not seen:
        raise ClauseViolation("last_row is declared 'pad', and no rollout came back with a node kept as padding")


# ---- what these checks share


def keys(nodes: RolloutRows) -> list[tuple[int, int, int]]:
    return list(zip(nodes.step.tolist(), nodes.batch.tolist(), nodes.anchor.tolist()))


def values(nodes: RolloutRows, name: str) -> list[Any]:
    """A vector of the nodes; the state of another node by that node's key, so that order does not matter."""
    entries: list[Any] = getattr(nodes, name).tolist()
    if name != "state_from":
        return entries
    names = keys(nodes)
    return [names[i] if i >= 0 else ("feature" if i == -1 else "padding") for i in entries]


def named(node: tuple[int, int, int]) -> str:
    return f"the node of step {node[0]} at anchor {node[2]} of batch row {node[1]}"


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"the state of step {value[0]} at anchor {value[2]}"
    if isinstance(value, str):
        return "the target's feature" if value == "feature" else "the state of a node kept as padding"
    return str(int(np.int64(value)))
