"""What a call takes: seconds of this process, seconds by the clock, and bytes that the process grows by."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True)
class Taken:
    """Seconds a call: of the process on a core (`cpu`), and by the clock (`wall`)."""

    cpu: float
    wall: float


def timed(call: Callable[[], object], calls: int = 1) -> Taken:
    """The mean of some calls in a row. No garbage is collected in between."""
    collects = gc.isenabled()
    gc.disable()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            call()
        return Taken((time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls)
    finally:
        if collects:
            gc.enable()


def grown(call: Callable[[], object]) -> int | None:
    """Bytes resident at most during a call beyond those before it, as the kernel tells; None where it does not."""
    gc.collect()
    if os.name == "posix" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # what the allocator keeps would hide what the call needs
    try:
        _CLEAR.write_text("5", encoding="ascii")  # the high-water mark starts here
        before = _resident("VmRSS")
        kept = call()
        most = _resident("VmHWM")
    except OSError:
        return None
    del kept
    return max(0, most - before)


def _resident(field: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    (told,) = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(told) * 1024
