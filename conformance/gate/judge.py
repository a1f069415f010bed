"""The gate itself: every part of a release judged in its turn, and what cannot be judged told as such."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance import clauses
from conformance.gate import conventions, numeric, references
from conformance.gate.implementation import Reply, ask
from conformance.gate.request import REFERENCE, Request, manifest_of, reference_of
from conformance.gate.verdict import FIT, NOT_JUDGED, PARTS, UNFIT, Convention, Finding, Part, Verdict
from conformance.gate.weights import Inputs, drawn
from oracle.errors import BadInput
from oracle.manifest.document import Manifest, keys, unsaid
from oracle.manifest.fingerprint import Progress
from oracle.manifest.opened import Release, open_release
from oracle.manifest.release import RULES, check_release
from oracle.types import ReleaseCase, Violation

GROUPS = ("digests", "tensors", "vocabulary", "addresses", "positions", "numbers")
ProgressOf = Callable[[int], Progress | None]
"""Given how many bytes are to be fingerprinted, what is told of them as they are read; None for nothing."""


def gate(request: Request, progress_of: ProgressOf = lambda _: None) -> Verdict:
    """Judge a release. Nothing is raised for what a release holds: a part that cannot be judged says why."""
    manifest = manifest_of(request)
    try:
        case = ReleaseCase(manifest, request.drafter, request.target)
        release = open_release(case)
        violations = check_release(case, progress_of(fingerprinted(release)))
        parts = [Part("files", FIT, _files(release)), _manifest(release, manifest), *_groups(release, violations)]
    except (BadInput, OSError, MemoryError) as error:
        return _unreadable(request, manifest, error)
    beside: list[Convention] = []
    reply = None
    broken = [part.name for part in parts if part.word == UNFIT and part.name in ("tensors", "numbers", "vocabulary")]
    if broken:
        why = f"the release is unfit in {', '.join(broken)}"
        parts += [Part("step", NOT_JUDGED, why), Part("reference", NOT_JUDGED, why)]
        reply = None if request.impl is None else ask(request, manifest, None)
        parts.append(Part("implementation", NOT_JUDGED, why))
    else:
        parts += [numeric.step(release, lambda: drawn(release, request.seed)), _reference(request, release)]
        reply, part = _implementation(request, manifest, release)
        parts.append(part)
    if reply is not None and reply.declaration is not None:
        beside = conventions.side_by_side(release.said, reply.declaration["conventions"])
        parts.append(conventions.compared(beside))
    else:
        why = "no --impl is named" if request.impl is None else "the implementation declares nothing"
        parts.append(Part("conventions", NOT_JUDGED, why, wanted=request.impl is not None))
    title = None if reply is None else reply.title
    return _verdict(request, manifest, parts, beside, unsaid(release.said), title)


def fingerprinted(release: Release) -> int:
    """About how many bytes the rules read for fingerprints."""
    said = release.given.target.weights or release.given.features.made_from
    return sum(stored.size for stored in release.target.tensors.values()) if said else 0


def _verdict(
    request: Request,
    manifest: Path | None,
    parts: Sequence[Part],
    beside: Sequence[Convention] = (),
    silent: Sequence[str] = (),
    title: str | None = None,
) -> Verdict:
    wanted = [dataclasses.replace(part, wanted=part.wanted or part.name in request.require) for part in parts]
    return Verdict(
        drafter=str(request.drafter),
        target=str(request.target),
        manifest=None if manifest is None else str(manifest),
        impl=request.impl,
        seed=request.seed,
        parts=wanted,
        conventions=beside,
        unsaid=silent,
        served_by=title,
    )


def _unreadable(request: Request, manifest: Path | None, error: Exception) -> Verdict:
    text = str(error) or type(error).__name__
    parts = [Part("files", NOT_JUDGED, text, wanted=True)]
    parts += [Part(name, NOT_JUDGED, "the release cannot be read") for name in PARTS[1:]]
    return _verdict(request, manifest, parts)


def _files(release: Release) -> str:
    sizes = [sum(s.size for s in held.tensors.values()) for held in (release.checkpoint, release.target)]
    counts = [len(held.tensors) for held in (release.checkpoint, release.target)]
    words = [f"{count} tensors of {_bytes(size)}" for count, size in zip(counts, sizes)]
    return f"drafter {words[0]} in the layout {release.drafter.layout}, target {words[1]}"


def _bytes(size: int) -> str:
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} bytes"


def _manifest(release: Release, manifest: Path | None) -> Part:
    silent = len(unsaid(release.said))
    if manifest is None:
        reason = f"there is none; the layout says {len(keys()) - silent} of {len(keys())} keys"
        return Part("manifest", NOT_JUDGED, reason)
    told = len(keys()) - len(unsaid(release.given))
    return Part("manifest", FIT, f"{manifest.name} says {told} of {len(keys())} keys, {silent} nobody says")


def _groups(release: Release, violations: Sequence[Violation]) -> list[Part]:
    """A part for each group of the contract's rules."""
    parts = []
    for group in GROUPS:
        rules = [clause for clause in RULES if clauses.clause(clause).group == group]
        findings = [Finding(one.clause, one.field, one.message) for one in violations if one.clause in rules]
        broken = {finding.clause for finding in findings}
        if findings:
            parts.append(Part(group, UNFIT, f"{len(broken)} of {len(rules)} rules broken", findings))
        elif group == "digests" and not _says_digests(release.given):
            parts.append(Part(group, NOT_JUDGED, "no manifest says any"))
        else:
            parts.append(Part(group, FIT, f"{len(rules)} rules hold"))
    return parts


def _says_digests(given: Manifest) -> bool:
    target = given.target
    of_target = (target.config, target.weights, target.tokenizer, given.features.made_from)
    return any((*of_target, given.head.digest, given.embedding.digest, given.map.digest))


def _reference(request: Request, release: Release) -> Part:
    path = reference_of(request)
    if path is None:
        return Part("reference", NOT_JUDGED, f"there is no {REFERENCE}")

    def judged() -> Part:
        given, made_by = references.read(path)
        return numeric.against("reference", release, given, f"the logits that {made_by} stored")

    return numeric.guarded("reference", True, judged)


def _implementation(request: Request, manifest: Path | None, release: Release) -> tuple[Reply | None, Part]:
    """What the implementation replied, and how its answer fares."""
    name = "implementation"
    if request.impl is None:
        return None, Part(name, NOT_JUDGED, "no --impl is named")
    inputs = _drawn(release, request.seed)
    reply = ask(request, manifest, inputs)
    if reply.malformed:
        return reply, Part(name, UNFIT, "its answer is none", [Finding("", "draft_logits", reply.malformed)], True)
    if reply.answer is None or reply.declaration is None or inputs is None:
        return reply, Part(name, NOT_JUDGED, reply.failure or "there is nothing to ask it", wanted=True)
    given = numeric.Given(inputs, reply.answer, reply.declaration["arithmetic"]["dtype"])
    whose = f"the logits of {reply.title}"
    return reply, numeric.guarded(name, True, lambda: numeric.against(name, release, given, whose))


def _drawn(release: Release, seed: int) -> Inputs | None:
    try:
        return drawn(release, seed)
    except BadInput:
        return None
