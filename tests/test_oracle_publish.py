"""The oracle of publication: worked examples by hand, and what it refuses, by field, index and rule."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from conformance.handout import contents
from conformance.publish import cases
from conformance.publish.cases import CHAIN, PREFILLED, SKIPS, Rounds, a_round, but
from conformance.roads import publish as road
from oracle.errors import BadInput
from oracle.publish import publish
from oracle.types import DRAFT_KV, CommittedState, Decision, PublishCase, Verified

STATE = CommittedState(
    prompt=np.array([5, 6]),
    output=np.array([7]),
    kv=np.array([10.0, 11.0]),
    features=np.array([20.0, 21.0]),
    pending=7,
    finished=False,
    draft_kv=np.array([31.0, 32.0]),
)
TREE = Verified(
    row_node=np.array([-1, 0, 1, 2, -2]),
    row_token=np.array([7, 8, 9, 8, 0]),
    kv=np.array([12.0, 13.0, 14.0, 15.0, np.nan]),
    features=np.array([22.0, 23.0, 24.0, 25.0, np.nan]),
    draft_kv=np.array([32.0, 33.0, 34.0, np.nan, np.nan]),
)
"""Root 7, its children 8 and 9, and 8 below 9; then padding."""
ROUND = PublishCase(STATE, TREE, Decision((1, 2), 4))


def state(case: PublishCase, draft_kv: str = "recomputed") -> dict[str, Any]:
    (found,) = publish([case], draft_kv)
    return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in vars(found).items()}


def test_a_round_of_a_tree() -> None:
    """7 waits; 9 and 8 are accepted, 4 comes after them: rows 0, 2 and 3 stay, row 1 goes."""
    assert state(ROUND) == {
        "prompt": [5, 6],
        "output": [7, 9, 8, 4],
        "kv": [10.0, 11.0, 12.0, 14.0, 15.0],
        "features": [20.0, 21.0, 22.0, 24.0, 25.0],
        "pending": 4,
        "finished": False,
        "seed": 25.0,
        "freed": (13.0,),
        "finish_reason": None,
        "draft_kv": [31.0, 32.0, 22.0, 24.0, 25.0],
    }


def test_draft_rows_that_are_kept() -> None:
    """Drafting made a row of 9 and none of 8: those of 8 and of the frontier come from the features before them."""
    assert state(ROUND, "kept")["draft_kv"] == [31.0, 32.0, 34.0, 24.0, 25.0]
    assert state(but(ROUND, state={"draft_kv": None}))["draft_kv"] is None


def test_a_stop_token_inside_the_path() -> None:
    found = state(but(ROUND, limits={"stop_tokens": (9,)}))
    assert (found["output"], found["kv"], found["freed"]) == ([7, 9], [10.0, 11.0, 12.0, 14.0], (13.0, 15.0))
    assert (found["pending"], found["seed"], found["finished"], found["finish_reason"]) == (None, None, True, "stop")
    assert found["draft_kv"] == [31.0, 32.0, 22.0]


@pytest.mark.parametrize(
    ("most", "output", "pending", "reason"),
    [
        (2, [7, 9], None, "length"),
        (3, [7, 9, 8], None, "length"),
        (4, [7, 9, 8, 4], 4, "length"),
        (5, [7, 9, 8, 4], 4, None),
    ],
)
def test_the_limit(most: int, output: list[int], pending: int | None, reason: str | None) -> None:
    found = state(but(ROUND, limits={"max_new_tokens": most}))
    assert (found["output"], found["pending"], found["finish_reason"]) == (output, pending, reason)
    assert len(found["kv"]) + (pending is not None) == 2 + len(output)


@pytest.mark.parametrize(
    ("stop", "most", "output", "reason"),
    [
        ((8,), 3, [7, 9, 8], "stop"),
        ((8,), 2, [7, 9], "length"),
        ((4, 8), 9, [7, 9, 8], "stop"),
        ((5, 3), 9, [7, 9, 8, 4], None),
    ],
)
def test_which_end_comes_first(stop: tuple[int, ...], most: int, output: list[int], reason: str | None) -> None:
    found = state(but(ROUND, limits={"stop_tokens": stop, "max_new_tokens": most}))
    assert (found["output"], found["finish_reason"]) == (output, reason)


def test_a_round_without_a_root_row() -> None:
    """A prefill without a sampled token: all tokens have their KV; the seed is the latest feature."""
    found = state(PREFILLED)
    assert found["kv"] == [1000.0, 1001.0, 1002.0, 1500.0, 1501.0]
    assert (found["output"], found["seed"]) == ([120, 121, 199], 1501.5)
    nothing = state(dataclasses.replace(PREFILLED, decision=Decision((), 199)))
    assert (nothing["output"], nothing["kv"], nothing["seed"]) == ([199], [1000.0, 1001.0, 1002.0], 1002.5)


def named() -> list[tuple[str, PublishCase]]:
    """Every named round, those of batches one by one."""
    found = []
    for name, value in vars(cases).items():
        for one in value if isinstance(value, tuple) else [value]:
            members = one.rounds if isinstance(one, Rounds) else [one]
            found += [(name, case) for case in members if isinstance(case, PublishCase)]
    return found


@pytest.mark.parametrize("draft_kv", DRAFT_KV)
def test_the_second_road_leads_to_the_same_states(draft_kv: str) -> None:
    assert len(named()) > 100
    for name, plain in named():
        for case in (plain, cases.poisoned(plain)):
            ours, right = state(case, draft_kv), road.published(case, draft_kv)
            for field, value in ours.items():
                other = getattr(right, field)
                assert value == (other.tolist() if isinstance(other, np.ndarray) else other), (name, field)


def test_what_comes_out_shares_nothing_with_what_went_in() -> None:
    before = contents(ROUND)
    (found,) = publish([ROUND])
    for value in vars(found).values():
        if isinstance(value, np.ndarray):
            value[:] = 0
    assert contents(ROUND) == before


def test_nothing_is_published_beside_a_bad_member() -> None:
    with pytest.raises(BadInput, match=re.escape("cases[1].decision.path[0]")):
        publish([ROUND, but(ROUND, decision={"path": (7,)})])
    assert publish([]) == []


BAD: list[tuple[PublishCase, str]] = [
    (but(ROUND, state={"finished": True}), "state.finished = True: a finished request publishes nothing"),
    (but(ROUND, state={"pending": 8}), "state.pending = 8: is the last token of the sequence, 7"),
    (but(ROUND, state={"pending": None}), "state.kv = 2: has one entry for each token of the sequence but"),
    (but(ROUND, state={"kv": np.array([1.0])}), "state.kv = 1: has one entry for each token of the sequence but"),
    (but(ROUND, state={"features": np.zeros(4)}), "state.features = 4: has one entry for each row of KV: 2"),
    (
        but(ROUND, state={"draft_kv": np.zeros(3)}),
        "state.draft_kv = 3: has one entry for each token of the sequence but",
    ),
    (but(ROUND, state={"prompt": np.array([], dtype=np.int64)}), "state.prompt = 0: has at least one token"),
    (but(ROUND, limits={"max_new_tokens": 1}), "limits.max_new_tokens = 1: there is room for one more token"),
    (but(ROUND, limits={"max_new_tokens": -1}), "limits.max_new_tokens = -1: is a whole number of at least 0"),
    (but(ROUND, verified={"row_node": np.array([-1, 0, 0, 2, -2])}), "verified.row_node[2] = 0: a node has one row"),
    (but(ROUND, verified={"row_node": np.array([-1, 0, 1, -3, -2])}), "verified.row_node[3] = -3: is a node, −1 for"),
    (
        but(ROUND, verified={"row_token": np.array([4, 8, 9, 8, 0])}),
        "verified.row_token[0] = 4: the root row holds the",
    ),
    (but(ROUND, verified={"kv": np.zeros(4)}), "verified.kv = 4: has one entry for each row: 5"),
    (but(ROUND, decision={"path": (1, 1)}), "decision.path[1] = 1: no node is accepted twice"),
    (but(ROUND, decision={"path": (1, -1)}), "decision.path[1] = -1: is a node that has a verification row"),
    (but(ROUND, decision={"frontier": -1}), "decision.frontier = -1: is a whole number of at least 0"),
    (a_round(CHAIN, 1, order=range(4)), "verified.row_node = [0, 1, 2, 3]: a pending token has its root row, −1"),
    (a_round(CHAIN, 1, pending=False, order=[0, -1, 1]), "verified.row_node[1] = -1: there is no root row where"),
]


@pytest.mark.parametrize(("case", "words"), BAD, ids=[words.split(":")[0] for _, words in BAD])
def test_bad_input_names_field_index_and_rule(case: PublishCase, words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(f"cases[1].{words}")):
        publish([SKIPS, case])


@pytest.mark.parametrize("fields", [{"state": None}, {"verified": 3}, {"decision": "x"}, {"limits": None}])
def test_parts_of_a_case_are_of_their_types(fields: Mapping[str, Any]) -> None:
    with pytest.raises(BadInput, match=re.escape(f"cases[0].{next(iter(fields))}")):
        publish([dataclasses.replace(ROUND, **fields)])


def test_kept_rows_are_shown() -> None:
    with pytest.raises(BadInput, match="a drafter that keeps its rows shows them"):
        publish([but(ROUND, verified={"draft_kv": None})], "kept")
    with pytest.raises(BadInput, match="is one of recomputed, kept"):
        publish([ROUND], "both")
