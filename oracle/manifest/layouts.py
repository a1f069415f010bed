"""The layouts that drafters are published in: which one a folder has, and what it says of its manifest.

Every layout files the same weights under names of its own; here they bear one name each, those of the table `NAMES`.
A layer address means "output of layer i" here; vLLM and speculators write the layer that is entered, one further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oracle.errors import BadInput
from oracle.manifest.checkpoint import Checkpoint
from oracle.manifest.document import Conventions, DraftMap, Dtype, Features, Manifest, Part, Positions, Target, unsaid
from oracle.manifest.headers import Stored
from oracle.manifest.numbers import DTYPE_NAMES

LAYOUTS = ("eagle", "eagle3", "serving", "vllm", "speculators", "specforge", "modelopt")
"""SafeAILab/EAGLE's two; a served EAGLE-3 head whose addresses vLLM and SGLang read differently; one whose addresses
only vLLM reads; and the three trainers."""
ADDRESSES: Mapping[str, str] = {
    "vllm": "entered",
    "speculators": "entered",
    "specforge": "left",
    "modelopt": "left",
    "serving": "unsaid",
}
"""Layout → whether an address names the layer that the feature enters, or the one that it leaves."""
_IDS = "eagle_aux_hidden_state_layer_ids"
_MODELOPT = ("next_layer_regular", "use_last_layernorm", "use_mtp_layernorm", "use_input_layernorm_in_first_layer")
_INTERLEAVED = ("rope_interleave", "rope_interleaved")
_EAGLE3_SIGNS = ("layer.hidden_norm.weight", "layer.input_layernorm.weight", "norm.weight", "d2t", "t2d")


@dataclass(frozen=True)
class Read:
    """A drafter's folder, read. tensors: by their one name. config: the drafter's own decoder settings. layers_said:
    the addresses as the configuration writes them. unsaid: what a manifest has to add."""

    layout: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    manifest: Manifest
    layers_said: tuple[int, ...] | None
    unsaid: tuple[str, ...]


def read_layout(drafter: Checkpoint) -> Read:
    """The drafter's layout, and the manifest as far as it says. Raises `BadInput`."""
    tensors = named(drafter.tensors)
    layout = layout_of(drafter.config, drafter.tensors)
    inner = drafter.config.get("transformer_layer_config") if layout == "speculators" else drafter.config
    if not isinstance(inner, Mapping):
        raise BadInput("config.json: transformer_layer_config", (), "is an object", type(inner).__name__)
    config = {**inner, **{key: drafter.config[key] for key in _BESIDE if key in drafter.config}}
    written = layer_ids(drafter.config)
    manifest = Manifest(
        variant=variant_said(drafter.config),
        layout=layout,
        target=Target(name=_target_name(drafter.config), vocabulary_size=size(config, "vocab_size")),
        features=Features(
            layers=translated(written, layout),
            final_norm=_final_norm(tensors, config),
            input_norm=_input_norm(config),
        ),
        head=Part(identity="own" if "lm_head.weight" in tensors else None),
        embedding=Part(identity="own" if "embed_tokens.weight" in tensors else None),
        map=DraftMap(
            size=size(config, "draft_vocab_size"),
            convention="offset" if "d2t" in tensors else None,
        ),
        conventions=Conventions(
            fusion_order="embedding_first" if layout == "eagle" else None,
            residual=_which_state(config, "norm_before_residual"),
            fed_back=_which_state(config, "norm_output"),
        ),
        dtype=Dtype(weights=stored_dtype(tensors), compute=_served(config)),
        positions=positions(config),
    )
    return Read(layout, config, tensors, manifest, written, tuple(unsaid(manifest)))


_BESIDE = (
    *("draft_vocab_size", "target_hidden_size", "norm_before_fc", "fc_norm", "use_aux_norm"),
    *("norm_before_residual", "norm_output", "eagle_config"),
)


def layout_of(config: Mapping[str, Any], tensors: Mapping[str, object]) -> str:
    """One of `LAYOUTS`, by the signs that only it has."""
    eagle_config = config.get("eagle_config")
    inner = eagle_config if isinstance(eagle_config, dict) else {}
    if "speculators_model_type" in config:
        return "speculators"
    if any(key in inner for key in _MODELOPT):
        return "modelopt"
    if _IDS in config:
        return "vllm"
    middle = any(name.startswith("midlayer.") for name in tensors)
    if middle:
        return "specforge" if inner else "eagle3"
    return "serving" if inner or any(n.endswith(("hidden_norm.weight", "d2t")) for n in tensors) else "eagle"


def named(tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    """The tensors by their one name: without `model.`, the decoder layer as `layer.`. Raises `BadInput` for twins."""
    found: dict[str, Stored] = {}
    for name, stored in tensors.items():
        one = name.removeprefix("model.")
        for prefix in ("midlayer.", "layers.0."):
            if one.startswith(prefix):
                one = "layer." + one.removeprefix(prefix)
        if one in found:
            raise BadInput(stored.path.name, (), f"{name!r} and {found[one].name!r} are not both there", name)
        found[one] = stored
    return found


def layer_ids(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The addresses as written; None where there are none. Raises `BadInput` unless they are whole numbers."""
    eagle_config = config.get("eagle_config")
    inner = eagle_config if isinstance(eagle_config, dict) else {}
    written = config.get(_IDS) or inner.get(_IDS)
    if not written:
        return None
    if not isinstance(written, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in written):
        raise BadInput(f"config.json: {_IDS}", (), "is a list of whole numbers", written)
    return tuple(written)


def translated(written: tuple[int, ...] | None, layout: str) -> tuple[int, ...] | None:
    """Addresses as "output of layer i"; None where the layout does not say which it means."""
    meant = ADDRESSES.get(layout, "unsaid")
    if written is None or meant == "unsaid":
        return None
    return tuple(i - 1 for i in written) if meant == "entered" else written


def variant_said(config: Mapping[str, Any]) -> str | None:
    """The variant that the configuration names, "eagle1" or "eagle3"; None where it names none."""
    kinds = {"eagle": "eagle1", "eagle3": "eagle3"}
    if config.get("speculators_model_type") in kinds:
        return kinds[str(config["speculators_model_type"])]
    names = config.get("architectures")
    for name in names if isinstance(names, list) else []:
        if "eagle3" in str(name).lower():
            return "eagle3"
        if "eagle" in str(name).lower():
            return "eagle1"
    return None


def variant_of(tensors: Mapping[str, Stored], hidden: int | None) -> str:
    """The variant that weights are of: two signs of EAGLE-3 are enough, so that one missing tensor is told as such."""
    signs = sum(sign in tensors for sign in _EAGLE3_SIGNS)
    fuse = tensors.get("fc.weight")
    if fuse is not None and len(fuse.shape) == 2 and hidden is not None and fuse.shape[1] >= 3 * hidden:
        signs += 1
    if signs < 2:
        return "eagle1"
    return "eagle3_projected" if "input_projection.weight" in tensors else "eagle3"


def size(config: Mapping[str, Any], key: str) -> int | None:
    """A size of the configuration; None where it says none. Raises `BadInput` unless it is a whole number."""
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(f"config.json: {key}", (), "is a whole number of at least 1", value)
    return value


def real(config: Mapping[str, Any], key: str) -> float | None:
    """A positive number of the configuration; None where it says none. Raises `BadInput`."""
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise BadInput(f"config.json: {key}", (), "is a finite number above 0", value)
    return float(value)


def positions(config: Mapping[str, Any]) -> Positions:
    """How many positions, and how they turn, in the keys of transformers 4 or 5. Raises `BadInput`."""
    table: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        if config.get(key) is not None:
            if not isinstance(config[key], dict):
                raise BadInput(f"config.json: {key}", (), "is an object", type(config[key]).__name__)
            table |= config[key]
    kind = table.get("rope_type", table.get("type", "default"))
    if not isinstance(kind, str):
        raise BadInput("config.json: rope_type", (), "is a text", kind)
    theta = real(config, "rope_theta") or real(table, "rope_theta")
    return Positions(
        maximum=size(config, "max_position_embeddings"),
        rope_theta=theta,
        rope_type=kind if theta is not None or table else None,
        rope_factor=real(table, "factor"),
        rope_layout="interleaved" if any(config.get(key) is True for key in _INTERLEAVED) else "half",
    )


def stored_dtype(tensors: Mapping[str, Stored]) -> str | None:
    """The one dtype of the floating-point tensors; None where there are several."""
    found = {DTYPE_NAMES[s.dtype] for s in tensors.values() if s.dtype in DTYPE_NAMES}
    return found.pop() if len(found) == 1 else None


def _served(config: Mapping[str, Any]) -> str | None:
    value = str(config.get("torch_dtype") or config.get("dtype")).removeprefix("torch.")
    return value if value in DTYPE_NAMES.values() else None


def _target_name(config: Mapping[str, Any]) -> str | None:
    inner = config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return name if isinstance(name, str) and name else None


def _final_norm(tensors: Mapping[str, Stored], config: Mapping[str, Any]) -> str:
    """EAGLE-1 is fed the feature that the target's head reads; EAGLE-3 the layers' own outputs."""
    return "after" if variant_of(tensors, size(config, "hidden_size")) == "eagle1" else "before"


def _which_state(config: Mapping[str, Any], flag: str) -> str | None:
    return None if not isinstance(config.get(flag), bool) else "normed_state" if config[flag] else "state"


def _input_norm(config: Mapping[str, Any]) -> str | None:
    eagle_config = config.get("eagle_config")
    flags = {**config, **(eagle_config if isinstance(eagle_config, dict) else {})}
    if flags.get("fc_norm") or flags.get("use_aux_norm"):
        return "each"
    if flags.get("norm_before_fc"):
        return "whole"
    return "none" if "fc_norm" in flags or "norm_before_fc" in flags else None
