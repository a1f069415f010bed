"""The drafter's numeric step: weights, a prefix of target features, and a rollout that feeds its own states back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.types.arrays import Ids, Rows

DRAFTERS = ("eagle1", "eagle3", "eagle3_projected")
"""EAGLE-1; EAGLE-3 as released, attention on the normed pair; and as the paper says, the pair projected first."""
FUSION_ORDERS = ("embedding_first", "feature_first")


@dataclass(frozen=True, eq=False)
class DrafterCase:
    """A drafter at work.

    variant: one of `DRAFTERS`. weights: float arrays by the names of SafeAILab/EAGLE state dicts, and
    `embed_tokens.weight` [V, d], `lm_head.weight` [Vd, d] (the head that makes draft logits) and, projected,
    `input_projection.weight` [d, 2d]; a `bias` is optional everywhere. config: Hugging Face keys hidden_size,
    num_attention_heads, num_key_value_heads, head_dim, intermediate_size, rms_norm_eps, rope_theta, and fusion_order.
    features: [S, d] (EAGLE-1) or [S, 3d] (EAGLE-3, three layers side by side), S ≥ 1. tokens: int64 [S], those one
    further than the features. positions: int64 [S]. rollout_tokens: int64 [T], consumed one by one with the state fed
    back, each at the next position.
    """

    variant: str
    weights: Mapping[str, Rows]
    config: Mapping[str, object]
    features: Rows
    tokens: Ids
    positions: Ids
    rollout_tokens: Ids


@dataclass(frozen=True, eq=False)
class DraftRollout:
    """logits: float64 [T + 1, Vd], states: float64 [T + 1, d], of the last row of each step; the prefix is step 0."""

    logits: Rows
    states: Rows
