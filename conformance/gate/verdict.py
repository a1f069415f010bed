"""What the gate found: a word for each of its parts, and the exit code that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance import __version__

FORMAT = "eagle-conformance/gate/1"
FIT, UNFIT, NOT_JUDGED = "fit", "unfit", "not judged"
WORDS = (FIT, UNFIT, NOT_JUDGED)
PARTS = (
    *("files", "manifest", "digests", "tensors", "vocabulary", "addresses", "positions", "numbers"),
    *("step", "reference", "implementation", "conventions"),
)
"""What is judged, in this order; from "digests" to "numbers" they are the groups of the contract `manifest`."""
EXIT_CODES: Mapping[str, int] = {FIT: 0, UNFIT: 1, NOT_JUDGED: 2}


def printable(text: str) -> str:
    """The text with what is no printable character written out: names come from files that may mean harm."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. clause: of the contract `manifest`, or empty; field: what is wrong; message: how."""

    clause: str
    field: str
    message: str


@dataclass(frozen=True)
class Part:
    """name: one of `PARTS`. word: one of `WORDS`. reason: what was seen, or why nothing was. wanted: whether the gate
    was asked for this part, so that it may not be passed over. numbers: what was measured, by name."""

    name: str
    word: str
    reason: str
    findings: Sequence[Finding] = ()
    wanted: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Convention:
    """A choice on both sides, None where a side does not say."""

    name: str
    trainer: str | None
    server: str | None

    @property
    def agree(self) -> bool | None:
        """None where it is not said on both sides."""
        return None if None in (self.trainer, self.server) else same(str(self.trainer), str(self.server))


def same(one: str, other: str) -> bool:
    """Whether two values of a convention are one: numbers by what they are worth."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


@dataclass(frozen=True)
class Verdict:
    """drafter, target, manifest, impl: as they were given; manifest is None where it was inferred. unsaid: the
    manifest's keys that nobody says. served_by: name and version of the implementation."""

    drafter: str
    target: str
    manifest: str | None
    impl: str | None
    seed: int
    parts: Sequence[Part]
    conventions: Sequence[Convention] = ()
    unsaid: Sequence[str] = ()
    served_by: str | None = None

    @property
    def word(self) -> str:
        """Unfit where a part is; not judged where one that was asked for is, or where none is fit."""
        if any(part.word == UNFIT for part in self.parts):
            return UNFIT
        if any(part.wanted and part.word == NOT_JUDGED for part in self.parts):
            return NOT_JUDGED
        return FIT if any(part.word == FIT for part in self.parts) else NOT_JUDGED

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.word]

    @property
    def findings(self) -> list[Finding]:
        return [finding for part in self.parts for finding in part.findings]

    def document(self) -> dict[str, Any]:
        """The verdict as plain data, all of it printable; docs/gate.md explains its keys."""
        found: dict[str, Any] = _printable(self._document())
        return found

    def _document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "suite": __version__,
            "word": self.word,
            "exit_code": self.exit_code,
            "drafter": self.drafter,
            "target": self.target,
            "manifest": self.manifest,
            "unsaid": list(self.unsaid),
            "impl": self.impl,
            "served_by": self.served_by,
            "seed": self.seed,
            "parts": [
                {
                    "name": part.name,
                    "word": part.word,
                    "reason": part.reason,
                    "wanted": part.wanted,
                    "numbers": dict(part.numbers),
                    "findings": [vars(finding) for finding in part.findings],
                }
                for part in self.parts
            ],
            "conventions": [
                {"name": c.name, "trainer": c.trainer, "server": c.server, "agree": c.agree} for c in self.conventions
            ],
        }


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _printable(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_printable(held) for held in value]
    return printable(value) if isinstance(value, str) else value
