"""Reading what tensors hold, a piece at a time: a checkpoint is larger than memory, a piece is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from oracle.errors import BadInput
from oracle.manifest.headers import DTYPE_BYTES, Stored
from oracle.types import Flags, Ids, Rows

PIECE_BYTES = 2**20
LIMIT_IDS = 2**24
"""A vocabulary has a few hundred thousand tokens."""
_PLAIN = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
FLOATS = (*_PLAIN, "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0")
DTYPE_NAMES: Mapping[str, str] = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"},
    **{"F8_E4M3": "float8_e4m3", "F8_E5M2": "float8_e5m2"},
}
"""Dtype of safetensors → its name in a manifest."""
LARGEST: Mapping[str, float] = {
    **{"float64": float(np.finfo(np.float64).max), "float32": float(np.finfo(np.float32).max), "float16": 65504.0},
    **{"bfloat16": (2.0 - 2.0**-7) * 2.0**127, "float8_e4m3": 448.0, "float8_e5m2": 57344.0},
}
"""Dtype → its largest finite number."""
_LAST_DIGIT = {"float64": 2.0**971, "float32": 2.0**104, "float16": 32.0, "bfloat16": 2.0**120}
OVERFLOW: Mapping[str, float] = {
    dtype: most + {**_LAST_DIGIT, "float8_e4m3": 32.0, "float8_e5m2": 8192.0}[dtype] / 2
    for dtype, most in LARGEST.items()
}
"""Dtype → from here on a number does not round to a finite one (infinite for float64, which nothing here exceeds)."""


def pieces(stored: Stored, entries: int | None = None) -> Iterator[Rows]:
    """The numbers of a tensor in float64, flat, in pieces of `entries` (by default about a megabyte of file).

    Raises `BadInput` where the tensor holds no floating-point numbers, or its file ends early.
    """
    if stored.dtype not in FLOATS:
        raise BadInput(stored.name, (), "holds floating-point numbers", stored.dtype)
    width = DTYPE_BYTES[stored.dtype]
    for content in _contents(stored, width * max(1, entries or PIECE_BYTES // width)):
        yield _decoded(content, stored.dtype)


def ids(stored: Stored) -> Ids:
    """A vector of ids, int64. Raises `BadInput` for another dtype or shape."""
    if stored.dtype not in ("I64", "I32") or len(stored.shape) != 1:
        raise BadInput(stored.name, (), "is a vector of I64 or I32", f"{stored.dtype} {list(stored.shape)}")
    return np.frombuffer(_whole(stored), dtype="<i8" if stored.dtype == "I64" else "<i4").astype(np.int64)


def flags(stored: Stored) -> Flags:
    """A vector of booleans. Raises `BadInput` for another dtype or shape."""
    if stored.dtype not in ("BOOL", "U8") or len(stored.shape) != 1:
        raise BadInput(stored.name, (), "is a vector of BOOL", f"{stored.dtype} {list(stored.shape)}")
    return np.asarray(np.frombuffer(_whole(stored), dtype=np.uint8) != 0)


def _whole(stored: Stored) -> bytes:
    if stored.shape[0] > LIMIT_IDS:
        raise BadInput(stored.name, (), f"has at most {LIMIT_IDS} entries", stored.shape[0])
    return b"".join(_contents(stored, PIECE_BYTES))


def _contents(stored: Stored, size: int) -> Iterator[bytes]:
    with stored.path.open("rb") as stream:
        stream.seek(stored.start)
        for begin in range(0, stored.size, size):
            wanted = min(size, stored.size - begin)
            content = stream.read(wanted)
            if len(content) != wanted:
                raise BadInput(
                    stored.path.name, (), f"holds the {stored.size} bytes of {stored.name!r}", begin + len(content)
                )
            yield content


def _decoded(content: bytes, dtype: str) -> Rows:
    if dtype in _PLAIN:
        return np.frombuffer(content, dtype=_PLAIN[dtype]).astype(np.float64)
    if dtype == "BF16":  # the upper half of a float32
        upper = np.frombuffer(content, dtype="<u2").astype(np.uint32) << np.uint32(16)
        return upper.view(np.float32).astype(np.float64)
    return _EIGHT_BITS[dtype][np.frombuffer(content, dtype=np.uint8)]


def _eight_bits(exponent_bits: int, bias: int, ieee: bool) -> Rows:
    """The number of each byte. Without `ieee` there is no infinity, and NaN is the byte of all ones alone."""
    mantissa_bits = 7 - exponent_bits
    byte = np.arange(128)
    exponent, mantissa = byte >> mantissa_bits, byte & (2**mantissa_bits - 1)
    fraction = mantissa / 2**mantissa_bits
    half = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if ieee:
        top = exponent == 2**exponent_bits - 1
        half = np.where(top, np.where(mantissa == 0, np.inf, np.nan), half)
    else:
        half[-1] = np.nan
    return np.concatenate([half, -half])


_POWERS = np.append(2.0 ** (np.arange(255) - 127.0), np.nan)
_EIGHT_BITS = {"F8_E4M3": _eight_bits(4, 7, False), "F8_E5M2": _eight_bits(5, 15, True), "F8_E8M0": _POWERS}
