"""Masks: the same graph in rows and columns, where its rows stand, and what no node has."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.check import Check
from conformance.verdicts import ClauseViolation, Inapplicable
from conformance.visibility import asking, strategies
from conformance.visibility.asking import Graph
from conformance.visibility.cases import EDGES, FULL, LONG, PACKED, WHOLE
from conformance.visibility.drawing import named
from oracle.types import ROW_ANCHORS, Flags, RolloutCase

OTHER = {"start": "absolute", "absolute": "start"}


@pytest.mark.clauses("VISIBILITY-701")
@pytest.mark.parametrize("anchor", ROW_ANCHORS)
def test_a_mask_shows_the_graph(check: Check, anchor: str) -> None:
    check.require("rollout_mask")

    def body(case: RolloutCase) -> None:
        square, right = asking.mask(check, case, anchor), asking.expected(check, case)
        asking.expected_mask(check, case, anchor)  # the oracle's agrees
        nodes = asking.nodes_of(right)
        if np.array_equal(placed(case, square, nodes, OTHER[anchor]), right.visible):
            return  # where its rows stand, the next clause asks
        asking.compare_edges(case, right, Graph(nodes, placed(case, square, nodes, anchor)))

    check.for_all(strategies.anything(), body, examples=asking.few(check), first=[*EDGES, LONG])


@pytest.mark.clauses("VISIBILITY-702")
def test_the_row_of_a_node_is_the_one_that_is_asked_for(check: Check) -> None:
    check.require("rollout_mask")
    at_work: set[str] = set()

    def body(case: RolloutCase) -> None:
        right, refused = asking.expected(check, case), []
        nodes = asking.nodes_of(right)
        for anchor in ROW_ANCHORS:
            try:
                square = asking.mask(check, case, anchor)
            except Inapplicable as reason:
                refused.append(reason)
                continue
            shown = {name for name in ROW_ANCHORS if np.array_equal(placed(case, square, nodes, name), right.visible)}
            if len(shown) == 1:
                at_work.update(shown)
            if shown and anchor not in shown:
                s, a = next((node for node in nodes if node[0]), nodes[0])
                raise ClauseViolation(
                    f"asked for rows anchored {anchor!r}, {named((s, a))} stands in row "
                    f"{a + s * (anchor != 'absolute')} of block {s}, and by {{clause}} in row "
                    f"{a + s * (anchor == 'absolute')}"
                )
        if len(refused) == len(ROW_ANCHORS):
            raise refused[0]

    try:
        check.for_all(strategies.full(least=4), body, examples=asking.few(check), first=[FULL, *WHOLE, PACKED])
    finally:
        if at_work:
            check.observe("row_anchor", next(iter(at_work)) if len(at_work) == 1 else "argument")
    if at_work and asking.row_anchor(check) not in at_work:
        raise ClauseViolation(
            f"row_anchor is, at work, {', '.join(map(repr, at_work))}; it is declared {asking.row_anchor(check)!r}"
        )


@pytest.mark.clauses("VISIBILITY-703")
@pytest.mark.parametrize("anchor", ROW_ANCHORS)
def test_what_no_node_has(check: Check, anchor: str) -> None:
    check.require("rollout_mask")
    keeps = check.convention("last_row", "drop") == "pad"

    def body(case: RolloutCase) -> None:
        square, nodes = asking.mask(check, case, anchor), asking.nodes_of(asking.expected(check, case))
        held = np.zeros(len(square), dtype=bool)
        held[asking.flat(case, nodes, anchor)] = True
        wrong = square & ~held[None] & (held[:, None] | (not keeps))
        wrong |= square & ~held[:, None] & (not keeps)
        for q, k in np.argwhere(wrong)[:1].tolist():
            (s, row), (t, column) = divmod(q, case.length), divmod(k, case.length)
            raise ClauseViolation(
                f"row {row} of block {s}, which {'is a node' if held[q] else 'no node has'}, sees column {column} of "
                f"block {t}, which {'is one' if held[k] else 'no node has'}"
            )

    check.for_all(strategies.anything(), body, examples=asking.few(check), first=EDGES)


# ---- what these checks share


def placed(case: RolloutCase, square: Flags, nodes: list[tuple[int, int]], anchor: str) -> Flags:
    """Who sees whom among `nodes`, their rows and columns read where `anchor` puts them."""
    rows = asking.flat(case, nodes, anchor)
    found: Flags = square[np.ix_(rows, rows)]
    return found
