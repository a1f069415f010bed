"""Rules of the tensors: those that the variant needs, in the shapes that the configuration says (MANIFEST 3xx)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oracle.manifest.layouts import variant_said
from oracle.manifest.opened import Found, Release

Shape = tuple[int | None, ...]
"""None: any size."""
LINEAR = {
    **{f"self_attn.{name}_proj": "attention" for name in "qkvo"},
    **{f"mlp.{name}_proj": "feed-forward" for name in ("gate", "up", "down")},
}
OPTIONAL = ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d")
TOLERATED = re.compile(r".*(_scale|_scale_inv|_zero_point|\.inv_freq|\.[qk]_norm\.weight)")
"""Scales of quantised weights, tables that are computed, norms of queries and keys."""


def needed(release: Release) -> dict[str, Shape]:
    """Name → shape of every tensor that the variant has; what the configuration leaves unsaid is None."""
    eagle1 = release.variant == "eagle1"
    hidden, width = release.of_drafter("hidden_size"), release.feature_width
    fused = None if hidden is None or width is None else hidden + width
    found: dict[str, Shape] = {"fc.weight": (hidden, fused if eagle1 else None)}
    seen = hidden if release.variant != "eagle3" or hidden is None else 2 * hidden
    found |= {f"layer.{name}": shape for name, shape in _layer(release, seen).items()}
    if not eagle1:
        found |= {f"layer.{norm}.weight": (hidden,) for norm in ("hidden_norm", "input_layernorm")}
        found["norm.weight"] = (hidden,)
    if release.variant == "eagle3_projected":
        found["input_projection.weight"] = (hidden, None if hidden is None else 2 * hidden)
    for i in range(1, min(release.of_drafter("num_hidden_layers") or 1, 64)):
        found |= {f"layers.{i}.{name}": shape for name, shape in _layer(release, hidden).items()}
        found[f"layers.{i}.input_layernorm.weight"] = (hidden,)
    return found


def _layer(release: Release, seen: int | None) -> dict[str, Shape]:
    hidden, heads = release.of_drafter("hidden_size"), release.of_drafter("num_attention_heads")
    width = release.of_drafter("head_dim") or (hidden // heads if hidden and heads else None)
    groups = release.of_drafter("num_key_value_heads") or heads
    queries = heads * width if heads and width else None
    keys = groups * width if groups and width else None
    inner = release.of_drafter("intermediate_size")
    return {
        "self_attn.q_proj.weight": (queries, seen),
        "self_attn.k_proj.weight": (keys, seen),
        "self_attn.v_proj.weight": (keys, seen),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "post_attention_layernorm.weight": (hidden,),
    }


def missing(release: Release) -> Found:
    """MANIFEST-301."""
    for name in needed(release):
        if name not in release.drafter.tensors:
            yield (
                name,
                f"{release.variant} has {name}, the checkpoint does not: engines leave what is missing at random, and "
                "tell nobody",
            )


def unexpected(release: Release) -> Found:
    """MANIFEST-302."""
    known = set(needed(release)) | set(OPTIONAL) | _norms(release)
    biased = {name.removesuffix("weight") + "bias" for name in known if name.endswith(("proj.weight", "fc.weight"))}
    for name in release.drafter.tensors:
        if name not in known | biased and not TOLERATED.fullmatch(name):
            yield (
                name,
                f"the checkpoint has {name}, {release.variant} does not: engines drop what they do not know, and the "
                "drafter computes something else than in training",
            )


def _norms(release: Release) -> set[str]:
    """Norms of the features before they are fused."""
    kind = release.drafter.manifest.features.input_norm
    if kind == "each":
        return {f"fc_norm.{i}.weight" for i in range(release.fused_layers or 0)}
    return {"input_norm.weight"} if kind == "whole" else set()


def shapes(release: Release) -> Found:
    """MANIFEST-303."""
    for name, wanted in _shapes(release):
        stored = release.drafter.tensors.get(name)
        if stored is not None and not _has(stored.shape, wanted):
            yield (
                name,
                f"has shape {list(stored.shape)}, by config.json {_worded(wanted)}: it does not load as it is",
            )
    fuse, width = release.drafter.tensors.get("fc.weight"), release.feature_width
    if fuse is not None and release.variant != "eagle1" and len(fuse.shape) == 2 and width and fuse.shape[1] % width:
        yield (
            "fc.weight",
            f"takes {fuse.shape[1]} columns, by config.json features of {width}: columns do not meet the layers",
        )


def _shapes(release: Release) -> Iterator[tuple[str, Shape]]:
    wanted = needed(release)
    yield from wanted.items()
    for name, shape in wanted.items():
        yield name.removesuffix("weight") + "bias", shape[:1]
    hidden = release.of_drafter("hidden_size")
    yield "embed_tokens.weight", (release.of_drafter("vocab_size"), hidden)
    yield "lm_head.weight", (release.of_drafter("draft_vocab_size") or release.of_drafter("vocab_size"), hidden)


def _has(shape: tuple[int, ...], wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(w is None or n == w for n, w in zip(shape, wanted))


def _worded(wanted: Shape) -> str:
    return f"[{', '.join('any' if n is None else str(n) for n in wanted)}]"


def hidden_sizes(release: Release) -> Found:
    """MANIFEST-304."""
    target, width = release.of_target("hidden_size"), release.feature_width
    said = release.given.target.hidden_size
    if None not in (target, said) and said != target:
        yield (
            "target.hidden_size",
            f"the manifest says {said}, the target has {target}: features of one width meet weights of another",
        )
    if target is None or width is None:
        return
    if width != target:
        yield (
            "hidden_size",
            f"the drafter reads features of {width}, the target's have {target}: they do not fit, or fit by chance",
        )
    hidden = release.of_drafter("hidden_size")
    borrows = release.own_embedding is None or (release.own_head is None and not release.reduced)
    if width == target and hidden != target and borrows:
        yield (
            "hidden_size",
            f"the drafter's states have {hidden}, the target's embedding and head have {target}, and the drafter has "
            "none of its own",
        )


def variant(release: Release) -> Found:
    """MANIFEST-305."""
    for source, said in (
        ("the manifest", release.given.variant),
        ("config.json", variant_said(release.checkpoint.config)),
    ):
        family = source == "config.json"
        shown = release.variant.removesuffix("_projected") if family else release.variant
        if said is not None and said != shown:
            yield (
                "variant",
                f"{source} says {said}, the weights are {release.variant}: run as {said} the fusion of features is "
                "skipped or fed another width, and drafts are chance",
            )
            return
