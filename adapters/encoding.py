"""Values as JSON and back: what golden vectors hold, and what a judged program reads and writes.

A dataclass is an object with its name as "type" and all its fields; an array an object of "dtype", "shape" and flat
"data"; bytes an object with their base64; a mapping a list of [key, value] pairs; numbers, texts, booleans and null
are themselves. JSON has no NaN and no infinities: these are the strings "poison", "inf" and "-inf". A rational is a
string such as "3/7". Integers lie within ±2^53, so that every language reads them exactly.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from oracle import types as oracle_types

POISON = "poison"
SPECIAL = {POISON: math.nan, "inf": math.inf, "-inf": -math.inf}
MOST = 2**53
DTYPES = ("float64", "int64", "bool", "rational", "uint8", "uint16", "uint32")
ARRAY = {"dtype", "shape", "data"}
RATIONAL = re.compile(r"-?(0|[1-9][0-9]{0,399})(/[1-9][0-9]{0,399})?")
MOST_AXES = 4
TYPES: dict[str, type] = {
    name: kind for name, kind in vars(oracle_types).items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}
"""The dataclasses that are written and read, by name; a contract may add its own."""


class EncodingError(ValueError):
    """A value that has no form in JSON, or JSON that is the form of no value: the place and the rule."""


def canonical(value: Any) -> str:
    """JSON of one spelling: keys sorted, no blanks, the shortest numbers that read back the same."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def encode(value: Any) -> Any:
    """The JSON form of a value. Raises `EncodingError`."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return _array(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        if "relation" in value:  # what has to hold, in words and data
            return {str(key): encode(entry) for key, entry in value.items()}
        return [[encode(key), encode(entry)] for key, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return [encode(entry) for entry in value]
    raise EncodingError(f"a fixture holds no {type(value).__name__}")


def decode(value: Any, hint: Any = None, where: str = "value") -> Any:
    """The value of a JSON form; `hint` is its annotation, where there is one. Raises `EncodingError`."""
    if isinstance(value, dict):
        if "type" in value:
            return _decode_dataclass(value, where)
        if set(value) == ARRAY:
            return decode_array(value, where)
        if set(value) == {"bytes"}:
            return _decode_bytes(value["bytes"], where)
        if "relation" in value:
            return {key: decode(entry, None, f"{where}.{key}") for key, entry in value.items()}
        raise EncodingError(f"{where}: an object is a dataclass, an array, bytes or a relation")
    if isinstance(value, list):
        return _decode_list(value, hint, where)
    if isinstance(value, str):
        return _decode_text(value, hint)
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > MOST:
            raise EncodingError(f"{where}: an integer lies within ±2^53")
        return float(value) if hint is float else value
    return value


def decode_array(value: Mapping[str, Any], where: str = "value", exact: bool = False) -> np.ndarray:
    """The array of its JSON form; with `exact`, rationals stay `Fraction`s. Raises `EncodingError`."""
    dtype, shape, data = value["dtype"], value["shape"], value["data"]
    if dtype not in DTYPES:
        raise EncodingError(f"{where}.dtype: is one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise EncodingError(f"{where}.shape: is a list of sizes")
    if len(shape) > MOST_AXES:
        raise EncodingError(f"{where}.shape: an array has at most {MOST_AXES} axes")
    if not isinstance(data, list) or len(data) != math.prod(shape):
        raise EncodingError(f"{where}.data: shape {shape} holds {math.prod(shape)} values")
    for i, entry in enumerate(data):
        if not _is_entry(entry, dtype):
            raise EncodingError(f"{where}.data[{i}]: {entry!r:.40} is no entry of a {dtype} array")
    if dtype == "rational":
        rationals = [Fraction(entry) for entry in data]
        if exact:
            return np.array([*rationals, None], dtype=object)[:-1].reshape(shape)
        return np.array([float(entry) for entry in rationals], dtype=np.float64).reshape(shape)
    values = [SPECIAL.get(entry, entry) if isinstance(entry, str) else entry for entry in data]
    return np.array(values, dtype=dtype).reshape(shape)


def is_rational(value: Any) -> bool:
    """Whether a text spells a rational, in lowest terms."""
    return isinstance(value, str) and RATIONAL.fullmatch(value) is not None and str(Fraction(value)) == value


def _integer(value: int) -> int:
    if abs(value) > MOST:
        raise EncodingError(f"{value} is beyond ±2^53, which is as far as every language reads integers exactly")
    return value


def _number(value: float) -> float | str:
    if math.isnan(value):
        return POISON
    return value if math.isfinite(value) else str(value)


def _array(value: np.ndarray) -> dict[str, Any]:
    flat = value.reshape(-1).tolist()
    if value.dtype == object:
        if not all(isinstance(entry, (Fraction, int)) for entry in flat):
            raise EncodingError("an array of objects holds rationals")
        return {"dtype": "rational", "shape": list(value.shape), "data": [str(Fraction(entry)) for entry in flat]}
    if str(value.dtype) not in DTYPES:
        raise EncodingError(f"an array is one of {', '.join(DTYPES)}, found {value.dtype}")
    if value.dtype == np.int64 or (value.dtype == np.float64 and not np.isfinite(value).all()):
        flat = [encode(entry) for entry in flat]
    return {"dtype": str(value.dtype), "shape": list(value.shape), "data": flat}


def _is_entry(entry: Any, dtype: str) -> bool:
    if dtype == "rational":
        return is_rational(entry)
    if dtype == "bool":
        return isinstance(entry, bool)
    if isinstance(entry, bool):
        return False
    if dtype == "int64":
        return isinstance(entry, int) and abs(entry) <= MOST
    if dtype.startswith("uint"):
        return isinstance(entry, int) and 0 <= entry < 2 ** int(dtype.removeprefix("uint"))
    return isinstance(entry, (int, float)) or (isinstance(entry, str) and entry in SPECIAL)


def _decode_dataclass(value: Mapping[str, Any], where: str) -> Any:
    kind = TYPES.get(value["type"]) if isinstance(value["type"], str) else None
    if kind is None:
        raise EncodingError(f"{where}.type: {value['type']!r:.40} is no dataclass of the interface")
    fields = {field.name for field in dataclasses.fields(kind)}
    if set(value) - {"type"} != fields:
        raise EncodingError(f"{where}: a {kind.__name__} has exactly the fields {', '.join(sorted(fields))}")
    hints = _hints(kind)
    return kind(**{name: decode(value[name], hints[name], f"{where}.{name}") for name in sorted(fields)})


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _decode_list(value: list[Any], hint: Any, where: str) -> Any:
    known: list[tuple[Any, Any]] = [(typing.get_origin(one), typing.get_args(one)) for one in alternatives(hint)]
    for origin, inner in sorted(known, key=lambda one: one[0] is not Mapping):
        if origin is Mapping and all(isinstance(pair, list) and len(pair) == 2 and _is_key(pair[0]) for pair in value):
            keys = [tuple(key) if isinstance(key, list) else key for key, _ in value]
            if len(set(keys)) < len(keys):
                raise EncodingError(f"{where}: a key stands there twice")
            return {key: decode(pair[1], inner[1], f"{where}[{i}]") for i, (key, pair) in enumerate(zip(keys, value))}
        if origin in (tuple, Sequence) and inner:
            entry = inner[0]
            return tuple(decode(v, entry, f"{where}[{i}]") for i, v in enumerate(value))
    return [decode(v, None, f"{where}[{i}]") for i, v in enumerate(value)]


def _is_key(key: Any) -> bool:
    return isinstance(key, str) or (isinstance(key, list) and all(type(v) is int for v in key))


def _decode_text(value: str, hint: Any) -> Any:
    """A text is a path or a number where the annotation wants one and no text."""
    wanted = alternatives(hint)
    if Path in wanted:
        return Path(value)
    if str in wanted or not ({float, Fraction} & set(wanted)):
        return value
    if value in SPECIAL:
        return SPECIAL[value]
    return float(Fraction(value)) if is_rational(value) else value


def _decode_bytes(value: Any, where: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise EncodingError(f"{where}.bytes: is base64") from None


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation alone."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(one for member in typing.get_args(hint) for one in alternatives(member))
    return (hint,)
