"""The case at hand, on disk before the implementation sees it: what is left when a process dies.

One file a check: a byte that says whether a call is under way, the time the check began, then the case. It
stays open and is overwritten in place, since a check writes it twice a call.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

CALLING, IDLE = b"c", b"s"
_HEAD = 32


@dataclass(frozen=True)
class Remains:
    """What a journal says of a check that never ended."""

    case_text: str
    calling: bool
    seconds: float


class Journal:
    """The journal of one check: its case, and whether a call to the implementation is under way."""

    def __init__(self, folder: Path, check: str) -> None:
        self.path = folder / f"{hashlib.sha256(check.encode()).hexdigest()[:16]}.journal"
        self._file = -1

    def begin(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.pwrite(self._file, IDLE + f"{time.time():.3f}".ljust(_HEAD - 1).encode(), 0)

    def write(self, case_text: str) -> None:
        text = case_text.encode()
        os.pwrite(self._file, text, _HEAD)
        os.ftruncate(self._file, _HEAD + len(text))

    def calling(self) -> None:
        os.pwrite(self._file, CALLING, 0)

    def idle(self) -> None:
        os.pwrite(self._file, IDLE, 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self.path.unlink(missing_ok=True)

    def read(self) -> Remains | None:
        """What is left of a check whose process died, or None where it left nothing."""
        try:
            content = self.path.read_bytes()
            begun = float(content[1:_HEAD])
        except (OSError, ValueError):
            return None
        text = content[_HEAD:].decode(errors="replace")
        return Remains(text, content[:1] == CALLING, time.time() - begun)
