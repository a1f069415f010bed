"""A program at the other end of three pipes, one JSON object a line: survives whatever the program does to them.

All reading and writing happens inside `ask` and `stop`, in the thread that calls them: whichever pipe is ready is
served, so neither megabytes on stderr nor a program that reads nothing blocks the suite. What fails is told as
`Broken`, and then the whole process group is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from adapters.interface import Broken

LIMIT_LINE = 64 * 2**20
"""Bytes of the longest line that is read."""
KEPT_ERRORS = 8 * 2**10
"""Bytes of stderr that are kept: the last ones."""
SHOWN_LINES = 6
SHOWN_CHARACTERS = 300
GRACE = 1.0
"""Seconds in which a program that was asked to end, or closed its stdout, ends by itself."""
_CHUNK = 2**16
_MOST_CHUNKS = 64
_POLL = 0.2


class Channel:
    """One start of a program, in a process group of its own.

    noise: gets each line of its stdout that is no message. Raises `OSError` where there is no such program.
    """

    def __init__(self, command: Sequence[str], noise: Callable[[bytes], None]) -> None:
        self._noise = noise
        self._lines: deque[bytes] = deque()
        self._partial = bytearray()
        self._errors = b""
        self._outgoing = memoryview(b"")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._in, self._out, self._err = (stream.fileno() if stream else -1 for stream in self._streams)
        self._ready = selectors.DefaultSelector()
        for stream in (self._in, self._out, self._err):
            os.set_blocking(stream, False)
        self._ready.register(self._out, selectors.EVENT_READ)
        self._ready.register(self._err, selectors.EVENT_READ)
        self.alive = True

    # ---- asking

    def ask(self, identity: int, line: bytes, seconds: float) -> dict[str, Any]:
        """Send a line and wait for the object with this id. Raises `Broken`."""
        try:
            return self._asked(identity, line, time.monotonic() + seconds, seconds)
        except BaseException:  # whoever interrupts it leaves an answer behind that nobody has asked for
            self.kill()
            raise

    def _asked(self, identity: int, line: bytes, deadline: float, seconds: float) -> dict[str, Any]:
        self._send(line)
        while True:
            while self._lines and time.monotonic() < deadline:
                found = self._message(self._lines.popleft(), identity)
                if found is not None:
                    return found
            if self._out not in self._ready.get_map():
                self._fail_ended()
            left = deadline - time.monotonic()
            if left <= 0:
                self._fail(f"gave no answer within {seconds:g} s")
            if not self._serve(min(left, _POLL)) and self._process.poll() is not None:
                self._fail_ended()  # something that it started still holds its pipes

    def _message(self, line: bytes, identity: int) -> dict[str, Any] | None:
        """The object that answers `identity`; None for a line that is no message."""
        try:
            found = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            if b'"id"' in line:
                self._fail(f"wrote an answer that is no line of JSON ({_reason(error)}): {shown(line)}")
            found = None
        if not isinstance(found, dict) or "id" not in found:
            if line.strip():
                self._noise(line)
            return None
        if type(found["id"]) is not int or found["id"] != identity:
            self._fail(f"answered a message {found['id']!r} where message {identity} was asked: {shown(line)}")
        return found

    # ---- the pipes

    def _send(self, line: bytes) -> None:
        self._outgoing = memoryview(bytes(self._outgoing) + line)
        if self._in not in self._ready.get_map():
            self._ready.register(self._in, selectors.EVENT_WRITE)

    def _serve(self, seconds: float) -> bool:
        """Serve the pipes that are ready within so many seconds → whether one was."""
        events = self._ready.select(seconds)
        for key, _ in events:
            if key.fd == self._in:
                self._write()
            elif key.fd == self._err:
                self._errors = (self._errors + self._read(self._err))[-KEPT_ERRORS:]
            else:
                self._take(self._read(self._out))
        return bool(events)

    def _write(self) -> None:
        try:
            self._outgoing = self._outgoing[os.write(self._in, self._outgoing[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more; how it ended is on the other pipes
            self._outgoing = memoryview(b"")
        if not self._outgoing:
            self._ready.unregister(self._in)

    def _read(self, stream: int) -> bytes:
        """What there is; a stream at its end is not looked at again."""
        try:
            content = os.read(stream, _CHUNK)
        except BlockingIOError:
            return b""
        except OSError:
            content = b""
        if not content:
            self._ready.unregister(stream)
        return content

    def _take(self, content: bytes) -> None:
        """Cut stdout into lines."""
        *ends, rest = content.split(b"\n")
        for end in ends:
            self._lines.append(bytes(self._partial + end))
            self._partial.clear()
        self._partial += rest
        if len(self._partial) > LIMIT_LINE:
            self._fail(f"wrote a line of more than {LIMIT_LINE} bytes: {shown(self._partial)}")

    # ---- the end

    def _fail_ended(self) -> NoReturn:
        """Its stdout is at its end, and nothing in it answers."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        code = self._process.returncode
        how = "closed its stdout" if code is None else _ending(code)
        self._fail(how + (f" in the middle of a line: {shown(self._partial)}" if self._partial else ""))

    def _fail(self, how: str) -> NoReturn:
        """Raise `Broken` with the last lines of stderr."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # so that what stderr holds comes to an end
        for _ in range(_MOST_CHUNKS):
            if self._err not in self._ready.get_map() or not (content := self._read(self._err)):
                break
            self._errors = (self._errors + content)[-KEPT_ERRORS:]
        self.kill()
        last = [shown(line) for line in self._errors.splitlines() if line.strip()][-SHOWN_LINES:]
        raise Broken("\n".join([f"the program {how}", *(["  on stderr:"] if last else []), *(f"  {x}" for x in last)]))

    def stop(self, line: bytes) -> None:
        """Ask the program to end, wait a moment, and see to it that it does."""
        deadline = time.monotonic() + GRACE
        with contextlib.suppress(Broken):
            self._send(line)
            while self.alive and self._process.poll() is None and time.monotonic() < deadline:
                self._serve(0.02)
                self._lines.clear()
                if not self._outgoing and self._streams[0] is not None:
                    self._streams[0].close()
        self.kill()

    def kill(self) -> None:
        """End the program, and what it started."""
        if not self.alive:
            return
        self.alive = False
        self._ready.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in self._streams:
            if stream is not None:
                stream.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with contextlib.suppress(ValueError):
        return f"died of {signal.Signals(-code).name}"
    return f"died of signal {-code}"


def shown(line: bytes | bytearray) -> str:
    """The beginning of a line, for a person; control characters are written out."""
    text = bytes(line[: 4 * SHOWN_CHARACTERS]).decode("utf-8", errors="replace").strip()
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
