"""What the checks of noise run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance import draw
from oracle import noise as oracle
from oracle.types import NoiseCase, SampleCase

ROUNDINGS = 5
"""Of noise made from a uniform: u − ½, 0.2·512, the quotient, their product, and the cast, in whatever order."""


@draw.drawer(NoiseCase)
def uniforms(value: NoiseCase) -> str:
    unit = np.asarray(value.unit)
    shown = draw.row(unit.reshape(-1)) if unit.size else "none"
    return f"uniforms of shape {unit.shape}: {shown}\nlaw {value.law}, length {value.length}"


@draw.drawer(SampleCase)
def sample(value: SampleCase) -> str:
    length, width = value.features.shape
    return f"a sample of {length} rows of {width} features, seed {value.seed}; f[0] = {draw.row(value.features[0])}"


def made(length: int, width: int, seed: int) -> SampleCase:
    """A sample whose features are multiples of 1/8 and all differ from its targets: any precision holds them."""
    rows = np.arange(length * width).reshape(length, width)
    return SampleCase((rows % 7 - 3) / 8.0, (rows % 5 - 1) / 4.0 + 1.0, seed)


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if isinstance(case, NoiseCase):
        oracle.feature_noise(case)
    elif isinstance(case, SampleCase):
        oracle.noisy_sample(case)


WITNESSES: Mapping[str, Any] = {}
"""Cases that show a known deviation: there are none so far."""
