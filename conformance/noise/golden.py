"""The golden vectors of noise: both laws in rationals, what is refused, and what noise of its own has to keep to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.noise.cases import ROUNDINGS, made
from conformance.noise.replaying import broken, uniform_noise
from conformance.roads import noise as road
from conformance.verdicts import HarnessError
from oracle import noise as oracle
from oracle.errors import BadInput
from oracle.types import NoiseCase, SampleCase

PAPER = "noise_amplitude=paper"


@dataclass(frozen=True, eq=False)
class Refused(Golden):
    """A case that names the field it is refused for."""

    names: str = ""


FLAGS: Mapping[str, Flag] = {
    PAPER: Flag("convention", "Noise of the implementation's own has the half-width 0.1 at every length."),
}


def uniforms(*entries: Any, of: int = 32) -> Any:
    """Uniforms by their numerators."""
    return np.array(entries, dtype=np.float64) / of


def noise(description: str, unit: Any, length: int, law: str, *clauses: int, flags: tuple[str, ...] = ()) -> Golden:
    return Golden("feature_noise", _ids(clauses), description, {"case": NoiseCase(unit, length, law)}, flags)


def refused(description: str, unit: Any, length: int, law: str, names: str) -> Golden:
    arguments = {"case": NoiseCase(unit, length, law)}
    return Refused("feature_noise", ("NOISE-203",), description, arguments, ("hostile",), names)


def sample(description: str, length: int, width: int, seed: int, *clauses: int) -> Golden:
    arguments = {"case": made(length, width, seed)}
    return Golden("noisy_sample", _ids(clauses), description, arguments, (PAPER,))


def _ids(clauses: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"NOISE-{clause}" for clause in clauses)


ANY = uniforms([3, 20, 31], [0, 16, 9])
DEEP = uniforms([[1, 30], [7, 22]], [[13, 4], [28, 17]])

GOLDEN: tuple[Golden, ...] = (
    noise("The uniforms 0, 1/4, 1/2 and 31/32 span the paper's interval", uniforms(0, 8, 16, 31), 4, "paper", 201),
    noise(
        "By the paper's law a long sample has the noise of a short one",
        ANY,
        2048,
        "paper",
        *(101, 102, 201),
        flags=(UNCHANGED,),
    ),
    noise("At a length of 512 both laws agree", ANY, 512, "length_scaled", 101, 202),
    noise(
        "Scaled by length, a sample of three rows has noise of up to 17",
        ANY,
        3,
        "length_scaled",
        101,
        102,
        202,
        flags=(UNCHANGED,),
    ),
    noise("Scaled by length, 2048 rows have a quarter of the paper's noise", ANY, 2048, "length_scaled", 101, 202),
    noise("A length that is no power of two divides the noise", uniforms(1, 12, 27), 513, "length_scaled", 202),
    noise(
        "The length is the sample's own, not the number of rows that came",
        uniforms([5, 28], [11, 2], [19, 30]),
        7,
        "length_scaled",
        *(101, 202),
    ),
    noise("Uniforms of three dimensions keep their shape", DEEP, 5, "paper", 101, 201),
    noise("No uniforms make no noise", np.zeros((0, 3)), 1, "length_scaled", 101, flags=("empty",)),
    noise(
        "Uniforms 2⁻²⁴ away from a half make noise, if little",
        uniforms(2**23 - 1, 2**23 + 1, of=2**24),
        1,
        "paper",
        201,
    ),
    refused("A uniform of one is refused", uniforms(16, 32), 1, "paper", "unit"),
    refused("A uniform below zero is refused", uniforms(-8, 16), 1, "length_scaled", "unit"),
    refused("A uniform that is no number is refused", np.array([np.nan, 0.5]), 1, "paper", "unit"),
    refused("A sample of no rows is refused", ANY, 0, "length_scaled", "length"),
    refused("A negative length is refused", ANY, -3, "length_scaled", "length"),
    refused("A law that nobody knows is refused", ANY, 2, "gaussian", "law"),
    sample("A sample of 64 rows gets noise on its features, none on its targets", 64, 4, 5, 301, 302, 304, 305),
    sample("A short sample has the paper's noise, not a wider one", 2, 24, 11, 301, 302, 303, 305),
    sample("A long sample has the paper's noise, not a narrower one", 300, 2, 8, 301, 302, 303, 304, 305),
    sample("A sample of one row is drawn entry by entry", 1, 40, 2, 301, 302, 304, 305),
    sample("A sample of one feature is drawn row by row", 40, 1, 3, 301, 302, 304, 305),
    sample("An even seed and the next one differ", 12, 3, 6, 301, 302, 305),
    sample("An odd seed and the next one differ", 12, 3, 7, 301, 302, 305),
    sample("Rows that are equal get noise of their own", 35, 3, 4, 301, 302, 304, 305),
)

USUAL: Mapping[str, tuple[str, ...]] = {"noisy_sample": (PAPER,)}
"""What the answer to a case that is kept rests on."""
UNTOUCHED: Mapping[str, str] = {}
UNSHOWN: Mapping[str, str] = {}


def answer(golden: Golden) -> Answer:
    """What the rationals say and the oracle confirms. Raises `HarnessError` where they disagree."""
    case = golden.arguments["case"]
    if golden.operation == "noisy_sample":
        return _relation(case)
    if isinstance(golden, Refused):
        return Answer(_refusal(case, golden.names), ("oracle", "by hand"), "refusal")
    flat = [road.noise(float(u), case.length, case.law) for u in case.unit.reshape(-1)]
    value = np.array(flat, dtype=object).reshape(case.unit.shape)
    for found, right in zip(oracle.feature_noise(case).reshape(-1).tolist(), flat):
        if abs(Fraction(found) - right) > ROUNDINGS * Fraction(1, 2**53) * abs(right):
            raise HarnessError(f"{golden.description}: the oracle says {found}, the rationals {right}")
    return Answer(value, ("oracle", "rationals"), "relative", {"roundings": ROUNDINGS})


def _relation(case: SampleCase) -> Answer:
    right = uniform_noise(case)
    reference = Declaration("oracle", "1")
    if reason := broken(right, "noisy_sample", {"case": case}, lambda _, one: oracle.noisy_sample(one), reference):
        raise HarnessError(f"seed {case.seed}: the oracle breaks the relation: {reason}")
    return Answer(right, ("oracle", "rationals"), "relation")


def _refusal(case: NoiseCase, names: str) -> str:
    try:
        oracle.feature_noise(case)
    except BadInput as error:
        if error.field == names:
            return names
    raise HarnessError(f"{case}: the oracle does not refuse it for its {names}")
