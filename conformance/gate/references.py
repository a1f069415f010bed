"""Reference logits beside a manifest: what was fed, what came out and in which dtype, as a safetensors file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from adapters.interface import DTYPES
from conformance.gate.numeric import Given
from conformance.gate.weights import Inputs
from oracle.errors import BadInput
from oracle.manifest import numbers
from oracle.manifest.checkpoint import allowed_root
from oracle.manifest.headers import LENGTH_BYTES, Stored, read_header
from oracle.types import DraftRollout, Ids, Rows

FORMAT = "eagle-conformance/reference/1"
FLOATS = ("features", "logits", "states")
IDS = ("tokens", "positions", "rollout_tokens")
LIMIT_BYTES = 2**30
LIMIT_ROWS = 64
"""Of a prefix and its rollout together: every row attends to those before it, and every step is judged anew."""


def read(path: Path) -> tuple[Given, str]:
    """The answer of a file, and who made it. Raises `BadInput` naming the file, the tensor and the rule."""
    if not path.is_file():
        raise BadInput(str(path), (), "is a safetensors file", "missing" if not path.exists() else "no plain file")
    if path.is_symlink() and not path.resolve().is_relative_to(allowed_root(path.parent.parent)):
        raise BadInput(path.name, (), "no link leads out of the release", str(path.readlink()))
    if path.stat().st_size > LIMIT_BYTES:
        raise BadInput(path.name, (), f"has at most {LIMIT_BYTES} bytes", path.stat().st_size)
    held, metadata = read_header(path), _metadata(path)
    if metadata.get("format") != FORMAT:
        raise BadInput(f"{path.name}: format", (), f"is {FORMAT!r}, which this version reads", metadata.get("format"))
    if metadata.get("dtype") not in DTYPES:
        raise BadInput(f"{path.name}: dtype", (), f"is one of {', '.join(DTYPES)}", metadata.get("dtype"))
    if missing := [name for name in (*FLOATS, *IDS) if name not in held]:
        raise BadInput(path.name, (), f"holds {', '.join((*FLOATS, *IDS))}; missing are {', '.join(missing)}")
    inputs = Inputs(_matrix(held["features"]), *(numbers.ids(held[name]) for name in IDS))
    if (rows := len(inputs.tokens) + len(inputs.rollout_tokens)) > LIMIT_ROWS:
        raise BadInput(f"{path.name}: tokens", (), f"at most {LIMIT_ROWS} with those of the rollout", rows)
    answer = DraftRollout(_matrix(held["logits"]), _matrix(held["states"]))
    return Given(inputs, answer, metadata["dtype"]), metadata.get("made_by", "somebody")


def content(given: Given, made_by: str) -> bytes:
    """The file, byte for byte; numbers are kept in float64."""
    tensors: dict[str, Rows | Ids] = {
        **{"features": given.inputs.features, "logits": given.answer.logits, "states": given.answer.states},
        **{name: getattr(given.inputs, name) for name in IDS},
    }
    header: dict[str, object] = {
        "__metadata__": {"format": FORMAT, "dtype": given.dtype, "made_by": made_by},
    }
    data = b""
    for name, values in tensors.items():
        kind, order = ("I64", "<i8") if name in IDS else ("F64", "<f8")
        stored = np.ascontiguousarray(values, dtype=order).tobytes()
        header[name] = {
            "dtype": kind,
            "shape": list(np.shape(values)),
            "data_offsets": [len(data), len(data) + len(stored)],
        }
        data += stored
    text = json.dumps(header).encode()
    return len(text).to_bytes(LENGTH_BYTES, "little") + text + data


def _metadata(path: Path) -> dict[str, str]:
    """The texts of a header that has been read and found well-formed."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        found: dict[str, str] = json.loads(stream.read(length)).get("__metadata__", {})
    return found


def _matrix(stored: Stored) -> Rows:
    if len(stored.shape) != 2:
        raise BadInput(stored.name, (), "is a matrix", list(stored.shape))
    pieces = list(numbers.pieces(stored))
    return np.asarray(np.concatenate([np.zeros(0), *pieces]).reshape(stored.shape))
