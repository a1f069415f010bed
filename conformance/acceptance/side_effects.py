"""What a call does beside returning its result: generators that it moves, and what it prints."""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.check import Check
from conformance.verdicts import ClauseViolation


def leaves_generators(check: Check, operation: str, call: Callable[[], object]) -> None:
    """`ClauseViolation` where the second of two calls moves a global generator that is not declared."""
    declared = check.implementation.declaration.generators
    call()  # whatever a first call imports may seed what it likes
    stir()
    before = global_states()
    call()
    after = global_states()
    moved = [name for name in before if name not in declared and before[name] != after.get(name)]
    if moved:
        raise ClauseViolation(f"{operation} moved the global generator of {' and '.join(moved)}, undeclared")


def stays_silent(check: Check, operation: str, call: Callable[[], object]) -> None:
    """`ClauseViolation` where the call writes to standard output."""
    with contextlib.redirect_stdout(io.StringIO()) as stream:  # where pytest captures, Python's is another one
        call()
    text = check.printed[:200].decode(errors="replace") or stream.getvalue()[:200]
    if text:
        raise ClauseViolation(f"{operation} wrote to standard output: {text!r}")


def stir() -> None:
    """Draw from each global generator that is loaded: who seeds one for each call no longer finds it as it left it."""
    random.random()
    np.random.random()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.rand(1)


def global_states() -> dict[str, Any]:
    """The state of each global generator that is loaded."""
    states: dict[str, Any] = {"python": random.getstate()}
    kind, keys, *rest = np.random.get_state()
    states["numpy"] = (kind, np.asarray(keys).tobytes(), *rest)
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.random.get_rng_state().numpy().tobytes()
    return states
