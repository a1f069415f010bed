"""Conventions side by side: the trainer's, as the manifest says them, and the server's, as its adapter does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.gate.verdict import FIT, NOT_JUDGED, UNFIT, Convention, Finding, Part
from oracle.manifest.document import Conventions, Manifest

ELSEWHERE = {"draft_map": ("map", "convention")}
"""Convention of an adapter → where a manifest says it, when not in its section of conventions."""


def side_by_side(said: Manifest, declared: Mapping[str, str]) -> list[Convention]:
    """Every convention that a side says and that both have a name for."""
    trainer = {name: value for name, value in vars(said.conventions).items() if value is not None}
    for name, (section, key) in ELSEWHERE.items():
        if (value := getattr(getattr(said, section), key)) is not None:
            trainer[name] = value
    known = [*Conventions.__dataclass_fields__, *ELSEWHERE]
    return [
        Convention(name, None if name not in trainer else str(trainer[name]), declared.get(name))
        for name in known
        if name in trainer or name in declared
    ]


def compared(found: Sequence[Convention]) -> Part:
    """Whether the two sides agree wherever both speak."""
    apart = [
        Finding(
            "",
            f"conventions.{one.name}",
            f"the drafter was trained with {one.trainer}, the server declares {one.server}: what it serves is not what "
            "was trained",
        )
        for one in found
        if one.agree is False
    ]
    shared = sum(one.agree is not None for one in found)
    alone = len(found) - shared
    words = f"{shared} are said on both sides, {alone} on one"
    if apart:
        return Part("conventions", UNFIT, words, apart)
    if not shared:
        return Part("conventions", NOT_JUDGED, words)
    return Part("conventions", FIT, words)
