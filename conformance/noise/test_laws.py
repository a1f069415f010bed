"""Noise made from given uniforms: two laws, entry by entry."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from adapters.interface import DTYPES
from conformance import compare, draw
from conformance.check import Check
from conformance.handout import copy, written
from conformance.noise.cases import ROUNDINGS, made
from conformance.roads import noise as road
from conformance.verdicts import ClauseViolation, HarnessError
from oracle.noise import feature_noise
from oracle.types import NoiseCase, SampleCase

LENGTHS = (1, 2, 3, 7, 64, 511, 512, 513, 2048)


@st.composite
def cases(draw: st.DrawFn, law: str) -> NoiseCase:
    """A few uniforms, multiples of 2⁻²⁴; as often as not one row of them for each token of the sample."""
    own = draw(st.booleans())
    length = draw(st.integers(1, 5)) if own else draw(st.sampled_from(LENGTHS))
    rows = length if own else draw(st.integers(1, 4))
    width = draw(st.integers(1, 3))
    grid = draw(st.lists(st.integers(0, 2**24 - 1), min_size=rows * width, max_size=rows * width))
    return NoiseCase(np.array(grid, dtype=np.float64).reshape(rows, width) / 2**24, length, law)


@pytest.mark.clauses("NOISE-101")
@pytest.mark.parametrize("law", ["paper", "length_scaled"])
def test_the_form_of_noise(check: Check, law: str) -> None:
    check.require("feature_noise")
    check.for_all(cases(law), lambda case: ask(check, case))


@pytest.mark.clauses("NOISE-102")
@pytest.mark.parametrize("operation", ["feature_noise", "noisy_sample"])
def test_the_case_is_left_alone(check: Check, operation: str) -> None:
    check.require(operation)
    units = np.array([[0.25, 0.75, 0.5], [0.125, 0.0, 0.875]])
    cases_of: dict[str, list[Any]] = {
        "feature_noise": [NoiseCase(units, 2, law) for law in ("paper", "length_scaled")],
        "noisy_sample": [made(6, 3, check.seed)],
    }

    def body(case: NoiseCase | SampleCase) -> None:
        handed = copy(case)
        check.call(operation, handed)
        if names := written(case, handed):
            raise ClauseViolation(f"{operation} wrote into {', '.join(names)}")

    check.for_each(cases_of[operation], body)


@pytest.mark.clauses("NOISE-201")
def test_the_law_of_the_paper(check: Check) -> None:
    check.require("feature_noise")
    check.for_all(cases("paper"), lambda case: law(check, case), first=shapes("paper"))


@pytest.mark.clauses("NOISE-202")
def test_the_law_that_is_scaled_by_length(check: Check) -> None:
    check.require("feature_noise")
    check.for_all(cases("length_scaled"), lambda case: law(check, case), first=shapes("length_scaled"))


@pytest.mark.hostile
@pytest.mark.clauses("NOISE-203")
def test_what_has_no_meaning_is_refused(check: Check) -> None:
    check.require("feature_noise")
    half = np.array([[0.5, 0.25]])
    refused = [
        NoiseCase(np.array([[0.5, 1.0]]), 1, "paper"),
        NoiseCase(np.array([[-0.25, 0.5]]), 1, "length_scaled"),
        NoiseCase(np.array([[np.nan, 0.5]]), 1, "paper"),
        NoiseCase(half, 0, "length_scaled"),
        NoiseCase(half, -3, "length_scaled"),
        NoiseCase(half, 1, "gaussian"),
    ]

    check.for_each(refused, lambda case: check.refuses("feature_noise", copy(case)))


# ---- what these checks share


def shapes(law: str) -> list[NoiseCase]:
    """Uniforms of a vector, of three dimensions, and of more rows than the sample is long."""
    grid = (np.arange(30) * 7 % 31 + 0.5) / 32
    return [
        NoiseCase(grid[:3], 3, law),
        NoiseCase(grid[:6].reshape(2, 3, 1), 2, law),
        NoiseCase(grid[:10].reshape(5, 2), 3, law),
        NoiseCase(grid.reshape(15, 2), 15, law),
    ]


def ask(check: Check, case: NoiseCase) -> np.ndarray:
    """The noise, its form judged."""
    found = compare.plain(check.call("feature_noise", copy(case)), "the noise")
    if found.shape != case.unit.shape or found.dtype.kind != "f" or not np.all(np.isfinite(found)):
        raise ClauseViolation(
            f"the noise is {found.dtype} of shape {found.shape}: one finite number for each of the uniforms, of shape "
            f"{case.unit.shape}"
        )
    return found


def law(check: Check, case: NoiseCase) -> None:
    found = ask(check, case)
    unit = Fraction(DTYPES[check.arithmetic.dtype])
    for index, u in np.ndenumerate(case.unit):
        right = road.noise(float(u), case.length, case.law)
        allowed = ROUNDINGS * unit * abs(right)
        if not check.is_oracle and abs(Fraction(float(feature_noise(case)[index])) - right) > 5 * abs(right) / 2**52:
            raise HarnessError("the oracle and the second road disagree about feature_noise")
        if abs(Fraction(float(found[index])) - right) > allowed:
            raise ClauseViolation(
                f"u = {draw.number(float(u))} at L = {case.length}: {{clause}} gives {float(right):.9g}, the "
                f"implementation {float(found[index]):.9g}; its arithmetic allows a difference of {float(allowed):.2g}"
            )
