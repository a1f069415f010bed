"""Noise that an implementation draws itself: where it goes, how wide it is, and what law it follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from adapters.interface import DTYPES
from conformance import compare
from conformance.check import Check
from conformance.handout import copy
from conformance.noise.cases import made
from conformance.profiles import ALPHA_OF_A_CHECK
from conformance.roads import noise as road
from conformance.verdicts import ClauseViolation
from oracle.types import SampleCase

LENGTHS = (2, 5, 64, 100, 512, 2048)
"""Short samples, which the scaled law gives the widest noise, and others that are no multiple of anything."""
BANDS = (0.5, 0.9, 1.0)
"""Bands of |noise|/a: a narrower law leaves the last one empty."""
PAIRS = {"neighbouring entries": "next", "entries half a sample apart": "half"}
"""What is called independent; in a sample of one row drawn once, or of two halves that are one, it is not."""
LARGEST = 1.0
"""Of the features and targets of a sample, in absolute value, rounded up."""


@pytest.mark.clauses("NOISE-301")
def test_targets_stay_clean(check: Check) -> None:
    check.require("noisy_sample")

    def body(case: SampleCase) -> None:
        noise, targets = ask(check, case)
        if not np.array_equal(targets, case.targets):
            t, i = np.argwhere(targets != case.targets)[0]
            raise ClauseViolation(f"target {i} of row {t} is {targets[t, i]:.9g}, and was {case.targets[t, i]:.9g}")
        if not noise.any():
            raise ClauseViolation("the features came back without noise")

    check.for_each([made(5, 3, check.seed), made(40, 2, check.seed + 1)], body)


@pytest.mark.clauses("NOISE-302")
def test_noise_stays_in_its_interval(check: Check) -> None:
    check.require("noisy_sample")

    def body(case: SampleCase) -> None:
        noise, _ = ask(check, case)
        a = width(check, len(case.features))
        # the noise is rounded, then the sum with the feature
        allowed = a + DTYPES[check.arithmetic.dtype] * (5 * a + LARGEST)
        worst = float(np.abs(noise).max())
        if worst > allowed:
            raise ClauseViolation(
                f"a sample of {len(case.features)} rows has an entry of noise of ±{worst:.6g}; the declared law ends "
                f"at ±{a:.6g}"
            )

    check.for_each([made(length, 4, check.seed + length) for length in (1, *LENGTHS)], body)


@pytest.mark.statistical
@pytest.mark.clauses("NOISE-303")
def test_the_width_follows_the_length(check: Check) -> None:
    check.require("noisy_sample")
    seen: dict[int, float] = {}
    law = [b - a for a, b in zip((0.0, *BANDS), BANDS)]

    def body(case: SampleCase) -> None:
        length = len(case.features)
        a = width(check, length)

        def sample(n: int, seed: int) -> Sequence[int]:
            drawn: list[float] = []
            while len(drawn) < n:  # one entry a row: whether those of a row are independent is for another clause
                noise, _ = ask(check, made(length, 2, seed + 7919 * len(drawn)))
                drawn += np.abs(noise[:, 0]).tolist()
            seen[length] = max(seen.get(length, 0.0), *drawn[:n])
            bands = [sum(np.array(drawn[:n]) < edge * a) for edge in BANDS[:-1]]
            return [bands[0], bands[1] - bands[0], n - bands[1]]

        null = f"|noise| of samples of {length} rows is uniform up to {a:.4g}"
        trials = min(4_000, check.trials("noisy_sample"))
        process = check.weigh(null, law, sample, trials, ALPHA_OF_A_CHECK / len(LENGTHS))
        if process.alarmed:
            raise ClauseViolation(
                f"of {process.observations} entries in samples of {length} rows, in bands of |noise| up to "
                f"{', '.join(f'{edge * a:.4g}' for edge in BANDS)}: {[int(c) for c in process.counts]}, where the "
                f"declared law has the shares {', '.join(f'{share:.1f}' for share in law)}"
            )

    try:
        check.for_each([made(length, 2, check.seed) for length in LENGTHS], body)
    finally:
        if len(seen) == len(LENGTHS):
            check.observe("noise_amplitude", observed(seen))


@pytest.mark.statistical
@pytest.mark.clauses("NOISE-304")
def test_noise_is_uniform_and_drawn_anew(check: Check) -> None:
    check.require("noisy_sample")

    def body(case: SampleCase) -> None:
        length = len(case.features)
        a = width(check, length)

        def quarters(seed: int) -> np.ndarray:
            noise, _ = ask(check, made(length, 4, seed))
            return np.clip((noise.reshape(-1) / a + 1) * 2, 0, 3).astype(int)

        for apart, entries in PAIRS.items():

            def sample(n: int, seed: int, entries: str = entries) -> Sequence[int]:
                counts, drawn = np.zeros(16, dtype=int), 0
                while drawn < n:  # disjoint pairs, so that they are independent
                    found = quarters(seed + 7919 * drawn)
                    half = len(found) // 2
                    one, other = (found[::2], found[1::2]) if entries == "next" else (found[:half], found[half:])
                    taken = min(n - drawn, half)
                    counts += np.bincount((one * 4 + other)[:taken], minlength=16)
                    drawn += taken
                return [int(count) for count in counts]

            null = f"{apart} of the noise fall independently into the quarters of its interval"
            trials = min(8_000, check.trials("noisy_sample"))
            process = check.weigh(null, [1 / 16] * 16, sample, trials, ALPHA_OF_A_CHECK / len(PAIRS))
            if process.alarmed:
                table = np.array(process.counts).reshape(4, 4).astype(int)
                raise ClauseViolation(
                    f"of {process.observations} pairs of {apart}, by the quarters of the interval that both fall "
                    f"into: {' / '.join(' '.join(map(str, row)) for row in table)}; each has the share 1/16"
                )

    check.for_each([made(64, 4, check.seed)], body)


@pytest.mark.clauses("NOISE-305")
def test_seeds_differ(check: Check) -> None:
    """Null: 192 uniforms from two seeds agree with probability 0 but for rounding."""
    check.require("noisy_sample")

    def body(case: SampleCase) -> None:
        first, _ = ask(check, case)
        second, _ = ask(check, SampleCase(case.features, case.targets, case.seed + 1))
        if np.array_equal(first, second):
            raise ClauseViolation(f"seed {case.seed} and seed {case.seed + 1} gave the same noise")

    check.for_each([made(64, 3, check.seed), made(64, 3, check.seed + 1)], body)


# ---- what these checks share


def ask(check: Check, case: SampleCase) -> tuple[np.ndarray, np.ndarray]:
    """The noise of the features and the targets of a noisy sample, its form judged."""
    found = check.call("noisy_sample", copy(case))
    arrays = []
    for name in ("features", "targets"):
        array = compare.plain(getattr(found, name, None), name)
        if array.shape != getattr(case, name).shape or array.dtype.kind != "f":
            raise ClauseViolation(f"{name} is {array.dtype} of shape {array.shape}, and was {case.features.shape}")
        arrays.append(array.astype(np.float64))
    return arrays[0] - case.features, arrays[1]


def width(check: Check, length: int) -> float:
    """The half-width that the declared law has at this length."""
    return float(road.half_width(check.convention("noise_amplitude", "paper"), length))


def observed(widest: dict[int, float]) -> str:
    """The law that the widest entries fit, or those entries: of n the widest lies about a/n below a."""
    for law in ("paper", "length_scaled"):
        if all(0.95 < widest[length] / float(road.half_width(law, length)) < 1.01 for length in LENGTHS):
            return law
    values = list(widest.values())
    if max(values) < 1.05 * min(values):
        return f"{max(values):.2g}"
    return ", ".join(f"{widest[length]:.2g} at {length}" for length in LENGTHS)
