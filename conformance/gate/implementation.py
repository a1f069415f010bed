"""Asking an implementation for the step in a process of its own: what it says of itself, and its answer or why none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from conformance.gate.request import Request
from conformance.gate.weights import Inputs
from oracle.types import DraftRollout

MOST_TOLD = 400
"""Characters of what a process printed before it ended."""


@dataclass(frozen=True, eq=False)
class Reply:
    """declaration: None where it could not be loaded. answer: None where there is none, then failure says why, or
    malformed in which way what it gave is none."""

    declaration: Mapping[str, Any] | None = None
    answer: DraftRollout | None = None
    failure: str = ""
    malformed: str = ""

    @property
    def title(self) -> str | None:
        return None if self.declaration is None else f"{self.declaration['name']} {self.declaration['version']}"


def ask(request: Request, manifest: Path | None, inputs: Inputs | None) -> Reply:
    """The reply of `request.impl`; without inputs only what it declares."""
    from conformance.gate.child import ANSWER, ARRAYS

    with TemporaryDirectory(prefix="gate-") as name:
        folder = Path(name)
        if inputs is not None:
            np.savez(folder / "inputs.npz", **vars(inputs))
        asked = {
            "impl": request.impl,
            "ask": inputs is not None,
            "inputs": str(folder / "inputs.npz"),
            "drafter": str(request.drafter.absolute()),
            "target": str(request.target.absolute()),
            "manifest": None if manifest is None else str(manifest.absolute()),
        }
        (folder / "request.json").write_text(json.dumps(asked), encoding="utf-8")
        ended = _run(request, folder)
        if not (folder / ANSWER).exists():
            return Reply(failure=ended)
        found = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
        answer = None
        if (folder / ARRAYS).exists() and not found.get("malformed"):
            with np.load(folder / ARRAYS, allow_pickle=False) as held:
                answer = DraftRollout(held["logits"], held["states"])
        return Reply(found.get("declaration"), answer, found.get("failure", ""), found.get("malformed", ""))


def _run(request: Request, folder: Path) -> str:
    """Run the child; how it ended, in words, in case that it left no answer."""
    python = str(request.python or sys.executable)
    command = [python, "-m", "conformance.gate.child", str(folder / "request.json"), str(folder)]
    environment = dict(os.environ)
    if request.python is None:  # what this process finds, its child finds
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        with (folder / "errors").open("wb") as errors:
            child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
    except OSError as error:
        return f"{python} cannot be started: {error}"
    try:
        code = child.wait(request.timeout_s)
    except subprocess.TimeoutExpired:
        return f"its process gave no answer within {request.timeout_s:g} s"
    finally:
        _end(child)
    said = " ".join((folder / "errors").read_text(encoding="utf-8", errors="replace").split())[-MOST_TOLD:]
    return f"its process ended with code {code} and no answer" + (f": … {said}" if said else "")


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process where it still runs, and whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
