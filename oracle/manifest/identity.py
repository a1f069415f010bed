"""Rules of the digests: whether the parts of a release are those that it was made from (MANIFEST 2xx)."""

from __future__ import annotations

from oracle.manifest import fingerprint
from oracle.manifest.opened import Found, Release
from oracle.manifest.tokenizer import read_tokenizer


def target_weights(release: Release) -> Found:
    """MANIFEST-201."""
    said = release.given.target.weights
    if said is not None and said != release.target_weights:
        yield (
            "target.weights",
            f"the manifest says {said}, the target's weights are {release.target_weights}: the drafter was trained on "
            "the features of another model, and is accepted less often",
        )


def target_config(release: Release) -> Found:
    """MANIFEST-203."""
    said, found = release.given.target.config, fingerprint.config_digest(release.target.config)
    if said is not None and said != found:
        yield (
            "target.config",
            f"the manifest says {said}, the target's config.json is {found}: equal weights compute another function "
            "under other settings",
        )


def target_tokenizer(release: Release) -> Found:
    """MANIFEST-204."""
    said = release.given.target.tokenizer
    tokens = read_tokenizer(release.target.folder) if said is not None else None
    if said is None or tokens is None:
        return
    found = fingerprint.tokenizer_digest(tokens)
    if said != found:
        yield (
            "target.tokenizer",
            f"the manifest says {said}, the target's tokenizer is {found}: ids stand for other tokens than in training",
        )


def parts(release: Release) -> Found:
    """MANIFEST-205."""
    for name, part, stored in (
        ("head", release.given.head, release.own_head or release.target_head),
        ("embedding", release.given.embedding, release.own_embedding or release.target_embedding),
    ):
        own = getattr(release, f"own_{name}")
        if part.digest is None or stored is None or (part.identity == "own" and own is None):
            continue
        found = release.digest(stored)
        if part.digest != found:
            yield (
                f"{name}.digest",
                f"the manifest says {part.digest}, {stored.name} is {found}: the drafter runs with another {name} than "
                "the one it was trained with",
            )


def draft_map(release: Release) -> Found:
    """MANIFEST-206."""
    held = release.draft_map
    if held is None or held.digest is None or held.misread or not held.is_map(held.ids):
        return
    found = fingerprint.map_digest(held.ids)
    if found != held.digest:
        yield (
            "map.digest",
            f"the manifest says {held.digest}, d2t is {found}: the head's rows stand for other tokens than in training",
        )


def features(release: Release) -> Found:
    """MANIFEST-207."""
    said = release.given.features.made_from
    trained = release.given.target.weights
    if said is not None and said != (trained or release.target_weights):
        whose = "the manifest's target.weights are" if trained else "the target's weights are"
        yield (
            "features.made_from",
            f"the features were made from {said}, {whose} {trained or release.target_weights}: the drafter learned the "
            "features of another revision",
        )
