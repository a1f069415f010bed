"""Making what a release carries: reference logits, and a manifest as far as it can be inferred."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from typing import Any

from conformance.gate import numeric, references
from conformance.gate.implementation import ask
from conformance.gate.judge import ProgressOf
from conformance.gate.request import Request, manifest_of
from conformance.gate.verdict import UNFIT
from conformance.gate.weights import NoNotion, drawn, whole_case
from oracle import drafter as oracle
from oracle.errors import BadInput
from oracle.manifest import fingerprint
from oracle.manifest.document import FORMAT, DraftMap, Manifest, Part, Target, from_table, merged
from oracle.manifest.headers import Stored
from oracle.manifest.opened import Release, open_release
from oracle.manifest.tokenizer import read_tokenizer
from oracle.types import ReleaseCase


def make_reference(request: Request) -> tuple[bytes, str]:
    """The file of reference logits, and what is in it in words. Raises `BadInput`.

    Logits that the drafter's weights do not make are refused, whoever made them.
    """
    manifest = manifest_of(request)
    release = open_release(ReleaseCase(manifest, request.drafter, request.target))
    inputs = drawn(release, request.seed)
    try:
        if request.impl is None:
            answer, dtype, made_by = oracle.draft_logits(whole_case(release, inputs)), "float64", "the oracle"
        else:
            reply = ask(request, manifest, inputs)
            if reply.answer is None or reply.declaration is None:
                raise BadInput("--impl", (), "answers for this drafter", reply.failure or reply.malformed)
            answer, dtype, made_by = reply.answer, reply.declaration["arithmetic"]["dtype"], str(reply.title)
        given = numeric.Given(inputs, answer, dtype)
        part = numeric.against("reference", release, given, f"the logits of {made_by}")
    except NoNotion as reason:
        raise BadInput("drafter", (), f"the numeric step has no notion of {reason}") from None
    except numeric.Disagreement as fault:
        raise BadInput("logits", (), str(fault)) from None
    if part.word == UNFIT:
        raise BadInput("logits", (), f"{part.reason}: {part.findings[0].field} {part.findings[0].message}")
    return references.content(given, made_by), f"by {made_by}, {part.reason}"


def infer(request: Request, settings: Sequence[str], progress_of: ProgressOf) -> Manifest:
    """The manifest of a release: what is set, then what `request.manifest` says, then what the checkpoints show.

    settings: "section.key=value", with values as TOML writes them. Raises `BadInput`.
    """
    said = parsed(settings)
    release = open_release(ReleaseCase(request.manifest, request.drafter, request.target))
    total = sum(stored.size for stored in release.target.tensors.values())
    release = dataclasses.replace(release, progress=progress_of(total))
    return merged(merged(said, release.given), merged(_seen(release), release.drafter.manifest))


def parsed(settings: Sequence[str]) -> Manifest:
    """The manifest that says these settings alone. Raises `BadInput`."""
    table: dict[str, Any] = {"format": FORMAT}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            found = tomllib.loads(f"value = {value}")
        except tomllib.TOMLDecodeError:
            found = {"value": value}  # a bare word is a text
        if set(found) != {"value"}:
            raise BadInput("--set", (), "is KEY=VALUE", setting)
        section, _, inner = key.strip().rpartition(".")
        (table.setdefault(section, {}) if section else table)[inner] = found["value"]
    return from_table(table, "--set")


def _seen(release: Release) -> Manifest:
    """What both checkpoints show: fingerprints, sizes, and whose head and embedding it is."""
    tokens = read_tokenizer(release.target.folder)
    held = release.draft_map
    return Manifest(
        variant=release.variant,
        target=Target(
            config=fingerprint.config_digest(release.target.config),
            weights=release.target_weights,
            tokenizer=None if tokens is None else fingerprint.tokenizer_digest(tokens),
            vocabulary_size=release.of_target("vocab_size"),
            hidden_size=release.of_target("hidden_size"),
        ),
        head=_part(release, release.own_head, release.target_head),
        embedding=_part(release, release.own_embedding, release.target_embedding),
        map=DraftMap(
            size=release.draft_size,
            digest=fingerprint.map_digest(held.ids) if held is not None and held.is_map(held.ids) else None,
        ),
    )


def _part(release: Release, own: Stored | None, target: Stored | None) -> Part:
    stored = own or target
    identity = "own" if own is not None else "target"
    return Part() if stored is None else Part(identity, release.digest(stored))
