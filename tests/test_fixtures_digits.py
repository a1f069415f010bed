"""Expected values at fifty digits: rounded once, settled, and bounded by what was counted."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from adapters.interface import load
from conformance.drafter import golden as drafter
from conformance.fixtures import digits, killing
from conformance.fixtures.golden import Golden
from conformance.losses import golden as losses
from conformance.roads import digits_losses
from conformance.verdicts import HarnessError
from oracle.types import DistillCase

SMALLEST = Fraction(1, 2**1074)
WHOLE = mpmath.MPContext()
WHOLE.prec = 4000


@pytest.mark.parametrize(
    "exact",
    [
        Fraction(1, 3),
        -Fraction(2, 3),
        1 + Fraction(1, 2**53),  # halfway, to the even one below
        1 + Fraction(3, 2**53),  # halfway, to the even one above
        -(1 + Fraction(1, 2**53) + Fraction(1, 2**200)),
        SMALLEST * Fraction(3, 2),
        SMALLEST / 2,
        SMALLEST / 2 + SMALLEST / 2**60,
        Fraction(2**1023) * Fraction(2**53 - 1, 2**52),
        Fraction(0),
    ],
)
def test_rounding_is_to_the_nearest_and_once(exact: Fraction) -> None:
    found = digits.nearest(WHOLE.mpf(exact.numerator) / exact.denominator)
    assert found == float(exact)
    assert not (found == 0 and math.copysign(1, found) < 0)


def test_what_is_no_finite_number() -> None:
    assert digits.nearest(mpmath.inf) == math.inf
    assert math.isnan(digits.nearest(mpmath.nan))
    assert digits.nearest(-mpmath.mpf("1e-5000")) == 0
    with pytest.raises(HarnessError, match="range of float64"):
        digits.nearest(mpmath.mpf("1e400"))


def test_digits_that_cancel_settle_nothing() -> None:
    def rounded(places: int) -> list[np.ndarray]:
        mp: Any = mpmath.MPContext()
        mp.dps = places
        return [digits.floats([mp.mpf(1) + mp.mpf(10) ** -55 - 1])]

    with pytest.raises(HarnessError, match="50 digits"):
        digits.settled(rounded)


def test_a_bound_in_units_of_the_answer() -> None:
    assert digits.limits(10.0, [np.array([0.75, -2.5]), np.array([np.nan, np.inf])]) == {"roundings": 3, "scale": 4.0}
    assert digits.limits(0.0, [np.array([0.0])]) == {"roundings": 1, "scale": 1.0}


def test_a_loss_that_is_known() -> None:
    """A drafter without a preference among four tokens loses log 4, and is pulled towards the target's law."""
    target = np.array([[-math.inf, 0.0, -math.inf, -math.inf]])
    found = digits_losses.loss("soft_cross_entropy", DistillCase(np.zeros((1, 4)), target, np.array([True])), 50)
    assert digits.nearest(found.value) == 2 * math.log(2)
    assert digits.floats(found.gradient).tolist() == [[0.25, -0.75, 0.25, 0.25]]


@pytest.mark.parametrize("module", [losses, drafter], ids=["losses", "drafter"])
def test_bounds_are_of_ordinary_size(module: Any) -> None:
    """Beside extremes an implementation in float32 has three digits at least, and nobody is exact to the last one."""
    cases: tuple[Golden, ...] = module.GOLDEN
    for golden in cases:
        answer = module.answer(golden)
        if answer.tolerance == "rounding" and "extreme" not in golden.flags:
            assert answer.limits["roundings"] * 2.0**-24 < 1e-3, golden.description


@pytest.mark.parametrize("spec", ["losses:Float32Losses", "losses:SortedSums", "drafter:Float32", "drafter:Bfloat16"])
def test_right_implementations_in_other_arithmetic_pass(spec: str) -> None:
    contract = spec.partition(":")[0]
    implementation = load(f"adapters.harmless.{spec}")
    for vector in killing.vectors(contract):
        assert killing.fails(implementation, vector) is None, vector.description
