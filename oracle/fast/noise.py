"""Feature noise in torch: uniform on an interval, whose half-width the paper fixes and the released code scales."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.words import LAWS

WIDTH = 0.2
"""Of the whole interval: U[−0.1, 0.1] (EAGLE §4.1)."""
REFERENCE_LENGTH = 512
"""The length at which both laws agree (SafeAILab/EAGLE, eagle/train/main.py)."""


def feature_noise(unit: Tensor, length: int | Tensor, law: str = "paper", *, validate: bool | None = None) -> Tensor:
    """Uniforms turned into noise, in their shape and dtype: (u − ½)·0.2, times 512/L under "length_scaled" (NOISE 2xx).

    unit: floating point, of any shape. length: the length L of the sample, or a tensor of one a sample that broadcasts
    against `unit`, as [B, 1, 1] does. validate: whether numbers are looked at; None = on a CPU alone. Computed in
    float32 at least. Raises `BadInput`.
    """
    if not isinstance(unit, Tensor) or not unit.is_floating_point():
        raise BadInput("unit", (), "is a floating-point tensor", getattr(unit, "dtype", type(unit).__name__))
    checked = unit.device.type == "cpu" if validate is None else validate
    width = _width(length, law, unit, checked)
    if checked:
        wrong = ~((unit >= 0) & (unit < 1))
        if wrong.any():
            index = tuple(wrong.nonzero()[0].tolist())
            raise BadInput("unit", index, "a uniform lies in [0, 1)", float(unit[index]))
    return ((unit.to(_wide(unit)) - 0.5) * width).to(unit.dtype)


def noisy_sample(
    features: Tensor,
    law: str = "paper",
    *,
    length: int | Tensor | None = None,
    generator: torch.Generator | None = None,
    validate: bool | None = None,
) -> Tensor:
    """Features [..., L, d] with noise of their own, in a tensor of its own; the targets are nobody's to touch.

    length: of a sample, as in `feature_noise`; None = L, which counts padding where there is any. generator: of the
    features' device; None = torch's own. Drawn and added in float32 at least, so a narrower dtype rounds the sum alone.
    Raises `BadInput`.
    """
    if not isinstance(features, Tensor) or not features.is_floating_point() or features.ndim < 2:
        told = (tuple(features.shape), features.dtype) if isinstance(features, Tensor) else type(features).__name__
        raise BadInput("features", (), "is a floating-point tensor [..., L, d]", told)
    if not features.shape[-2]:
        raise BadInput("features", (), "a sample has at least one row", tuple(features.shape))
    checked = features.device.type == "cpu" if validate is None else validate
    width = _width(features.shape[-2] if length is None else length, law, features, checked)
    unit = torch.rand(features.shape, dtype=_wide(features), device=features.device, generator=generator)
    return unit.sub_(0.5).mul_(width).add_(features).to(features.dtype)


def _wide(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)


def _width(length: int | Tensor, law: str, values: Tensor, checked: bool) -> float | Tensor:
    """Of the whole interval, for each of the values."""
    if not isinstance(law, str) or law not in LAWS:
        raise BadInput("law", (), f"is one of {', '.join(LAWS)}", law)
    if isinstance(length, Tensor):
        if length.dtype != torch.int64 or length.device != values.device:
            raise BadInput("length", (), f"is int64 on {values.device}", (length.dtype, length.device))
        try:
            length.expand_as(values)
        except RuntimeError:
            rule = f"broadcasts against {tuple(values.shape)}"
            raise BadInput("length", (), rule, tuple(length.shape)) from None
        if checked and (wrong := length < 1).any():
            index = tuple(wrong.nonzero()[0].tolist())
            raise BadInput("length", index, "is a whole number of at least 1", int(length[index]))
        return WIDTH if law == "paper" else WIDTH * (REFERENCE_LENGTH / length.to(_wide(values)))
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise BadInput("length", (), "is a whole number of at least 1", length)
    return WIDTH if law == "paper" else WIDTH * (REFERENCE_LENGTH / length)
