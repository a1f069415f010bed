"""Noise with one fault each. `refutes` was written down before the run."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from adapters.interface import Declaration
from oracle.types import NoiseCase, NoisySample, SampleCase


class Noise:
    """Right noise, cut into small steps: a fault is a subclass that overrides one of them."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    """In a fault: the clause that it breaks, the lowest one that the suite refutes."""

    def __init_subclass__(cls) -> None:
        cls.DECLARATION = Declaration(
            cls.__name__,
            "1.0",
            conventions={"noise_amplitude": "paper"},
            cost={"feature_noise": 2e-5, "noisy_sample": 4e-5},
        )

    @classmethod
    def feature_noise(cls, case: NoiseCase) -> Any:
        cls.check(case)
        return cls.shaped(cls.centred(case.unit) * 0.2 * cls.scale(case.law, case.length))

    @classmethod
    def noisy_sample(cls, case: SampleCase) -> NoisySample:
        noise = cls.centred(cls.uniforms(case)) * 0.2
        return NoisySample(case.features + noise, case.targets + cls.on_targets(noise, case))

    @classmethod
    def check(cls, case: NoiseCase) -> None:
        if (
            not np.all((case.unit >= 0) & (case.unit < 1))
            or case.length < 1
            or case.law not in ("paper", "length_scaled")
        ):
            raise ValueError(case.law)

    @classmethod
    def shaped(cls, noise: Any) -> Any:
        return noise

    @classmethod
    def centred(cls, unit: Any) -> Any:
        return unit - 0.5

    @classmethod
    def scale(cls, law: str, length: int) -> float:
        return 512 / length if law == "length_scaled" else 1.0

    @classmethod
    def uniforms(cls, case: SampleCase) -> Any:
        return np.random.default_rng(case.seed).random(case.features.shape)

    @classmethod
    def on_targets(cls, noise: Any, case: SampleCase) -> Any:
        return 0.0


class NoiseOfOneRow(Noise):
    """Makes noise for the first row alone, and lets it be broadcast."""

    refutes = "NOISE-101"

    @classmethod
    def shaped(cls, noise: Any) -> Any:
        return noise[:1, :1]


class CentresInPlace(Noise):
    """Subtracts a half from the uniforms that it was handed."""

    refutes = "NOISE-102"

    @classmethod
    def centred(cls, unit: Any) -> Any:
        unit -= 0.5
        return unit


class NeverBelowZero(Noise):
    """Forgets to centre: noise from 0 to 0.2."""

    refutes = "NOISE-201"

    @classmethod
    def feature_noise(cls, case: NoiseCase) -> Any:
        cls.check(case)
        return case.unit * 0.2 * cls.scale(case.law, case.length)


class ScaledByTheLongest(Noise):
    """Scales by the length that all samples are truncated to, and not by the sample's own."""

    refutes = "NOISE-202"

    @classmethod
    def scale(cls, law: str, length: int) -> float:
        return 512 / 2048 if law == "length_scaled" else 1.0


class ScaledUpsideDown(Noise):
    """Multiplies by L/512."""

    refutes = "NOISE-202"

    @classmethod
    def scale(cls, law: str, length: int) -> float:
        return length / 512 if law == "length_scaled" else 1.0


class AnyLawIsThePapers(Noise):
    """Takes whatever it does not know for the law of the paper."""

    refutes = "NOISE-203"

    @classmethod
    def check(cls, case: NoiseCase) -> None:
        if case.length < 1 or not np.all((case.unit >= 0) & (case.unit < 1)):
            raise ValueError(case.length)


class NoiseOnTheTargets(Noise):
    """Adds the noise to features and targets alike, so that the drafter learns to keep it."""

    refutes = "NOISE-301"

    @classmethod
    def on_targets(cls, noise: Any, case: SampleCase) -> Any:
        return noise


class NormalNoise(Noise):
    """Draws from a normal law of the same deviation."""

    refutes = "NOISE-302"

    @classmethod
    def noisy_sample(cls, case: SampleCase) -> NoisySample:
        noise = np.random.default_rng(case.seed).normal(size=case.features.shape) * 0.2 / 12**0.5
        return NoisySample(case.features + noise, case.targets.copy())


class HalfAsWide(Noise):
    """Draws from ±0.05, and declares ±0.1."""

    refutes = "NOISE-303"

    @classmethod
    def uniforms(cls, case: SampleCase) -> Any:
        return 0.25 + 0.5 * super().uniforms(case)


class OneNoiseARow(Noise):
    """Draws one number for each row, and adds it to all its features."""

    refutes = "NOISE-304"

    @classmethod
    def uniforms(cls, case: SampleCase) -> Any:
        return np.repeat(super().uniforms(case)[:, :1], case.features.shape[1], axis=1)


class TwoSeedsInOne(Noise):
    """Loses the last bit of the seed, as a counter does that is shared by two workers."""

    refutes = "NOISE-305"

    @classmethod
    def uniforms(cls, case: SampleCase) -> Any:
        return np.random.default_rng(case.seed // 2).random(case.features.shape)
