"""Noise on the features that a drafter is trained on."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.types.arrays import Rows
from oracle.words import LAWS as LAWS


@dataclass(frozen=True, eq=False)
class NoiseCase:
    """unit: float64 of any shape, uniforms in [0, 1). length: the sample's own length L. law: one of `LAWS`."""

    unit: Rows
    length: int
    law: str


@dataclass(frozen=True, eq=False)
class SampleCase:
    """One training sample, whose noise the implementation draws itself: features and targets float64 [L, d]."""

    features: Rows
    targets: Rows
    seed: int


@dataclass(frozen=True, eq=False)
class NoisySample:
    """The sample as the drafter gets it: features float64 [L, d] with noise, targets [L, d]."""

    features: Rows
    targets: Rows
