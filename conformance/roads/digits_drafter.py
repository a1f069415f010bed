"""The third road to the numeric draft step: mpmath, at as many digits as are asked for, a rollout from end to end.

The oracle and the tape of `roads/drafter.py` compute in floats. Here every number is an mpf, so that what is published
is rounded once. A rollout is one list of rows; rows before are never touched again, as nothing sees later ones.
Attention weighs by exponentials as they are, over their sum, and positions turn pairs by a power of a complex root.
mpmath is imported where it is needed: what is published is computed in this project's own environment alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oracle.types import DrafterCase

Number = Any
"""An mpf."""
Vector = list[Number]


def rollout(case: DrafterCase, digits: int) -> tuple[list[Vector], list[Vector]]:
    """logits [T + 1][Vd] and states [T + 1][d], of the last row of each step."""
    return _Drafter(case, digits).rollout()


class _Drafter:
    """A case in one context of so many digits. keys, values: of the rows so far, by group."""

    def __init__(self, case: DrafterCase, digits: int) -> None:
        import mpmath

        self.mp = mpmath.MPContext()
        self.mp.dps = digits
        self.case, self.eagle1 = case, case.variant == "eagle1"
        self.layer = "layers.0" if self.eagle1 else "midlayer"
        self.config: dict[str, Any] = dict(case.config)
        self.hidden = self.config["hidden_size"]
        self.heads = self.config["num_attention_heads"]
        self.groups = self.config.get("num_key_value_heads", self.heads)
        self.width = self.config.get("head_dim", self.hidden // self.heads)
        self.matrices: dict[str, list[Vector]] = {}
        self.keys: list[list[Vector]] = []
        self.values: list[list[Vector]] = []

    def rollout(self) -> tuple[list[Vector], list[Vector]]:
        case = self.case
        positions = np.asarray(case.positions).tolist()
        for feature, token, position in zip(case.features, np.asarray(case.tokens).tolist(), positions):
            fed = self.numbers(feature)
            state = self.row(fed if self.eagle1 else self.linear("fc", fed), token, position)
        states = [state]
        for step, token in enumerate(np.asarray(case.rollout_tokens).tolist(), 1):
            states.append(self.row(states[-1], token, positions[-1] + step))
        return [self.logits(state) for state in states], states

    def row(self, fed: Vector, token: int, position: int) -> Vector:
        """The state of a row that consumes the token beside what it is fed."""
        embedding = self.numbers(self.case.weights["embed_tokens.weight"][token])
        if self.eagle1:
            feature_first = self.config.get("fusion_order") == "feature_first"
            residual = seen = self.linear("fc", fed + embedding if feature_first else embedding + fed)
        else:
            residual = fed
            seen = self.norm(f"{self.layer}.input_layernorm", embedding)
            seen = seen + self.norm(f"{self.layer}.hidden_norm", fed)
            if self.case.variant == "eagle3_projected":
                seen = self.linear("input_projection", seen)
        middle = self.plus(residual, self.attention(seen, position))
        inner = self.norm(f"{self.layer}.post_attention_layernorm", middle)
        gate, up = (self.linear(f"{self.layer}.mlp.{name}_proj", inner) for name in ("gate", "up"))
        both = [x * y / (1 + self.mp.exp(-x)) for x, y in zip(gate, up)]
        return self.plus(middle, self.linear(f"{self.layer}.mlp.down_proj", both))

    def attention(self, seen: Vector, position: int) -> Vector:
        query, key, value = (self.linear(f"{self.layer}.self_attn.{name}_proj", seen) for name in "qkv")
        self.keys.append([self.turned(part, position) for part in self.blocks(key)])
        self.values.append(self.blocks(value))
        found: Vector = []
        for head, part in enumerate(self.blocks(query)):
            group, asked = head // (self.heads // self.groups), self.turned(part, position)
            scores = [self.mp.fdot(asked, keys[group]) / self.mp.sqrt(self.width) for keys in self.keys]
            powers = [self.mp.exp(score) for score in scores]
            for i in range(self.width):
                mixed = self.mp.fdot(powers, [values[group][i] for values in self.values])
                found.append(mixed / self.mp.fsum(powers))
        return self.linear(f"{self.layer}.self_attn.o_proj", found)

    def turned(self, part: Vector, position: int) -> Vector:
        """Entry i and entry i + width / 2 as a complex number, by the angle position · theta^(−2i / width)."""
        half, theta = self.width // 2, self.mp.mpf(float(self.config.get("rope_theta", 10000.0)))
        pairs = []
        for i in range(half):
            angle = position * theta ** (-self.mp.mpf(2 * i) / self.width)
            pairs.append(self.mp.mpc(part[i], part[i + half]) * self.mp.expj(angle))
        return [pair.real for pair in pairs] + [pair.imag for pair in pairs]

    def logits(self, state: Vector) -> Vector:
        return self.linear("lm_head", state if self.eagle1 else self.norm("norm", state))

    # ---- arithmetic

    def linear(self, name: str, row: Vector) -> Vector:
        found = [self.mp.fdot(weights, row) for weights in self.matrix(f"{name}.weight")]
        bias = self.case.weights.get(f"{name}.bias")
        return found if bias is None else self.plus(found, self.numbers(bias))

    def norm(self, name: str, row: Vector) -> Vector:
        epsilon = self.mp.mpf(float(self.config["rms_norm_eps"]))
        root = self.mp.sqrt(self.mp.fsum(x * x for x in row) / len(row) + epsilon)
        return [x / root * gain for x, gain in zip(row, self.numbers(self.case.weights[f"{name}.weight"]))]

    def plus(self, one: Vector, other: Vector) -> Vector:
        return [x + y for x, y in zip(one, other)]

    def blocks(self, row: Vector) -> list[Vector]:
        """One for each head or group."""
        return [row[i : i + self.width] for i in range(0, len(row), self.width)]

    def matrix(self, name: str) -> list[Vector]:
        if name not in self.matrices:
            self.matrices[name] = [self.numbers(row) for row in self.case.weights[name]]
        return self.matrices[name]

    def numbers(self, values: Sequence[Any] | np.ndarray) -> Vector:
        """Of floats, exactly."""
        return [self.mp.mpf(float(x)) for x in values]
