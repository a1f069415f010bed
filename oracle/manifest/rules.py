"""Rules for the values of a document: what a reader refuses, and the same rule as a JSON schema says it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DIGEST = "sha256:[0-9a-f]{64}"
LARGEST = 2**53
"""Up to here a whole number is the same in TOML, in JSON and in floating point."""


@dataclass(frozen=True)
class Rule:
    """`words` complete "the value …"; `schema` is the rule in JSON schema's words; `read` gives the value, or None."""

    words: str
    schema: Mapping[str, Any] = field(default_factory=dict)

    def read(self, value: object) -> Any:
        """The value as the document's reader hands it on; None where it breaks the rule."""
        raise NotImplementedError


@dataclass(frozen=True)
class Text(Rule):
    pattern: str = ""

    def read(self, value: object) -> str | None:
        return value if isinstance(value, str) and re.fullmatch(self.pattern, value) else None


@dataclass(frozen=True)
class Flag(Rule):
    def read(self, value: object) -> bool | None:
        return value if isinstance(value, bool) else None


@dataclass(frozen=True)
class Whole(Rule):
    """1.0 is the whole number 1, as in JSON."""

    least: int = 0

    def read(self, value: object) -> int | None:
        number = _number(value)
        whole = number is not None and number == int(number) and self.least <= number <= LARGEST
        return int(number) if whole and number is not None else None


@dataclass(frozen=True)
class Real(Rule):
    least: float = 0.0
    above: bool = False
    """Whether `least` itself is too small."""

    def read(self, value: object) -> float | None:
        number = _number(value)
        fits = number is not None and (number > self.least if self.above else number >= self.least)
        return float(number) if fits and number is not None else None


@dataclass(frozen=True)
class Many(Rule):
    member: Rule = field(default_factory=lambda: Rule(""))
    fewest: int = 1
    most: int = 64

    def read(self, value: object) -> tuple[Any, ...] | None:
        if not isinstance(value, list) or not self.fewest <= len(value) <= self.most:
            return None
        members = tuple(self.member.read(entry) for entry in value)
        return None if any(member is None for member in members) else members


def one_of(names: Sequence[str]) -> Rule:
    """One of the names."""
    return Text(f"is one of {', '.join(names)}", {"enum": list(names)}, "|".join(map(re.escape, names)))


def digest() -> Rule:
    """A fingerprint."""
    return Text(
        "is a fingerprint: sha256: and 64 hexadecimal digits", {"type": "string", "pattern": f"^{DIGEST}$"}, DIGEST
    )


def text(longest: int = 200) -> Rule:
    """A line of text."""
    pattern = f"[^\\n\\r]{{1,{longest}}}"
    return Text(f"is a line of 1 to {longest} characters", {"type": "string", "pattern": f"^{pattern}$"}, pattern)


def flag() -> Rule:
    """true or false."""
    return Flag("is true or false", {"type": "boolean"})


def whole(least: int) -> Rule:
    """A whole number of at least `least`."""
    return Whole(
        f"is a whole number of at least {least}", {"type": "integer", "minimum": least, "maximum": LARGEST}, least
    )


def real(least: float, above: bool = False) -> Rule:
    """A finite number of at least `least`, or above it."""
    words = f"is a finite number {'above' if above else 'of at least'} {least:g}"
    return Real(words, {"type": "number", "exclusiveMinimum" if above else "minimum": least}, least, above)


def many(member: Rule, fewest: int = 1, most: int = 64) -> Rule:
    """A list."""
    words = f"is a list of {fewest} to {most}, each of which {member.words}"
    return Many(
        words,
        {"type": "array", "items": dict(member.schema), "minItems": fewest, "maxItems": most},
        member,
        fewest,
        most,
    )


def _number(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None
