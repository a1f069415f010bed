"""Feature noise: uniform on an interval, whose half-width the paper fixes and the released code scales by length."""

from __future__ import annotations

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import member, one_of, tensor, whole
from oracle.types import LAWS, NoiseCase, NoisySample, Rows, SampleCase
from oracle.validation import as_array, seed_of

WIDTH = 0.2
"""Of the whole interval: U[−0.1, 0.1] (EAGLE §4.1)."""
REFERENCE_LENGTH = 512
"""The length at which both laws agree (SafeAILab/EAGLE, eagle/train/main.py)."""


def feature_noise(case: NoiseCase) -> Rows:
    """Uniforms turned into noise, in their shape: (u − ½)·0.2, times 512/L under "length_scaled" (NOISE-201, 202).

    Raises `BadInput`.
    """
    member(case, NoiseCase)
    law = one_of(case.law, "law", LAWS)
    length = whole(case.length, "length", 1)
    unit = tensor(case.unit, "unit", "f", as_array(case.unit, "unit").shape).astype(np.float64)
    for index in np.ndindex(unit.shape):
        if not 0 <= unit[index] < 1:
            raise BadInput("unit", index, "a uniform lies in [0, 1)", float(unit[index]))
    scale = REFERENCE_LENGTH / length if law == "length_scaled" else 1.0
    return (unit - 0.5) * (WIDTH * scale)


def noisy_sample(case: SampleCase, law: str = "paper") -> NoisySample:
    """The sample with noise of its own on the features, by `law` at the sample's length; the targets as they are.

    Raises `BadInput`.
    """
    member(case, SampleCase)
    features = tensor(case.features, "features", "f", ("L", "d"))
    targets = tensor(case.targets, "targets", "f", (len(features), "d"))
    if not len(features):
        raise BadInput("features", (), "a sample has at least one row", features.shape)
    unit = np.random.default_rng(seed_of(case.seed)).random(features.shape)
    noise = feature_noise(NoiseCase(unit, len(features), law))
    return NoisySample(features + noise, targets.astype(np.float64, copy=True))
