"""A drafter release: three paths, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReleaseCase:
    """manifest: the TOML document, or None where none was written. drafter, target: folders of checkpoints."""

    manifest: Path | None
    drafter: Path
    target: Path


@dataclass(frozen=True)
class Violation:
    """clause: the rule that is broken. field: the manifest's, the config's or the tensor's name. message: both values,
    and what would go wrong."""

    clause: str
    field: str
    message: str
