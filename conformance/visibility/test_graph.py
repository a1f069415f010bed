"""The graph: which nodes there are, where they stand and who sees whom, relation by relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check
from conformance.roads import visibility as road
from conformance.verdicts import ClauseViolation, Inapplicable
from conformance.visibility import asking, strategies
from conformance.visibility.cases import (
    ALL_AT_ONCE,
    BOTH,
    BROKEN,
    EDGES,
    HOLE,
    LEFT,
    LONG,
    PACKS,
    PADDED,
    SHORT,
    SKIPS,
    SPARSE,
    WHOLE,
    poisoned,
    rollout,
)
from conformance.visibility.drawing import graphs, named
from oracle.types import Flags, RolloutCase

Relation = Callable[[Mapping[str, np.ndarray]], Flags]

CASES: Mapping[str, tuple[st.SearchStrategy[RolloutCase], Sequence[RolloutCase]]] = {
    "full": (strategies.full(), WHOLE),
    "padded": (st.one_of(strategies.padded(), strategies.interrupted(("hole",))), (*PADDED, SPARSE, HOLE)),
    "long": (strategies.full(), (*WHOLE, LONG)),
    "packs": (st.one_of(strategies.packed(), strategies.interrupted()), (*PACKS, *BROKEN)),
    "packed": (strategies.packed(), PACKS),
    "interrupted": (strategies.interrupted(), BROKEN),
    "anything": (strategies.anything(), EDGES),
}
EXISTENCE = [
    pytest.param("full", marks=pytest.mark.clauses("VISIBILITY-201")),
    pytest.param("padded", marks=pytest.mark.clauses("VISIBILITY-202")),
    pytest.param("packs", marks=pytest.mark.clauses("VISIBILITY-203")),
]
RELATIONS: Mapping[str, Relation] = {
    "step 0 sees earlier": lambda p: (p["s"] == 0) & (p["t"] == 0) & (p["b"] <= p["a"]) & p["same"],
    "not the future": lambda p: (p["t"] == 0) & (p["b"] > p["a"]) & p["same"],
    "later steps see step 0": lambda p: (p["s"] > 0) & (p["t"] == 0) & (p["b"] <= p["a"]) & p["same"],
    "its own anchor": lambda p: (p["t"] >= 1) & (p["b"] == p["a"]) & (p["t"] <= p["s"]),
    "no sibling": lambda p: (p["t"] >= 1) & (p["b"] != p["a"]) & p["same"],
    "no later step": lambda p: (p["t"] > p["s"]) & (p["b"] == p["a"]),
    "no step 0 of others": lambda p: (p["t"] == 0) & ~p["same"],
    "no later step of others": lambda p: (p["t"] >= 1) & ~p["same"],
    "its interrupted segment": lambda p: (p["t"] == 0) & (p["b"] <= p["a"]) & p["same"],
    "everything": lambda p: np.ones_like(p["same"]),
}
SEES = [
    pytest.param("long", "step 0 sees earlier", marks=pytest.mark.clauses("VISIBILITY-401")),
    pytest.param("long", "not the future", marks=pytest.mark.clauses("VISIBILITY-402")),
    pytest.param("long", "later steps see step 0", marks=pytest.mark.clauses("VISIBILITY-403")),
    pytest.param("full", "its own anchor", marks=pytest.mark.clauses("VISIBILITY-501")),
    pytest.param("full", "no sibling", marks=pytest.mark.clauses("VISIBILITY-502")),
    pytest.param("full", "no later step", marks=pytest.mark.clauses("VISIBILITY-503")),
    pytest.param("packed", "no step 0 of others", marks=pytest.mark.clauses("VISIBILITY-601")),
    pytest.param("packed", "no later step of others", marks=pytest.mark.clauses("VISIBILITY-602")),
    pytest.param("interrupted", "its interrupted segment", marks=pytest.mark.clauses("VISIBILITY-603")),
    pytest.param("anything", "everything", marks=pytest.mark.clauses("VISIBILITY-604")),
]


@pytest.mark.parametrize("kind", EXISTENCE)
def test_which_nodes_exist(check: Check, kind: str) -> None:
    asking.via(check)
    drawn, first = CASES[kind]

    def body(case: RolloutCase) -> None:
        found = asking.graph(check, case).nodes
        if kind == "packs":
            if len(set(case.segment[case.valid].tolist())) < 2:
                return asking.compare_nodes(check, case, found)
            check.observe("packing", "segments")
            if check.convention("packing", "segments") == "none":
                raise ClauseViolation("it declares that it packs no segments, and answers for a rollout that does")
        asking.compare_nodes(check, case, found)

    if kind == "packs":
        check.observe("packing", "none")  # until it answers
    check.for_all(drawn, body, examples=asking.few(check), first=first)


@pytest.mark.clauses("VISIBILITY-301")
def test_a_node_of_step_0_stands_at_its_anchor(check: Check) -> None:
    check.require("rollout_visibility")
    bases: set[int] = set()

    def body(case: RolloutCase) -> None:
        answered, right = positions(check, case), road.graph(case)
        for node, place in zip(asking.nodes_of(right), right.position.tolist()):
            if node[0] or node not in answered:
                continue
            bases.add(answered[node] - place)
            if answered[node] != place + asking.base(check):
                raise ClauseViolation(
                    f"{named(node)} stands at position {answered[node]}; its anchor stands at {place}, counted from "
                    f"the declared base {asking.base(check)}"
                )

    try:
        check.for_all(strategies.anything(), body, examples=asking.few(check), first=EDGES)
    finally:
        if len(bases) == 1:
            check.observe("position_base", str(*bases))


@pytest.mark.clauses("VISIBILITY-302")
def test_a_node_of_a_later_step_stands_steps_further(check: Check) -> None:
    check.require("rollout_visibility")

    def body(case: RolloutCase) -> None:
        answered, right = positions(check, case), asking.expected(check, case)
        for node, place in zip(asking.nodes_of(right), right.position.tolist()):
            if node[0] and answered.get(node, place) != place:
                raise ClauseViolation(
                    f"{named(node)} stands at position {answered[node]}, and by {{clause}} at {place}"
                )

    try:
        check.for_all(strategies.anything(), body, examples=asking.few(check), first=EDGES)
    finally:
        if check.replay is None:
            observe_positions(check)


@pytest.mark.parametrize(("kind", "relation"), SEES)
def test_who_sees_whom(check: Check, kind: str, relation: str) -> None:
    asking.via(check)
    drawn, first = CASES[kind]

    def body(case: RolloutCase) -> None:
        found, right = asking.graph(check, case), asking.expected(check, case)
        asking.compare_edges(case, right, found, RELATIONS[relation](asking.pairs(case, right)))

    check.for_all(drawn, body, examples=asking.few(check), first=first)


@pytest.mark.clauses("VISIBILITY-605")
def test_what_an_invalid_address_holds_changes_nothing(check: Check) -> None:
    asking.via(check)

    def body(case: RolloutCase) -> None:
        clean, other = asking.graph(check, case), asking.graph(check, poisoned(case))
        nodes = asking.nodes_of(asking.expected(check, case))
        for node in nodes:
            if (node in clean.nodes) != (node in other.nodes):
                raise ClauseViolation(
                    f"{named(node)} is there or not as the invalid addresses hold one thing or another"
                )
        (one, told), (two, also) = clean.among(nodes), other.among(nodes)
        for q, k in np.argwhere((one != two) & told & also)[:1].tolist():
            raise ClauseViolation(
                f"with other numbers at the invalid addresses query {named(nodes[q])} sees {named(nodes[k])} "
                f"{'no longer' if one[q, k] else 'as well'}\n{graphs(nodes, one, two, (q, k))}"
            )
        if clean.position != other.position and clean.nodes == other.nodes and set(clean.nodes) <= set(nodes):
            raise ClauseViolation(
                f"with other numbers at the invalid addresses positions are {other.position}, and not {clean.position}"
            )

    drawn = st.one_of(strategies.padded(), strategies.interrupted(), strategies.mixed())
    check.for_all(drawn, body, examples=asking.few(check), first=[*PADDED, *BROKEN, ALL_AT_ONCE])


@pytest.mark.clauses("VISIBILITY-606")
def test_no_node_sees_a_row_that_is_none(check: Check) -> None:
    asking.via(check)
    kept: list[str] = []

    def body(case: RolloutCase) -> None:
        found, known = asking.graph(check, case), set(road.nodes(case))
        none = np.array([node not in known for node in found.nodes], dtype=bool)
        kept.extend(named(node) for node, bad in zip(found.nodes, none) if bad)
        for q, k in np.argwhere(found.visible & ~none[:, None] & none[None])[:1].tolist():
            raise ClauseViolation(f"query {named(found.nodes[q])} sees {named(found.nodes[k])}, which is no node")

    try:
        check.for_all(strategies.anything(), body, examples=asking.few(check), first=[LEFT, BOTH, SHORT, *EDGES])
    finally:
        if check.convention("last_row", "drop") == "pad":
            check.observe("last_row", "pad" if kept else "drop")
    if check.convention("last_row", "drop") == "pad" and not kept:
        raise Inapplicable("its graph keeps no row as padding")


# ---- what these checks share


def positions(check: Check, case: RolloutCase) -> dict[tuple[int, int], int]:
    """Node → position as answered; ends as "not applicable" where positions are not shown."""
    found = asking.listed(check, case)
    if found.position is None:
        raise Inapplicable("it shows no positions")
    return dict(zip(found.nodes, found.position))


def observe_positions(check: Check) -> None:
    """Where positions skip, the convention shows."""
    base = asking.base(check)
    for case in (SKIPS, rollout(5, 2, position=[1, 3, 4, 8, 9])):
        try:
            answered = positions(check, case)
        except (ClauseViolation, Inapplicable):
            return
        for name in ("anchor_plus_step", "own"):
            right = road.graph(case, name, base)
            pairs = zip(asking.nodes_of(right), right.position.tolist())
            if all(answered.get(node) == place for node, place in pairs):
                check.observe("rollout_position", name)
