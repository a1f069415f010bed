"""Tiny releases in the layouts that people publish: a target, a drafter made for it, and what is said of them.

Everything comes from a seed. Sizes differ from each other, so that no two of them are exchanged unseen; the last bytes
of every tensor are no zeros, and no two tensors are alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conformance.manifest.filing import Tensor, tensor, toml, write_json, write_weights
from conformance.roads import manifest as road

FORMAT = "eagle-conformance/manifest/1"
NO_SETTINGS = ("_name_or_path", "_commit_hash", "transformers_version", "torch_dtype", "dtype", "use_cache", "auto_map")
"""Keys of a configuration that its fingerprint does not cover."""
TORCH = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
Config = dict[str, Any]
Tensors = dict[str, Tensor]


@dataclass
class Parts:
    """A release before it is filed; a fault changes some of it.

    layers: those that are left, as a manifest says them. ids: the absolute ids of the draft map, None for a full draft
    vocabulary. tokens: of the target; own_tokens: of the drafter, where its folder has any. says: whether a manifest is
    written, manifest: what it says. settled: whether it was, so that what changes now it does not know.
    """

    layout: str
    variant: str
    dtype: str
    target: Tensors
    target_config: Config
    drafter: Tensors
    config: Config
    tokens: dict[int, str]
    layers: list[int] | None
    ids: list[int] | None
    own_tokens: dict[int, str] | None = None
    says: bool = True
    manifest: dict[str, Any] = field(default_factory=dict)
    shards: int = 1
    backwards: bool = False
    split_tokenizer: bool = False

    @property
    def settings(self) -> Config:
        """The drafter's decoder settings; speculators keeps them one level down."""
        found: Config = self.config.get("transformer_layer_config", self.config)
        return found

    def name(self, one: str) -> str:
        """The name that this layout has for a tensor of the decoder layer, `layer.…`, or for another one."""
        middle = "midlayer." if self.layout in ("eagle3", "specforge") else "layers.0."
        return middle + one.removeprefix("layer.") if one.startswith("layer.") else one


class Maker:
    """Draws sizes and numbers from a seed."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed)
        self.choice = random.Random(seed)
        self.heads = self.choice.choice((2, 4))
        self.width = self.choice.choice((4, 6))
        self.hidden = self.choice.choice((8, 16))
        self.inner = self.choice.choice((12, 20))
        self.vocabulary = self.choice.randrange(37, 53)
        self.layers = self.choice.randrange(7, 11)
        self.theta = self.choice.choice((10_000.0, 500_000.0))
        self.longest = self.choice.choice((96, 128))

    def matrix(self, dtype: str, *shape: int) -> Tensor:
        values = self.numbers.uniform(0.05, 0.5, shape) * self.numbers.choice((-1, 1), shape)
        return tensor(values, dtype)

    def gain(self, dtype: str, size: int) -> Tensor:
        return tensor(self.numbers.uniform(0.75, 1.25, size), dtype)

    def decoder(self, dtype: str, seen: int) -> Tensors:
        """A decoder layer that sees rows of `seen`, without its input norm."""
        queries, keys = self.heads * self.width, self.heads // 2 * self.width
        return {
            "self_attn.q_proj.weight": self.matrix(dtype, queries, seen),
            "self_attn.k_proj.weight": self.matrix(dtype, keys, seen),
            "self_attn.v_proj.weight": self.matrix(dtype, keys, seen),
            "self_attn.o_proj.weight": self.matrix(dtype, self.hidden, queries),
            "mlp.gate_proj.weight": self.matrix(dtype, self.inner, self.hidden),
            "mlp.up_proj.weight": self.matrix(dtype, self.inner, self.hidden),
            "mlp.down_proj.weight": self.matrix(dtype, self.hidden, self.inner),
            "post_attention_layernorm.weight": self.gain(dtype, self.hidden),
        }

    def settings(self, dtype: str) -> Config:
        return {
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads // 2,
            "head_dim": self.width,
            "num_hidden_layers": 1,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.longest,
            "rms_norm_eps": 1e-5,
            "rope_theta": self.theta,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": TORCH[dtype],
        }

    def target(self, dtype: str) -> tuple[Tensors, Config]:
        held = {"model.embed_tokens.weight": self.matrix(dtype, self.vocabulary, self.hidden)}
        for i in range(self.layers):
            layer = self.decoder(dtype, self.hidden) | {"input_layernorm.weight": self.gain(dtype, self.hidden)}
            held |= {f"model.layers.{i}.{name}": one for name, one in layer.items()}
        held["model.norm.weight"] = self.gain(dtype, self.hidden)
        held["lm_head.weight"] = self.matrix(dtype, self.vocabulary, self.hidden)
        config = {"architectures": ["LlamaForCausalLM"], **self.settings(dtype), "num_hidden_layers": self.layers}
        return dict(sorted(held.items())), config

    def eagle1(self, dtype: str) -> Tensors:
        held = {
            "fc.weight": self.matrix(dtype, self.hidden, 2 * self.hidden),
            "fc.bias": self.matrix(dtype, self.hidden),
            "embed_tokens.weight": self.matrix(dtype, self.vocabulary, self.hidden),
        }
        return held | {f"layer.{name}": one for name, one in self.decoder(dtype, self.hidden).items()}

    def eagle3(self, dtype: str, ids: Sequence[int] | None) -> Tensors:
        """With a head over the draft ids, or with none."""
        held = {
            "fc.weight": self.matrix(dtype, self.hidden, 3 * self.hidden),
            **{f"layer.{name}": one for name, one in self.decoder(dtype, 2 * self.hidden).items()},
            "layer.hidden_norm.weight": self.gain(dtype, self.hidden),
            "layer.input_layernorm.weight": self.gain(dtype, self.hidden),
            "norm.weight": self.gain(dtype, self.hidden),
        }
        if ids is not None:
            held["lm_head.weight"] = self.matrix(dtype, len(ids), self.hidden)
        return held

    def ids(self) -> list[int]:
        """Rising ids with neighbours and gaps: some offsets are equal, and the last id is not the last token."""
        size = self.choice.randrange(11, 15)
        return [2, 3, *sorted(self.choice.sample(range(5, self.vocabulary - 2), size - 2))]


def write_map(parts: Parts, convention: str = "offset") -> None:
    """`d2t` and, where the drafter has it, `t2d`, of the release's ids."""
    ids = parts.ids or []
    written = [i - n for n, i in enumerate(ids)] if convention == "offset" else ids
    parts.drafter["d2t"] = tensor(np.array(written), "I64")
    if "t2d" in parts.drafter or parts.layout not in ("modelopt", "vllm"):
        marked = np.zeros(parts.settings["vocab_size"], dtype=bool)
        marked[[i for i in ids if 0 <= i < len(marked)]] = True
        parts.drafter["t2d"] = tensor(marked, "BOOL")


def _release(seed: int | Maker, layout: str, dtype: str, variant: str, reduced: bool) -> tuple[Parts, Maker]:
    maker = Maker(seed) if isinstance(seed, int) else seed
    target, target_config = maker.target(dtype)
    ids = maker.ids() if reduced else None
    layers = None if variant == "eagle1" else [1, maker.layers // 2 - 1, maker.layers - 4]
    held = maker.eagle1(dtype) if variant == "eagle1" else maker.eagle3(dtype, ids)
    tokens = {i: f"<w{i}>" if i % 3 else f"Ġwörd{i}" for i in range(maker.vocabulary)}
    config = maker.settings(dtype)
    parts = Parts(layout, variant, dtype, target, target_config, {}, config, tokens, layers, ids)
    parts.drafter = {parts.name(name): one for name, one in held.items()}
    if ids is not None:
        config["draft_vocab_size"] = len(ids)
        write_map(parts)
    return parts, maker


def eagle(seed: int | Maker) -> Parts:
    """EAGLE-1 as SafeAILab publishes it: the embedding copied, the target's head."""
    parts, _ = _release(seed, "eagle", "F16", "eagle1", False)
    parts.config["architectures"] = ["LlamaForCausalLM"]
    return parts


def eagle3(seed: int | Maker) -> Parts:
    """EAGLE-3 as SafeAILab publishes it: no word of layers."""
    parts, _ = _release(seed, "eagle3", "F16", "eagle3", True)
    parts.config["architectures"] = ["LlamaForCausalLMEagle3"]
    return parts


def specforge(seed: int | Maker) -> Parts:
    """As SpecForge exports it: the embedding with it, layers by those that are left."""
    parts, maker = _release(seed, "specforge", "BF16", "eagle3", True)
    ids = {"eagle_aux_hidden_state_layer_ids": parts.layers, "use_aux_hidden_state": True}
    parts.config |= {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": ids}
    parts.drafter["embed_tokens.weight"] = maker.matrix(parts.dtype, maker.vocabulary, maker.hidden)
    return parts


def speculators(seed: int | Maker) -> Parts:
    """As speculators saves it: decoder settings one level down, layers by those that are entered."""
    parts, maker = _release(seed, "speculators", "BF16", "eagle3", True)
    inner = {key: value for key, value in parts.config.items() if key != "draft_vocab_size"}
    parts.config = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "draft_vocab_size": parts.config["draft_vocab_size"],
        "eagle_aux_hidden_state_layer_ids": [i + 1 for i in parts.layers or []],
        "norm_before_residual": False,
        "norm_before_fc": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": "tiny/target", "architectures": ["LlamaForCausalLM"]},
        },
        "transformer_layer_config": inner,
    }
    parts.drafter["embed_tokens.weight"] = maker.matrix(parts.dtype, maker.vocabulary, maker.hidden)
    return parts


def modelopt(seed: int | Maker) -> Parts:
    """As modelopt exports it: no `t2d`, flags of its own, layers by those that are left."""
    parts, _ = _release(seed, "modelopt", "BF16", "eagle3", True)
    flags = {"use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True}
    parts.config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": parts.layers, **flags, "next_layer_regular": True},
    }
    return parts


def vllm(seed: int | Maker) -> Parts:
    """A head for vLLM over the whole vocabulary, which is the target's; layers by those that are entered."""
    parts, _ = _release(seed, "vllm", "F32", "eagle3", False)
    entered = [i + 1 for i in parts.layers or []]
    parts.config |= {"architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": entered}
    return parts


def serving(seed: int | Maker) -> Parts:
    """A head for SGLang or vLLM: which layers its ids mean, the document says."""
    parts, _ = _release(seed, "serving", "BF16", "eagle3", True)
    ids = {"eagle_aux_hidden_state_layer_ids": parts.layers}
    parts.config |= {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": ids}
    return parts


MAKERS: Mapping[str, Callable[[int | Maker], Parts]] = {
    kind.__name__: kind for kind in (eagle, eagle3, specforge, speculators, modelopt, vllm, serving)
}
"""Layout → what makes a good release in it, from a seed or from a maker of its own."""


def write(parts: Parts, folder: Path) -> tuple[Path, Path]:
    """Drafter and target as files."""
    drafter, target = folder / "drafter", folder / "target"
    for path, held, config, tokens in (
        (drafter, parts.drafter, parts.config, parts.own_tokens),
        (target, parts.target, parts.target_config, parts.tokens),
    ):
        path.mkdir(exist_ok=True)
        write_weights(path, held, parts.shards if path is target or parts.backwards else 1, parts.backwards)
        written = dict(reversed(config.items())) if parts.backwards else config
        write_json(path / "config.json", written, None if parts.backwards else 2)
        if tokens is not None:
            write_tokenizer(path, tokens, parts.split_tokenizer)
    return drafter, target


def write_manifest(parts: Parts, folder: Path) -> Path | None:
    """The manifest as a file; None where none is written."""
    if not parts.says:
        return None
    (folder / "manifest.toml").write_text(toml(parts.manifest), encoding="utf-8")
    return folder / "manifest.toml"


def write_tokenizer(folder: Path, tokens: Mapping[int, str], split: bool) -> None:
    """In one file, or as GPT-2 has it in two."""
    last = max(tokens)
    first = {token: identity for identity, token in sorted(tokens.items()) if identity != last}
    for path in (folder / "tokenizer.json", folder / "vocab.json", folder / "added_tokens.json"):
        path.unlink(missing_ok=True)
    if split:
        write_json(folder / "vocab.json", dict(reversed(first.items())), None)
        write_json(folder / "added_tokens.json", {tokens[last]: last})
        return
    added = [{"id": last, "content": tokens[last], "special": True}]
    write_json(folder / "tokenizer.json", {"model": {"type": "BPE", "vocab": first}, "added_tokens": added})


def document(parts: Parts, drafter: Path, target: Path) -> dict[str, Any]:
    """What a manifest says of the release as it is filed; its fingerprints are the road's."""
    settings, held = parts.settings, parts.drafter
    whole = "fc_norm" if settings.get("fc_norm") else "norm_before_fc"
    own_head, own_embedding = "lm_head.weight" in held, "embed_tokens.weight" in held
    head = road.part(drafter, "lm_head.weight") if own_head else road.part(target, "lm_head.weight")
    embedding = (
        road.part(drafter, "embed_tokens.weight") if own_embedding else road.part(target, "model.embed_tokens.weight")
    )
    scaling = settings.get("rope_scaling") or {}
    found: dict[str, Any] = {
        "format": FORMAT,
        "variant": parts.variant,
        "layout": parts.layout,
        "target": {
            "name": "tiny/target",
            "config": road.config(parts.target_config, NO_SETTINGS),
            "weights": road.weights(target),
            "tokenizer": road.tokenizer(parts.tokens),
            "vocabulary_size": parts.target_config["vocab_size"],
            "hidden_size": parts.target_config["hidden_size"],
        },
        "features": {
            "final_norm": "after" if parts.variant == "eagle1" else "before",
            "layout": "side_by_side",
            "input_norm": {"fc_norm": "each", "norm_before_fc": "whole"}[whole] if settings.get(whole) else "none",
            "dtype": TORCH[parts.dtype],
            "made_from": road.weights(target),
        },
        "head": {"identity": "own" if own_head else "target", "digest": head},
        "embedding": {"identity": "own" if own_embedding else "target", "digest": embedding},
        "dtype": {"weights": TORCH[parts.dtype], "compute": settings["torch_dtype"]},
        "positions": {
            "maximum": settings["max_position_embeddings"],
            "rope_theta": settings["rope_theta"],
            "rope_type": scaling.get("rope_type", "default"),
            "rope_layout": "half",
        },
        "conventions": {"fusion_order": "embedding_first", "position_base": 0},
        "tree": {"root_counted": True, "depth": "drafts", "budget": 60},
        "training": {"objective": "rollout", "step_weights": [1.0, 0.8, 0.64]},
        "noise": {"law": "none"},
    }
    if "factor" in scaling:
        found["positions"]["rope_factor"] = scaling["factor"]
    if parts.layers is not None:
        found["features"]["layers"] = list(parts.layers)
    if parts.ids is not None and "d2t" in held:
        found["map"] = {
            "size": parts.config["draft_vocab_size"],
            "convention": "offset",
            "digest": road.draft_map(parts.ids),
        }
    return found
