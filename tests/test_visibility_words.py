"""What a person reads of a rollout that sees the wrong nodes: the edge in words, and both matrices."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.roads import visibility as road
from conformance.visibility.asking import nodes_of
from conformance.visibility.cases import PACKED, WIDE, rollout
from conformance.visibility.drawing import Node, edge, matrix
from tests.running import Suite

SIBLING = """\
  → query (step 1, anchor 1) sees sibling (step 1, anchor 0); by VISIBILITY-502 it does not
    expected:
          0,0 0,1 0,2 0,3 1,0 1,1 1,2 2,0 2,1
      0,0  1   0   0   0   0   0   0   0   0
      0,1  1   1   0   0   0   0   0   0   0
      0,2  1   1   1   0   0   0   0   0   0
      0,3  1   1   1   1   0   0   0   0   0
      1,0  1   0   0   0   1   0   0   0   0
      1,1  1   1   0   0  [0]  1   0   0   0
      1,2  1   1   1   0   0   0   1   0   0
      2,0  1   0   0   0   1   0   0   1   0
      2,1  1   1   0   0   0   1   0   0   1
    found:
          0,0 0,1 0,2 0,3 1,0 1,1 1,2 2,0 2,1
      0,0  1   0   0   0   0   0   0   0   0
      0,1  1   1   0   0   0   0   0   0   0
      0,2  1   1   1   0   0   0   0   0   0
      0,3  1   1   1   1   0   0   0   0   0
      1,0  1   0   0   0   1   0   0   0   0
      1,1  1   1   0   0  [1]  1   0   0   0
      1,2  1   1   1   0   1   1   1   0   0
      2,0  1   0   0   0   1   0   0   1   0
      2,1  1   1   0   0   1   1   0   1   1
"""


def test_a_sibling_that_is_seen_is_drawn(suite: Suite) -> None:
    impl = "--impl=adapters.faulty.visibility:SiblingsVisible"
    finished = suite(impl, "--conformance-upto=VISIBILITY-502", "-k", "test_who_sees_whom and sibling")
    assert SIBLING in finished.output
    assert "length 5, steps 3\n      address  0 1 2 3 4\n      segment  0 0 0 0 0\n" in finished.output


EDGES: list[tuple[Node, Node, bool, str]] = [
    ((1, 1), (1, 1), False, "query (step 1, anchor 1) does not see itself"),
    ((2, 1), (1, 1), False, "query (step 2, anchor 1) does not see its own step 1"),
    ((2, 1), (0, 1), False, "query (step 2, anchor 1) does not see its own step 0"),
    ((1, 2), (0, 0), False, "query (step 1, anchor 2) does not see the earlier (step 0, anchor 0) of its segment"),
    ((2, 1), (1, 0), True, "query (step 2, anchor 1) sees sibling (step 1, anchor 0)"),
    ((0, 1), (0, 2), True, "query (step 0, anchor 1) sees the later (step 0, anchor 2)"),
    ((0, 1), (1, 1), True, "query (step 0, anchor 1) sees the later step (step 1, anchor 1)"),
    ((0, 4), (0, 2), True, "query (step 0, anchor 4) sees (step 0, anchor 2) of segment 4, itself of segment 1"),
]


@pytest.mark.parametrize(("query", "key", "seen", "words"), EDGES)
def test_an_edge_in_words(query: Node, key: Node, seen: bool, words: str) -> None:
    assert edge(PACKED, query, key, seen) == words


def test_of_a_large_graph_one_row_is_drawn() -> None:
    right = road.graph(WIDE)
    lines = matrix(nodes_of(right), right.visible, (30, 8))
    assert lines[0] == "  the row of 2,7 of 42, its keys step by step:"
    assert len(lines) == 9 and "[0]" in lines[2]


def test_a_bracket_keeps_its_column() -> None:
    right = road.graph(rollout(3, 1))
    assert matrix(nodes_of(right), np.array([[True, False], [True, True]]), (1, 0)) == [
        "      0,0 0,1",
        "  0,0  1   0",
        "  0,1 [1]  1",
    ]
