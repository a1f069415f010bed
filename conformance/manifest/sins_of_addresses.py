"""Faults of layer addresses, positions and numbers; they join those of `sins`."""

from __future__ import annotations

from collections.abc import Callable

from conformance.manifest.filing import numbers, tensor
from conformance.manifest.releases import Parts
from conformance.manifest.sins import EAGLE3, EVERY, REDUCED, SINS, Sin, sin

ENTERED = ("speculators", "vllm")
KEY = "eagle_aux_hidden_state_layer_ids"


def write_layers(parts: Parts, layers: list[int] | None) -> None:
    """Layers by those that are left, as the layout writes them; None: not at all."""
    holder = parts.config if parts.layout in ENTERED else parts.config["eagle_config"]
    holder.pop(KEY)
    if layers is not None:
        holder[KEY] = [i + 1 for i in layers] if parts.layout in ENTERED else layers


# ---- addresses


@sin("501", ("eagle3",))
def layers_not_told(parts: Parts) -> None:
    del parts.manifest["features"]["layers"]


@sin("501", ("specforge", "speculators", "modelopt"), says=False)
def layers_left_to_a_default(parts: Parts) -> None:
    write_layers(parts, None)


@sin("501", ("serving",))
def layers_entered_or_left(parts: Parts) -> None:
    """vLLM and SGLang read the same list one layer apart (sgl-project/sglang#25454)."""
    del parts.manifest["features"]["layers"]


@sin("502", ("eagle3",))
def layer_beyond_the_target(parts: Parts) -> None:
    parts.manifest["features"]["layers"][-1] = parts.target_config["num_hidden_layers"]


@sin("502", ("specforge", "speculators", "modelopt", "vllm"), says=False)
def own_layer_beyond_the_target(parts: Parts) -> None:
    write_layers(parts, [*(parts.layers or [])[:2], parts.target_config["num_hidden_layers"]])


@sin("502", ENTERED, says=False)
def the_embedding_as_a_layer(parts: Parts) -> None:
    """Layer 0 is entered by the embedding: no layer's output."""
    write_layers(parts, [-1, *(parts.layers or [])[1:]])


@sin("503", ("eagle3",))
def layer_twice(parts: Parts) -> None:
    layers = parts.manifest["features"]["layers"]
    layers[1] = layers[0]


@sin("503", ("specforge", "speculators", "modelopt", "vllm"), says=False)
def own_layer_twice(parts: Parts) -> None:
    layers = parts.layers or []
    write_layers(parts, [layers[0], layers[2], layers[2]])


@sin("504", ("specforge", "speculators", "modelopt", "vllm"))
def layers_one_further(parts: Parts) -> None:
    """The manifest says the layers that are entered (sgl-project/sglang#25454)."""
    parts.manifest["features"]["layers"] = [i + 1 for i in parts.layers or []]


@sin("504", ("serving",))
def layers_of_neither_reading(parts: Parts) -> None:
    parts.manifest["features"]["layers"] = [i + 1 for i in parts.layers or []]


@sin("504", ("specforge", "speculators", "modelopt", "vllm"))
def layers_in_another_order(parts: Parts) -> None:
    parts.manifest["features"]["layers"] = (parts.layers or [])[::-1]


@sin("505", ("eagle3",))
def two_of_three_layers(parts: Parts) -> None:
    parts.manifest["features"]["layers"].pop()


@sin("505", ("specforge", "speculators", "modelopt", "vllm"), says=False)
def four_layers_for_three(parts: Parts) -> None:
    layers = parts.layers or []
    write_layers(parts, [0, *layers])


@sin("506")
def feature_of_the_other_side_of_the_norm(parts: Parts) -> None:
    features = parts.manifest["features"]
    features["final_norm"] = {"after": "before", "before": "after"}[features["final_norm"]]


@sin("506", ("speculators",))
def norm_of_features_not_told(parts: Parts) -> None:
    parts.manifest["features"]["input_norm"] = "each"


@sin("506", ("speculators",))
def residual_of_the_other_side(parts: Parts) -> None:
    """The norm stands before the residual is taken, or after."""
    parts.config["norm_before_residual"] = True
    parts.manifest["conventions"]["residual"] = "state"


@sin("506", ("speculators",))
def other_state_fed_back(parts: Parts) -> None:
    parts.config["norm_output"] = True
    parts.manifest["conventions"]["fed_back"] = "state"


# ---- positions


@sin("601", known=True)
def shorter_context(parts: Parts) -> None:
    parts.settings["max_position_embeddings"] //= 2


@sin("601", ("eagle", "specforge", "speculators", "modelopt", "vllm"), says=False)
def own_context_one_short(parts: Parts) -> None:
    parts.settings["max_position_embeddings"] -= 1


@sin("601")
def shorter_context_told(parts: Parts) -> None:
    parts.manifest["positions"]["maximum"] -= 1


@sin("602")
def other_theta(parts: Parts) -> None:
    parts.settings["rope_theta"] += 1.0


@sin("602")
def other_rotary_type(parts: Parts) -> None:
    parts.manifest["positions"]["rope_type"] = "yarn"


@sin("602", ("modelopt",))
def other_factor(parts: Parts) -> None:
    parts.config["rope_scaling"] = {"rope_type": "linear", "factor": 4.0}


@sin("602")
def pairs_interleaved(parts: Parts) -> None:
    """NVIDIA/TensorRT-LLM#19036: halves or neighbours turn together."""
    parts.manifest["positions"]["rope_layout"] = "interleaved"


# ---- numbers


def with_number(name: str, value: float) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        held = parts.drafter[parts.name(name)]
        parts.drafter[parts.name(name)] = held.changed(-2, value)

    return change


for label, where, value in (
    ("nan_weight", "layer.mlp.down_proj.weight", float("nan")),
    ("nan_norm", "layer.post_attention_layernorm.weight", float("nan")),
    ("infinite_weight", "layer.self_attn.v_proj.weight", float("inf")),
    ("minus_infinite_weight", "fc.weight", float("-inf")),
):
    SINS[label] = Sin("MANIFEST-701", with_number(where, value), EVERY)


@sin("702", ("specforge", "speculators", "modelopt", "vllm"))
def weight_beyond_float16(parts: Parts) -> None:
    """vllm-project/vllm#55250: bfloat16 or float32 weights are cast to float16."""
    with_number("layer.mlp.up_proj.weight", -1e5)(parts)
    parts.manifest["dtype"]["compute"] = "float16"


@sin("702", ("specforge", "modelopt", "vllm"), says=False)
def own_weight_beyond_float16(parts: Parts) -> None:
    with_number("layer.self_attn.o_proj.weight", 65536.0)(parts)
    parts.settings["torch_dtype"] = "float16"


@sin("703", REDUCED, known=True)
def logits_beyond_float16(parts: Parts) -> None:
    """Each weight fits, a row of them does not."""
    held = parts.drafter["lm_head.weight"]
    rows = numbers(held).reshape(held.shape)
    rows[-1] = 30_000.0
    parts.drafter["lm_head.weight"] = tensor(rows, held.dtype)
    parts.settings["torch_dtype"] = "float16"


@sin("703", ("vllm",), known=True)
def logits_of_the_targets_head(parts: Parts) -> None:
    held = parts.target["lm_head.weight"]
    rows = numbers(held).reshape(held.shape)
    rows[1] = -30_000.0
    parts.target["lm_head.weight"] = tensor(rows, held.dtype)
    parts.settings["torch_dtype"] = "float16"


@sin("703", EAGLE3, known=True)
def norm_that_lifts_logits(parts: Parts) -> None:
    held = parts.drafter["norm.weight"]
    parts.drafter["norm.weight"] = tensor(numbers(held) * 50_000.0, held.dtype)
    parts.settings["torch_dtype"] = "float16"


@sin("704")
def cast_after_training(parts: Parts) -> None:
    told = parts.manifest["dtype"]["weights"]
    parts.manifest["dtype"]["weights"] = {"float16": "float32"}.get(told, "float16")
