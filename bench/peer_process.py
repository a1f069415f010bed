"""The other side of `bench.contestants.Peer`, in any environment: `python -m bench.peer_process`, asked in JSON lines.

What the package prints goes to the error stream, so that nothing but answers is read as one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.measuring import grown, timed

Call = Callable[[], dict[str, np.ndarray]]


def load(message: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
    """The call of a peer's function on the inputs, and its name with the version."""
    module = importlib.import_module(message["module"])
    with np.load(message["inputs"], allow_pickle=False) as stored:
        inputs = {name: stored[name] for name in stored.files}
    call = getattr(module, message["function"])(inputs)
    return call, {"name": f"{module.PACKAGE} {importlib.metadata.version(module.PACKAGE)}"}


def one_thread() -> None:
    """Where the package brought torch, it gets one thread."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    call: Call | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if message["do"] == "load":
                call, reply = load(message)
                one_thread()
            elif call is None:
                reply = {"error": "nothing is loaded"}
            elif message["do"] == "answer":
                np.savez(message["into"], **call())  # type: ignore[arg-type]
                reply = {}
            elif message["do"] == "time":
                taken = timed(call, message["calls"])
                reply = {"cpu": taken.cpu, "wall": taken.wall}
            else:
                reply = {"bytes": grown(call)}
        except Exception:
            reply = {"error": traceback.format_exc()}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
