"""What an implementation writes to standard output, kept out of the run's own."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any


class _Sink:
    """One file per process that file descriptor 1 points at while the implementation runs."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)

    def take(self) -> bytes:
        """What was written since the last time, its first 4096 bytes, and an empty file again."""
        size = os.fstat(self.file.fileno()).st_size
        if not size:
            return b""
        text = os.pread(self.file.fileno(), min(size, 4096), 0)
        self.file.truncate(0)
        self.file.seek(0)
        return text


@functools.cache
def _sink() -> _Sink:
    return _Sink()


@contextlib.contextmanager
def stdout_to(keep: Callable[[bytes], None]) -> Iterator[None]:
    """Hand `keep` what is written to file descriptor 1, by Python or by native code."""
    sink = _sink()
    _flush()
    saved = os.dup(1)
    os.dup2(sink.file.fileno(), 1)
    try:
        yield
    finally:
        _flush()
        os.dup2(saved, 1)
        os.close(saved)
        if text := sink.take():
            keep(text)


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    if _LIBC is not None:
        _LIBC.fflush(None)


try:
    _LIBC: Any = ctypes.CDLL(None)
except (OSError, TypeError):  # no C library to ask, as on Windows: native buffers flush late
    _LIBC = None
