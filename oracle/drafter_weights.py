"""Reading a drafter: its settings, its weights by the names that SafeAILab/EAGLE gives them, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import finite, int64, member, one_of, tensor, whole
from oracle.types import DRAFTERS, FUSION_ORDERS, DrafterCase, Rows
from oracle.validation import integers

_NOTHING: Rows = np.zeros(0)


@dataclass(frozen=True)
class Linear:
    """weight [out, in] and a bias [out], or None."""

    weight: Rows
    bias: Rows | None

    def __call__(self, values: Rows) -> Rows:
        """weight · values + bias, [out]."""
        product = self.weight @ values
        return np.asarray(product if self.bias is None else product + self.bias)


@dataclass(frozen=True)
class Drafter:
    """A `DrafterCase`, read whole: heads of `width`, `groups` of keys and values; embedding by token; the rows."""

    variant: str
    embedding_first: bool
    hidden: int
    heads: int
    groups: int
    width: int
    epsilon: float
    theta: float
    fuse: Linear
    project: Linear
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    gate: Linear
    up: Linear
    down: Linear
    head: Linear
    embedding_norm: Rows
    state_norm: Rows
    mlp_norm: Rows
    final_norm: Rows
    embedding: Mapping[int, Rows]
    features: list[Rows]
    tokens: list[int]
    positions: list[int]
    rollout_tokens: list[int]


def read(case: DrafterCase) -> Drafter:
    """The case as a `Drafter`. Raises `BadInput`, naming the setting, the weight or the row."""
    member(case, DrafterCase)
    variant = one_of(case.variant, "variant", DRAFTERS)
    for name in ("weights", "config"):
        if not isinstance(getattr(case, name), Mapping):
            raise BadInput(name, (), "is a mapping of names", type(getattr(case, name)).__name__)
    settings = _Settings(case.config)
    weights = _Weights(case.weights)
    hidden, width = settings.hidden, settings.width
    eagle1 = variant == "eagle1"
    layer = "layers.0" if eagle1 else "midlayer"
    seen = 2 * hidden if variant == "eagle3" else hidden
    heads, groups, inner = settings.heads * width, settings.groups * width, settings.intermediate
    embed = tensor(weights.array("embed_tokens.weight"), "weights['embed_tokens.weight']", "f", ("V", hidden))
    tokens = _tokens(case.tokens, "tokens", len(embed))
    rollout_tokens = _tokens(case.rollout_tokens, "rollout_tokens", len(embed))
    if not tokens:
        raise BadInput("tokens", (), "the prefix has at least one row", 0)
    positions = integers(case.positions, "positions")
    if len(positions) != len(tokens):
        raise BadInput("positions", (), f"has one entry for each of {len(tokens)} rows", len(positions))
    for i, position in enumerate(positions):
        if int64(position, "positions", (i,)) < 0:
            raise BadInput("positions", (i,), "a position is no less than 0", position)
    features = tensor(case.features, "features", "f", (len(tokens), hidden if eagle1 else 3 * hidden))
    return Drafter(
        variant=variant,
        embedding_first=settings.embedding_first,
        hidden=hidden,
        heads=settings.heads,
        groups=settings.groups,
        width=width,
        epsilon=settings.epsilon,
        theta=settings.theta,
        fuse=weights.linear("fc", hidden, 2 * hidden if eagle1 else 3 * hidden),
        project=weights.linear("input_projection", hidden, 2 * hidden)
        if variant == "eagle3_projected"
        else Linear(_NOTHING, None),
        query=weights.linear(f"{layer}.self_attn.q_proj", heads, seen),
        key=weights.linear(f"{layer}.self_attn.k_proj", groups, seen),
        value=weights.linear(f"{layer}.self_attn.v_proj", groups, seen),
        output=weights.linear(f"{layer}.self_attn.o_proj", hidden, heads),
        gate=weights.linear(f"{layer}.mlp.gate_proj", inner, hidden),
        up=weights.linear(f"{layer}.mlp.up_proj", inner, hidden),
        down=weights.linear(f"{layer}.mlp.down_proj", hidden, inner),
        head=weights.linear("lm_head", "Vd", hidden),
        embedding_norm=_NOTHING if eagle1 else weights.vector(f"{layer}.input_layernorm.weight", hidden),
        state_norm=_NOTHING if eagle1 else weights.vector(f"{layer}.hidden_norm.weight", hidden),
        mlp_norm=weights.vector(f"{layer}.post_attention_layernorm.weight", hidden),
        final_norm=_NOTHING if eagle1 else weights.vector("norm.weight", hidden),
        embedding={t: _finite(embed[t], "weights['embed_tokens.weight']", (t,)) for t in {*tokens, *rollout_tokens}},
        features=[_finite(row, "features", (i,)) for i, row in enumerate(features)],
        tokens=tokens,
        positions=positions,
        rollout_tokens=rollout_tokens,
    )


class _Settings:
    """The configuration, in Hugging Face keys."""

    def __init__(self, config: Mapping[str, object]) -> None:
        def size(name: str, default: int | None = None) -> int:
            value = config.get(name)
            if value is None and default is not None:
                return default
            return whole(value, f"config['{name}']", 1)

        self.hidden = size("hidden_size")
        self.heads = size("num_attention_heads")
        self.groups = size("num_key_value_heads", self.heads)
        if self.heads % self.groups:
            raise BadInput("config['num_key_value_heads']", (), f"divides the {self.heads} heads", self.groups)
        if config.get("head_dim") is None and self.hidden % self.heads:
            raise BadInput("config['num_attention_heads']", (), f"divides hidden_size {self.hidden}", self.heads)
        self.width = size("head_dim", self.hidden // self.heads)
        if self.width % 2:
            raise BadInput("config['head_dim']", (), "is even, as rotary positions turn pairs", self.width)
        self.intermediate = size("intermediate_size")
        self.epsilon = finite(config.get("rms_norm_eps"), "config['rms_norm_eps']")
        self.theta = finite(config.get("rope_theta", 10000.0), "config['rope_theta']")
        for name, value, fits in (
            ("rms_norm_eps", self.epsilon, self.epsilon >= 0),
            ("rope_theta", self.theta, self.theta > 0),
        ):
            if not fits:
                raise BadInput(f"config['{name}']", (), "is positive", value)
        order = one_of(config.get("fusion_order", FUSION_ORDERS[0]), "config['fusion_order']", FUSION_ORDERS)
        self.embedding_first = order == "embedding_first"
        if config.get("rope_scaling") is not None:
            raise BadInput("config['rope_scaling']", (), "rotary positions are not scaled here", config["rope_scaling"])
        if config.get("hidden_act", "silu") != "silu":
            raise BadInput("config['hidden_act']", (), "the activation is silu", config["hidden_act"])


class _Weights:
    """A state dict: what is asked for is there, in its shape and finite; other names are not read."""

    def __init__(self, weights: Mapping[str, Rows]) -> None:
        self.weights = weights

    def array(self, name: str) -> object:
        if name not in self.weights:
            raise BadInput("weights", (), f"holds {name}", sorted(map(str, self.weights)))
        return self.weights[name]

    def linear(self, name: str, rows: int | str, columns: int) -> Linear:
        field = f"weights['{name}.weight']"
        weight = _finite(tensor(self.array(f"{name}.weight"), field, "f", (rows, columns)), field, ())
        bias = None
        if self.weights.get(f"{name}.bias") is not None:
            bias = self.vector(f"{name}.bias", len(weight))
        return Linear(weight, bias)

    def vector(self, name: str, size: int) -> Rows:
        field = f"weights['{name}']"
        return _finite(tensor(self.array(name), field, "f", (size,)), field, ())


def _tokens(values: object, field: str, vocabulary: int) -> list[int]:
    found = integers(values, field)
    for i, token in enumerate(found):
        if not 0 <= token < vocabulary:
            raise BadInput(field, (i,), f"a token id lies in [0, {vocabulary})", token)
    return found


def _finite(values: np.ndarray, field: str, index: tuple[int, ...]) -> Rows:
    """The values in float64; `BadInput` names the first that is no finite number."""
    for place in np.argwhere(~np.isfinite(values))[:1].tolist():
        raise BadInput(field, (*index, *place), "is a finite number", float(values[tuple(place)]))
    return np.asarray(values, dtype=np.float64)
