"""Growth: layers, children, confidences, values, the frontier, and draft vocabularies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance import draw
from conformance.check import Check
from conformance.roads import tree as road
from conformance.tree import asking, judge, offered, strategies
from conformance.tree.cases import DEEP_FIRST, ONE_BRANCH, WORKED, growth, table
from conformance.tree.named import CROSSED, FLOORED, HALF, KINDS_OF_MAPS, PART_TIED, WIDER, ZEROS, mapped
from conformance.verdicts import ClauseViolation
from oracle.types import CandidateTree, GrowthCase

DEEP = growth(table("generic", 11, 7, 2), 2, 2, 7)
PLAIN = [WORKED, DEEP_FIRST, ONE_BRANCH, CROSSED, DEEP]


def every(check: Check, kind: str, body: Callable[[GrowthCase, CandidateTree], None], *first: GrowthCase) -> None:
    """Run `body` on the cases of `first` and on drawn ones, with the implementation's answer."""
    check.require("grow_tree")

    def ask(case: GrowthCase) -> None:
        body(case, asking.grown(check, case))

    check.for_all(strategies.growths(kind), ask, first=first)


@pytest.mark.clauses("TREE-201")
def test_nodes_come_layer_by_layer(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        depth = found.depth.tolist()
        for node, above in enumerate(found.parent.tolist()):
            if not -1 <= above < node:
                raise ClauseViolation(f"node {node} has the parent {above}, which is no earlier node")
            right = 1 if above == -1 else depth[above] + 1
            if depth[node] != right:
                raise ClauseViolation(
                    f"node {node}, a child of {draw.node(above)}, is at depth {right}, not {depth[node]}"
                )
            if node and depth[node] < depth[node - 1]:
                raise ClauseViolation(f"node {node} of layer {depth[node]} comes after one of layer {depth[node - 1]}")

    every(check, "generic", body, *PLAIN)


@pytest.mark.clauses("TREE-202")
def test_there_are_as_many_layers_as_asked_for(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        layers = sorted(set(found.depth.tolist()))
        if layers != list(range(1, case.max_depth + 1)):
            raise ClauseViolation(f"max_depth is {case.max_depth}, and the layers are {layers}")

    every(check, "generic", body, *PLAIN, growth({(): (0.6, 0.4)}, 2, 2, 1))


@pytest.mark.clauses("TREE-203")
def test_an_expanded_node_has_its_children(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        parent = found.parent.tolist()
        wanted = len(road.children(case, ()))
        for above in sorted(set(parent)):
            if parent.count(above) != wanted:
                raise ClauseViolation(f"{draw.node(above)} has {parent.count(above)} children, of {wanted}")

    every(check, "generic", body, *PLAIN, WIDER)


@pytest.mark.clauses("TREE-204")
def test_the_roots_children_are_its_most_probable_tokens(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        offered.judge_children(check, case, found, roots=True)

    every(check, "generic", body, *PLAIN, WIDER)


@pytest.mark.clauses("TREE-205")
def test_children_come_from_the_row_of_their_own_path(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        offered.judge_children(check, case, found, roots=False)

    every(check, "generic", body, *PLAIN, WIDER)


@pytest.mark.clauses("TREE-206")
def test_a_confidence_is_the_probability_of_the_token(check: Check) -> None:
    every(check, "generic", confidences(check), *PLAIN, WIDER)


@pytest.mark.clauses("TREE-207")
def test_an_impossible_child_is_kept(check: Check) -> None:
    judged = confidences(check)

    def body(case: GrowthCase, found: CandidateTree) -> None:
        parent, wanted = found.parent.tolist(), len(road.children(case, ()))
        for above in sorted(set(parent)):
            if parent.count(above) != wanted:
                raise ClauseViolation(f"{draw.node(above)} has {parent.count(above)} children, of {wanted}")
        judged(case, found)

    every(check, "sparse", body, ZEROS)


def confidences(check: Check) -> Callable[[GrowthCase, CandidateTree], None]:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        paths = offered.paths(found.parent, found.token)
        rows = road.reader(case)
        for node, path in enumerate(paths):
            right = rows(path[:-1]).get(path[-1], 0.0)
            slack = right * offered.relative(check, case, right)
            if not abs(found.confidence[node] - right) <= slack:
                raise ClauseViolation(
                    f"node {node}, token {path[-1]} after {offered.named(path[:-1])}, has the probability "
                    f"{draw.number(right)}; its confidence says {draw.number(found.confidence[node])}"
                )

    return body


@pytest.mark.clauses("TREE-208")
def test_a_value_is_the_sum_of_logarithms(check: Check) -> None:
    every(check, "generic", values(check), *PLAIN)


@pytest.mark.clauses("TREE-209")
def test_a_value_has_a_floor(check: Check) -> None:
    every(check, "sparse", values(check), ZEROS, FLOORED)


def values(check: Check) -> Callable[[GrowthCase, CandidateTree], None]:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        right = {one.path: one for one in asking.expected_growth(check, case)}
        for node, path in enumerate(offered.paths(found.parent, found.token)):
            one = right.get(path)
            if one is None:
                continue  # another node was expanded, which is another clause's matter
            slack = judge.bound(check.arithmetic, one.value, one.depth, offered.vocabulary(case))
            if not abs(found.log_value[node] - one.value) <= slack:
                terms = [road.reader(case)(path[:i])[path[i]] for i in range(len(path))]
                arithmetic = " + ".join(f"log {draw.number(c)}" for c in terms)
                raise ClauseViolation(
                    f"node {node}, {offered.named(path)}: {arithmetic} = {draw.number(one.value)}; its value says "
                    f"{draw.number(found.log_value[node])}"
                )

    return body


@pytest.mark.clauses("TREE-210")
def test_the_best_nodes_of_the_latest_layer_are_expanded(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        for layer in range(1, case.max_depth):
            nodes = [i for i, d in enumerate(found.depth.tolist()) if d == layer]
            expanded = sorted(set(found.parent[found.depth == layer + 1].tolist()))
            if strangers := [i for i in expanded if i not in nodes]:
                raise ClauseViolation(f"layer {layer + 1} hangs from node {strangers[0]}, not of layer {layer}")
            if len(expanded) != min(case.expand_width, len(nodes)):
                raise ClauseViolation(f"{len(expanded)} nodes of layer {layer} are expanded, of {case.expand_width}")
            check.decided(offered.frontier(check, case, found, nodes, expanded))

    every(check, "generic", body, *PLAIN, WIDER)


@pytest.mark.clauses("TREE-211")
def test_equal_nodes_are_expanded_in_the_order_of_their_ids(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        for layer in range(1, case.max_depth):
            nodes = [i for i, d in enumerate(found.depth.tolist()) if d == layer]
            expanded = list(dict.fromkeys(found.parent[found.depth == layer + 1].tolist()))
            if expanded != nodes[: case.expand_width]:
                raise ClauseViolation(
                    f"all nodes of layer {layer} have the value {draw.number(found.log_value[nodes[0]])}; nodes "
                    f"{expanded} are expanded, and their ids say {nodes[: case.expand_width]}"
                )

    every(check, "equal", body, HALF)


@pytest.mark.clauses("TREE-212")
def test_ids_follow_the_frontier_and_probability(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        for node in range(1, len(found.parent)):
            one, other = int(found.parent[node - 1]), int(found.parent[node])
            if found.depth[node - 1] != found.depth[node]:
                continue
            if one == other:
                before, after = found.confidence[node - 1], found.confidence[node]
                if before < after - after * offered.relative(check, case, after):
                    raise ClauseViolation(
                        f"node {node} has the probability {draw.number(after)}, and node {node - 1} before it "
                        f"{draw.number(before)}"
                    )
            elif other in found.parent[:node].tolist():
                raise ClauseViolation(f"the children of {draw.node(other)} stand apart: node {node} is one of them")
            else:
                offered.in_order(check, case, found, one, other)

    every(check, "generic", body, *PLAIN)


@pytest.mark.clauses("TREE-213")
def test_equal_children_come_in_the_order_of_their_tokens(check: Check) -> None:
    def body(case: GrowthCase, found: CandidateTree) -> None:
        rows = road.reader(case)
        paths = offered.paths(found.parent, found.token)
        for node in range(1, len(paths)):
            (*above, before), (*other, after) = paths[node - 1], paths[node]
            row = rows(tuple(above))
            if above == other and row[before] == row[after] and before > after:
                raise ClauseViolation(
                    f"tokens {before} and {after} after {offered.named(tuple(above))} have the probability "
                    f"{draw.number(row[after])} both, and token {before} comes first"
                )
        for above_node in sorted(set(found.parent.tolist())):
            family = [i for i, p in enumerate(found.parent.tolist()) if p == above_node]
            above_path = paths[family[0]][:-1]
            right = [token for token, _ in road.children(case, above_path)]
            ours = [paths[i][-1] for i in family]
            last = rows(above_path)[right[-1]]
            if set(ours) != set(right) and all(rows(above_path).get(t, -1.0) >= last for t in ours):
                raise ClauseViolation(
                    f"of equal tokens after {offered.named(above_path)} {right} are kept, found {ours}"
                )

    every(check, "equal", body, PART_TIED, HALF)


@pytest.mark.clauses("TREE-214")
@pytest.mark.parametrize("kind", KINDS_OF_MAPS)
def test_tokens_are_target_ids(check: Check, kind: str) -> None:
    """The same maps in both conventions; which of them are read is observed."""
    check.require("grow_tree")
    read: list[str] = []

    def body(case: GrowthCase) -> None:
        offered.judge_children(check, case, asking.grown(check, case), roots=True)
        read.append("" if case.draft_map is None else case.draft_map.convention)

    check.for_each([*mapped("offset", 1, kind), *mapped("absolute", 1, kind)], body)
    offered.observe_map(check, read)


@pytest.mark.clauses("TREE-215")
@pytest.mark.parametrize("convention", ["offset", "absolute"])
def test_rows_are_looked_up_by_target_ids(check: Check, convention: str) -> None:
    check.require("grow_tree")

    def body(case: GrowthCase) -> None:
        found = asking.grown(check, case)
        offered.judge_children(check, case, found, roots=False)
        known = {one.path for one in asking.expected_growth(check, case)}
        if strangers := [path for path in offered.paths(found.parent, found.token) if path not in known]:
            raise ClauseViolation(f"no growth of this table reaches {offered.named(strangers[0])}")

    check.for_each(mapped(convention, 3), body)
