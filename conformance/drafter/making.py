"""Drafters of any size: weights scaled by what they add up, norms around 1, numbers of three decimals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oracle.types import DrafterCase, Rows


@dataclass(frozen=True)
class Sizes:
    """Widths of a drafter. width: of a head; 0 leaves head_dim out, and it is hidden / heads."""

    hidden: int
    heads: int
    groups: int
    width: int
    inner: int
    vocabulary: int
    draft: int


SKEWED = Sizes(8, 4, 2, 6, 10, 13, 9)
"""Heads are wider than hidden / heads, and the draft's vocabulary is another than the target's."""
NARROW = Sizes(12, 6, 2, 4, 7, 9, 5)
"""Three heads a group."""
PLAIN = Sizes(16, 4, 2, 0, 12, 11, 11)
"""head_dim is not given."""
SERVED = Sizes(8, 4, 2, 32, 9, 12, 10)
"""The least width of a head that attention kernels take."""


def make(
    variant: str,
    sizes: Sizes = SKEWED,
    seed: int = 0,
    rows: int = 4,
    rollout: int = 0,
    epsilon: float = 0.5,
    theta: float = 10000.0,
    order: str = "embedding_first",
    positions: Sequence[int] | None = None,
    bias: bool = False,
) -> DrafterCase:
    """A drafter with all of its parts at work; `bias` gives the fusion one."""
    random = np.random.default_rng(seed)

    def uniform(*shape: int) -> Rows:
        """Of variance 1."""
        return np.asarray(random.random(shape) * math.sqrt(12) - math.sqrt(3))

    d, width = sizes.hidden, sizes.width or sizes.hidden // sizes.heads
    eagle1 = variant == "eagle1"
    heads, groups, seen = sizes.heads * width, sizes.groups * width, 2 * d if variant == "eagle3" else d
    features = d if eagle1 else 3 * d
    layer = layer_of(variant)
    shapes = {
        "fc": (d, 2 * d if eagle1 else features),
        f"{layer}.self_attn.q_proj": (heads, seen),
        f"{layer}.self_attn.k_proj": (groups, seen),
        f"{layer}.self_attn.v_proj": (groups, seen),
        f"{layer}.self_attn.o_proj": (d, heads),
        f"{layer}.mlp.gate_proj": (sizes.inner, d),
        f"{layer}.mlp.up_proj": (sizes.inner, d),
        f"{layer}.mlp.down_proj": (d, sizes.inner),
        "lm_head": (sizes.draft, d),
        **({"input_projection": (d, 2 * d)} if variant == "eagle3_projected" else {}),
    }
    weights = {f"{name}.weight": uniform(*shape) / math.sqrt(shape[1]) for name, shape in shapes.items()}
    norms = [f"{layer}.post_attention_layernorm"]
    norms += [] if eagle1 else [f"{layer}.input_layernorm", f"{layer}.hidden_norm", "norm"]
    weights |= {f"{name}.weight": 1 + 0.2 * uniform(d) for name in norms}
    # each token and each row is of its own size, so that no norm is like another
    tokens, inputs = (0.6 + random.random((n, 1)) for n in (sizes.vocabulary, rows))
    weights["embed_tokens.weight"] = uniform(sizes.vocabulary, d) * tokens
    if bias:
        weights["fc.bias"] = uniform(d)
    config: dict[str, object] = {
        "hidden_size": d,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.groups,
        "intermediate_size": sizes.inner,
        "rms_norm_eps": epsilon,
        "rope_theta": theta,
        "fusion_order": order,
    }
    if sizes.width:
        config["head_dim"] = width
    where = np.arange(3, 3 + rows) if positions is None else np.array(positions, dtype=np.int64)
    drawn = random.permutation(max(sizes.vocabulary, rows + rollout)) % sizes.vocabulary
    return DrafterCase(
        variant,
        {name: np.round(values, 3) for name, values in weights.items()},
        config,
        np.round(uniform(rows, features) * inputs, 3),
        drawn[:rows].astype(np.int64),
        where.astype(np.int64),
        drawn[rows : rows + rollout].astype(np.int64),
    )


# ---- reading and changing a case


def layer_of(variant: str) -> str:
    """The name of the decoder layer."""
    return "layers.0" if variant == "eagle1" else "midlayer"


def name_of(case: DrafterCase, part: str) -> str:
    """The name of a weight in the state dict: "q_proj", "down_proj", "hidden_norm", "fc", "norm" …"""
    layer = layer_of(case.variant)
    inside = {
        **{name: f"{layer}.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
        **{name: f"{layer}.mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
        **{name: f"{layer}.{name}" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")},
    }
    return f"{inside.get(part, part)}.weight"


def weight(case: DrafterCase, part: str) -> Rows:
    return case.weights[name_of(case, part)]


def reweighted(case: DrafterCase, parts: Mapping[str, Rows]) -> DrafterCase:
    """The case with other weights; those that it has not are left out."""
    known = {name_of(case, part): values for part, values in parts.items() if name_of(case, part) in case.weights}
    return dataclasses.replace(case, weights={**case.weights, **known})


def configured(case: DrafterCase, **settings: object) -> DrafterCase:
    return dataclasses.replace(case, config={**case.config, **settings})


def setting(case: DrafterCase, name: str) -> int:
    """A size from the configuration; head_dim where it is left out, too."""
    found = case.config.get(name)
    if found is None and name == "head_dim":
        return setting(case, "hidden_size") // setting(case, "num_attention_heads")
    return int(str(found))


def epsilon_of(case: DrafterCase) -> float:
    return float(str(case.config["rms_norm_eps"]))
