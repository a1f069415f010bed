"""The case at hand, on disk before the implementation sees it: what is left when a process dies."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Remains:
    """What a journal says of a check that never ended."""

    case_text: str
    calling: bool
    seconds: float


@dataclass(frozen=True)
class Journal:
    """The journal of one check: its case, and whether a call to the implementation is under way."""

    folder: Path
    check: str

    @property
    def _stem(self) -> Path:
        return self.folder / hashlib.sha256(self.check.encode()).hexdigest()[:16]

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stem.with_suffix(".begun").write_text(repr(time.time()), encoding="utf-8")
        self.state("suite")

    def write(self, case_text: str) -> None:
        self._stem.with_suffix(".json").write_text(case_text, encoding="utf-8")

    def state(self, word: str) -> None:
        self._stem.with_suffix(".state").write_text(word, encoding="utf-8")

    def close(self) -> None:
        for suffix in (".json", ".state", ".begun"):
            self._stem.with_suffix(suffix).unlink(missing_ok=True)

    def read(self) -> Remains | None:
        """What is left of a check whose process died, or None where it left nothing."""
        try:
            begun = float(self._stem.with_suffix(".begun").read_text(encoding="utf-8"))
            state = self._stem.with_suffix(".state").read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
        try:
            text = self._stem.with_suffix(".json").read_text(encoding="utf-8")
        except OSError:
            text = ""
        return Remains(text, state == "call", time.time() - begun)
