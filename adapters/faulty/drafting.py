"""A right drafter, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full beside it: it keeps every row that attention may see, and
computes in the dtype that it declares, every result stored in it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from adapters.faulty.declared import Declared
from oracle.types import DrafterCase, DraftRollout

Array = np.ndarray
Cache = list[tuple[Array, Array]]
"""Turned keys and values [groups, width] of the rows so far."""


class Net:
    """Weights of a case in the dtype of an implementation, by short names, and its sizes."""

    def __init__(self, case: DrafterCase, dtype: str) -> None:
        self.case, self.dtype = case, dtype
        self.eagle1 = case.variant == "eagle1"
        self.projected = case.variant == "eagle3_projected"
        self.layer = "layers.0" if self.eagle1 else "midlayer"
        config: dict[str, Any] = dict(case.config)
        self.hidden: int = config["hidden_size"]
        self.heads: int = config["num_attention_heads"]
        self.groups: int = config.get("num_key_value_heads") or self.heads
        self.width: int = config.get("head_dim") or self.hidden // self.heads
        self.epsilon = float(config["rms_norm_eps"])
        self.theta = float(config.get("rope_theta", 10000.0))
        self.embedding_first = bool(config.get("fusion_order", "embedding_first") == "embedding_first")

    def store(self, values: Array) -> Array:
        """A result, as the dtype holds it; bfloat16 is the upper half of float32, rounded to even."""
        if self.dtype != "bfloat16":
            return np.asarray(values).astype(self.dtype)
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)

    def weight(self, part: str) -> Array:
        return self.store(self.case.weights[f"{self.full(part)}.weight"])

    def bias(self, part: str) -> Array | None:
        found = self.case.weights.get(f"{self.full(part)}.bias")
        return None if found is None else self.store(found)

    def full(self, part: str) -> str:
        """The name of a part in the state dict."""
        if part in ("fc", "lm_head", "norm", "embed_tokens", "input_projection"):
            return part
        attention = part in ("q_proj", "k_proj", "v_proj", "o_proj")
        folder = "" if "norm" in part else "self_attn." if attention else "mlp."
        return f"{self.layer}.{folder}{part}"


class Drafting(Declared, cost={"draft_logits": 3e-3}):
    """A right drafter; every step is a method that a fault may override."""

    @classmethod
    def draft_logits(cls, case: DrafterCase) -> DraftRollout:
        cls.check(case)
        net = Net(case, cls.DECLARATION.arithmetic.dtype)
        cache = cls.cache(net)
        state = np.zeros(0)
        prefix = []
        for row in range(len(case.tokens)):
            feature = net.store(cls.feature(case, row))
            fed = feature if net.eagle1 else cls.fuse_layers(net, feature)
            state = cls.row(net, cache, cls.token(net, row), fed, cls.position(net, row))
            prefix.append(state)
        states, logits = [state], [cls.first_logits(net, prefix)]
        for step in range(len(case.rollout_tokens)):
            fed = cls.fed_back(net, states)
            seen = cls.rollout_cache(net, cache)
            state = cls.row(net, seen, cls.rollout_token(case, step), fed, cls.rollout_position(net, step))
            if seen is not cache:
                cache.append(seen[-1])
            states.append(state)
            logits.append(cls.logits(net, state))
        return cls.answer(net, states, logits)

    @classmethod
    def answer(cls, net: Net, states: list[Array], logits: list[Array]) -> DraftRollout:
        return DraftRollout(np.array(logits), np.array(states))

    # ---- the case

    @classmethod
    def check(cls, case: DrafterCase) -> None:
        net = Net(case, "float64")
        cls.check_weights(net)
        cls.check_features(net)
        cls.check_tokens(case)

    @classmethod
    def check_weights(cls, net: Net) -> None:
        d, seen = net.hidden, 2 * net.hidden if net.case.variant == "eagle3" else net.hidden
        inner = net.case.config["intermediate_size"]
        wanted = {
            "fc": (d, 2 * d if net.eagle1 else 3 * d),
            "q_proj": (net.heads * net.width, seen),
            "k_proj": (net.groups * net.width, seen),
            "v_proj": (net.groups * net.width, seen),
            "o_proj": (d, net.heads * net.width),
            "gate_proj": (inner, d),
            "up_proj": (inner, d),
            "down_proj": (d, inner),
            "post_attention_layernorm": (d,),
            **({} if net.eagle1 else dict.fromkeys(("input_layernorm", "hidden_norm", "norm"), (d,))),
            **({"input_projection": (d, 2 * d)} if net.projected else {}),
            "lm_head": (len(net.case.weights.get("lm_head.weight", ())), d),
            "embed_tokens": (len(net.case.weights.get("embed_tokens.weight", ())), d),
        }
        for part, shape in wanted.items():
            name = f"{net.full(part)}.weight"
            if name not in net.case.weights or np.shape(net.case.weights[name]) != shape:
                raise ValueError(f"{name} has shape {shape}")

    @classmethod
    def check_features(cls, net: Net) -> None:
        width = net.hidden if net.eagle1 else 3 * net.hidden
        if np.shape(net.case.features) != (len(net.case.tokens), width):
            raise ValueError(f"features are rows of {width}")

    @classmethod
    def check_tokens(cls, case: DrafterCase) -> None:
        vocabulary = len(case.weights["embed_tokens.weight"])
        if any(not 0 <= token < vocabulary for token in (*case.tokens, *case.rollout_tokens)):
            raise ValueError("a token is in the vocabulary")

    # ---- what a row is given

    @classmethod
    def feature(cls, case: DrafterCase, row: int) -> Array:
        return np.asarray(case.features[row])

    @classmethod
    def token(cls, net: Net, row: int) -> int:
        return int(net.case.tokens[row])

    @classmethod
    def position(cls, net: Net, row: int) -> int:
        return int(net.case.positions[row])

    @classmethod
    def rollout_token(cls, case: DrafterCase, step: int) -> int:
        return int(case.rollout_tokens[step])

    @classmethod
    def rollout_position(cls, net: Net, step: int) -> int:
        return cls.position(net, len(net.case.tokens) - 1) + 1 + step

    @classmethod
    def fed_back(cls, net: Net, states: list[Array]) -> Array:
        return states[-1]

    @classmethod
    def cache(cls, net: Net) -> Cache:
        return []

    @classmethod
    def rollout_cache(cls, net: Net, cache: Cache) -> Cache:
        """What a rollout row sees; its own key and value are appended to it."""
        return cache

    # ---- a row

    @classmethod
    def row(cls, net: Net, cache: Cache, token: int, fed: Array, position: int) -> Array:
        embedding = net.weight("embed_tokens")[token]
        residual = cls.fuse(net, embedding, fed) if net.eagle1 else fed
        seen = cls.seen_of_one(net, residual) if net.eagle1 else cls.pair(net, embedding, residual)
        attention = cls.attend(net, cache, seen, position)
        middle = net.store(cls.kept(net, residual) + attention)
        part = cls.feed_forward(net, cls.before_feed_forward(net, residual, middle))
        return cls.state(net, net.store(cls.kept_again(net, middle) + part))

    @classmethod
    def fuse(cls, net: Net, embedding: Array, feature: Array) -> Array:
        """EAGLE-1."""
        pair = (embedding, feature) if cls.embedding_first(net) else (feature, embedding)
        return cls.linear(net, "fc", np.concatenate(pair))

    @classmethod
    def embedding_first(cls, net: Net) -> bool:
        return net.embedding_first

    @classmethod
    def fuse_layers(cls, net: Net, feature: Array) -> Array:
        """EAGLE-3."""
        return cls.linear(net, "fc", np.concatenate(cls.layers(net, np.split(feature, 3))))

    @classmethod
    def layers(cls, net: Net, layers: list[Array]) -> list[Array]:
        return layers

    @classmethod
    def seen_of_one(cls, net: Net, residual: Array) -> Array:
        """What EAGLE-1 attends from."""
        return residual

    @classmethod
    def pair(cls, net: Net, embedding: Array, residual: Array) -> Array:
        """What EAGLE-3 attends from."""
        halves = cls.halves(net, embedding, residual)
        return cls.project(net, halves) if net.projected else halves

    @classmethod
    def halves(cls, net: Net, embedding: Array, residual: Array) -> Array:
        token = cls.norm(net, embedding, net.weight("input_layernorm"))
        return np.concatenate([token, cls.norm(net, residual, net.weight("hidden_norm"))])

    @classmethod
    def project(cls, net: Net, halves: Array) -> Array:
        return cls.linear(net, "input_projection", halves)

    @classmethod
    def kept(cls, net: Net, residual: Array) -> Array:
        return residual

    @classmethod
    def kept_again(cls, net: Net, middle: Array) -> Array:
        return middle

    @classmethod
    def before_feed_forward(cls, net: Net, residual: Array, middle: Array) -> Array:
        return cls.norm(net, middle, net.weight("post_attention_layernorm"))

    @classmethod
    def state(cls, net: Net, state: Array) -> Array:
        return state

    # ---- attention

    @classmethod
    def attend(cls, net: Net, cache: Cache, seen: Array, position: int) -> Array:
        queries = cls.linear(net, "q_proj", seen).reshape(net.heads, net.width)
        keys = cls.linear(net, "k_proj", seen).reshape(net.groups, net.width)
        values = cls.linear(net, "v_proj", seen).reshape(net.groups, net.width)
        cache.append((cls.turn_keys(net, keys, position), values))
        visible = cls.visible(cache)
        mixed = []
        for head, query in enumerate(cls.turn(net, queries, position)):
            group = cls.group(net, head)
            scores = np.array([net.store((query * key[group]).sum()) for key, _ in visible])
            powers = np.exp(net.store(scores * cls.scale(net)) - net.store(scores * cls.scale(net)).max())
            law = net.store(powers / powers.sum())
            mixed.append(net.store(sum(p * value[group] for p, (_, value) in zip(law, visible))))
        return cls.linear(net, "o_proj", np.concatenate(mixed))

    @classmethod
    def visible(cls, cache: Cache) -> Cache:
        return cache

    @classmethod
    def group(cls, net: Net, head: int) -> int:
        return head * net.groups // net.heads

    @classmethod
    def scale(cls, net: Net) -> float:
        return 1 / math.sqrt(net.width)

    @classmethod
    def turn_keys(cls, net: Net, rows: Array, position: int) -> Array:
        return cls.turn(net, rows, position)

    @classmethod
    def turn(cls, net: Net, rows: Array, position: int) -> Array:
        found = rows.copy()
        for i, (one, other) in enumerate(cls.pairs(net)):
            cosine, sine = (f(position * cls.frequency(net, i)) for f in (math.cos, math.sin))
            found[:, one] = rows[:, one] * cosine - rows[:, other] * sine
            found[:, other] = rows[:, other] * cosine + rows[:, one] * sine
        return net.store(found)

    @classmethod
    def pairs(cls, net: Net) -> list[tuple[int, int]]:
        return [(i, i + net.width // 2) for i in range(net.width // 2)]

    @classmethod
    def frequency(cls, net: Net, i: int) -> float:
        return float(net.theta ** (-2 * i / net.width))

    # ---- the parts of a layer

    @classmethod
    def norm(cls, net: Net, values: Array, weight: Array) -> Array:
        return net.store(net.store(values / cls.root(net, values)) * weight)

    @classmethod
    def root(cls, net: Net, values: Array) -> Any:
        return np.sqrt((values * values).sum() / len(values) + net.epsilon)

    @classmethod
    def feed_forward(cls, net: Net, seen: Array) -> Array:
        gate, up = cls.linear(net, "gate_proj", seen), cls.linear(net, "up_proj", seen)
        return cls.linear(net, "down_proj", cls.gated(net, gate, up))

    @classmethod
    def gated(cls, net: Net, gate: Array, up: Array) -> Array:
        return net.store(net.store(gate / (1 + np.exp(-gate))) * up)

    @classmethod
    def linear(cls, net: Net, part: str, values: Array) -> Array:
        found = net.store(cls.matrix(net, part) @ values)
        bias = cls.bias(net, part)
        return found if bias is None else net.store(found + bias)

    @classmethod
    def matrix(cls, net: Net, part: str) -> Array:
        return net.weight(part)

    @classmethod
    def bias(cls, net: Net, part: str) -> Array | None:
        return net.bias(part)

    # ---- the head

    @classmethod
    def first_logits(cls, net: Net, prefix: list[Array]) -> Array:
        return cls.logits(net, prefix[-1])

    @classmethod
    def logits(cls, net: Net, state: Array) -> Array:
        return cls.linear(net, "lm_head", cls.before_head(net, state))

    @classmethod
    def before_head(cls, net: Net, state: Array) -> Array:
        return state if net.eagle1 else cls.norm(net, state, net.weight("norm"))


def other_weights(case: DrafterCase, weights: dict[str, Any]) -> DrafterCase:
    """The case with some weights replaced."""
    return dataclasses.replace(case, weights={**case.weights, **weights})
