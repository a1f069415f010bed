"""What is wrong with a release: one fault each, put into it before or after its manifest is written.

Each names the one clause that it breaks; a change that breaks none names None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance.manifest.filing import numbers, tensor
from conformance.manifest.releases import MAKERS, Maker, Parts, write_map

REDUCED = ("eagle3", "specforge", "speculators", "modelopt", "serving")
MARKED = ("eagle3", "specforge", "speculators", "serving")
"""Layouts with `t2d`."""
EAGLE3 = (*REDUCED, "vllm")
EVERY = tuple(MAKERS)


@dataclass(frozen=True)
class Sin:
    """layouts: those in which it is a fault. known: whether the manifest is written with it in place, and so tells
    nothing of it. says: whether there is a manifest at all."""

    clause: str | None
    change: Callable[[Parts], None]
    layouts: tuple[str, ...] = EVERY
    known: bool = False
    says: bool = True


SINS: dict[str, Sin] = {}
"""Name → fault."""


def sin(
    clause: str | None, layouts: tuple[str, ...] = EVERY, known: bool = False, says: bool = True
) -> Callable[[Callable[[Parts], None]], Callable[[Parts], None]]:
    """Decorator: the function is a fault by its name."""

    def register(change: Callable[[Parts], None]) -> Callable[[Parts], None]:
        SINS[change.__name__] = Sin(f"MANIFEST-{clause}" if clause else None, change, layouts, known, says)
        return change

    return register


# ---- no fault


@sin(None)
def nothing(parts: Parts) -> None:
    """A good release."""


@sin(None, ("eagle", "specforge", "speculators", "modelopt", "vllm"), says=False)
def no_manifest(parts: Parts) -> None:
    """A good release of which only its own configuration speaks."""


@sin(None)
def two_shards(parts: Parts) -> None:
    """The target over two files."""
    parts.shards = 2


@sin(None)
def many_shards(parts: Parts) -> None:
    """The target over seven files."""
    parts.shards = 7


@sin(None)
def written_backwards(parts: Parts) -> None:
    """Tensors, shards and keys in another order, metadata in every file, JSON in one line."""
    parts.shards, parts.backwards = 3, True


@sin(None)
def another_version(parts: Parts) -> None:
    """The target's configuration saved by another version, from another folder."""
    parts.target_config |= {"transformers_version": "5.1.0", "_name_or_path": "/elsewhere", "use_cache": False}
    parts.target_config |= {"dtype": parts.target_config.pop("torch_dtype"), "rope_scaling": None}
    parts.target_config["rope_theta"] = int(parts.target_config["rope_theta"])


@sin(None)
def tokenizer_in_two_files(parts: Parts) -> None:
    """The same tokens as vocab.json and added_tokens.json."""
    parts.split_tokenizer = True


@sin(None)
def the_targets_tokenizer(parts: Parts) -> None:
    """The drafter's folder has the target's tokenizer."""
    parts.own_tokens = dict(parts.tokens)


# ---- digests


@sin("201")
def last_byte_flipped(parts: Parts) -> None:
    """The last byte of a target tensor."""
    name = "model.layers.1.mlp.up_proj.weight"
    held = parts.target[name]
    parts.target[name] = dataclasses.replace(held, data=held.data[:-1] + bytes([held.data[-1] ^ 1]))


@sin("201")
def first_byte_flipped(parts: Parts) -> None:
    """The first byte of a target tensor."""
    held = parts.target["model.norm.weight"]
    parts.target["model.norm.weight"] = dataclasses.replace(held, data=bytes([held.data[0] ^ 1]) + held.data[1:])


@sin("201")
def dtype_relabelled(parts: Parts) -> None:
    """The same bytes under another dtype."""
    name = "model.layers.2.self_attn.o_proj.weight"
    other = {"BF16": "F16", "F16": "BF16", "F32": "I32"}[parts.target[name].dtype]
    parts.target[name] = dataclasses.replace(parts.target[name], dtype=other)


@sin("201")
def shape_turned(parts: Parts) -> None:
    """The same bytes in a shape of as many entries."""
    name = "model.layers.0.mlp.gate_proj.weight"
    held = parts.target[name]
    parts.target[name] = dataclasses.replace(held, shape=held.shape[::-1])


@sin("201")
def layers_exchanged(parts: Parts) -> None:
    """Two layers under each other's name."""
    first, second = "model.layers.1.input_layernorm.weight", "model.layers.2.input_layernorm.weight"
    parts.target[first], parts.target[second] = parts.target[second], parts.target[first]


@sin("203")
def other_epsilon(parts: Parts) -> None:
    parts.target_config["rms_norm_eps"] = 1e-6


@sin("203")
def other_activation(parts: Parts) -> None:
    parts.target_config["hidden_act"] = "gelu"


@sin("204")
def target_tokenizer_permuted(parts: Parts) -> None:
    parts.tokens = exchanged(parts.tokens, 3, 7)


@sin("204")
def added_token_renamed(parts: Parts) -> None:
    parts.tokens = {**parts.tokens, max(parts.tokens): "<other>"}


@sin("205", REDUCED)
def head_of_another_run(parts: Parts) -> None:
    parts.drafter["lm_head.weight"] = parts.drafter["lm_head.weight"].changed(-1, 0.25)


@sin("205", ("eagle", "specforge", "speculators"))
def embedding_of_another_run(parts: Parts) -> None:
    parts.drafter["embed_tokens.weight"] = parts.drafter["embed_tokens.weight"].changed(0, 0.25)


@sin("206", REDUCED)
def stale_map(parts: Parts) -> None:
    """A map of as many tokens, made from other data (sgl-project/SpecForge#534, #602)."""
    parts.ids = [*(parts.ids or [])[:-1], parts.settings["vocab_size"] - 1]
    write_map(parts)


@sin("207")
def features_of_another_revision(parts: Parts) -> None:
    parts.manifest["features"]["made_from"] = "sha256:" + "5a" * 32


# ---- structure


def without(*names: str) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        for name in names:
            del parts.drafter[parts.name(name)]

    return change


for tensor_name, layouts in (
    ("fc.weight", EVERY),
    ("norm.weight", EAGLE3),
    ("layer.hidden_norm.weight", EAGLE3),
    ("layer.input_layernorm.weight", EAGLE3),
    ("layer.self_attn.k_proj.weight", EVERY),
    ("layer.mlp.down_proj.weight", EVERY),
    ("layer.post_attention_layernorm.weight", EVERY),
):
    label = "without_" + tensor_name.removeprefix("layer.").removesuffix(".weight").replace(".", "_")
    SINS[label] = Sin("MANIFEST-301", without(tensor_name), layouts)


@sin("302", ("eagle",))
def norm_that_eagle1_has_not(parts: Parts) -> None:
    parts.drafter["layers.0.input_layernorm.weight"] = parts.drafter["layers.0.post_attention_layernorm.weight"]


@sin("302")
def second_layer(parts: Parts) -> None:
    """A tensor of a layer beyond those that the configuration counts."""
    parts.drafter["layers.1.mlp.up_proj.weight"] = parts.drafter[parts.name("layer.mlp.up_proj.weight")]


@sin("302", EAGLE3)
def norm_that_is_not_told(parts: Parts) -> None:
    """A norm of the features that no flag of the configuration mentions."""
    parts.drafter["fc_norm.0.weight"] = parts.drafter["norm.weight"]


@sin("303")
def too_many_heads(parts: Parts) -> None:
    parts.settings["num_attention_heads"] *= 2


@sin("303")
def wider_than_told(parts: Parts) -> None:
    parts.settings["intermediate_size"] += 4


@sin("303", REDUCED)
def head_of_fewer_rows(parts: Parts) -> None:
    held = parts.drafter["lm_head.weight"]
    parts.drafter["lm_head.weight"] = tensor(numbers(held).reshape(held.shape)[:-1], held.dtype)
    parts.manifest["head"].pop("digest")


@sin("304", known=True)
def target_of_another_width(parts: Parts) -> None:
    """The manifest was made with it: only the sizes tell."""
    maker = Maker(99)
    maker.hidden = parts.target_config["hidden_size"] + 8
    maker.layers, maker.vocabulary = parts.target_config["num_hidden_layers"], parts.target_config["vocab_size"]
    parts.target, settings = maker.target(parts.dtype)
    kept = ("max_position_embeddings", "rope_theta")
    parts.target_config = {**settings, **{key: parts.target_config[key] for key in kept}}


@sin("304")
def another_width_told(parts: Parts) -> None:
    parts.manifest["target"]["hidden_size"] += 8


@sin("305", EAGLE3)
def run_as_eagle1(parts: Parts) -> None:
    """EAGLE mode with EAGLE-3 weights (sgl-project/sglang#21272)."""
    parts.manifest["variant"] = "eagle1"


@sin("305", ("eagle",))
def run_as_eagle3(parts: Parts) -> None:
    parts.manifest["variant"] = "eagle3"


@sin("305", ("specforge", "modelopt", "vllm"), says=False)
def architecture_of_eagle1(parts: Parts) -> None:
    parts.config["architectures"] = ["LlamaForCausalLMEagle"]


@sin("305", EAGLE3)
def projection_that_is_not_there(parts: Parts) -> None:
    parts.manifest["variant"] = "eagle3_projected"


def exchanged(tokens: Mapping[int, str], first: int, second: int) -> dict[int, str]:
    return {**tokens, first: tokens[second], second: tokens[first]}
