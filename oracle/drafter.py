"""The numeric draft step of EAGLE-1 and EAGLE-3, in float64, row by row.

A row consumes a token's embedding and a feature: the target's in the prefix, the drafter's own state in the rollout.
One decoder layer follows, whose keys and values stay for the rows after it, then the head.
"""

from __future__ import annotations

import math

import numpy as np

from oracle.drafter_weights import Drafter, read
from oracle.types import DrafterCase, DraftRollout, Rows


def draft_logits(case: DrafterCase) -> DraftRollout:
    """Logits and states of the prefix's last row and of each rollout token (DRAFTER 2xx–6xx). Raises `BadInput`.

    Source: EAGLE §4, EAGLE-3 §3.1; weights as SafeAILab/EAGLE names them.
    """
    drafter = read(case)
    keys: list[Rows] = []
    values: list[Rows] = []
    tokens = drafter.tokens + drafter.rollout_tokens
    last_of_prefix = len(drafter.tokens) - 1
    state = np.zeros(drafter.hidden)
    states, logits = [], []
    for row, token in enumerate(tokens):
        feature = drafter.features[row] if row <= last_of_prefix else None
        position = drafter.positions[min(row, last_of_prefix)] + max(0, row - last_of_prefix)
        state = draft_row(
            drafter, drafter.embedding[token], state if feature is None else feature, position, keys, values
        )
        if row >= last_of_prefix:
            states.append(state)
            normed = state if drafter.variant == "eagle1" else rms_norm(state, drafter.final_norm, drafter.epsilon)
            logits.append(drafter.head(normed))
    return DraftRollout(logits=np.array(logits), states=np.array(states))


def draft_row(
    drafter: Drafter, embedding: Rows, feature: Rows, position: int, keys: list[Rows], values: list[Rows]
) -> Rows:
    """One row's state, [hidden]. Its own key and value join those of the rows before it (DRAFTER 2xx–5xx)."""
    if drafter.variant == "eagle1":
        pair = [embedding, feature] if drafter.embedding_first else [feature, embedding]
        residual = drafter.fuse(np.concatenate(pair))
        seen = residual
    else:
        residual = drafter.fuse(feature) if len(feature) == 3 * drafter.hidden else feature
        token = rms_norm(embedding, drafter.embedding_norm, drafter.epsilon)
        seen = np.concatenate([token, rms_norm(residual, drafter.state_norm, drafter.epsilon)])
        if drafter.variant == "eagle3_projected":
            seen = drafter.project(seen)
    state = residual + attend(drafter, seen, position, keys, values)
    return np.asarray(state + feed_forward(drafter, rms_norm(state, drafter.mlp_norm, drafter.epsilon)))


def attend(drafter: Drafter, seen: Rows, position: int, keys: list[Rows], values: list[Rows]) -> Rows:
    """Grouped-query attention of one row over itself and the rows before it, [hidden]; appends its key and value."""
    queries = drafter.query(seen).reshape(drafter.heads, drafter.width)
    keys.append(rotate(drafter.key(seen).reshape(drafter.groups, drafter.width), position, drafter.theta))
    values.append(drafter.value(seen).reshape(drafter.groups, drafter.width))
    mixed = []
    for head, query in enumerate(rotate(queries, position, drafter.theta)):
        group = head // (drafter.heads // drafter.groups)
        scores = [float(query @ key[group]) / math.sqrt(drafter.width) for key in keys]
        weights = np.exp(np.array(scores) - max(scores))
        weights = weights / weights.sum()
        mixed.append(sum(weight * value[group] for weight, value in zip(weights, values)))
    return drafter.output(np.concatenate(mixed))


def feed_forward(drafter: Drafter, seen: Rows) -> Rows:
    """SwiGLU: down(silu(gate) · up), [hidden]."""
    gate = drafter.gate(seen)
    return drafter.down(gate / (1 + np.exp(-gate)) * drafter.up(seen))


def rms_norm(values: Rows, weight: Rows, epsilon: float) -> Rows:
    """values / sqrt(mean of squares + epsilon) · weight, [n]."""
    return np.asarray(values / math.sqrt(float(np.mean(values * values)) + epsilon) * weight)


def rotate(rows: Rows, position: int, theta: float) -> Rows:
    """Rotary positions, [heads, width]: entry i turns with entry i + width / 2 by position · theta^(−2i / width)."""
    half = rows.shape[1] // 2
    angle = position * theta ** (-2.0 * np.arange(half) / rows.shape[1])
    first, second = rows[:, :half], rows[:, half:]
    turned = [first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)]
    return np.concatenate(turned, axis=1)
