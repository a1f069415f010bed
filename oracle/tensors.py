"""Reading arrays of a batch: structure is validated whole, numbers where they are read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oracle.errors import BadInput
from oracle.validation import as_array

KINDS = {"f": "floating-point numbers", "iu": "integers", "b": "booleans"}


def tensor(values: object, field: str, kinds: str, shape: Sequence[int | str]) -> np.ndarray:
    """`values` as an array of dtype kinds "f", "iu" or "b" and of `shape`, in which a name stands for any size.

    Raises `BadInput`. Integers count as floating-point numbers where these are wanted.
    """
    array = as_array(values, field)
    fits = array.ndim == len(shape) and all(isinstance(n, str) or n == m for n, m in zip(shape, array.shape))
    if not fits:
        raise BadInput(field, (), f"has shape [{', '.join(map(str, shape))}]", array.shape)
    if kinds == "f" and array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.size == 0 and array.dtype == np.float64:  # what NumPy makes of an empty list
        return array.astype({"f": np.float64, "iu": np.int64, "b": bool}[kinds])
    if array.dtype.kind not in kinds:
        raise BadInput(field, (), f"holds {KINDS[kinds]}", str(array.dtype))
    return array


def int64(value: object, field: str, index: tuple[int, ...]) -> int:
    """An integer that is read; `BadInput` beyond 64 bits."""
    number = int(value)  # type: ignore[call-overload]
    if not -(2**63) <= number < 2**63:
        raise BadInput(field, index, "an integer that is read has 64 bits", number)
    return int(number)


def member(case: object, kind: type) -> None:
    """`BadInput` unless the case is of its type."""
    if not isinstance(case, kind):
        raise BadInput("case", (), f"a case is an oracle.types.{kind.__name__}", type(case).__name__)


def listed(values: object, field: str, kind: type) -> None:
    """`BadInput` unless the values are a list; its members are read one by one."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise BadInput(field, (), f"{field} is a list of {kind.__name__}", type(values).__name__)


def whole(value: object, field: str, least: int) -> int:
    """A whole number of at least `least`; `BadInput` otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise BadInput(field, (), f"is a whole number of at least {least}", value)
    return int(value)


def finite(value: object, field: str, rule: str = "is a finite number", index: tuple[int, ...] = ()) -> float:
    """A finite real number; `BadInput` otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise BadInput(field, index, rule, value)
    try:
        number = float(value)
    except OverflowError:
        raise BadInput(field, index, rule, value) from None
    if not math.isfinite(number):
        raise BadInput(field, index, rule, number)
    return number


def one_of(value: object, field: str, names: Sequence[str]) -> str:
    """One of `names`; `BadInput` otherwise."""
    if not isinstance(value, str) or value not in names:
        raise BadInput(field, (), f"is one of {', '.join(names)}", value)
    return value
