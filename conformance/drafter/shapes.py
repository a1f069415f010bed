"""Cases in which one thing matters: other parts add nothing, or what they could do wrong changes nothing.

A drafter's parts follow each other, so that any fault changes every number. Here a part is switched off by weights of
zero, and where a part is needed that another clause judges, its input is such that the usual faults of it do not show:
rows that are alike, blocks of weights that are alike, numbers that a norm leaves as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from conformance.drafter.making import configured, name_of, reweighted, setting, weight
from oracle.types import DrafterCase, Rows

HARDLY = 1e-30
"""An epsilon that changes nothing but a row of zeros, of which it still makes zeros."""
NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm", "norm")


# ---- parts switched off, or made harmless


def without(case: DrafterCase, *parts: str) -> DrafterCase:
    """Those weights are zero: without "o_proj" attention adds nothing, without "down_proj" the feed-forward part."""
    return reweighted(case, {part: np.zeros_like(weight(case, part)) for part in parts})


def uniform_attention(case: DrafterCase) -> DrafterCase:
    """Every score is 0: a row sees the mean of the values, wherever and however wide the heads are."""
    return without(case, "q_proj", "k_proj")


def alike_groups(case: DrafterCase) -> DrafterCase:
    """Every group of heads has the same keys and values, and every head the same query."""
    width, changed = setting(case, "head_dim"), {}
    for part in ("q_proj", "k_proj", "v_proj"):
        values = weight(case, part)
        changed[part] = np.tile(values[:width], (len(values) // width, 1))
    return reweighted(case, changed)


def alike_inputs(case: DrafterCase) -> DrafterCase:
    """Everything that is fused is fused by the same weights, so that no order matters."""
    fusion = weight(case, "fc")
    d = len(fusion)
    parts = fusion.shape[1] // d
    return reweighted(case, {"fc": np.tile(fusion[:, :d], (1, parts))})


def alike_tokens(case: DrafterCase) -> DrafterCase:
    """Every row consumes token 0, which is also what stands where a row is given none."""
    return dataclasses.replace(
        case, tokens=np.zeros_like(case.tokens), rollout_tokens=np.zeros_like(case.rollout_tokens)
    )


def alike_features(case: DrafterCase, layers: bool = False) -> DrafterCase:
    """Every row has the same feature; with `layers`, its three layers are the same, too."""
    row = case.features[0]
    d = setting(case, "hidden_size")
    if layers:
        row = np.tile(row[:d], len(row) // d)
    return dataclasses.replace(case, features=np.tile(row, (len(case.features), 1)))


def first_rows(case: DrafterCase, rows: int) -> DrafterCase:
    return dataclasses.replace(
        case, features=case.features[:rows], tokens=case.tokens[:rows], positions=case.positions[:rows]
    )


def steps(case: DrafterCase, count: int) -> DrafterCase:
    """A rollout of so many steps."""
    return dataclasses.replace(case, rollout_tokens=case.rollout_tokens[:count])


def unit(rows: Rows) -> Rows:
    """Entries of ±1 by the signs, as many of each in a row: no norm of weight 1 changes them."""
    ranks = np.argsort(np.argsort(rows, axis=-1), axis=-1)
    return np.where(ranks < rows.shape[-1] // 2, -1.0, 1.0)


def unit_norms(case: DrafterCase) -> DrafterCase:
    """Norms of weight 1, which leave rows of ±1 as they are."""
    ones = {part: np.ones(setting(case, "hidden_size")) for part in NORMS}
    return configured(reweighted(case, ones), rms_norm_eps=HARDLY)


def passed_through(case: DrafterCase) -> DrafterCase:
    """The fused row is the feature, or the first of its layers."""
    fusion = np.zeros_like(weight(case, "fc"))
    d = len(fusion)
    feature_last = case.variant == "eagle1" and case.config["fusion_order"] == "embedding_first"
    fusion[:, d : 2 * d] += np.eye(d) * feature_last
    fusion[:, :d] += np.eye(d) * (not feature_last)
    return without_bias(reweighted(case, {"fc": fusion}), "fc")


def without_bias(case: DrafterCase, *names: str) -> DrafterCase:
    """Those biases left out; every one where none is named."""
    gone = [f"{name}.bias" for name in names] or [name for name in case.weights if name.endswith(".bias")]
    return dataclasses.replace(case, weights={k: v for k, v in case.weights.items() if k not in gone})


# ---- one shape for each clause


def bare(case: DrafterCase) -> DrafterCase:
    """The fusion alone: attention and the feed-forward part add nothing."""
    return without(steps(case, 0), "o_proj", "down_proj")


def residual(case: DrafterCase) -> DrafterCase:
    """The fused row alone, of rows that are alike and of features that no norm changes."""
    case = configured(
        alike_features(alike_tokens(alike_inputs(bare(without_bias(case)))), layers=True), rms_norm_eps=HARDLY
    )
    d = setting(case, "hidden_size")
    features = np.concatenate([unit(block) for block in np.split(case.features, case.features.shape[1] // d, 1)], 1)
    return dataclasses.replace(case, features=features)


def own_feature(case: DrafterCase) -> DrafterCase:
    """Rows differ in their features alone, whose parts weigh alike."""
    return alike_tokens(alike_inputs(bare(without_bias(case))))


def own_token(case: DrafterCase) -> DrafterCase:
    """Rows differ in their tokens alone; embedding and feature weigh alike."""
    return alike_features(alike_inputs(bare(without_bias(case))))


def fused(case: DrafterCase) -> DrafterCase:
    """The fusion, without a bias."""
    return bare(without_bias(case))


def norm_of_the_embedding(case: DrafterCase) -> DrafterCase:
    """One row; both halves of the pair are the token's embedding, normed by the same weight; all heads are alike."""
    case = values_of_one_row(without_bias(case))
    d = setting(case, "hidden_size")
    embedding = weight(case, "embed_tokens")[case.tokens[0]]
    case = reweighted(passed_through(case), {"hidden_norm": weight(case, "input_layernorm")})
    return dataclasses.replace(case, features=np.tile(embedding, (1, case.features.shape[1] // d)))


def values_of_one_row(case: DrafterCase) -> DrafterCase:
    """One row attends to itself: its value, and no score, matters; all heads are alike."""
    return first_rows(without(alike_groups(alike_tokens(steps(case, 0))), "down_proj"), 1)


def seen_rows(case: DrafterCase) -> DrafterCase:
    """The mean of the values that a row sees, which come from the features alone; all heads are alike."""
    return alike_tokens(alike_groups(uniform_attention(without(steps(case, 0), "down_proj"))))


def read_tokens(case: DrafterCase) -> DrafterCase:
    """The mean of the values of all rows, whose features are alike; all heads are alike."""
    return alike_features(alike_groups(uniform_attention(without(steps(case, 0), "down_proj"))))


def shared_values(case: DrafterCase) -> DrafterCase:
    """The mean of the values, of which each group of heads has its own."""
    return uniform_attention(without(steps(case, 0), "down_proj"))


def attention(case: DrafterCase) -> DrafterCase:
    """Attention with sharp scores, without the feed-forward part."""
    sharp = reweighted(case, {"q_proj": np.round(weight(case, "q_proj") * 3, 3)})
    return without(steps(sharp, 0), "down_proj")


def unturned(case: DrafterCase) -> DrafterCase:
    """Attention between rows at one position: nothing turns against anything."""
    return at(attention(case), [int(case.positions[0])] * len(case.positions))


def first_pairs(case: DrafterCase) -> DrafterCase:
    """Attention by the entries 0 and width / 2 of each head alone, which turn by the position whatever the base."""
    case = attention(case)
    width, kept = setting(case, "head_dim"), {}
    for part in ("q_proj", "k_proj"):
        inside = np.arange(len(weight(case, part))) % width
        mask = np.isin(inside, (0, width // 2))
        kept[part] = np.where(mask[:, None], weight(case, part) * 2, 0.0)
    return reweighted(case, kept)


def at(case: DrafterCase, positions: Sequence[int]) -> DrafterCase:
    return dataclasses.replace(case, positions=np.array(positions, dtype=np.int64))


def unit_state(case: DrafterCase) -> DrafterCase:
    """The feed-forward part of a row of ±1, which its norm leaves as it is; attention adds nothing."""
    case = unit_norms(passed_through(without(steps(case, 0), "o_proj")))
    d = setting(case, "hidden_size")
    features = np.concatenate([unit(block) for block in np.split(case.features, case.features.shape[1] // d, 1)], 1)
    return dataclasses.replace(case, features=features)


def headed(case: DrafterCase) -> DrafterCase:
    """The head of a state of ±1, which no norm changes, in a prefix of one row."""
    return first_rows(without(unit_state(case), "down_proj"), 1)


def unit_rows(case: DrafterCase) -> DrafterCase:
    """The head of states of ±1, which no norm changes, of several rows."""
    return without(unit_state(case), "down_proj")


def mapped(case: DrafterCase) -> DrafterCase:
    """A map from the draft's vocabulary to the target's lies beside the weights, as EAGLE-3 checkpoints have it."""
    draft, vocabulary = len(weight(case, "lm_head")), len(weight(case, "embed_tokens"))
    targets = np.sort((np.arange(draft) * vocabulary // draft + 1) % vocabulary)
    marked = np.zeros(vocabulary)
    marked[targets] = 1
    maps = {"d2t": (targets - np.arange(draft)).astype(np.float64), "t2d": marked}
    return dataclasses.replace(headed(case), weights={**headed(case).weights, **maps})


def whole(case: DrafterCase) -> DrafterCase:
    """Every part at work. Angles have the usual base: DRAFTER-507 judges others, and their faults hide nothing here."""
    return configured(case, rope_theta=10000.0)


def one_step(case: DrafterCase) -> DrafterCase:
    """A whole step."""
    return steps(whole(case), 0)


def biased(case: DrafterCase, part: str) -> DrafterCase:
    """A whole step, with a bias on one map."""
    case = one_step(case)
    size = len(weight(case, part))
    bias = np.round(np.cos(np.arange(size) * 2.4) + 0.3, 3)
    return dataclasses.replace(
        case, weights={**case.weights, name_of(case, part).removesuffix("weight") + "bias": bias}
    )


# ---- rollouts


def fed_back(case: DrafterCase) -> DrafterCase:
    """What is fed back, alone: nothing is added, tokens are alike, and a second fusion changes nothing."""
    case = alike_tokens(without(without_bias(case), "o_proj", "down_proj"))
    if case.variant == "eagle1":
        return case
    d = setting(case, "hidden_size")
    return reweighted(case, {"fc": np.tile(np.eye(d) / 4, (1, 3)) * [[1] * d + [1] * d + [2] * d]})


def fused_again(case: DrafterCase) -> DrafterCase:
    """What is fed back, alone."""
    return alike_tokens(without(case, "o_proj", "down_proj"))


def rollout_seen(case: DrafterCase) -> DrafterCase:
    """The mean of the values that a rollout row sees."""
    return alike_tokens(uniform_attention(without(case, "down_proj")))


def rollout_positions(case: DrafterCase) -> DrafterCase:
    """Attention of rollout rows to those before them; tokens are alike."""
    sharp = reweighted(whole(case), {"q_proj": np.round(weight(case, "q_proj") * 3, 3)})
    return alike_tokens(without(sharp, "down_proj"))
