"""What known mistakes give: each is another right case, so that the second road answers for it.

Every function takes the case and the states that were fed back; those of rollouts stand in `mistakes_rollout`. A check
names the mistake of its clause first: where it lies within rounding, the case decides nothing. The others explain
failures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from conformance.drafter.asking import Answer, known
from conformance.drafter.making import configured, epsilon_of, reweighted, setting, weight
from conformance.drafter.shapes import first_rows, without, without_bias
from oracle.types import FUSION_ORDERS, DrafterCase, Rows

Mistake = Callable[[], Answer]
Mistakes = Mapping[str, Mistake]


def normed(row: Rows, gain: Rows | float = 1.0, epsilon: float = 0.0) -> Rows:
    return np.asarray(row / np.sqrt(np.mean(row**2, axis=-1, keepdims=True) + epsilon) * gain)


def restated(case: DrafterCase, change: Callable[[Rows], Rows]) -> Answer:
    """The right answer with its states changed; its logits stand for nothing."""
    right = known(case)
    return Answer(np.full_like(right.logits, np.nan), change(right.states))


def undone(row: Rows, epsilon: float) -> Rows:
    """The weight by which a norm leaves this row as it is."""
    return np.full(len(row), math.sqrt(float(np.mean(row**2)) + epsilon))


# ---- fusion


def lost_residual(case: DrafterCase, _: Rows) -> Mistakes:
    gain = weight(case, "post_attention_layernorm" if case.variant == "eagle1" else "hidden_norm")
    return {
        "a layer without its residual": partial(known, without(case, "fc")),
        "a residual that is normed": partial(restated, case, lambda states: normed(states, gain, epsilon_of(case))),
        "a state that is normed without a weight": partial(restated, case, normed),
    }


def other_feature(case: DrafterCase, _: Rows) -> Mistakes:
    return {
        "the feature of the row before": partial(
            known, dataclasses.replace(case, features=np.roll(case.features, 1, 0))
        ),
        "the feature of the first row": partial(
            known, dataclasses.replace(case, features=np.tile(case.features[0], (len(case.features), 1)))
        ),
        "a feature that is normed": partial(known, dataclasses.replace(case, features=normed(case.features))),
    }


def other_token(case: DrafterCase, _: Rows) -> Mistakes:
    before = np.concatenate([[0], case.tokens[:-1]])
    return {
        "the token before": partial(known, dataclasses.replace(case, tokens=before)),
        "the tokens in a circle": partial(known, dataclasses.replace(case, tokens=np.roll(case.tokens, 1))),
    }


def other_order(case: DrafterCase, _: Rows) -> Mistakes:
    order = case.config["fusion_order"]
    other = "feature_first" if order == "embedding_first" else "embedding_first"
    return {f"the order {other}": partial(known, configured(case, fusion_order=other))}


def fusion_orders(case: DrafterCase) -> Mapping[str, Answer]:
    """What each order gives."""
    return {order: known(configured(case, fusion_order=order)) for order in FUSION_ORDERS}


def other_layers(case: DrafterCase, _: Rows) -> Mistakes:
    low, middle, high = np.split(case.features, 3, axis=1)

    def of(*layers: Rows) -> Mistake:
        return partial(known, dataclasses.replace(case, features=np.concatenate(layers, axis=1)))

    return {
        "the highest layer first": of(high, middle, low),
        "each layer in the place of the next": of(high, low, middle),
        "each layer in the place of the one before": of(middle, high, low),
    }


def no_bias(case: DrafterCase, _: Rows) -> Mistakes:
    return {"a map without its bias": partial(known, without_bias(case))}


# ---- norms


def other_norm(case: DrafterCase, _: Rows) -> Mistakes:
    """The embedding of one row, normed otherwise: a weight that makes the right norm give the wrong row."""
    row = weight(case, "embed_tokens")[case.tokens[0]]
    gain, epsilon = weight(case, "input_layernorm"), epsilon_of(case)
    root = math.sqrt(float(np.mean(row**2)))

    def of(wanted: Rows) -> Mistake:
        made = np.divide(wanted, normed(row, 1.0, epsilon), out=np.zeros_like(row), where=row != 0)
        return partial(known, reweighted(case, {"input_layernorm": made, "hidden_norm": made}))

    return {
        "an embedding that is not normed": partial(known, reweighted(case, {"input_layernorm": undone(row, epsilon)})),
        "a norm that is left out": of(row),
        "a norm without its weight": of(normed(row, 1.0, epsilon)),
        "epsilon outside of the root": of(row / (root + epsilon) * gain),
        **{f"an epsilon of {e}": of(normed(row, gain, e)) for e in (0.0, 1e-6, 1e-5) if e != epsilon},
        "a norm that is done twice": of(normed(normed(row, gain, epsilon), gain, epsilon)),
        "a norm that divides by the root of the sum": of(row / math.sqrt(float(np.sum(row**2)) + epsilon) * gain),
        "a norm that takes the mean away": of(normed(row - row.mean(), gain, epsilon)),
    }


def input_norm(case: DrafterCase, _: Rows) -> Mistakes:
    """EAGLE-1: the value of one row, normed first, without a weight or by the only one there is."""

    def of(gain: Rows | float) -> Answer:
        row = known(without(case, "o_proj")).states[0]
        scale = gain / math.sqrt(float(np.mean(row**2)) + epsilon_of(case))
        return known(reweighted(case, {"v_proj": weight(case, "v_proj") * scale}))

    after = weight(case, "post_attention_layernorm")
    return {
        "attention from a normed row": partial(of, 1.0),
        "attention from a row normed by the post-attention weight": partial(of, after),
    }


def other_pair(case: DrafterCase, _: Rows) -> Mistakes:
    first, second = weight(case, "input_layernorm"), weight(case, "hidden_norm")

    def turned(part: str) -> Rows:
        return np.roll(weight(case, part), setting(case, "hidden_size"), axis=1)

    part = "v_proj" if case.variant == "eagle3" else "input_projection"
    return {
        "a pair with the feature first": partial(known, reweighted(case, {part: turned(part)})),
        "norms with each other's weights": partial(
            known, reweighted(case, {"input_layernorm": second, "hidden_norm": first})
        ),
        "a feature that is normed by the embedding's weight": partial(known, reweighted(case, {"hidden_norm": first})),
    }


def other_projection(case: DrafterCase, states: Rows) -> Mistakes:
    """Projected: the pair as it is, un-normed, or a half of it, or the pair in the other order."""

    def plain() -> Answer:
        """Norms by weights that undo them."""
        halves = {
            "input_layernorm": weight(case, "embed_tokens")[case.tokens[0]],
            "hidden_norm": known(without(case, "o_proj")).states[0],
        }
        return known(reweighted(case, {part: undone(row, epsilon_of(case)) for part, row in halves.items()}))

    d = setting(case, "hidden_size")
    return {
        "a pair that is projected un-normed": plain,
        "the embedding's half of the pair": partial(known, reweighted(case, {"input_projection": np.eye(d, 2 * d)})),
        "the feature's half of the pair": partial(known, reweighted(case, {"input_projection": np.eye(d, 2 * d, d)})),
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
        "a row that attends to itself alone": partial(known, last),
        "a row that misses the first": partial(
            known,
            dataclasses.replace(case, features=case.features[1:], tokens=case.tokens[1:], positions=case.positions[1:]),
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
        "heads that take the key and value heads in turn": partial(known, reweighted(case, {"o_proj": in_turn})),
        "heads that all take the first key and value head": partial(known, reweighted(case, {"v_proj": single})),
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
    return {
        name: partial(known, reweighted(case, {"q_proj": query * math.sqrt(factor)})) for name, factor in found.items()
    }


def other_layout(case: DrafterCase, _: Rows) -> Mistakes:
    """Neighbours turn together: the right layout, with the rows of a head in another order."""
    width = setting(case, "head_dim")
    order = [*range(0, width, 2), *range(1, width, 2)]

    def moved(part: str) -> Rows:
        blocks = np.split(weight(case, part), len(weight(case, part)) // width)
        return np.concatenate([block[order] for block in blocks])

    return {
        "entries 2i and 2i + 1 turned together": partial(
            known, reweighted(case, {part: moved(part) for part in ("q_proj", "k_proj")})
        )
    }


def other_angle(case: DrafterCase, _: Rows) -> Mistakes:
    theta = float(str(case.config["rope_theta"]))
    others: Sequence[tuple[str, float]] = [
        ("rope_theta 10000", 10000.0),
        ("the exponent −i / width", math.sqrt(theta)),
        ("the same angle for every entry", 1.0),
    ]
    return {name: partial(known, configured(case, rope_theta=value)) for name, value in others if value != theta}


# ---- feed-forward and head


def other_gate(case: DrafterCase, _: Rows) -> Mistakes:
    gate, up = weight(case, "gate_proj"), weight(case, "up_proj")
    return {
        "silu of the other half": partial(known, reweighted(case, {"gate_proj": up, "up_proj": gate})),
        "silu of the gate alone, squared with it": partial(known, reweighted(case, {"up_proj": gate})),
    }


def other_middle(case: DrafterCase, _: Rows) -> Mistakes:
    """The feed-forward part of something else than the normed state."""

    def unnormed() -> Answer:
        middle = known(without(case, "down_proj")).states[0]
        return known(reweighted(case, {"post_attention_layernorm": undone(middle, epsilon_of(case))}))

    def beside() -> Answer:
        middle, before = (known(without(case, *gone)).states for gone in (["down_proj"], ["down_proj", "o_proj"]))
        return restated(without(case, "o_proj"), lambda states: states - before + middle)

    found: dict[str, Mistake] = {
        "a feed-forward part of a state that is not normed": unnormed,
        "a feed-forward part of the row before attention": beside,
    }
    if case.variant != "eagle1":
        for part in ("hidden_norm", "input_layernorm"):
            other = reweighted(case, {"post_attention_layernorm": weight(case, part)})
            found[f"a norm with the weight of {part}"] = partial(known, other)
    return found


def other_head(case: DrafterCase, _: Rows) -> Mistakes:
    return {"a head tied to the embeddings": partial(known, reweighted(case, {"lm_head": _sized(case)}))}


def _sized(case: DrafterCase) -> Rows:
    """As many rows of the embedding as the head has."""
    return np.resize(weight(case, "embed_tokens"), weight(case, "lm_head").shape)


def applied_map(case: DrafterCase, _: Rows) -> Mistakes:
    def scattered() -> Answer:
        """Logits by the target's ids, of which the first are read; others are masked."""
        right = known(case)
        count = right.logits.shape[1]
        wide = np.full((len(right.logits), len(case.weights["t2d"])), -np.inf)
        wide[:, (case.weights["d2t"] + np.arange(count)).astype(np.int64)] = right.logits
        return Answer(wide[:, :count], right.states)

    return {"logits by the target's ids": scattered}


def other_row(case: DrafterCase, _: Rows) -> Mistakes:
    return {"the first row's": partial(known, first_rows(case, 1))}


def other_final_norm(case: DrafterCase, _: Rows) -> Mistakes:
    """Logits of the state normed otherwise."""
    epsilon = epsilon_of(case)

    def of(*gains: Rows | float) -> Answer:
        right = known(case)
        rows = right.states
        for gain in gains:
            rows = normed(rows, gain, epsilon)
        return Answer(rows @ weight(case, "lm_head").T + case.weights.get("lm_head.bias", 0.0), right.states)

    after = weight(case, "post_attention_layernorm")
    if case.variant == "eagle1":
        return {"a head after a norm": partial(of, 1.0), "a head after the layer's norm": partial(of, after)}
    gain = weight(case, "norm")
    return {
        "a head without the final norm": of,
        "a final norm that is done twice": partial(of, gain, gain),
        "a norm by the post-attention weight": partial(of, after),
        "a norm by the feature's weight": partial(of, weight(case, "hidden_norm")),
    }
