"""What an implementation is handed: a case in arrays of its own, so that a callee that writes spoils nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


def copy(case: Any) -> Any:
    """The same case, every array of it and of the dataclasses inside it copied."""
    values = {}
    for field in dataclasses.fields(case):
        value = getattr(case, field.name)
        if dataclasses.is_dataclass(value):
            value = copy(value)
        elif isinstance(value, np.ndarray):
            value = value.copy()
        values[field.name] = value
    return type(case)(**values)


def contents(case: Any) -> dict[str, bytes]:
    """Every array of a case by its dotted name, byte by byte."""
    found: dict[str, bytes] = {}
    for field in dataclasses.fields(case):
        value = getattr(case, field.name)
        if dataclasses.is_dataclass(value):
            found |= {f"{field.name}.{name}": held for name, held in contents(value).items()}
        elif isinstance(value, np.ndarray):
            found[field.name] = value.tobytes()
    return found


def written(before: Any, after: Any) -> list[str]:
    """The arrays of a case that are no longer what they were."""
    now = contents(after)
    return [name for name, held in contents(before).items() if now.get(name) != held]
