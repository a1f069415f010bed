"""Rules of the vocabulary: sizes, the draft map, heads and tokenizers (MANIFEST 4xx)."""

from __future__ import annotations

import numpy as np

from oracle.manifest.opened import Found, Release
from oracle.manifest.tokenizer import read_tokenizer


def sizes(release: Release) -> Found:
    """MANIFEST-401."""
    target, drafter = release.of_target("vocab_size"), release.of_drafter("vocab_size")
    said = release.given.target.vocabulary_size
    if target is None:
        return
    if drafter is not None and drafter != target:
        yield (
            "vocab_size",
            f"the drafter's is {drafter}, the target's {target}: embeddings and masks of one do not fit the other",
        )
    if said is not None and said != target:
        yield (
            "target.vocabulary_size",
            f"the manifest says {said}, the target has {target}: it was trained for another vocabulary",
        )


def draft_sizes(release: Release) -> Found:
    """MANIFEST-402."""
    size, whole = release.draft_size, release.of_drafter("vocab_size")
    if size is None:
        return
    said, mapped = release.given.map.size, release.drafter.tensors.get("d2t")
    if said is not None and said != size:
        yield "map.size", f"the manifest says {said} draft ids, the drafter has {size}: the map is of another head"
    if mapped is not None and mapped.shape != (size,):
        yield "d2t", f"has shape {list(mapped.shape)}, the draft vocabulary is {size}: some draft ids lead nowhere"
    if whole is not None and size > whole:
        yield "draft_vocab_size", f"is {size}, the vocabulary has {whole}: draft ids cannot all be tokens"


def map_range(release: Release) -> Found:
    """MANIFEST-403."""
    held = release.draft_map
    if held is None or held.misread or held.is_map(held.ids):
        return
    outside = held.outside(held.ids)
    if len(outside):
        draft = int(outside[0])
        yield (
            "d2t",
            f"leads draft id {draft} to {int(held.ids[draft])}, the vocabulary ends at {held.vocabulary}: reading "
            "embeddings there is out of range",
        )
        return
    order = np.argsort(held.ids, kind="stable")
    twin = int(np.flatnonzero(np.diff(held.ids[order]) == 0)[0])
    first, second = int(order[twin]), int(order[twin + 1])
    yield (
        "d2t",
        f"leads draft ids {first} and {second} to the one token {int(held.ids[first])}: a node gets twins, and the "
        "draft's law is not the one that the verifier is told",
    )


def map_order(release: Release) -> Found:
    """MANIFEST-404."""
    held = release.draft_map
    if held is None or held.marked is None or not held.fits_marks or np.array_equal(held.ids, held.marked):
        return
    draft = int(np.flatnonzero(held.ids != held.marked)[0])
    yield (
        "d2t",
        f"leads draft id {draft} to {int(held.ids[draft])}, by t2d it is {int(held.marked[draft])}: training cut the "
        "target's rows by t2d, in rising order, so the head's rows stand for other tokens",
    )


def marks(release: Release) -> Found:
    """MANIFEST-405."""
    held, stored = release.draft_map, release.drafter.tensors.get("t2d")
    if held is None or stored is None or held.marked is None:
        return
    if stored.shape != (held.vocabulary,):
        yield "t2d", f"has shape {list(stored.shape)}, the vocabulary {held.vocabulary}: it marks other tokens"
    elif held.is_map(held.ids) and not held.misread and not held.fits_marks:
        odd = int(np.setxor1d(held.ids, held.marked)[0])
        one, other = ("t2d", "d2t") if odd in held.marked else ("d2t", "t2d")
        yield (
            "t2d",
            f"token {odd} is in {one} and not in {other}: the target's law was restricted to other tokens than those "
            "that are drafted",
        )


def convention(release: Release) -> Found:
    """MANIFEST-406."""
    held = release.draft_map
    if held is None or not held.misread:
        return
    other = "absolute" if held.convention == "offset" else "offset"
    draft = int(np.flatnonzero(held.ids != held.read_as(other))[0])
    yield (
        "map.convention",
        f"d2t is read as {held.convention}, and fits as {other} alone: draft id {draft} is read as token "
        f"{int(held.ids[draft])} and means {int(held.read_as(other)[draft])}",
    )


def reduced_head(release: Release) -> Found:
    """MANIFEST-407."""
    if release.reduced and release.own_head is None:
        yield (
            "lm_head.weight",
            f"the draft vocabulary has {release.draft_size} of {release.of_drafter('vocab_size')} tokens, the "
            "checkpoint has no head: the target's has other rows, and an engine's own stays at random",
        )


def reduced_map(release: Release) -> Found:
    """MANIFEST-408."""
    if release.reduced and "d2t" not in release.drafter.tensors:
        yield (
            "d2t",
            f"the draft vocabulary has {release.draft_size} of {release.of_drafter('vocab_size')} tokens, the "
            "checkpoint has no map: engines take the first ids",
        )


def identities(release: Release) -> Found:
    """MANIFEST-409."""
    for name, part, own, shared in (
        ("head", release.given.head, release.own_head, release.target_head),
        ("embedding", release.given.embedding, release.own_embedding, release.target_embedding),
    ):
        if part.identity == "own" and own is None and not (name == "head" and release.reduced):
            yield (
                f"{name}.identity",
                f"the manifest says own, the checkpoint has no {name}: the target's takes its place, or a random one",
            )
        if part.identity == "target" and own is not None:
            if shared is not None and release.digest(own) == release.digest(shared):
                continue
            yield (
                f"{name}.identity",
                f"the manifest says target, the checkpoint has {own.name} of its own that differs from the target's: "
                "engines that share and engines that load compute different drafts",
            )


def tokenizers(release: Release) -> Found:
    """MANIFEST-410."""
    own = read_tokenizer(release.checkpoint.folder)
    target = read_tokenizer(release.target.folder) if own is not None else None
    if own is None or target is None or own == target:
        return
    identity = min(i for i in {*own, *target} if own.get(i) != target.get(i))
    yield (
        "tokenizer",
        f"id {identity} is {own.get(identity, 'no token')!r} for the drafter and {target.get(identity, 'no token')!r} "
        "for the target: drafts are other words than those that the target verifies",
    )
