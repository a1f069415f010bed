"""Reading the header of a safetensors file that may come from anywhere; no tensor is read here.

The format: eight bytes that hold the header's length, a JSON object of names to dtype, shape and byte range, then the
bytes, which the ranges cover without gap or overlap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.errors import BadInput

LENGTH_BYTES = 8
LIMIT_HEADER_BYTES = 16 * 2**20
"""About a hundred thousand tensors; what claims more is refused before it is read."""
LIMIT_DIMENSIONS = 8
DTYPE_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 1),
}
"""Dtype of the format → bytes an entry; dtypes that pack several entries into a byte are not read."""


@dataclass(frozen=True)
class Stored:
    """Where a tensor stands: `size` bytes of `path` from `start` on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    size: int


def read_header(path: Path) -> dict[str, Stored]:
    """Name → where the tensor stands. Raises `BadInput` naming the file, the tensor and the rule."""
    total = path.stat().st_size
    if total < LENGTH_BYTES:
        raise BadInput(path.name, (), f"a safetensors file begins with {LENGTH_BYTES} bytes of header length", total)
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if length > LIMIT_HEADER_BYTES:
            raise BadInput(path.name, (), f"a header has at most {LIMIT_HEADER_BYTES} bytes", length)
        if length > total - LENGTH_BYTES:
            raise BadInput(path.name, (), f"the header fits into the file, which has {total} bytes", length)
        text = stream.read(length)
    if len(text) != length:
        raise BadInput(path.name, (), f"the header has the {length} bytes that it claims", len(text))
    entries = _json(text, path.name)
    data = LENGTH_BYTES + length
    found = {name: _stored(name, entry, path, data, total) for name, entry in entries.items() if name != "__metadata__"}
    _check_metadata(entries.get("__metadata__", {}), path.name)
    end = data
    for stored in sorted(found.values(), key=lambda s: (s.start, s.size)):
        if stored.start != end:
            verb = "overlap" if stored.start < end else "leave a gap"
            rule = f"byte ranges cover the data once: those of {stored.name!r} {verb}"
            raise BadInput(path.name, (), rule, [stored.start - data, stored.start - data + stored.size])
        end += stored.size
    if end != total:
        raise BadInput(path.name, (), f"byte ranges cover the {total - data} bytes of data", end - data)
    return found


def _json(text: bytes, name: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held: dict[str, Any] = {}
        for key, value in pairs:
            if key in held:
                raise BadInput(name, (), "no name stands twice in a header", key)
            held[key] = value
        return held

    def constant(text: str) -> float:
        raise BadInput(name, (), "a header holds finite numbers", text)

    try:
        entries = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput(name, (), "a header is JSON in UTF-8", type(error).__name__) from None
    if not isinstance(entries, dict):
        raise BadInput(name, (), "a header is a JSON object", type(entries).__name__)
    return entries


def _stored(name: str, entry: object, path: Path, data: int, total: int) -> Stored:
    field = f"{path.name}: {name}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise BadInput(field, (), "an entry holds dtype, shape and data_offsets", entry)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise BadInput(f"{field}.dtype", (), f"is one of {', '.join(DTYPE_BYTES)}", dtype)
    if not isinstance(shape, list) or len(shape) > LIMIT_DIMENSIONS or not all(_whole(n) for n in shape):
        raise BadInput(f"{field}.shape", (), f"is a list of at most {LIMIT_DIMENSIONS} whole numbers", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_whole(n) for n in offsets):
        raise BadInput(f"{field}.data_offsets", (), "are two whole numbers", offsets)
    start, stop = offsets
    if not start <= stop <= total - data:
        raise BadInput(f"{field}.data_offsets", (), f"rise, and end within the {total - data} bytes of data", offsets)
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    if stop - start != size:
        raise BadInput(f"{field}.data_offsets", (), f"span the {size} bytes of {dtype} {shape}", stop - start)
    return Stored(name, dtype, tuple(shape), path, data + start, size)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check_metadata(metadata: object, name: str) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise BadInput(f"{name}: __metadata__", (), "maps names to texts", type(metadata).__name__)
