"""The oracle as a program: `python -m tests.reference_program [FAULT]` answers JSON lines.

With a fault, it verifies greedily and does nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from adapters import encoding, reference
from adapters.interface import OPERATIONS, NotApplicable
from adapters.process import PARAMETERS


def declaration(fault: str) -> dict[str, Any]:
    said = reference.DECLARATION
    assert said.engine is not None
    engine = None if fault else dataclasses.asdict(said.engine)
    if engine is not None:
        del engine["hottest"]  # JSON has no infinity, which it is where nothing is said
    return {
        "name": "reference program",
        "version": said.version,
        "operations": ["verify_greedy"] if fault else [name for name in OPERATIONS if hasattr(reference, name)],
        "conventions": dict(said.conventions),
        "dtype": said.arithmetic.dtype,
        "promises": list(said.promises),
        "cost": dict(said.cost),
        "engine": engine,
    }


def answer(message: dict[str, Any], fault: str) -> dict[str, Any]:
    if "start" in message:
        return {"value": declaration(fault)}
    name = message["operation"]
    try:
        given = [encoding.decode(message["input"][key], where=key) for key in PARAMETERS[name]]
        if fault == "dies" and any(case.parent.size == 0 for case in given[0]):
            sys.stderr.write("no drafts: giving up\n")
            os._exit(3)
        if fault == "prints":
            print("drafting …")
        return {"value": encoding.encode(getattr(reference, name)(*given))}
    except NotApplicable as reason:
        return {"error": {"kind": "not_applicable", "message": str(reason)}}
    except (TypeError, ValueError) as error:
        if fault == "dies of bad input":
            os._exit(4)
        return {"error": {"kind": "bad_input", "message": str(error)}}


def main(fault: str = "") -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "stop" in message:
            return
        print(json.dumps({"id": message["id"], **answer(message, fault)}, allow_nan=False), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
