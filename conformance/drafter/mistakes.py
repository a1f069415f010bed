"""What known mistakes give: each is another right case, so that the second road answers for it.

Every function takes the case and the states that were fed back; those of rollouts stand in `mistakes_rollout`. A check
names the mistake of its clause first: where it lies within rounding, the case decides nothing. The others explain
failures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from conformance.drafter.asking import Answer, known
from conformance.drafter.making import configured, epsilon_of, reweighted, setting, weight
from conformance.drafter.shapes import first_rows, without, without_bias
from oracle.types import FUSION_ORDERS, DrafterCase, Rows

Mistakes = Mapping[str, Answer]


def normed(row: Rows, gain: Rows | float = 1.0, epsilon: float = 0.0) -> Rows:
    return np.asarray(row / np.sqrt(np.mean(row**2, axis=-1, keepdims=True) + epsilon) * gain)


def stated(answer: Answer, states: Rows) -> Answer:
    """The answer with these states; its logits stand for nothing."""
    return Answer(np.full_like(answer.logits, np.nan), states)


# ---- fusion


def lost_residual(case: DrafterCase, _: Rows) -> Mistakes:
    right = known(case)
    part = "post_attention_layernorm" if case.variant == "eagle1" else "hidden_norm"
    after = normed(right.states, weight(case, part), epsilon_of(case))
    return {
        "a layer without its residual": known(without(case, "fc")),
        "a residual that is normed": stated(right, after),
        "a state that is normed without a weight": stated(right, normed(right.states)),
    }


def other_feature(case: DrafterCase, _: Rows) -> Mistakes:
    return {
        "the feature of the row before": known(dataclasses.replace(case, features=np.roll(case.features, 1, 0))),
        "the feature of the first row": known(
            dataclasses.replace(case, features=np.tile(case.features[0], (len(case.features), 1)))
        ),
        "a feature that is normed": known(dataclasses.replace(case, features=normed(case.features))),
    }


def other_token(case: DrafterCase, _: Rows) -> Mistakes:
    before = np.concatenate([[0], case.tokens[:-1]])
    return {
        "the token before": known(dataclasses.replace(case, tokens=before)),
        "the tokens in a circle": known(dataclasses.replace(case, tokens=np.roll(case.tokens, 1))),
    }


def other_order(case: DrafterCase, _: Rows) -> Mistakes:
    order = case.config["fusion_order"]
    other = "feature_first" if order == "embedding_first" else "embedding_first"
    return {f"the order {other}": known(configured(case, fusion_order=other))}


def fusion_orders(case: DrafterCase) -> Mistakes:
    """What each order gives."""
    return {order: known(configured(case, fusion_order=order)) for order in FUSION_ORDERS}


def other_layers(case: DrafterCase, _: Rows) -> Mistakes:
    low, middle, high = np.split(case.features, 3, axis=1)

    def of(*layers: Rows) -> Answer:
        return known(dataclasses.replace(case, features=np.concatenate(layers, axis=1)))

    return {
        "the highest layer first": of(high, middle, low),
        "each layer in the place of the next": of(high, low, middle),
        "each layer in the place of the one before": of(middle, high, low),
    }


def no_bias(case: DrafterCase, _: Rows) -> Mistakes:
    return {"a map without its bias": known(without_bias(case))}


# ---- norms


def other_norm(case: DrafterCase, _: Rows) -> Mistakes:
    """The embedding of one row, normed otherwise: a weight that makes the right norm give the wrong row."""
    row = weight(case, "embed_tokens")[case.tokens[0]]
    gain, epsilon = weight(case, "input_layernorm"), epsilon_of(case)
    root = math.sqrt(float(np.mean(row**2)))

    def of(wanted: Rows) -> Answer:
        made = np.divide(wanted, normed(row, 1.0, epsilon), out=np.zeros_like(row), where=row != 0)
        return known(reweighted(case, {"input_layernorm": made, "hidden_norm": made}))

    return {
        "a norm that is left out": of(row),
        "a norm without its weight": of(normed(row, 1.0, epsilon)),
        "epsilon outside of the root": of(row / (root + epsilon) * gain),
        "a norm without epsilon": of(normed(row, gain)),
        "a norm that is done twice": of(normed(normed(row, gain, epsilon), gain, epsilon)),
        "a norm that divides by the root of the sum": of(row / math.sqrt(float(np.sum(row**2)) + epsilon) * gain),
        "a norm that takes the mean away": of(normed(row - row.mean(), gain, epsilon)),
    }


def input_norm(case: DrafterCase, _: Rows) -> Mistakes:
    """EAGLE-1: the value of one row, normed first, without a weight or by the only one there is."""
    row = known(without(case, "o_proj")).states[0]

    def of(gain: Rows | float) -> Answer:
        scale = gain / math.sqrt(float(np.mean(row**2)) + epsilon_of(case))
        return known(reweighted(case, {"v_proj": weight(case, "v_proj") * scale}))

    return {
        "attention from a normed row": of(1.0),
        "attention from a row normed by the post-attention weight": of(weight(case, "post_attention_layernorm")),
    }


def other_pair(case: DrafterCase, _: Rows) -> Mistakes:
    first, second = weight(case, "input_layernorm"), weight(case, "hidden_norm")

    def turned(part: str) -> Rows:
        return np.roll(weight(case, part), setting(case, "hidden_size"), axis=1)

    part = "v_proj" if case.variant == "eagle3" else "input_projection"
    return {
        "a pair with the feature first": known(reweighted(case, {part: turned(part)})),
        "norms with each other's weights": known(reweighted(case, {"input_layernorm": second, "hidden_norm": first})),
        "a feature that is normed by the embedding's weight": known(reweighted(case, {"hidden_norm": first})),
    }


def other_projection(case: DrafterCase, states: Rows) -> Mistakes:
    """Projected: the pair as it is, un-normed, or the pair in the other order."""
    row = known(without(case, "o_proj")).states[0]
    embedding = weight(case, "embed_tokens")[case.tokens[0]]
    plain = {
        part: np.full(len(values), math.sqrt(float(np.mean(values**2)) + epsilon_of(case)))
        for part, values in (("input_layernorm", embedding), ("hidden_norm", row))
    }
    d = len(row)
    return {
        "a pair that is projected un-normed": known(reweighted(case, plain)),
        "the embedding's half of the pair": known(reweighted(case, {"input_projection": np.eye(d, 2 * d)})),
        "the feature's half of the pair": known(reweighted(case, {"input_projection": np.eye(d, 2 * d, d)})),
        **other_pair(case, states),
    }


# ---- attention


def unseen_rows(case: DrafterCase, _: Rows) -> Mistakes:
    last = first_rows(
        dataclasses.replace(
            case, features=case.features[::-1], tokens=case.tokens[::-1], positions=case.positions[::-1]
        ),
        1,
    )
    return {
        "a row that attends to itself alone": known(last),
        "a row that misses the first": known(
            dataclasses.replace(case, features=case.features[1:], tokens=case.tokens[1:], positions=case.positions[1:])
        ),
    }


def other_groups(case: DrafterCase, _: Rows) -> Mistakes:
    """Heads that take the groups in turn: the same as the right ones with the output's columns in another order."""
    heads, groups = setting(case, "num_attention_heads"), setting(case, "num_key_value_heads")
    output = weight(case, "o_proj")
    blocks = np.split(output, heads, axis=1)
    taken = sorted(range(heads), key=lambda head: (head % groups, head))
    in_turn = np.concatenate([blocks[head] for head in taken], axis=1)
    single = np.tile(weight(case, "v_proj")[: setting(case, "head_dim")], (groups, 1))
    return {
        "heads that take the key and value heads in turn": known(reweighted(case, {"o_proj": in_turn})),
        "heads that all take the first key and value head": known(reweighted(case, {"v_proj": single})),
    }


def other_scale(case: DrafterCase, _: Rows) -> Mistakes:
    width = setting(case, "head_dim")
    query = weight(case, "q_proj")
    usual = setting(case, "hidden_size") / setting(case, "num_attention_heads")
    found = {
        "scores that are not divided": width,
        "scores divided by the root of the hidden width": width / setting(case, "hidden_size"),
        "scores divided by the width": 1 / width,
    }
    if usual != width:
        found["scores divided by the root of hidden / heads"] = width / usual
    return {name: known(reweighted(case, {"q_proj": query * math.sqrt(factor)})) for name, factor in found.items()}


def other_layout(case: DrafterCase, _: Rows) -> Mistakes:
    """Neighbours turn together: the right layout, with the rows of a head in another order."""
    width = setting(case, "head_dim")
    order = [*range(0, width, 2), *range(1, width, 2)]

    def moved(part: str) -> Rows:
        blocks = np.split(weight(case, part), len(weight(case, part)) // width)
        return np.concatenate([block[order] for block in blocks])

    return {
        "entries 2i and 2i + 1 turned together": known(
            reweighted(case, {part: moved(part) for part in ("q_proj", "k_proj")})
        )
    }


def other_angle(case: DrafterCase, _: Rows) -> Mistakes:
    theta = float(str(case.config["rope_theta"]))
    others: Sequence[tuple[str, float]] = [
        ("rope_theta 10000", 10000.0),
        ("the exponent −i / width", math.sqrt(theta)),
        ("the same angle for every entry", 1.0),
    ]
    return {name: known(configured(case, rope_theta=value)) for name, value in others if value != theta}


# ---- feed-forward and head


def other_gate(case: DrafterCase, _: Rows) -> Mistakes:
    gate, up = weight(case, "gate_proj"), weight(case, "up_proj")
    return {
        "silu of the other half": known(reweighted(case, {"gate_proj": up, "up_proj": gate})),
        "silu of the gate alone, squared with it": known(reweighted(case, {"up_proj": gate})),
    }


def other_middle(case: DrafterCase, _: Rows) -> Mistakes:
    """The feed-forward part of something else than the normed state."""
    right = known(case)
    middle, before = known(without(case, "down_proj")).states[0], known(without(case, "down_proj", "o_proj")).states[0]
    plain = np.full(len(middle), math.sqrt(float(np.mean(middle**2)) + epsilon_of(case)))
    beside = known(without(case, "o_proj")).states[0] - before + middle
    found = {
        "a feed-forward part of a state that is not normed": known(
            reweighted(case, {"post_attention_layernorm": plain})
        ),
        "a feed-forward part of the row before attention": stated(right, beside[None]),
    }
    if case.variant != "eagle1":
        other = {"post_attention_layernorm": weight(case, "input_layernorm")}
        found["a norm with the input's weight"] = known(reweighted(case, other))
    return found


def other_head(case: DrafterCase, _: Rows) -> Mistakes:
    return {"a head tied to the embeddings": known(reweighted(case, {"lm_head": _sized(case)}))}


def _sized(case: DrafterCase) -> Rows:
    """As many rows of the embedding as the head has."""
    return np.resize(weight(case, "embed_tokens"), weight(case, "lm_head").shape)


def applied_map(case: DrafterCase, _: Rows) -> Mistakes:
    """Logits by the target's ids, of which the first are read; others are masked."""
    right = known(case)
    targets = (case.weights["d2t"] + np.arange(right.logits.shape[1])).astype(np.int64)
    scattered = np.full((len(right.logits), len(case.weights["t2d"])), -np.inf)
    scattered[:, targets] = right.logits
    return {"logits by the target's ids": Answer(scattered[:, : right.logits.shape[1]], right.states)}


def other_row(case: DrafterCase, _: Rows) -> Mistakes:
    return {"the first row's": known(first_rows(case, 1))}


def other_final_norm(case: DrafterCase, _: Rows) -> Mistakes:
    """Logits of the state normed otherwise."""
    right, head, epsilon = known(case), weight(case, "lm_head"), epsilon_of(case)

    def of(states: Rows) -> Answer:
        bias = case.weights.get("lm_head.bias", 0.0)
        return Answer(states @ head.T + bias, right.states)

    if case.variant == "eagle1":
        after = weight(case, "post_attention_layernorm")
        return {
            "a head after a norm": of(normed(right.states, 1.0, epsilon)),
            "a head after the layer's norm": of(normed(right.states, after, epsilon)),
        }
    gain = weight(case, "norm")
    once = normed(right.states, gain, epsilon)
    return {
        "a head without the final norm": of(right.states),
        "a final norm that is done twice": of(normed(once, gain, epsilon)),
        "a norm by the post-attention weight": of(
            normed(right.states, weight(case, "post_attention_layernorm"), epsilon)
        ),
        "a norm by the feature's weight": of(normed(right.states, weight(case, "hidden_norm"), epsilon)),
    }
