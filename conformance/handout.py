"""What an implementation is handed: a case in arrays of its own, so that a callee that writes spoils nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np


def copy(case: Any) -> Any:
    """The same case, every array of it and of what it holds copied."""
    if isinstance(case, np.ndarray):
        return case.copy()
    if isinstance(case, dict):
        return {key: copy(value) for key, value in case.items()}
    if isinstance(case, (list, tuple)):
        return type(case)(copy(value) for value in case)
    if dataclasses.is_dataclass(case) and not isinstance(case, type):
        return type(case)(**{field.name: copy(getattr(case, field.name)) for field in dataclasses.fields(case)})
    return case


def contents(case: Any, name: str = "") -> dict[str, bytes]:
    """Every array of a case by its dotted name, byte by byte."""
    if isinstance(case, np.ndarray):
        return {name: case.tobytes()}
    found: dict[str, bytes] = {}
    for key, value in _parts(case):
        found |= contents(value, f"{name}.{key}".strip("."))
    return found


def written(before: Any, after: Any) -> list[str]:
    """The arrays of a case that are no longer what they were."""
    now = contents(after)
    return [name for name, held in contents(before).items() if now.get(name) != held]


def _parts(case: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(case, dict):
        yield from ((str(key), value) for key, value in case.items())
    elif isinstance(case, (list, tuple)):
        yield from ((str(i), value) for i, value in enumerate(case))
    elif dataclasses.is_dataclass(case) and not isinstance(case, type):
        yield from ((field.name, getattr(case, field.name)) for field in dataclasses.fields(case))
