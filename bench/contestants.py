"""Who takes part in a race: a call of ours, another package in a process of its own, or a physical bound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from bench.measuring import Taken, grown, timed

ROOT = Path(__file__).resolve().parent.parent
PEERS = "BENCH_PEERS"
"""The environment variable that, set to `none`, leaves other packages out."""


class PeerFailure(Exception):
    """Another package cannot be asked; the message says why."""


class Racer(Protocol):
    """What a race needs of whoever takes part."""

    name: str
    kind: str
    """`ours`, `peer`, or `bound`: a time that nobody beats on this machine."""
    compared: bool
    """Whether its answer is compared with the fast path's."""
    calls: int | None
    """Calls in a row that are timed as one, where that differs from the race's."""

    def answer(self) -> Any: ...
    def time(self, calls: int) -> Taken: ...
    def memory(self) -> int | None: ...


@dataclass
class Contestant:
    """A call in this process.

    run: what is timed. checked: what is compared instead, where a timed call draws coins of its own. compared: False
    for a call on other inputs, and for a bound.
    """

    name: str
    run: Callable[[], Any]
    checked: Callable[[], Any] | None = None
    compared: bool = True
    calls: int | None = None
    kind: str = "ours"

    def answer(self) -> Any:
        return (self.checked or self.run)()

    def time(self, calls: int) -> Taken:
        return timed(self.run, calls)

    def memory(self) -> int | None:
        return grown(self.run)


def bound(name: str, run: Callable[[], Any]) -> Contestant:
    """A bound that is measured by doing what no exact implementation can leave out."""
    return Contestant(name, run, compared=False, kind="bound")


def moved(size: float, name: str = "memory") -> Contestant:
    """The time that `size` bytes take to be read, at the bandwidth of a copy: half of them read, half written.

    They come from memory, not from a cache: successive calls walk over a quarter of a gibibyte.
    """
    half = max(64, int(size) // 2)
    held = torch.ones(max(2**28, half), dtype=torch.uint8)
    into = torch.empty(half, dtype=torch.uint8)
    starts = _walk(len(held), half)

    def run() -> None:
        start = next(starts)
        into.copy_(held[start : start + half])

    return bound(f"{name}: {_size(size)} at the bandwidth of a copy", run)


def _walk(length: int, step: int) -> Any:
    while True:
        yield from range(0, length - step + 1, step)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.3g} {unit}"


def peer(spec: str, function: str, inputs: Mapping[str, np.ndarray], *, calls: int | None = None) -> Racer | Missing:
    """Another package's own code in a process of its own, in the environment of `--impl=spec`.

    function: `bench.peers.PACKAGE:NAME`. inputs: arrays by name, which the peer gets as a file.
    """
    if os.environ.get(PEERS, "") == "none":
        return Missing(function.rpartition(".")[2].partition(":")[0], f"left out by {PEERS}=none")
    return Peer(spec, function, inputs, calls)


@dataclass(frozen=True)
class Missing:
    """Who was to take part and did not."""

    name: str
    why: str


class Peer:
    """A process that answers one JSON line for each: load, answer, time, grow."""

    kind = "peer"
    compared = True

    def __init__(self, spec: str, function: str, inputs: Mapping[str, np.ndarray], calls: int | None = None) -> None:
        self.calls = calls
        self._folder = tempfile.TemporaryDirectory(prefix="eagle-bench-")
        stored = Path(self._folder.name) / "inputs.npz"
        np.savez(stored, **{name: np.asarray(value) for name, value in inputs.items()})  # type: ignore[arg-type]
        found = subprocess.run(
            [sys.executable, "-m", "tools.environment", spec], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if found.returncode:
            raise PeerFailure(f"{spec}: no environment\n{found.stderr}")
        self._process = subprocess.Popen(
            [found.stdout.strip(), "-m", "bench.peer_process"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        module, _, name = function.partition(":")
        try:
            self.name = str(self._ask(do="load", module=module, function=name, inputs=str(stored))["name"])
        except PeerFailure:
            self.close()
            raise

    def answer(self) -> dict[str, np.ndarray]:
        into = Path(self._folder.name) / "answer.npz"
        self._ask(do="answer", into=str(into))
        with np.load(into, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}

    def time(self, calls: int) -> Taken:
        found = self._ask(do="time", calls=calls)
        return Taken(cpu=float(found["cpu"]), wall=float(found["wall"]))

    def memory(self) -> int | None:
        size = self._ask(do="grow")["bytes"]
        return None if size is None else int(size)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _ask(self, **message: object) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError as error:
            raise PeerFailure(f"the peer's process ended: {error}") from None
        reply = json.loads(line) if line else {"error": "the peer's process ended"}
        if "error" in reply:
            raise PeerFailure(str(reply["error"]))
        return dict(reply)
