"""Asking an implementation who sees whom, and reading its answer, whichever of its three forms it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.interface import DTYPES
from conformance import compare
from conformance.check import Check
from conformance.handout import copy
from conformance.roads import visibility as road
from conformance.verdicts import ClauseViolation, HarnessError
from conformance.visibility.cases import traced
from conformance.visibility.drawing import Node, edge, graphs, named
from oracle import visibility as oracle
from oracle.types import AttentionCase, Flags, Ids, RolloutCase, RolloutMaskCase, VisibilityGraph

OPERATIONS = ("rollout_visibility", "rollout_mask", "rollout_attention")
SHOWN = ("rollout_visibility", "rollout_attention", "rollout_mask")
"""Where a graph is read: off the first of these that there is."""


@dataclass
class Graph:
    """A graph as it was answered: nodes (step, anchor), their positions where they are shown, query × key."""

    nodes: list[Node]
    visible: Flags
    position: list[int] | None = None

    def among(self, nodes: Sequence[Node]) -> tuple[Flags, Flags]:
        """Of `nodes`: who sees whom, and for which pairs the answer says it, [n, n] both."""
        place = {node: i for i, node in enumerate(self.nodes)}
        rows = np.array([place.get(node, -1) for node in nodes], dtype=np.int64)
        known = rows >= 0
        told = known[:, None] & known[None]
        found = np.zeros((len(nodes), len(nodes)), dtype=bool)
        if len(self.nodes):
            found = self.visible[np.ix_(rows, rows)] & told
        return found, told


@dataclass
class Weights:
    """An attention as it was answered: nodes, and for each its output."""

    nodes: list[Node]
    output: np.ndarray


# ---- asking


def via(check: Check) -> str:
    """The operation that shows the graph; ends as "not provided" where there is none."""
    found = next((name for name in SHOWN if name in check.implementation.operations), SHOWN[0])
    check.require(found)
    return found


def graph(check: Check, case: RolloutCase) -> Graph:
    """The implementation's graph, its form judged."""
    shown = via(check)
    if shown == "rollout_visibility":
        return listed(check, case)
    if shown == "rollout_attention":
        (found,) = attended(check, [traced(case)])
        columns = [s * case.length + a for s, a in found.nodes]
        return Graph(found.nodes, np.asarray(found.output[:, columns] != 0))
    anchor = row_anchor(check)
    square = mask(check, case, anchor)
    placed = [(s, a) for s in range(case.steps) for a in range(case.length - s * (anchor == "absolute"))]
    rows = flat(case, placed, anchor)
    told = square[np.ix_(rows, rows)]
    alive = np.asarray(told.any(axis=0) | told.any(axis=1))
    return Graph([node for node, ok in zip(placed, alive) if ok], told[np.ix_(alive, alive)])


def listed(check: Check, case: RolloutCase) -> Graph:
    """What `rollout_visibility` says."""
    found = check.call("rollout_visibility", copy(case))
    step, anchor = (compare.vector(getattr(found, name, None), name) for name in ("step", "anchor"))
    shown = getattr(found, "position", None)
    position = None if shown is None else compare.vector(shown, "position")
    for name, vector in (("anchor", anchor), ("position", position)):
        if vector is not None and len(vector) != len(step):
            raise ClauseViolation(f"there are {len(step)} steps, and {name} has {len(vector)} entries")
    visible = compare.plain(getattr(found, "visible", None), "visible")
    if visible.shape != (len(step), len(step)) and not (len(step) == 0 and visible.size == 0):
        raise ClauseViolation(f"visible is of shape {visible.shape}, and there are {len(step)} nodes")
    if len(step) and visible.dtype != np.bool_:
        raise ClauseViolation(f"visible is {visible.dtype}; it says as a boolean who sees whom")
    square = visible.astype(bool).reshape(len(step), len(step))
    nodes = list(zip(step.tolist(), anchor.tolist()))
    return Graph(nodes, square, None if position is None else position.tolist())


def mask(check: Check, case: RolloutCase, anchor: str) -> Flags:
    """What `rollout_mask` says, its form judged: bool [steps · length, steps · length]."""
    found = compare.plain(check.call("rollout_mask", RolloutMaskCase(copy(case), anchor)), "the mask")
    steps, length = case.steps, case.length
    if found.shape != (steps, length, steps * length) or (found.size and found.dtype != np.bool_):
        raise ClauseViolation(
            f"the mask is {found.dtype} of shape {list(found.shape)}; of {length} addresses and {steps} steps it is a "
            f"boolean of shape {[steps, length, steps * length]}"
        )
    return found.astype(bool).reshape(steps * length, steps * length)


def attended(check: Check, cases: Sequence[AttentionCase]) -> list[Weights]:
    """What `rollout_attention` says, its form judged."""
    found = compare.members(check.call("rollout_attention", [copy(case) for case in cases]), len(cases))
    return [_weights(one, case) for one, case in zip(found, cases)]


def row_anchor(check: Check) -> str:
    """As declared."""
    return check.convention("row_anchor", "start")


def flat(case: RolloutCase, nodes: Sequence[Node], anchor: str) -> Ids:
    """The row of each node among all rows of a mask."""
    return np.array([s * case.length + a + s * (anchor == "absolute") for s, a in nodes], dtype=np.int64)


def few(check: Check) -> int:
    """How many drawn cases a check runs on, where many checks draw the same: half of the profile's, 25 at least."""
    return max(min(check.profile.examples, 25), check.profile.examples // 2)


def base(check: Check) -> int:
    """What positions count from, as declared."""
    return int(float(check.convention("position_base", "0")))


# ---- the right answer


def expected(check: Check, case: RolloutCase) -> VisibilityGraph:
    """By the second road, positions by the declared conventions; the oracle has to agree with it."""
    if not check.is_oracle:
        right, ours = road.graph(case), oracle.rollout_visibility(case)
        _agree("rollout_visibility", *((getattr(g, name) for name in vars(ours)) for g in (right, ours)))
    return road.graph(case, check.convention("rollout_position", "anchor_plus_step"), base(check))


def expected_mask(check: Check, case: RolloutCase, anchor: str) -> Flags:
    """The right mask, [steps · length, steps · length]."""
    right = road.mask(case, anchor)
    if not check.is_oracle:
        _agree("rollout_mask", [right], [oracle.rollout_mask(RolloutMaskCase(case, anchor))])
    return right.reshape(case.steps * case.length, case.steps * case.length)


def expected_weights(check: Check, case: RolloutCase) -> np.ndarray:
    """The right weight of every node for every node, [n, n]."""
    right = road.weights(case)
    if not check.is_oracle:
        nodes = road.nodes(case)
        (ours,) = oracle.rollout_attention([traced(case)])
        told = ours.output[:, flat(case, nodes, "start")]
        if not np.allclose(right, told, rtol=1e-12, atol=0):
            raise HarnessError("the oracle and the second road disagree about rollout_attention")
    return right


def rounding(check: Check, seen: int) -> float:
    """How far, as a part of itself, a weight over `seen` nodes may be off: γ(2n + 16) of the declared dtype.

    A sum of n exponentials and a quotient are n + 1 roundings; blocks that are merged by the logarithm of their sums
    round as often again.
    """
    unit = DTYPES[check.arithmetic.dtype] * (2 * seen + 16)
    return unit / (1 - unit) if unit < 0.5 else float("inf")


# ---- judging


def pairs(case: RolloutCase, right: VisibilityGraph) -> dict[str, np.ndarray]:
    """Of every query and key, by name: step and anchor of both, and whether they are of one segment."""
    segment = np.asarray(case.segment)[right.anchor]
    return {
        "s": right.step[:, None],
        "a": right.anchor[:, None],
        "t": right.step[None],
        "b": right.anchor[None],
        "same": segment[:, None] == segment[None],
    }


def compare_edges(case: RolloutCase, right: VisibilityGraph, found: Graph, where: Flags | None = None) -> None:
    """`ClauseViolation` at the first edge that is missing or forbidden, of those `where` it is asked."""
    nodes = nodes_of(right)
    visible, told = found.among(nodes)
    wrong = told & (visible != right.visible)
    if where is not None:
        wrong &= where
    for q, k in np.argwhere(wrong)[:1].tolist():
        seen = bool(visible[q, k])
        words = f"{edge(case, nodes[q], nodes[k], seen)}; by {{clause}} it {'does not' if seen else 'does'}"
        raise ClauseViolation(f"{words}\n{graphs(nodes, right.visible, visible, (q, k))}")


def nodes_of(right: VisibilityGraph) -> list[Node]:
    return list(zip(right.step.tolist(), right.anchor.tolist()))


def extra(check: Check, case: RolloutCase, nodes: Sequence[Node]) -> list[Node]:
    """Those that are no node of the rollout, unless rows are kept as padding."""
    if check.convention("last_row", "drop") == "pad":
        return []
    known = set(road.nodes(case))
    return [node for node in nodes if node not in known]


def compare_nodes(check: Check, case: RolloutCase, nodes: Sequence[Node]) -> None:
    """`ClauseViolation` where a node is missing, or one is there that does not exist."""
    for s, a in nodes_of(expected(check, case)):
        if (s, a) not in nodes:
            raise ClauseViolation(
                f"{named((s, a))} is missing: addresses {a} to {a + s + 1} are valid and of one segment"
            )
    for s, a in extra(check, case, nodes):
        raise ClauseViolation(
            f"{named((s, a))} is there: addresses {a} to {a + s + 1} are not all valid and of one segment"
        )


# ---- reading


def _agree(operation: str, right: Any, ours: Any) -> None:
    if not all(np.array_equal(one, other) for one, other in zip(right, ours)):
        raise HarnessError(f"the oracle and the second road disagree about {operation}")


def _weights(found: Any, case: AttentionCase) -> Weights:
    step, anchor = (compare.vector(getattr(found, name, None), name) for name in ("step", "anchor"))
    output = compare.plain(getattr(found, "output", None), "output")
    width = case.value.shape[2]
    if len(step) != len(anchor) or (output.shape != (len(step), width) and len(step)):
        raise ClauseViolation(
            f"there are {len(step)} steps, {len(anchor)} anchors and an output of shape {list(output.shape)}; it holds "
            f"{width} numbers a node"
        )
    if len(step) and output.dtype.kind != "f":
        raise ClauseViolation(f"the output is {output.dtype}; it holds floating-point numbers")
    return Weights(list(zip(step.tolist(), anchor.tolist())), output.astype(np.float64).reshape(len(step), width))
