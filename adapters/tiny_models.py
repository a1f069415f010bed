"""Tiny models for whole engines: seeded weights in the files that engines load, made on the spot.

A target is a Llama of a few layers with random weights. Each layer adds little to the embedding of the last token, so a
drafter that knows the embedding, the head and one layer is sometimes right, and sometimes not:

- EAGLE's: `fc` adds the new token's embedding and a part of the feature; its layer is the target's first.
- EAGLE-3's: its attention looks mostly at its own row and carries the embedding over; `fc` adds parts of three layers.
  Its vocabulary is a part of the target's, spread over it, with `d2t` (offsets) and `t2d`.
- an assistant: the target's embedding, first layers and head, a model by itself.

A folder holds config.json, model.safetensors and, so that engines know which ids there are, a tokenizer of one word a
token. It lies in the system's folder for temporary files, its name ends in a hash of what it holds, and it is there
whole or not at all, so processes share it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from adapters.interface import AdapterError

Weights = Mapping[str, np.ndarray]
"""Name in the file → float32 array (int64 and bool for vocabulary maps)."""


@dataclass(frozen=True)
class Shape:
    """The target's. longest: positions it has. layer_gain: how much a layer adds to what it reads. logit_spread: the
    standard deviation of its logits."""

    vocabulary: int = 128
    hidden: int = 64
    intermediate: int = 128
    layers: int = 8
    heads: int = 2
    kv_heads: int = 1
    longest: int = 256
    layer_gain: float = 0.1
    logit_spread: float = 3.0
    draft_vocabulary: int = 96
    seed: int = 1

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def aux_layers(self) -> tuple[int, int, int]:
        """The layers whose outputs EAGLE-3 reads, as vLLM counts them: the states that enter these."""
        return 2, self.layers // 2, self.layers - 3


FORMAT = 1
"""Part of every hash: counted up when the same models come to be written in another way."""
EPSILON = 1e-6
"""Of every RMS norm."""


def target(shape: Shape) -> Weights:
    """A Llama's weights, by their names in transformers."""
    rng = np.random.default_rng([shape.seed, 0])
    hidden = shape.hidden
    weights = {
        "model.embed_tokens.weight": rng.standard_normal((shape.vocabulary, hidden)),
        "model.norm.weight": np.ones(hidden),
        "lm_head.weight": rng.standard_normal((shape.vocabulary, hidden)) * (shape.logit_spread / hidden**0.5),
    }
    for i in range(shape.layers):
        weights |= {f"model.layers.{i}.{name}": value for name, value in _layer(rng, shape, hidden).items()}
    return _float32(weights)


def eagle(shape: Shape) -> Weights:
    """EAGLE-1's drafter by the names of its checkpoints. Its layer has no input norm, and it has no head."""
    of = target(shape)
    first = {
        f"layers.0.{name}": of[f"model.layers.0.{name}"]
        for name in _layer(np.random.default_rng(0), shape, shape.hidden)
        if name != "input_layernorm.weight"
    }
    same = np.eye(shape.hidden)
    return _float32(
        {
            "embed_tokens.weight": of["model.embed_tokens.weight"],
            "fc.weight": np.concatenate([same, 0.2 * same], axis=1),
            **first,
        }
    )


def eagle3(shape: Shape) -> Weights:
    """EAGLE-3's drafter by the names of its checkpoints, with an embedding, a head and a vocabulary of its own."""
    of = target(shape)
    rng = np.random.default_rng([shape.seed, 3])
    hidden, size = shape.hidden, shape.head_size
    layer = _layer(rng, shape, 2 * hidden)
    # A row's query and key agree, so attention prefers its own row; what it carries is the new embedding, less most of
    # the state, whose residual would outlast it.
    nothing = np.zeros((hidden, hidden))
    look = np.concatenate([rng.standard_normal((size, hidden)) * (2.5 / hidden**0.5)] * shape.heads)
    carry = np.linalg.qr(rng.standard_normal((hidden, hidden)))[0]
    layer |= {
        "self_attn.q_proj.weight": np.concatenate([look, 0.1 * rng.standard_normal((hidden, hidden))], axis=1),
        "self_attn.k_proj.weight": np.concatenate([look, nothing], axis=1),
        "self_attn.v_proj.weight": np.concatenate([carry, -0.8 * carry], axis=1),
        "self_attn.o_proj.weight": carry.T,
        "hidden_norm.weight": np.ones(hidden),
    }
    same = np.eye(hidden)
    kept = draft_ids(shape)
    return _float32(
        {
            "embed_tokens.weight": of["model.embed_tokens.weight"],
            "fc.weight": np.concatenate([0.2 * same, 0.4 * same, 0.4 * same], axis=1),
            **{f"midlayer.{name}": value for name, value in layer.items()},
            "norm.weight": np.ones(hidden),
            "lm_head.weight": of["lm_head.weight"][kept],
        }
    ) | {"d2t": kept - np.arange(len(kept)), "t2d": np.isin(np.arange(shape.vocabulary), kept)}


def draft_ids(shape: Shape) -> np.ndarray:
    """int64, ascending: the tokens that EAGLE-3's drafter knows."""
    rng = np.random.default_rng([shape.seed, 4])
    return np.sort(rng.permutation(shape.vocabulary)[: shape.draft_vocabulary]).astype(np.int64)


def assistant(shape: Shape, layers: int = 1) -> Weights:
    """A smaller Llama: the target without its later layers."""
    of = target(shape)
    return {
        name: value
        for name, value in of.items()
        if not name.startswith("model.layers.") or int(name.split(".")[2]) < layers
    }


def config(shape: Shape, layers: int, **more: Any) -> dict[str, Any]:
    """config.json of a Llama of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.longest,
        "rms_norm_eps": EPSILON,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "torch_dtype": "float32",
        **more,
    }


def eagle3_config(shape: Shape) -> dict[str, Any]:
    """config.json of `eagle3`: as many key heads as heads, so that values carry a whole embedding."""
    return config(
        shape,
        1,
        architectures=["LlamaForCausalLMEagle3"],
        num_key_value_heads=shape.heads,
        draft_vocab_size=shape.draft_vocabulary,
        eagle_config={"eagle_aux_hidden_state_layer_ids": list(shape.aux_layers)},
    )


def target_folder(shape: Shape) -> Path:
    return _folder(shape, "target")


def eagle_folder(shape: Shape) -> Path:
    return _folder(shape, "eagle")


def eagle3_folder(shape: Shape) -> Path:
    return _folder(shape, "eagle3")


def assistant_folder(shape: Shape) -> Path:
    return _folder(shape, "assistant")


@cache
def _folder(shape: Shape, kind: str) -> Path:
    makers = {
        "target": (target, config(shape, shape.layers)),
        "eagle": (eagle, config(shape, 1, bias=False)),
        "eagle3": (eagle3, eagle3_config(shape)),
        "assistant": (assistant, config(shape, 1)),
    }
    make, described = makers[kind]
    return stored(kind, described, make(shape), write)


def stored(
    kind: str, described: dict[str, Any], weights: Weights, fill: Callable[[Path, dict[str, Any], Weights], None]
) -> Path:
    """The folder that `fill` makes of a configuration and weights, made if it is not there."""
    content = hashlib.sha256(json.dumps([FORMAT, fill.__name__, described]).encode())
    for name, value in weights.items():
        content.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
    user = os.getuid() if hasattr(os, "getuid") else 0
    home = Path(tempfile.gettempdir()) / f"tiny-models-{user}"
    home.mkdir(mode=0o700, exist_ok=True)
    held = home.lstat()
    if hasattr(os, "getuid") and (held.st_uid != user or held.st_mode & 0o022 or home.is_symlink()):
        raise AdapterError(f"{home} is not a folder that you alone can write to; remove it, or set TMPDIR")
    folder = home / f"{kind}-{content.hexdigest()[:16]}"
    if not folder.is_dir():
        fresh = Path(tempfile.mkdtemp(dir=home))
        fill(fresh, described, weights)
        try:
            fresh.rename(folder)
        except OSError:  # somebody else was faster
            shutil.rmtree(fresh)
            if not folder.is_dir():
                raise
    return folder


def write(folder: Path, described: dict[str, Any], weights: Weights) -> None:
    """config.json, model.safetensors with its index, and a tokenizer."""
    from safetensors.numpy import save_file

    words = {f"t{i}": i for i in range(described["vocab_size"])}
    files = {
        "config.json": described,
        "model.safetensors.index.json": {"metadata": {}, "weight_map": dict.fromkeys(weights, "model.safetensors")},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
        "tokenizer.json": {
            "version": "1.0",
            **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
            "added_tokens": [],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    whole = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    save_file(whole, str(folder / "model.safetensors"), metadata={"format": "pt"})


def roundings(shape: Shape) -> int:
    """Roundings on the longest way from a token to a logit, attention over `longest` positions included.

    A dot product of n terms rounds a term n times at most; so does a norm of n (its sum of squares), with 4 more for
    root, quotient and gain. Attention: norm, projection, two products and a sum of RoPE, scores and their scale,
    softmax (exponential, sum, quotient), weighted sum, output, residual. MLP: norm, gate, SiLU (4), product, down,
    residual. At the end norm and head.
    """
    norm = shape.hidden + 4
    attention = norm + shape.hidden + 3 + shape.head_size + 1 + (shape.longest + 2) + shape.longest + shape.hidden + 1
    mlp = norm + shape.hidden + 5 + shape.intermediate + 1
    return shape.layers * (attention + mlp) + norm + shape.hidden


def scale(shape: Shape) -> float:
    """A bound of every partial sum of a logit: a normed state has length √hidden, and Cauchy–Schwarz."""
    rows = target(shape)["lm_head.weight"]
    return float(shape.hidden**0.5 * np.linalg.norm(rows, axis=1).max())


def _layer(rng: np.random.Generator, shape: Shape, read: int) -> dict[str, np.ndarray]:
    """One decoder layer whose attention reads rows of width `read`."""
    hidden, inner, size = shape.hidden, shape.intermediate, shape.head_size
    gain = shape.layer_gain

    def matrix(rows: int, columns: int, spread: float = 1.0) -> np.ndarray:
        values: np.ndarray = rng.standard_normal((rows, columns)) * (spread / columns**0.5)
        return values

    return {
        "self_attn.q_proj.weight": matrix(hidden, read, 1.5),
        "self_attn.k_proj.weight": matrix(shape.kv_heads * size, read, 1.5),
        "self_attn.v_proj.weight": matrix(shape.kv_heads * size, read),
        "self_attn.o_proj.weight": matrix(hidden, hidden, 2 * gain),
        "mlp.gate_proj.weight": matrix(inner, hidden),
        "mlp.up_proj.weight": matrix(inner, hidden),
        "mlp.down_proj.weight": matrix(hidden, inner, 2 * gain),
        "input_layernorm.weight": np.ones(hidden),
        "post_attention_layernorm.weight": np.ones(hidden),
    }


def _float32(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value.astype(np.float32) for name, value in weights.items()}
