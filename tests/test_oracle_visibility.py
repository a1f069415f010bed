"""The oracle of visibility: worked examples, the two row anchors, and what it refuses, by field, index and rule."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.roads import visibility as road
from conformance.visibility.cases import EDGES, PACKED, REUSED, SHORT, poisoned, rollout, traced
from oracle import visibility
from oracle.errors import BadInput
from oracle.types import AttentionCase, RolloutCase, RolloutMaskCase, VisibilityGraph


def rows(graph: VisibilityGraph) -> list[str]:
    return ["".join(str(int(v)) for v in row) for row in graph.visible]


def nodes(graph: VisibilityGraph) -> list[tuple[int, int]]:
    return list(zip(graph.step.tolist(), graph.anchor.tolist()))


def test_two_steps_over_three_rows() -> None:
    """SpecForge#244: at step 1 query 1 sees the base keys 0 and 1 and its own key, and stands at position 2."""
    found = visibility.rollout_visibility(rollout(4, 2))
    assert nodes(found) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert rows(found) == ["10000", "11000", "11100", "10010", "11001"]
    assert found.position.tolist() == [0, 1, 2, 1, 2]


def test_five_steps_over_seven_tokens() -> None:
    """Model-Optimizer#548: step 4 sees the base keys up to its anchor and four keys of its own."""
    found = visibility.rollout_visibility(rollout(7, 5))
    query = nodes(found).index((4, 1))
    seen = [nodes(found)[k] for k in np.flatnonzero(found.visible[query])]
    assert seen == [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]


def test_a_pack_and_a_segment_that_comes_back() -> None:
    packed = visibility.rollout_visibility(PACKED)
    first = nodes(packed).index((1, 4))
    assert [nodes(packed)[k] for k in np.flatnonzero(packed.visible[first])] == [(0, 4), (1, 4)]
    back = visibility.rollout_visibility(REUSED)
    last = nodes(back).index((0, 6))
    assert [nodes(back)[k] for k in np.flatnonzero(back.visible[last])] == [(0, 0), (0, 1), (0, 6)]


def test_more_steps_than_tokens() -> None:
    assert nodes(visibility.rollout_visibility(SHORT)) == [(0, 0), (0, 1), (1, 0)]
    assert visibility.rollout_mask(RolloutMaskCase(SHORT, "absolute")).shape == (5, 3, 15)


@pytest.mark.parametrize("case", EDGES)
def test_both_anchors_show_one_graph(case: RolloutCase) -> None:
    graph = visibility.rollout_visibility(case)
    for anchor in ("start", "absolute"):
        mask = visibility.rollout_mask(RolloutMaskCase(case, anchor))
        square = mask.reshape(case.steps * case.length, case.steps * case.length)
        places = [s * case.length + a + s * (anchor == "absolute") for s, a in nodes(graph)]
        assert np.array_equal(square[np.ix_(places, places)], graph.visible)
        assert square.sum() == graph.visible.sum()


@pytest.mark.parametrize("case", EDGES)
def test_the_second_road_leads_there_too(case: RolloutCase) -> None:
    ours, other = visibility.rollout_visibility(case), road.graph(case)
    for name, value in vars(ours).items():
        assert np.array_equal(value, getattr(other, name)), name


@pytest.mark.parametrize("case", EDGES)
def test_an_attention_is_the_mean_of_what_is_seen(case: RolloutCase) -> None:
    graph = visibility.rollout_visibility(case)
    (found,) = visibility.rollout_attention([traced(case, elsewhere=np.nan)])
    columns = [s * case.length + a for s, a in nodes(graph)]
    wanted = graph.visible / np.maximum(graph.visible.sum(axis=1, keepdims=True), 1)
    assert np.allclose(found.output[:, columns], wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("case", EDGES)
def test_invalid_addresses_are_not_read(case: RolloutCase) -> None:
    one, other = (visibility.rollout_visibility(c) for c in (case, poisoned(case)))
    assert all(np.array_equal(value, getattr(other, name)) for name, value in vars(one).items())


def changed(**fields: Any) -> RolloutCase:
    return dataclasses.replace(rollout(3, 2), **fields)


RIGHT = traced(rollout(3, 2))
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no case": (
        lambda: visibility.rollout_visibility([1]),  # type: ignore[arg-type]
        "case = 'list': a case is an oracle.types.RolloutCase",
    ),
    "steps": (lambda: visibility.rollout_visibility(changed(steps=0)), "steps = 0: is a whole number of at least 1"),
    "length": (lambda: visibility.rollout_visibility(changed(length=-1)), "length = -1: is a whole number of at least"),
    "valid": (
        lambda: visibility.rollout_visibility(changed(valid=np.ones(2, bool))),
        "valid = (2,): has shape [3]",
    ),
    "flags": (lambda: visibility.rollout_visibility(changed(valid=np.ones(3))), "valid = 'float64': holds booleans"),
    "segment": (
        lambda: visibility.rollout_visibility(changed(segment=np.array([0.5, 1, 2]))),
        "segment = 'float64': holds integers",
    ),
    "position": (
        lambda: visibility.rollout_visibility(changed(position=np.array([0, 3, 3]))),
        "position[2] = 3: positions of segment 0 increase strictly",
    ),
    "row anchor": (
        lambda: visibility.rollout_mask(RolloutMaskCase(rollout(3, 2), "middle")),
        "row_anchor = 'middle': is one of start, absolute",
    ),
    "values": (
        lambda: visibility.rollout_attention([RIGHT, dataclasses.replace(RIGHT, value=RIGHT.value[:1])]),
        "cases[1].value = (1, 3, 6): has shape [2, 3, d]",
    ),
    "a value that is seen": (
        lambda: visibility.rollout_attention([AttentionCase(RIGHT.rollout, np.full((2, 3, 1), np.inf))]),
        "cases[0].value[0][0] = [inf]: a value that is seen is finite",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        call()
