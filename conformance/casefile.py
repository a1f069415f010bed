"""Cases as JSON files: what a failure leaves behind, and what `--case FILE` reads.

The files may come from elsewhere, so reading is strict: a size limit, no duplicate or unknown keys, only
the dataclasses of the contract, shapes that match their data. Numbers that JSON cannot carry are the
strings "nan", "inf" and "-inf"; rationals are strings such as "3/7".
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import math
import os
import re
import tempfile
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from adapters.encoding import TYPES as _TYPES
from conformance.clauses import contracts
from oracle.types import PROPOSALS, Coins, VerifyCase, WarpCase

FORMAT = "eagle-conformance/case/1"
LIMIT_BYTES = 16 * 2**20
LIMIT_DEPTH = 16
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_DTYPES = ("float64", "int64", "bool")
_RATIO = re.compile(r"-?[0-9]{1,400}/[0-9]{1,400}")

T = TypeVar("T", bound=type)


class CaseFileError(ValueError):
    """A case file that cannot be read: the file, the place inside it and the rule."""


@dataclass(frozen=True)
class CaseFile:
    """A case and the check that it belongs to."""

    contract: str
    check: str
    clauses: tuple[str, ...]
    case: Any


def storable(kind: T) -> T:
    """Class decorator: lets the dataclass be written to and read from case files by its name."""
    _TYPES[kind.__name__] = kind
    return kind


def dumps(content: CaseFile) -> str:
    """The file's text; the same content gives the same text."""
    document = {
        "format": FORMAT,
        "contract": content.contract,
        "check": content.check,
        "clauses": list(content.clauses),
        "case": _encode(content.case),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def save(content: CaseFile, folder: Path) -> Path:
    """Write the case under a name made of its clause and content; nothing half-written is ever seen."""
    text = dumps(content)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    path = folder / f"{content.clauses[0] if content.clauses else content.contract}-{digest}.json"
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".partial")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(temporary, path)
    return path


def load(path: Path) -> CaseFile:
    """Read a case file. Raises `CaseFileError`."""
    try:
        with path.open("rb") as stream:
            content = stream.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            raise CaseFileError(f"{path}: a case file has at most {LIMIT_BYTES} bytes")
        text = content.decode("utf-8")
    except OSError as error:
        raise CaseFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CaseFileError(f"{path}: a case file is UTF-8 text") from None
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except CaseFileError as error:
        raise CaseFileError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise CaseFileError(f"{path}: not JSON: {error}") from None
    try:
        return _read(document)
    except CaseFileError as error:
        raise CaseFileError(f"{path}: {error}") from None


def _read(document: Any) -> CaseFile:
    expected = {"format", "contract", "check", "clauses", "case"}
    if not isinstance(document, dict) or set(document) != expected:
        raise CaseFileError(f"the file is an object with exactly the keys {', '.join(sorted(expected))}")
    if document["format"] != FORMAT:
        raise CaseFileError(f"format = {document['format']!r}: this version reads {FORMAT!r}")
    contract = document["contract"]
    if contract not in contracts():
        raise CaseFileError(f"contract = {contract!r}: one of {', '.join(contracts())}")
    clauses = document["clauses"]
    if not isinstance(document["check"], str) or not (
        isinstance(clauses, list) and all(isinstance(c, str) for c in clauses)
    ):
        raise CaseFileError("check is a string and clauses a list of strings")
    importlib.import_module(f"conformance.{contract}.cases")  # its dataclasses register themselves
    case = _decode(document["case"], "case", 0)
    if not dataclasses.is_dataclass(case):
        raise CaseFileError("case: an object with a $type")
    return CaseFile(contract, document["check"], tuple(clauses), case)


def _encode(value: Any) -> Any:
    if value is None or type(value) in (int, bool, str):  # most of what a case holds
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"$type": type(value).__name__, **fields}
    if isinstance(value, np.ndarray):
        data = value.reshape(-1).tolist()
        if value.dtype.kind not in "iub" and not (value.dtype.kind == "f" and np.isfinite(value).all()):
            data = [_encode(v) for v in data]
        return {"$array": str(value.dtype), "shape": list(value.shape), "data": data}
    if isinstance(value, Fraction):
        return {"$ratio": f"{value.numerator}/{value.denominator}"}
    if isinstance(value, dict):
        return {"$table": [[_encode(key), _encode(entry)] for key, entry in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_encode(v) for v in value]
    if isinstance(value, np.generic):
        return _encode(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, (int, float, str)):
        return value
    raise TypeError(f"a case cannot hold a {type(value).__name__}")


def _decode(value: Any, where: str, depth: int) -> Any:
    if depth > LIMIT_DEPTH:
        raise CaseFileError(f"{where}: nested deeper than {LIMIT_DEPTH}")
    if isinstance(value, list):
        return tuple(_decode(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value))
    if not isinstance(value, dict):
        return value
    if "$type" in value:
        return _decode_dataclass(value, where, depth)
    if set(value) == {"$array", "shape", "data"}:
        return _decode_array(value, where)
    if set(value) == {"$ratio"}:
        try:
            if _RATIO.fullmatch(value["$ratio"]):
                return Fraction(value["$ratio"])
        except (TypeError, ZeroDivisionError):
            pass
        raise CaseFileError(f"{where}: a ratio is a string such as '3/7'")
    if _is_special(value):
        return _SPECIAL[value["$float"]]
    if set(value) == {"$table"} and isinstance(value["$table"], list):
        pairs = [_decode(pair, f"{where}[{i}]", depth + 1) for i, pair in enumerate(value["$table"])]
        for i, pair in enumerate(pairs):
            if not isinstance(pair, tuple) or len(pair) != 2 or not _is_a(pair[0], tuple[int, ...] | str):
                raise CaseFileError(f"{where}[{i}]: a table is a list of [prefix or name, entry] pairs")
        return dict(pairs)
    raise CaseFileError(f"{where}: an object of none of the known forms")


def _decode_dataclass(value: dict[str, Any], where: str, depth: int) -> Any:
    kind = _TYPES.get(value["$type"]) if isinstance(value["$type"], str) else None
    if kind is None:
        raise CaseFileError(f"{where}: $type is one of {', '.join(sorted(_TYPES))}, found {value['$type']!r}")
    fields = {f.name for f in dataclasses.fields(kind)}
    if set(value) - {"$type"} != fields:
        raise CaseFileError(f"{where}: a {kind.__name__} has exactly the fields {', '.join(sorted(fields))}")
    decoded = {name: _decode(value[name], f"{where}.{name}", depth + 1) for name in fields}
    for name, hint in typing.get_type_hints(kind).items():
        if not _is_a(decoded[name], hint):
            raise CaseFileError(f"{where}.{name}: is no {_worded(hint)}")
    made = kind(**decoded)
    for name, rule in _broken_rules(made):
        raise CaseFileError(f"{where}.{name}: {rule}")
    return made


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a decoded value is what the annotation `hint` of a dataclass says."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_is_a(value, one) for one in inner)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype == typing.get_args(inner[1])[0]
    if (origin is tuple and inner[1:] == (...,)) or origin is Sequence:
        return isinstance(value, tuple) and all(_is_a(entry, inner[0]) for entry in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(_is_a(k, inner[0]) and _is_a(v, inner[1]) for k, v in value.items())
    if hint is float:
        return type(value) in (int, float)
    if hint is int:
        return type(value) is int
    return isinstance(value, hint)


def _worded(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _broken_rules(value: Any) -> list[tuple[str, str]]:
    """Field and rule, where sizes or structure do not fit each other: no implementation answers for that."""
    checked: list[tuple[str, str, Callable[[], bool]]] = []
    if isinstance(value, VerifyCase):
        n, rows, draft = value.token.size, value.target_probs, value.draft_probs
        point = value.proposal == "point"
        checked = [
            ("token", "is a vector", lambda: value.token.ndim == 1),
            ("parent", f"holds {n} nodes, each above the next", lambda: value.parent.shape == (n,) and _is_tree(value)),
            ("target_probs", f"has {n + 1} rows of at least one token", lambda: _are_rows(rows, n + 1)),
            ("proposal", f"is one of {', '.join(PROPOSALS)}", lambda: value.proposal in PROPOSALS),
            ("draft_probs", "is given unless the proposal is point", lambda: point or draft is not None),
            ("draft_probs", "has the shape of target_probs", lambda: draft is None or draft.shape == rows.shape),
        ]
    elif isinstance(value, WarpCase):
        checked = [("logits", "has shape [V] or [R, V]", lambda: value.logits.ndim in (1, 2) and value.logits.size > 0)]
    elif isinstance(value, Coins):
        checked = [("accept", "is a vector", lambda: value.accept.ndim == 1)]
    elif isinstance(cases := getattr(value, "cases", None), tuple) and getattr(value, "coins", None) is not None:
        sizes = [case.token.size for case in cases]
        checked = [("coins", f"are {sizes} accept coins", lambda: [c.accept.size for c in value.coins] == sizes)]
    return [(name, rule) for name, rule, holds in checked if not holds()][:1]


def _is_tree(case: VerifyCase) -> bool:
    return all(-1 <= parent < i for i, parent in enumerate(case.parent.tolist()))


def _are_rows(rows: np.ndarray, count: int) -> bool:
    return rows.ndim == 2 and rows.shape[0] == count and rows.shape[1] > 0


def _is_special(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"$float"} and value["$float"] in tuple(_SPECIAL)


def _decode_array(value: dict[str, Any], where: str) -> np.ndarray:
    dtype, shape, data = value["$array"], value["shape"], value["data"]
    if dtype not in _DTYPES:
        raise CaseFileError(f"{where}: an array is one of {', '.join(_DTYPES)}, found {dtype!r}")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**31 for n in shape) or len(shape) > 4:
        raise CaseFileError(f"{where}: a shape is a list of at most four sizes")
    if not isinstance(data, list) or len(data) != math.prod(shape):
        raise CaseFileError(f"{where}: shape {shape} holds {math.prod(shape)} values, found {len(data)}")
    values = [_SPECIAL[v["$float"]] if _is_special(v) else v for v in data]
    allowed = {"float64": (int, float), "int64": (int,), "bool": (bool,)}[dtype]
    for i, v in enumerate(values):
        if not isinstance(v, allowed) or (dtype != "bool" and isinstance(v, bool)):
            raise CaseFileError(f"{where}.data[{i}]: a {dtype} array holds no {type(v).__name__}")
    try:
        return np.array(values, dtype=dtype).reshape(shape)
    except OverflowError:
        raise CaseFileError(f"{where}: an integer beyond 64 bits") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise CaseFileError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise CaseFileError(f'{name} is not a number of JSON; write {{"$float": "nan"}}')
