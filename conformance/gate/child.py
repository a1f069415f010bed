"""The implementation's side of the gate, in a process of its own: `python -m conformance.gate.child REQUEST FOLDER`.

It reads the release itself, asks the adapter for the step and leaves `answer.npz` and, last, `answer.json` in FOLDER.
Without `answer.json` it came to no end, whatever its exit code says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from adapters.interface import AdapterError, Implementation, NotApplicable, load
from conformance import compare
from conformance.gate.weights import Inputs, NoNotion, whole_case
from conformance.verdicts import ClauseViolation
from oracle.errors import BadInput
from oracle.manifest.opened import open_release
from oracle.types import ReleaseCase

OPERATION = "draft_logits"
VARIANT = "drafter"
"""The variant of an adapter that is asked where the adapter itself has no numeric step."""
ANSWER, ARRAYS = "answer.json", "answer.npz"


def main(request: Path, folder: Path) -> None:
    """Answer the request, and say why not where it cannot be answered."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    found = _answer(asked, folder)
    partial = folder / f"{ANSWER}.partial"
    partial.write_text(json.dumps(found), encoding="utf-8")
    os.replace(partial, folder / ANSWER)


def _answer(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        implementation = _loaded(asked["impl"])
    except AdapterError as error:
        return {"failure": str(error)}
    found: dict[str, Any] = {"declaration": _declared(implementation.declaration)}
    if OPERATION not in implementation.operations:
        return found | {"failure": f"--impl={asked['impl']} has no {OPERATION}"}
    if not asked["ask"]:
        return found
    paths = {name: None if asked[name] is None else Path(asked[name]) for name in ("manifest", "drafter", "target")}
    with np.load(asked["inputs"], allow_pickle=False) as held:
        inputs = Inputs(*(held[name] for name in ("features", "tokens", "positions", "rollout_tokens")))
    try:
        case = whole_case(open_release(ReleaseCase(**paths)), inputs)  # type: ignore[arg-type]
    except (NoNotion, BadInput) as error:
        return found | {"failure": str(error)}
    try:
        made = implementation.operations[OPERATION](case)
    except NotApplicable as reason:
        return found | {"failure": f"it has no notion of this drafter: {reason}"}
    except Exception as error:
        return found | {"failure": f"{OPERATION} raised {type(error).__name__}: {error}"}
    try:
        arrays = {name: compare.plain(getattr(made, name, None), name) for name in ("logits", "states")}
        np.savez(folder / ARRAYS, logits=_floats(arrays["logits"]), states=_floats(arrays["states"]))
    except (ClauseViolation, TypeError, ValueError) as error:
        return found | {"malformed": str(error)}
    return found


def _loaded(spec: str) -> Implementation:
    """The implementation, or its variant `drafter` where it has no numeric step itself. Raises `AdapterError`."""
    found = load(spec)
    if OPERATION not in found.operations and ":" not in spec:
        with contextlib.suppress(AdapterError):
            return load(f"{spec}:{VARIANT}")
    return found


def _floats(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        raise TypeError(f"logits and states are floating-point numbers; found {array.dtype}")
    return array.astype(np.float64)


def _declared(declaration: Any) -> dict[str, Any]:
    return {
        "name": declaration.name,
        "version": declaration.version,
        "conventions": dict(declaration.conventions),
        "arithmetic": dataclasses.asdict(declaration.arithmetic),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
