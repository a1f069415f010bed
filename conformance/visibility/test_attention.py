"""Attention: every query scores every key alike, so that each weight says who is seen, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from conformance import draw
from conformance.check import Check, Raised
from conformance.verdicts import ClauseViolation
from conformance.visibility import asking, strategies
from conformance.visibility.asking import Weights
from conformance.visibility.cases import (
    ALL_AT_ONCE,
    BOTH,
    EDGES,
    FULL,
    HOLE,
    LEFT,
    LONG,
    PACKED,
    RIGHT,
    SHORT,
    SKIPS,
    WIDE,
    Rollouts,
    rollout,
    traced,
)
from conformance.visibility.drawing import Node, edge, graphs, named
from oracle.types import RolloutCase

BATCHES = [
    Rollouts((FULL, FULL)),
    Rollouts((FULL, SKIPS, FULL)),
    Rollouts((FULL, SHORT, WIDE)),
    Rollouts((RIGHT, LEFT, PACKED)),
    Rollouts((PACKED, HOLE)),
    Rollouts((FULL, rollout(5, 1), rollout(5, 2, valid=[0, 1, 1, 1, 1]))),
    Rollouts((WIDE, BOTH, FULL, ALL_AT_ONCE)),
]


@pytest.mark.clauses("VISIBILITY-801")
def test_an_attention_answers_for_the_nodes(check: Check) -> None:
    check.require("rollout_attention")

    def body(case: RolloutCase) -> None:
        (found,) = asking.attended(check, [traced(case)])
        asking.compare_nodes(check, case, found.nodes)

    check.for_all(strategies.anything(), body, examples=asking.few(check), first=EDGES)


@pytest.mark.clauses("VISIBILITY-802")
def test_what_is_not_seen_weighs_nothing(check: Check) -> None:
    check.require("rollout_attention")

    def body(case: RolloutCase) -> None:
        (found,) = asking.attended(check, [traced(case)])
        right = asking.expected(check, case)
        nodes = asking.nodes_of(right)
        seen = {node: right.visible[i] for i, node in enumerate(nodes)}
        for node, row in of_nodes(found, nodes):
            allowed = {nodes[j] for j in np.flatnonzero(seen[node])}
            for s, a in np.argwhere(row.reshape(case.steps, case.length) != 0).tolist():
                if (s, a) in allowed:
                    continue
                weight = draw.number(row[s * case.length + a])
                if (s, a) not in seen:
                    raise ClauseViolation(
                        f"query {named(node)} weighs the value at {named((s, a))}, which is no node, with {weight}"
                    )
                q, k = nodes.index(node), nodes.index((s, a))
                answer = asking.Graph(found.nodes, found.output[:, columns(case, found.nodes)] != 0).among(nodes)[0]
                words = f"{edge(case, node, (s, a), True)}: it weighs {weight}"
                raise ClauseViolation(f"{words}\n{graphs(nodes, right.visible, answer, (q, k))}")

    check.for_all(strategies.anything(), body, examples=asking.few(check), first=EDGES)


@pytest.mark.clauses("VISIBILITY-803")
def test_weights_sum_to_one(check: Check) -> None:
    check.require("rollout_attention")

    def body(case: RolloutCase) -> None:
        for node, weights in seen_weights(check, case):
            off, bound = abs(float(weights.sum()) - 1), asking.rounding(check, len(weights))
            check.decided(np.isfinite(bound))
            if not off <= bound:
                raise ClauseViolation(
                    f"query {named(node)} sees {len(weights)} nodes; their weights {draw.row(weights)} sum to "
                    f"{draw.number(weights.sum())}"
                )

    check.for_all(strategies.anything(), body, examples=asking.few(check), first=EDGES)


@pytest.mark.clauses("VISIBILITY-804")
def test_nodes_that_are_seen_weigh_the_same(check: Check) -> None:
    check.require("rollout_attention")

    def body(case: RolloutCase) -> None:
        asking.expected_weights(check, case)  # the oracle's agree
        for node, weights in seen_weights(check, case):
            off, bound = np.abs(weights * len(weights) - 1), asking.rounding(check, len(weights))
            check.decided(np.isfinite(bound))
            if not np.all(off <= bound):
                raise ClauseViolation(
                    f"query {named(node)} sees {len(weights)} nodes, each with the same score; their weights are "
                    f"{draw.row(weights)}, and not 1/{len(weights)}"
                )

    check.for_all(strategies.anything(), body, examples=asking.few(check), first=[*EDGES, LONG])


@pytest.mark.clauses("VISIBILITY-805")
def test_members_of_a_batch_are_not_mixed(check: Check) -> None:
    check.require("rollout_attention")

    def body(batch: Rollouts) -> None:
        # a value of member m is a power of two of its own: what is taken from another member shows
        cases = [traced(case, 2.0**m) for m, case in enumerate(batch.rollouts)]
        together = asking.attended(check, cases)
        for m, (case, found) in enumerate(zip(cases, together)):
            (alone,) = asking.attended(check, [case])
            if found.nodes != alone.nodes:
                raise ClauseViolation(f"member {m} of {len(cases)} has other nodes than it has alone")
            share = np.array([2 * asking.rounding(check, int(np.count_nonzero(row))) for row in alone.output])
            weighed = alone.output != 0
            bound = np.where(weighed, np.abs(np.where(weighed, alone.output, 1.0)) * share.reshape(-1, 1), 0.0)
            wrong = np.argwhere(~(np.abs(found.output - alone.output) <= bound))
            for q, entry in wrong[:1].tolist():
                raise ClauseViolation(
                    f"member {m} of {len(cases)}, query {named(found.nodes[q])}: alone it weighs "
                    f"{named(divmod(entry, case.rollout.length))} with "
                    f"{draw.number(alone.output[q, entry] / 2.0**m)}, and beside the others with "
                    f"{draw.number(found.output[q, entry] / 2.0**m)}"
                )

    check.for_all(strategies.together(), body, examples=asking.few(check), first=BATCHES)


@pytest.mark.clauses("VISIBILITY-806")
def test_what_no_node_has_is_not_read(check: Check) -> None:
    check.require("rollout_attention")

    def body(case: RolloutCase) -> None:
        try:
            (found,) = asking.attended(check, [traced(case, elsewhere=np.nan)])
        except Raised as error:
            raise ClauseViolation(f"a value that no node has was read: {error.reason}") from error
        for node, row in of_nodes(found, asking.nodes_of(asking.expected(check, case))):
            if np.isnan(row).any():
                raise ClauseViolation(f"the output of {named(node)} holds NaN, which stands only where no node is")

    check.for_all(strategies.anything(), body, examples=asking.few(check), first=EDGES)


# ---- what these checks share


def of_nodes(found: Weights, nodes: list[Node]) -> list[tuple[Node, np.ndarray]]:
    """Node and output, of the rows of the answer that are nodes."""
    known = set(nodes)
    return [(node, row) for node, row in zip(found.nodes, found.output) if node in known]


def columns(case: RolloutCase, nodes: list[Node]) -> list[int]:
    return [s * case.length + a for s, a in nodes]


def seen_weights(check: Check, case: RolloutCase) -> list[tuple[Node, np.ndarray]]:
    """For every node the weights of those that it sees by rights."""
    (found,) = asking.attended(check, [traced(case)])
    right = asking.expected(check, case)
    nodes = asking.nodes_of(right)
    at = {node: np.array(columns(case, nodes))[right.visible[i]] for i, node in enumerate(nodes)}
    return [(node, row[at[node]]) for node, row in of_nodes(found, nodes)]
