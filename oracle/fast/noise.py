"""Feature noise in torch: uniform on an interval, whose half-width the paper fixes and the released code scales."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.types import LAWS

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
    if not isinstance(law, str) or law not in LAWS:
        raise BadInput("law", (), f"is one of {', '.join(LAWS)}", law)
    checked = unit.device.type == "cpu" if validate is None else validate
    lengths = _lengths(length, unit, checked)
    if checked:
        wrong = ~((unit >= 0) & (unit < 1))
        if wrong.any():
            index = tuple(wrong.nonzero()[0].tolist())
            raise BadInput("unit", index, "a uniform lies in [0, 1)", float(unit[index]))
    wide = unit.to(torch.promote_types(unit.dtype, torch.float32))
    if law == "paper":
        return ((wide - 0.5) * WIDTH).to(unit.dtype)
    if not isinstance(lengths, Tensor):
        return ((wide - 0.5) * (WIDTH * (REFERENCE_LENGTH / lengths))).to(unit.dtype)
    return ((wide - 0.5) * (WIDTH * (REFERENCE_LENGTH / lengths.to(wide.dtype)))).to(unit.dtype)


def noisy_sample(
    features: Tensor,
    law: str = "paper",
    *,
    length: int | Tensor | None = None,
    generator: torch.Generator | None = None,
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
    wide = torch.promote_types(features.dtype, torch.float32)
    unit = torch.rand(features.shape, dtype=wide, device=features.device, generator=generator)
    noise = feature_noise(unit, features.shape[-2] if length is None else length, law, validate=False)
    return noise.add_(features).to(features.dtype)


def _lengths(length: object, unit: Tensor, checked: bool) -> int | Tensor:
    if isinstance(length, Tensor):
        if length.dtype != torch.int64 or length.device != unit.device:
            raise BadInput("length", (), f"is int64 on {unit.device}", (length.dtype, length.device))
        try:
            fits = torch.broadcast_shapes(length.shape, unit.shape) == unit.shape
        except RuntimeError:
            fits = False
        if not fits:
            raise BadInput("length", (), f"broadcasts against {tuple(unit.shape)}", tuple(length.shape))
        if checked and (wrong := length < 1).any():
            index = tuple(wrong.nonzero()[0].tolist())
            raise BadInput("length", index, "is a whole number of at least 1", int(length[index]))
        return length
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise BadInput("length", (), "is a whole number of at least 1", length)
    return length
