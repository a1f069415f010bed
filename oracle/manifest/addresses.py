"""Rules of the addresses: which of the target's layers are fed, and over which positions (MANIFEST 5xx, 6xx)."""

from __future__ import annotations

from oracle.manifest.layouts import ADDRESSES
from oracle.manifest.opened import Found, Release


def named(release: Release) -> Found:
    """MANIFEST-501."""
    if release.variant == "eagle1" or release.said.features.layers is not None:
        return
    written, layers = release.drafter.layers_said, release.of_target("num_hidden_layers")
    if written is not None:
        yield (
            "features.layers",
            f"config.json says {list(written)} and not whether these are the layers that are left (SGLang) or entered "
            "(vLLM): one of the two feeds features of another layer",
        )
        return
    default = "" if layers is None else f" ({[1, layers // 2 - 1, layers - 4]} of {layers} in most engines)"
    yield (
        "features.layers",
        f"neither the manifest nor config.json names layers: engines take a default{default}, the trainer's may be "
        "another",
    )


def in_range(release: Release) -> Found:
    """MANIFEST-502."""
    count = release.of_target("num_hidden_layers")
    for i, layer in enumerate(release.said.features.layers or ()):
        if count is not None and not 0 <= layer < count:
            yield (
                f"features.layers[{i}]",
                f"is {layer}, the target has layers 0 to {count - 1}: nothing is captured there, or another layer is",
            )


def distinct(release: Release) -> Found:
    """MANIFEST-503."""
    layers = release.said.features.layers or ()
    for i, layer in enumerate(layers):
        if layer in layers[:i]:
            yield (
                f"features.layers[{i}]",
                f"is {layer}, as features.layers[{layers.index(layer)}] is: engines capture a layer once, and the "
                "fused input is too narrow",
            )


def agreed(release: Release) -> Found:
    """MANIFEST-504."""
    said, written = release.given.features.layers, release.drafter.layers_said
    if said is None or written is None:
        return
    meant = ADDRESSES.get(release.drafter.layout, "unsaid")
    left, entered = written, tuple(i - 1 for i in written)
    right = {"left": (left,), "entered": (entered,), "unsaid": (left, entered)}[meant]
    if said not in right:
        reading = " or ".join(str(list(layers)) for layers in right)
        yield (
            "features.layers",
            f"the manifest says {list(said)}, config.json says {list(written)}, which leaves {reading} in its layout: "
            "trainer and server feed different layers",
        )


def as_many(release: Release) -> Found:
    """MANIFEST-505."""
    layers, fused = release.said.features.layers, release.fused_layers
    if layers is not None and fused is not None and len(layers) != fused:
        yield (
            "features.layers",
            f"names {len(layers)} layers, fc.weight takes {fused}: the fused input has another width",
        )


def feature_norm(release: Release) -> Found:
    """MANIFEST-506."""
    given, found = release.given, release.drafter.manifest
    for section, key, consequence in (
        ("features", "final_norm", "the feature before the final norm and the one after it differ in every entry"),
        ("features", "input_norm", "a norm that the drafter was trained with is left out, or one is added"),
        ("conventions", "residual", "the state and its norm differ in every entry, and so does what is added to it"),
        ("conventions", "fed_back", "from the second draft on another state is consumed than in training"),
    ):
        said, shown = getattr(getattr(given, section), key), getattr(getattr(found, section), key)
        if None not in (said, shown) and said != shown:
            yield f"{section}.{key}", f"the manifest says {said}, the drafter shows {shown}: {consequence}"


def context(release: Release) -> Found:
    """MANIFEST-601."""
    target = release.of_target("max_position_embeddings")
    for field, own in (
        ("positions.maximum", release.given.positions.maximum),
        ("max_position_embeddings", release.of_drafter("max_position_embeddings")),
    ):
        if target is not None and own is not None and own < target:
            yield (
                field,
                f"the drafter has {own} positions, the target {target}: beyond {own} it reads rotary tables out of "
                "range, or drafts what it never learned",
            )


def rotary(release: Release) -> Found:
    """MANIFEST-602."""
    given, found = release.given.positions, release.drafter.manifest.positions
    for key in ("rope_theta", "rope_type", "rope_factor", "rope_layout"):
        said, written = getattr(given, key), getattr(found, key)
        if None not in (said, written) and said != written:
            yield (
                f"positions.{key}",
                f"the manifest says {said}, config.json {written}: queries and keys turn otherwise than in training",
            )
