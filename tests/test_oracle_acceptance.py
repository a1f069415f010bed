"""The oracle of acceptance: worked cases, its second road, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.interface import Arithmetic
from conformance import compare
from conformance.acceptance import strategies
from conformance.acceptance.cases import WITNESSES, Batch, chain, coins
from conformance.roads import acceptance as road
from oracle.acceptance import verify_greedy, verify_random, verify_sampled
from oracle.errors import BadInput
from oracle.types import Coins, Decision, VerifyCase

P = [[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0.125, 0.625]]
Q = [[0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.125, 0.25, 0.625]]


def decide(case: VerifyCase, accept: list[float], frontier: float) -> Decision:
    return verify_sampled([case], [coins(accept, frontier)])[0]


def test_accepts_below_the_ratio_and_rejects_at_it() -> None:
    case = chain([1, 1], P, Q, "iid")  # node 0: p = 1/4, q = 1/2; node 1: p = 1/2 > q = 1/4
    assert decide(case, [0.499, 0.999], 0.5).path == (0, 1)
    assert decide(case, [0.5, 0.0], 0.5).path == ()


def test_the_frontier_after_a_rejection_comes_from_the_residual() -> None:
    case = chain([1, 1], P, Q, "iid")  # (p − q)+ = (1/4, 0, 0)
    assert decide(case, [0.75, 0.0], 0.0) == Decision((), 0)
    assert decide(case, [0.75, 0.0], math.nextafter(1, 0)) == Decision((), 0)


def test_the_frontier_after_full_acceptance_comes_from_the_last_row() -> None:
    case = chain([1, 1], P, Q, "iid")
    assert [decide(case, [0.0, 0.0], u).frontier for u in (0.0, 0.2499, 0.25, 0.374, 0.375, 0.99)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("impossible_draft_at_coin_zero", Decision((), 2)),
        ("draft_of_no_draft_mass", Decision((0,), 1)),
        ("no_residual_left", Decision((), 2)),
        ("no_drafts", Decision((), 1)),
    ],
)
def test_named_cases(name: str, expected: Decision) -> None:
    batch = WITNESSES[name]
    assert verify_sampled(batch.cases, batch.coins or ()) == [expected]


def test_greedy_stops_at_the_first_mismatch() -> None:
    """Target argmax 1, 2, 0; drafts 1, 0, 0: the third flag is right again and does not count."""
    rows = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert verify_greedy([chain([1, 0, 0], rows, None, "point")]) == [Decision((0,), 2)]


def test_siblings_are_tried_in_node_order() -> None:
    """p = (.5, .3, .2), children 0 then 1: after 0 is rejected, 1 holds .6 of what is left."""
    law = [0.5, 0.3, 0.2]
    case = VerifyCase(np.array([-1, -1]), np.array([0, 1]), np.array([law, [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]), "point")
    assert decide(case, [0.5, 0.599], 0.0) == Decision((1,), 0)
    assert decide(case, [0.5, 0.601], 0.0) == Decision((), 2)


def test_members_draw_independently_and_reproducibly() -> None:
    case = chain([0], [[0.5, 0.5], [0.25, 0.75]], None, "point")
    first = verify_random([case] * 64, 3)
    assert first == verify_random([case] * 64, 3) != verify_random([case] * 64, 4)
    assert len(set(first)) > 1


@settings(max_examples=300, deadline=None)
@given(strategies.ragged((0, 4)))
def test_the_second_road_agrees(batch: Batch) -> None:
    for case, spent in zip(batch.cases, batch.coins or ()):
        found = verify_sampled([case], [spent])[0]
        allowed = road.admissible(case, spent, compare.slack(Arithmetic(), case.target_probs.shape[1]))
        assert found in [trace.decision for trace in allowed]


@settings(max_examples=200, deadline=None)
@given(strategies.greedy_chains((0, 5)))
def test_the_second_road_of_greedy_agrees(case: VerifyCase) -> None:
    assert verify_greedy([case]) == [road.greedy(case)]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_trees_agree_with_the_second_road(data: st.DataObject) -> None:
    nodes, size = data.draw(st.integers(1, 5)), data.draw(st.integers(3, 5))
    parent = np.array([data.draw(st.integers(-1, i - 1)) for i in range(nodes)])
    tokens = np.array([(7 * i + data.draw(st.integers(0, 1))) % size for i in range(nodes)])
    proposal = data.draw(st.sampled_from(["iid", "point"]))
    if proposal == "point" and any(
        parent[i] == parent[j] and tokens[i] == tokens[j] for i in range(nodes) for j in range(i)
    ):
        return
    target = np.array(data.draw(strategies.rows(nodes + 1, size)))
    draft = None if proposal == "point" else np.array(data.draw(strategies.rows(nodes + 1, size)))
    case = VerifyCase(parent, tokens, target, proposal, draft)
    spent = data.draw(strategies.coins_for(case, strategies.inner_coin))
    found = verify_sampled([case], [spent])[0]
    allowed = road.admissible(case, spent, compare.slack(Arithmetic(), size))
    assert found in [trace.decision for trace in allowed]


def case_with(**changes: object) -> VerifyCase:
    good = chain([1, 2], P, Q, "iid")
    fields = {name: getattr(good, name) for name in ("parent", "token", "target_probs", "proposal", "draft_probs")}
    return VerifyCase(**(fields | changes))  # type: ignore[arg-type]


def with_entry(rows: list[list[float]], where: tuple[int, int], value: float) -> np.ndarray:
    changed = np.array(rows)
    changed[where] = value
    return changed


BAD = {
    "cycle": (
        case_with(parent=np.array([1, 0])),
        "cases[0].parent[0] = 1: a parent is −1 (the root) or an earlier node",
    ),
    "own parent": (case_with(parent=np.array([-1, 1])), "cases[0].parent[1] = 1"),
    "parent below the root": (case_with(parent=np.array([-2, 0])), "cases[0].parent[0] = -2"),
    "parents of another type": (case_with(parent=np.array([-1.0, 0.0])), "cases[0].parent = 'float64': holds integers"),
    "token beyond the vocabulary": (
        case_with(token=np.array([1, 3])),
        "cases[0].token[1] = 3: a token id lies in [0, 3)",
    ),
    "padding": (case_with(token=np.array([1, -1])), "cases[0].token[1] = -1"),
    "one token too few": (
        case_with(token=np.array([1])),
        "cases[0].token = 1: there is one token for each of the 2 nodes",
    ),
    "one row too few": (case_with(target_probs=np.array(P[:2])), "cases[0].target_probs = (2, 3): has shape [3, V]"),
    "other vocabulary": (
        case_with(draft_probs=np.array([[0.5, 0.5]] * 3)),
        "cases[0].draft_probs = (3, 2): has shape [3, 3]",
    ),
    "integer rows": (case_with(target_probs=np.ones((3, 3), dtype=int)), "holds floating-point"),
    "no draft rows": (case_with(draft_probs=None), "cases[0].draft_probs: a proposal 'iid' has draft rows"),
    "unknown proposal": (
        case_with(proposal="typical"),
        "cases[0].proposal = 'typical': a proposal is one of point, iid",
    ),
    "row that sums to less": (case_with(target_probs=with_entry(P, (0, 0), 0.4)), "cases[0].target_probs[0] = 0.9"),
    "NaN": (case_with(target_probs=with_entry(P, (0, 1), math.nan)), "cases[0].target_probs[0][1] = 'nan'"),
    "negative": (case_with(draft_probs=with_entry(Q, (0, 0), -0.25)), "cases[0].draft_probs[0][0] = -0.25"),
    "twins of a point proposal": (
        VerifyCase(np.array([-1, -1]), np.array([1, 1]), np.array(P), "point"),
        "cases[0].token[1] = 1: siblings of a 'point' proposal differ",
    ),
    "ragged rows": (case_with(target_probs=[[0.5, 0.5], [1.0]]), "cases[0].target_probs = 'list': is an array"),
    "ragged tokens": (case_with(token=[[1], [1, 2]]), "cases[0].token = 'list': is an array"),
    "a proposal that is an array": (
        case_with(proposal=np.array(["iid", "point"])),
        "cases[0].proposal = array(",
    ),
    "no case": ("a string", "cases[0] = 'str': a case is an oracle.types.VerifyCase"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_cases_are_refused_by_name_index_and_rule(name: str) -> None:
    case, words = BAD[name]
    with pytest.raises(BadInput) as caught:
        verify_sampled([case], [coins([0.25, 0.25], 0.5)])  # type: ignore[list-item]
    assert words in str(caught.value)
    assert caught.value.field and caught.value.rule


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (coins([1.0, 0.5], 0.5), "coins[0].accept[0] = 1.0: a coin lies in [0, 1)"),
        (coins([-0.1, 0.5], 0.5), "coins[0].accept[0] = -0.1"),
        (coins([math.nan, 0.5], 0.5), "coins[0].accept[0] = nan"),
        (coins([0.9, 0.9], 1.0), "coins[0].frontier = 1.0"),
        (coins([0.5], 0.5), "coins[0].accept = (1,): there is one accept coin for each of the 2 nodes"),
        (Coins(np.array(["a", "b"]), 0.5), "accept coins are real numbers"),
        (Coins(np.array([0.9, 0.9]), "half"), "coins[0].frontier = 'half': a coin is a real number"),  # type: ignore[arg-type]
        ("coins", "coins are an oracle.types.Coins"),
        (Coins([[1], [1, 2]], 0.5), "coins[0].accept = 'list': is an array"),  # type: ignore[arg-type]
        (coins([0.9, 0.9], 10**400), "coins[0].frontier = 1000"),
        (Coins(np.array([0.9, 0.9]), False), "a coin is a real number"),
    ],
)
def test_bad_coins_are_refused(spent: Coins, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        verify_sampled([case_with()], [spent])
    assert words in str(caught.value)


def test_batches_that_do_not_match_are_refused() -> None:
    with pytest.raises(BadInput, match="one Coins for each of the 2 cases"):
        verify_sampled([case_with()] * 2, [coins([0.5, 0.5], 0.5)])
    with pytest.raises(BadInput, match=r"cases\[1\]\.token\[1\]"):
        verify_greedy([case_with(), case_with(token=np.array([1, 9]))])


@pytest.mark.parametrize("cases", [None, 3, "case", case_with()])
def test_a_batch_is_a_list(cases: object) -> None:
    for refused in (
        lambda: verify_greedy(cases),  # type: ignore[arg-type]
        lambda: verify_sampled(cases, []),  # type: ignore[arg-type]
        lambda: verify_random(cases, 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(BadInput, match="cases is a list of VerifyCase"):
            refused()


@pytest.mark.parametrize("spent", [None, 3, coins([0.5, 0.5], 0.5)])
def test_coins_are_a_list(spent: object) -> None:
    with pytest.raises(BadInput, match="coins is a list of Coins"):
        verify_sampled([case_with()], spent)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["x", None, [], np.array(["block", "x"])])
def test_unknown_schemes_are_refused_by_empty_batches_too(scheme: object) -> None:
    for refused in (
        lambda: verify_sampled([], [], scheme),  # type: ignore[arg-type]
        lambda: verify_random([], 1, scheme),  # type: ignore[arg-type]
    ):
        with pytest.raises(BadInput, match="a coin scheme is one of"):
            refused()


def test_a_fork_under_block_names_its_case() -> None:
    chained, fork = case_with(), case_with(parent=np.array([-1, -1]))
    with pytest.raises(BadInput, match=r"cases\[1\]\.parent\[1\]: block verification decides chains"):
        verify_random([chained, fork], 1, "block")


@pytest.mark.parametrize("zero", [0, np.int64(0), np.float32(0)])
def test_coins_may_be_integers(zero: float) -> None:
    case = case_with()
    assert verify_sampled([case], [Coins(np.array([0, 0]), zero)]) == [decide(case, [0.0, 0.0], 0.0)]


@pytest.mark.parametrize("seed", [-1, 0.5, True, "1", None])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(BadInput, match="a seed is a non-negative integer"):
        verify_random([case_with()], seed)  # type: ignore[arg-type]


def test_what_is_not_read_is_ignored() -> None:
    """The walk stops at node 0, so neither the rows behind it nor the coin of node 1 are looked at."""
    poisoned = case_with(
        target_probs=np.array([P[0], [math.nan] * 3, [7.0] * 3]), draft_probs=np.array([Q[0], [math.inf] * 3, Q[2]])
    )
    assert decide(poisoned, [0.999, math.nan], 0.5) == Decision((), 0)


def test_an_empty_batch_is_an_empty_list() -> None:
    assert verify_greedy([]) == verify_sampled([], []) == verify_random([], 0) == []
