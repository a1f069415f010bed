"""Right noise that looks different: another declared law, in another precision."""

from __future__ import annotations

import numpy as np

from adapters.interface import Arithmetic, Declaration, NotApplicable
from oracle.types import NoiseCase, NoisySample, SampleCase


class ScaledByLengthInSinglePrecision:
    """Scales its noise by length, computes in float32, and knows no other law."""

    DECLARATION = Declaration(
        "ScaledByLengthInSinglePrecision",
        "1.0",
        conventions={"noise_amplitude": "length_scaled"},
        arithmetic=Arithmetic("float32"),
        cost={"feature_noise": 2e-5, "noisy_sample": 4e-5},
    )

    @classmethod
    def feature_noise(cls, case: NoiseCase) -> np.ndarray:
        if case.law == "paper":
            raise NotApplicable("its noise is scaled by length")
        if case.law != "length_scaled" or case.length < 1 or not np.all((case.unit >= 0) & (case.unit < 1)):
            raise ValueError(case.law)
        single = case.unit.astype(np.float32)
        return np.asarray((single - np.float32(0.5)) * np.float32(0.2) * np.float32(512) / np.float32(case.length))

    @classmethod
    def noisy_sample(cls, case: SampleCase) -> NoisySample:
        unit = np.random.default_rng(case.seed).random(case.features.shape, dtype=np.float32).astype(np.float64)
        noise = cls.feature_noise(NoiseCase(unit, len(case.features), "length_scaled"))
        return NoisySample((case.features.astype(np.float32) + noise).astype(np.float64), case.targets.copy())


class HalfWidthDeclared:
    """Draws from ±0.05 at every length, as declared."""

    DECLARATION = Declaration(
        "HalfWidthDeclared", "1.0", conventions={"noise_amplitude": "0.05"}, cost={"noisy_sample": 4e-5}
    )

    @classmethod
    def noisy_sample(cls, case: SampleCase) -> NoisySample:
        noise = np.random.default_rng(case.seed).uniform(-0.05, 0.05, case.features.shape)
        return NoisySample(case.features + noise, case.targets.copy())
