"""A release's weights as a case of the numeric step, and what of a drafter that step has no notion of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.manifest import numbers
from oracle.manifest.headers import DTYPE_BYTES, Stored
from oracle.manifest.opened import Release
from oracle.manifest.structure import TOLERATED
from oracle.types import DrafterCase, Ids, Rows

ROWS, ROLLOUT = 6, 3
FIRST_POSITION = 2
LIMIT_BYTES = 16 * 2**30
"""The weights of a drafter in float64, for a target of some hundred billion parameters."""
ALL_SHOWN, SHOWN = 256, 64
"""Of more logits or states than `ALL_SHOWN`, `SHOWN` are judged."""
NEUTRAL = {
    **{"partial_rotary_factor": 1.0, "logit_scale": 1.0, "logits_scaling": 1.0, "embedding_multiplier": 1.0},
    **{"residual_multiplier": 1.0, "final_logit_softcapping": None, "attn_logit_softcapping": None},
    **{"attention_multiplier": None, "query_pre_attn_scalar": None},
}
"""Settings that change the arithmetic, and the value with which they do not."""
PLAIN_MODELOPT = {"use_last_layernorm": True, "use_input_layernorm_in_first_layer": True, "use_mtp_layernorm": False}


class NoNotion(Exception):
    """The numeric step has no notion of something that the drafter has; the message says of what."""


@dataclass(frozen=True)
class Inputs:
    """What a drafter is fed: features [S, ·], tokens [S], positions [S], rollout_tokens [T]."""

    features: Rows
    tokens: Ids
    positions: Ids
    rollout_tokens: Ids


def drawn(release: Release, seed: int) -> Inputs:
    """Fresh inputs. Features are of eight binary digits, so that every dtype of a server holds them as they are."""
    random = np.random.default_rng(seed)
    hidden, vocabulary = _size(release, "hidden_size"), _size(release, "vocab_size")
    width = hidden if release.variant == "eagle1" else 3 * hidden
    wanted = ROWS + ROLLOUT
    tokens = random.choice(vocabulary, wanted, replace=vocabulary < wanted).astype(np.int64)
    tokens[1] = vocabulary - 1
    return Inputs(
        features=random.integers(-96, 97, (ROWS, width)) / 32,
        tokens=tokens[:ROWS],
        positions=np.arange(FIRST_POSITION, FIRST_POSITION + ROWS, dtype=np.int64),
        rollout_tokens=tokens[ROWS:],
    )


def shown(release: Release) -> Ids:
    """The draft ids whose logits are judged: all, or the ends and a few between."""
    return some(_head(release).shape[0])


def some(count: int) -> Ids:
    """Places among so many: all, or the ends and a few between."""
    return np.arange(count) if count <= ALL_SHOWN else np.unique(np.linspace(0, count - 1, SHOWN).astype(np.int64))


def whole_case(release: Release, inputs: Inputs) -> DrafterCase:
    """The case with every row of embedding and head, as a server has it. Raises `NoNotion` and `BadInput`."""
    _check_size([*_names(release).values(), _embedding(release), _head(release)])
    weights = _layer(release)
    weights["embed_tokens.weight"] = _array(_embedding(release))
    weights["lm_head.weight"] = _array(_head(release))
    return _case(release, weights, inputs, inputs.tokens, inputs.rollout_tokens)


def small_case(release: Release, inputs: Inputs, rows: Ids) -> DrafterCase:
    """The same step with those rows of the head alone, and of the embedding with what is consumed, renumbered."""
    weights = _layer(release)
    consumed = np.concatenate([inputs.tokens, inputs.rollout_tokens])
    _check_tokens(release, consumed)
    used, renumbered = np.unique(consumed, return_inverse=True)
    weights["embed_tokens.weight"] = _some_rows(_embedding(release), used)
    weights["lm_head.weight"] = _some_rows(_head(release), rows)
    count = len(inputs.tokens)
    return _case(release, weights, inputs, renumbered[:count], renumbered[count:])


def stored_exactly(release: Release, dtype: str) -> bool:
    """Whether every weight is a number of that dtype, so that a cast of it rounds nothing."""
    holds = {
        "bfloat16": {"BF16", "F8_E4M3", "F8_E5M2"},
        "float16": {"F16", "F8_E4M3", "F8_E5M2"},
        "float32": {"F32", "BF16", "F16", "F8_E4M3", "F8_E5M2"},
        "float64": {"F64", "F32", "BF16", "F16", "F8_E4M3", "F8_E5M2"},
    }[dtype]
    used = [*_names(release).values(), _embedding(release), _head(release)]
    return all(stored.dtype in holds for stored in used)


def _case(release: Release, weights: dict[str, Rows], inputs: Inputs, tokens: Ids, rollout: Ids) -> DrafterCase:
    positions = np.asarray(inputs.positions, dtype=np.int64)
    return DrafterCase(
        variant=release.variant,
        weights=weights,
        config=_settings(release),
        features=np.asarray(inputs.features, dtype=np.float64),
        tokens=np.asarray(tokens, dtype=np.int64),
        positions=positions,
        rollout_tokens=np.asarray(rollout, dtype=np.int64),
    )


def _settings(release: Release) -> dict[str, object]:
    """The settings that the step reads, in one spelling."""
    config, positions = release.drafter.config, release.drafter.manifest.positions
    kept = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
    found: dict[str, object] = {key: config[key] for key in (*kept, "rms_norm_eps") if config.get(key) is not None}
    found["rope_theta"] = 10000.0 if positions.rope_theta is None else positions.rope_theta
    if release.variant == "eagle1":
        found["fusion_order"] = release.said.conventions.fusion_order or "embedding_first"
    return found


def _layer(release: Release) -> dict[str, Rows]:
    """The weights of the decoder layer and of what stands around it, by the names of SafeAILab/EAGLE."""
    if reasons := list(strange(release)):
        raise NoNotion("; ".join(reasons))
    names = _names(release)
    _check_size(names.values())
    return {name: _array(stored) for name, stored in names.items()}


def _check_size(held: Iterable[Stored]) -> None:
    size = 8 * sum(math.prod(stored.shape) for stored in held)
    if size > LIMIT_BYTES:
        raise NoNotion(f"weights that take {size / 2**30:.1f} GiB in float64; {LIMIT_BYTES >> 30} GiB are held at most")


def _names(release: Release) -> dict[str, Stored]:
    layer = "layers.0." if release.variant == "eagle1" else "midlayer."
    apart = ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d")
    return {
        layer + name.removeprefix("layer.") if name.startswith("layer.") else name: stored
        for name, stored in release.drafter.tensors.items()
        if name not in apart and not name.endswith(".inv_freq")
    }


def strange(release: Release) -> Iterator[str]:
    """What of the drafter the numeric step has no notion of."""
    said, config = release.said, release.drafter.config
    for section, key, plain in (
        ("features", "input_norm", "none"),
        ("features", "layout", "side_by_side"),
        ("conventions", "residual", "state"),
        ("conventions", "fed_back", "state"),
        ("positions", "rope_layout", "half"),
        ("positions", "rope_type", "default"),
    ):
        value = getattr(getattr(said, section), key)
        if value not in (None, plain):
            yield f"{section}.{key} {value!r}"
    if config.get("num_hidden_layers") not in (None, 1):
        yield f"{config['num_hidden_layers']} decoder layers"
    if release.feature_width != release.of_drafter("hidden_size"):
        yield "features of another width than its states"
    if release.fused_layers not in (None, 3):
        yield f"{release.fused_layers} fused layers"
    if config.get("hidden_act", "silu") != "silu":
        yield f"hidden_act {config['hidden_act']!r}"
    if str(config.get("model_type", "")).startswith("gemma"):
        yield f"the norms of {config['model_type']}"
    for key, neutral in NEUTRAL.items():
        if config.get(key) not in (None, neutral):
            yield f"{key} {config[key]!r}"
    inner = config.get("eagle_config")
    eagle_config = inner if isinstance(inner, dict) else {}
    for key, plain_flag in PLAIN_MODELOPT.items():
        if eagle_config.get(key, plain_flag) is not plain_flag:
            yield f"{key} {eagle_config[key]!r}"
    for name in release.drafter.tensors:
        if TOLERATED.fullmatch(name) and not name.endswith(".inv_freq"):
            yield name


def _embedding(release: Release) -> Stored:
    return _either(release.own_embedding, release.target_embedding, "embedding")


def _head(release: Release) -> Stored:
    return _either(release.own_head, release.target_head, "head")


def _either(own: Stored | None, target: Stored | None, name: str) -> Stored:
    found = own or target
    if found is None:
        raise BadInput(name, (), "is the drafter's own or the target's, under its usual name", "missing")
    if len(found.shape) != 2:
        raise BadInput(found.name, (), "is a matrix", list(found.shape))
    return found


def _size(release: Release, key: str) -> int:
    found = release.of_drafter(key)
    if found is None:
        raise BadInput(f"config.json: {key}", (), "says a size, for numbers to be drawn", "unsaid")
    return found


def _check_tokens(release: Release, tokens: Ids) -> None:
    rows = _embedding(release).shape[0]
    for token in tokens[(tokens < 0) | (tokens >= rows)][:1].tolist():
        raise BadInput("tokens", (), f"a token id lies in [0, {rows})", token)


def _array(stored: Stored) -> Rows:
    return _joined([stored], stored.shape)


def _some_rows(stored: Stored, rows: Ids) -> Rows:
    """Some rows of a matrix; the others are not read."""
    width = stored.shape[1]
    size = width * DTYPE_BYTES[stored.dtype]
    places = [
        dataclasses.replace(stored, shape=(1, width), start=stored.start + int(row) * size, size=size) for row in rows
    ]
    return _joined(places, (len(rows), width))


def _joined(places: Sequence[Stored], shape: tuple[int, ...]) -> Rows:
    pieces = [piece for place in places for piece in numbers.pieces(place)]
    return np.asarray(np.concatenate([np.zeros(0), *pieces]).reshape(shape))
