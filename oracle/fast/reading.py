"""Reading the arguments of the losses: their structure is validated whole, which needs no look at a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.products import Headed

Shape = tuple[int, ...]


def checked(validate: bool | None, tensor: Tensor) -> bool:
    """Whether numbers are looked at: as asked, else where nobody has to wait for it."""
    return tensor.device.type == "cpu" if validate is None else validate


def leading(values: object, field: str, least: int = 1) -> Shape:
    """The leading axes of a floating-point tensor [..., d] with at least one feature."""
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.ndim <= least:
        axes = ", ".join(["T", "…", "d"][2 - least :])
        raise BadInput(field, (), f"is a floating-point tensor [{axes}]", _told(values))
    if not values.shape[-1]:
        raise BadInput(field, (), "has at least one feature or token", tuple(values.shape))
    return tuple(values.shape[:-1])


def headed(values: object, field: str, least: int) -> Shape:
    """The leading axes of logits, or of the hidden states that make them."""
    if not isinstance(values, Headed):
        return leading(values, field, least)
    shape = leading(values.hidden, f"{field}.hidden", least)
    weight = rows_of(values.weight, f"{field}.weight", (None, values.hidden.shape[-1]))
    if not len(weight):
        raise BadInput(f"{field}.weight", (), "has at least one token", tuple(weight.shape))
    return shape


def logits(values: Tensor | Headed) -> int:
    """The size of their vocabulary."""
    return len(values.weight) if isinstance(values, Headed) else values.shape[-1]


def rows_of(values: object, field: str, shape: Sequence[int | None], dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of that shape, in which None is any size; floating-point unless a dtype is named."""
    fits = isinstance(values, Tensor) and values.ndim == len(shape)
    if not isinstance(values, Tensor) or not (fits and all(n in (None, m) for n, m in zip(shape, values.shape))):
        raise BadInput(field, (), f"is a tensor {['·' if n is None else n for n in shape]}", _told(values))
    if not (values.is_floating_point() if dtype is None else values.dtype == dtype):
        raise BadInput(field, (), f"holds {'floating-point numbers' if dtype is None else dtype}", str(values.dtype))
    return values


def flags(values: object, field: str, shape: Shape) -> Tensor:
    """Booleans of that shape."""
    return rows_of(values, field, shape, torch.bool)


def finite(value: object, field: str, index: tuple[int, ...] = ()) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadInput(field, index, "is a finite number", value)
    return float(value)


def positive(value: object, field: str) -> float:
    """A finite number above zero."""
    number = finite(value, field)
    if number <= 0:
        raise BadInput(field, (), "is above zero", number)
    return number


def whole(value: object, field: str) -> int:
    """A whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(field, (), "is a whole number of at least 1", value)
    return value


def one_of(value: object, field: str, names: Sequence[str]) -> str:
    """One of `names`."""
    if not isinstance(value, str) or value not in names:
        raise BadInput(field, (), f"is one of {', '.join(names)}", value)
    return value


def _told(values: object) -> object:
    return (tuple(values.shape), values.dtype) if isinstance(values, Tensor) else type(values).__name__
