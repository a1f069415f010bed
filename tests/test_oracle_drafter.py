"""The oracle of the drafter: numbers by hand, the second road, and what it refuses, by field, index and rule."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from conformance.drafter.cases import EVERY, LONGER, SKEWED_CASES, TWINS
from conformance.drafter.making import configured, make
from conformance.roads import drafter as road
from oracle.drafter import draft_logits, rms_norm, rotate
from oracle.errors import BadInput
from oracle.types import DRAFTERS, DrafterCase, Rows

EYE, NONE = np.eye(2), np.zeros((2, 2))
HEAD = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def tiny(
    variant: str,
    features: Sequence[Sequence[float]],
    tokens: Sequence[int],
    rollout: Sequence[int] = (),
    positions: Sequence[int] | None = None,
    epsilon: float = 0.5,
    heads: int = 1,
    groups: int = 1,
    **weights: Rows,
) -> DrafterCase:
    """Two entries a row, heads of two; every map that is not given is zero, and norms weigh by 1."""
    eagle1 = variant == "eagle1"
    layer, seen = "layers.0" if eagle1 else "midlayer", 4 if variant == "eagle3" else 2
    state: dict[str, Rows] = {
        "fc.weight": np.zeros((2, 4 if eagle1 else 6)),
        "embed_tokens.weight": np.array([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0]]),
        "lm_head.weight": HEAD,
        f"{layer}.self_attn.q_proj.weight": np.zeros((2 * heads, seen)),
        f"{layer}.self_attn.k_proj.weight": np.zeros((2 * groups, seen)),
        f"{layer}.self_attn.v_proj.weight": np.zeros((2 * groups, seen)),
        f"{layer}.self_attn.o_proj.weight": np.zeros((2, 2 * heads)),
        f"{layer}.mlp.gate_proj.weight": np.zeros((1, 2)),
        f"{layer}.mlp.up_proj.weight": np.zeros((1, 2)),
        f"{layer}.mlp.down_proj.weight": np.zeros((2, 1)),
        f"{layer}.post_attention_layernorm.weight": np.ones(2),
    }
    if not eagle1:
        state |= {f"{layer}.{name}.weight": np.ones(2) for name in ("input_layernorm", "hidden_norm")}
        state["norm.weight"] = np.ones(2)
    if variant == "eagle3_projected":
        state["input_projection.weight"] = np.zeros((2, 4))
    for short, values in weights.items():
        bias = short.endswith("_bias")
        name = next((n for n in state if n.endswith(f"{short.removesuffix('_bias')}.weight")), short)
        state[name.removesuffix("weight") + "bias" if bias else name] = np.asarray(values, dtype=float)
    config = {
        "hidden_size": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": 2,
        "intermediate_size": 1,
        "rms_norm_eps": epsilon,
    }
    where = np.arange(len(tokens)) if positions is None else np.array(positions)
    return DrafterCase(
        variant, state, config, np.array(features, dtype=float), np.array(tokens), where, np.array(rollout, dtype=int)
    )


# ---- by hand


def test_a_row_of_eagle1() -> None:
    """Fused (1, 2) + (3, −1) = (4, 1); attention to itself adds its value, twice; the head reads (12, 3) as it is."""
    case = tiny("eagle1", [[3, -1]], [0], fc=np.hstack([EYE, EYE]), v_proj=EYE, o_proj=2 * EYE)
    found = draft_logits(case)
    assert found.states.tolist() == [[12, 3]]
    assert found.logits.tolist() == [[12, 3, 15]]


def test_the_order_of_fusion() -> None:
    case = tiny("eagle1", [[3, -1]], [0], fc=np.hstack([EYE, 10 * EYE]))
    assert draft_logits(case).states.tolist() == [[31, -8]]
    assert draft_logits(configured(case, fusion_order="feature_first")).states.tolist() == [[13, 19]]


def test_a_row_of_eagle3() -> None:
    """The three layers are fused as 1·low + 10·middle + 100·high; attention adds the embedding (3, 4), normed."""
    fusion = np.hstack([EYE, 10 * EYE, 100 * EYE])
    value = np.hstack([EYE, NONE])
    case = tiny("eagle3", [[1, 0, 0, 2, 3, 0]], [1], fc=fusion, v_proj=value, o_proj=EYE, input_layernorm=[2, 1])
    root = math.sqrt((9 + 16) / 2 + 0.5)
    state = np.array([301 + 2 * 3 / root, 20 + 4 / root])
    found = draft_logits(case)
    np.testing.assert_allclose(found.states[0], state, rtol=1e-15)
    normed = state / math.sqrt((state[0] ** 2 + state[1] ** 2) / 2 + 0.5)
    np.testing.assert_allclose(found.logits[0], HEAD @ normed, rtol=1e-15)


def test_the_pair_is_projected() -> None:
    """Embedding (3, 4) and state (1, 1), both normed; the projection takes the first less the second."""
    case = tiny(
        "eagle3_projected",
        [[1, 1, 0, 0, 0, 0]],
        [1],
        fc=np.hstack([EYE, NONE, NONE]),
        input_projection=np.hstack([EYE, -EYE]),
        v_proj=EYE,
        o_proj=EYE,
    )
    token, state = np.array([3, 4]) / math.sqrt(13), np.array([1, 1]) / math.sqrt(1.5)
    np.testing.assert_allclose(draft_logits(case).states[0], 1 + token - state, rtol=1e-15)


def test_attention_turns_by_distance() -> None:
    """Rows (1, 0) at 3 and (0, 1) at 5: the score of the first is −sin 2 / √2, and of the second 1 / √2."""
    case = tiny(
        "eagle1",
        [[1, 0], [0, 1]],
        [0, 0],
        positions=[3, 5],
        fc=np.hstack([NONE, EYE]),
        q_proj=EYE,
        k_proj=EYE,
        v_proj=EYE,
        o_proj=EYE,
    )
    first, second = math.exp(-math.sin(2) / math.sqrt(2)), math.exp(1 / math.sqrt(2))
    share = first / (first + second)
    np.testing.assert_allclose(draft_logits(case).states[0], [share, 1 + 1 - share], rtol=1e-14)


def test_neighbouring_heads_share() -> None:
    """Values of the two groups are v and 10·v; the output reads heads 1 and 2, which are of group 0 and 1."""
    output = np.zeros((2, 8))
    output[0, 2] = output[1, 4] = 1  # the first entries of heads 1 and 2
    case = tiny(
        "eagle1", [[3, 5]], [0], heads=4, groups=2, fc=np.hstack([NONE, EYE]), v_proj=np.vstack([EYE, 10 * EYE]),
        o_proj=output,
    )  # fmt: skip
    assert draft_logits(case).states.tolist() == [[3 + 3, 5 + 30]]


def test_the_feed_forward_part() -> None:
    """Row (1, 1) normed is (1, 1) / √1.5 = n; gate n, up 2n + 1: silu(n)·(2n + 1) is added to the second entry."""
    case = tiny(
        "eagle1",
        [[1, 1]],
        [0],
        fc=np.hstack([NONE, EYE]),
        gate_proj=[[1, 0]],
        up_proj=[[1, 1]],
        up_proj_bias=[1],
        down_proj=[[0], [1]],
    )
    n = 1 / math.sqrt(1.5)
    np.testing.assert_allclose(draft_logits(case).states[0], [1, 1 + n / (1 + math.exp(-n)) * (2 * n + 1)], rtol=1e-15)


def test_a_rollout_of_eagle1_fuses_its_own_state() -> None:
    """Each step doubles the state and adds its token's embedding."""
    case = tiny("eagle1", [[1, 0]], [0], [1, 2], fc=np.hstack([EYE, 2 * EYE]), fc_bias=[0, 1])
    assert draft_logits(case).states.tolist() == [[3, 3], [9, 11], [17, 23]]


def test_a_rollout_of_eagle3_keeps_its_state() -> None:
    """The state passes neither the fusion nor a norm, and the head's norm leaves it as it is."""
    case = tiny("eagle3", [[1, 3, 0, 0, 0, 0]], [0], [1, 2], fc=np.hstack([7 * EYE, EYE, EYE]))
    found = draft_logits(case)
    assert found.states.tolist() == [[7, 21]] * 3
    assert (found.logits == found.logits[0]).all()


def test_a_rollout_row_sees_prefix_and_rollout() -> None:
    """Uniform attention: the second step adds the mean of four rows, its own among them."""
    case = tiny("eagle1", [[8, 0], [0, 8]], [0, 0], [0, 0], fc=np.hstack([NONE, EYE]), v_proj=EYE, o_proj=EYE)
    # rows (8, 0), (0, 8); state (4, 12); row (4, 12): + the mean of three; row (8, 18⅔): + the mean of four
    third = np.array([4, 12]) + np.array([12, 20]) / 3
    fourth = third + (np.array([12, 20]) + third) / 4
    np.testing.assert_allclose(draft_logits(case).states, [[4, 12], third, fourth], rtol=1e-15)


def test_a_norm_of_zeros_is_zero() -> None:
    assert rms_norm(np.zeros(4), np.ones(4), 1e-6).tolist() == [0] * 4


def test_a_turn_keeps_lengths_and_pairs_halves() -> None:
    row = np.array([[1.0, 2.0, 3.0, 4.0]])
    found = rotate(row, 5, 100.0)[0]
    assert found[0] == pytest.approx(math.cos(5) - 3 * math.sin(5))
    assert found[3] == pytest.approx(4 * math.cos(0.5) + 2 * math.sin(0.5))  # 5 · 100^(−2/4)
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(row))


@pytest.mark.parametrize("case", [*EVERY, *TWINS[:3], *LONGER], ids=lambda c: c.variant)
def test_the_second_road_leads_there_too(case: DrafterCase) -> None:
    ours, right = draft_logits(case), road.rollout(case)
    np.testing.assert_allclose(ours.logits, [step.logits for step in right], rtol=0, atol=1e-13)
    np.testing.assert_allclose(ours.states, [step.state for step in right], rtol=0, atol=1e-13)


# ---- refusals

CASE = SKEWED_CASES[1]  # EAGLE-3


def changed(**fields: Any) -> DrafterCase:
    return dataclasses.replace(CASE, **fields)


def set_weight(name: str, values: object) -> DrafterCase:
    return changed(weights={**CASE.weights, name: values})


def without(name: str) -> DrafterCase:
    return changed(weights={k: v for k, v in CASE.weights.items() if k != name})


def spoiled(values: Rows, *index: int) -> Rows:
    found = values.copy()
    found[index] = np.nan
    return found


REFUSED: dict[str, tuple[Callable[[], DrafterCase], str]] = {
    "variant": (lambda: changed(variant="eagle2"), "variant = 'eagle2': is one of eagle1, eagle3, eagle3_projected"),
    "weights": (lambda: changed(weights=[]), "weights = 'list': is a mapping of names"),
    "missing": (lambda: without("midlayer.hidden_norm.weight"), "weights = "),
    "shape": (
        lambda: set_weight("midlayer.self_attn.k_proj.weight", np.zeros((8, 16))),
        "weights['midlayer.self_attn.k_proj.weight'] = (8, 16): has shape [12, 16]",
    ),
    "bias": (lambda: set_weight("fc.bias", np.zeros(3)), "weights['fc.bias'] = (3,): has shape [8]"),
    "NaN weight": (
        lambda: set_weight("lm_head.weight", spoiled(CASE.weights["lm_head.weight"], 2, 5)),
        "weights['lm_head.weight'][2][5] = nan: is a finite number",
    ),
    "NaN embedding": (
        lambda: set_weight("embed_tokens.weight", spoiled(CASE.weights["embed_tokens.weight"], int(CASE.tokens[1]), 3)),
        f"weights['embed_tokens.weight'][{int(CASE.tokens[1])}][3] = nan: is a finite number",
    ),
    "features": (
        lambda: changed(features=CASE.features[:, :8]),
        "features = (5, 8): has shape [5, 24]",
    ),
    "NaN feature": (lambda: changed(features=spoiled(CASE.features, 4, 1)), "features[4][1] = nan: is a finite number"),
    "token": (lambda: changed(tokens=np.array([0, 1, 13, 2, 3])), "tokens[2] = 13: a token id lies in [0, 13)"),
    "rollout token": (
        lambda: changed(rollout_tokens=np.array([0, -1])),
        "rollout_tokens[1] = -1: a token id lies in [0, 13)",
    ),
    "no row": (
        lambda: changed(tokens=CASE.tokens[:0], positions=CASE.positions[:0], features=CASE.features[:0]),
        "tokens = 0: the prefix has at least one row",
    ),
    "positions": (lambda: changed(positions=CASE.positions[:3]), "positions = 3: has one entry for each of 5 rows"),
    "negative": (
        lambda: changed(positions=np.array([0, 1, -2, 3, 4])),
        "positions[2] = -2: a position is no less than 0",
    ),
    "hidden": (
        lambda: configured(CASE, hidden_size=0),
        "config['hidden_size'] = 0: is a whole number of at least 1",
    ),
    "groups": (
        lambda: configured(CASE, num_key_value_heads=3),
        "config['num_key_value_heads'] = 3: divides the 4 heads",
    ),
    "odd width": (lambda: configured(CASE, head_dim=5), "config['head_dim'] = 5: is even"),
    "epsilon": (lambda: configured(CASE, rms_norm_eps=-1.0), "config['rms_norm_eps'] = -1.0: is positive"),
    "theta": (lambda: configured(CASE, rope_theta=0.0), "config['rope_theta'] = 0.0: is positive"),
    "order": (lambda: configured(CASE, fusion_order="both"), "config['fusion_order'] = 'both': is one of"),
    "scaling": (lambda: configured(CASE, rope_scaling={"factor": 2}), "config['rope_scaling'] = {'factor': 2}: rotary"),
    "activation": (
        lambda: configured(CASE, hidden_act="gelu"),
        "config['hidden_act'] = 'gelu': the activation is",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name: str) -> None:
    make_case, message = REFUSED[name]
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        draft_logits(make_case())


def test_what_is_not_read_is_ignored() -> None:
    """Embeddings that no row consumes, weights of other names."""
    table = CASE.weights["embed_tokens.weight"].copy()
    unused = sorted({*range(len(table))} - {*CASE.tokens.tolist(), *CASE.rollout_tokens.tolist()})
    table[unused] = np.nan
    case = changed(weights={**CASE.weights, "embed_tokens.weight": table, "t2d": np.full(13, np.nan)})
    assert unused
    assert (draft_logits(case).logits == draft_logits(CASE).logits).all()


@pytest.mark.parametrize("variant", DRAFTERS)
def test_made_drafters_are_what_was_asked_for(variant: str) -> None:
    """The suite's own cases: their norms lie around 1, their maps keep the size of what they read."""
    case = make(variant, seed=3, rows=6, rollout=2)
    assert len(set(case.tokens.tolist() + case.rollout_tokens.tolist())) == 8
    states = draft_logits(case).states
    assert 0.3 < np.sqrt(np.mean(states**2)) < 6
