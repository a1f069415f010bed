"""The inequality that laws of golden cases are judged by, and the law of a decision by sums over coins."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from conformance.acceptance.golden_making import APART_FORK, DRAWN_FORK, ODDS, POINT_FORK, RISING
from conformance.fixtures import laws
from conformance.roads import schemes
from oracle.acceptance import verify_random
from oracle.types import VerifyCase

EVEN = {"a": Fraction(1, 2), "b": Fraction(1, 2)}
THREE = {"a": Fraction(1, 2), "b": Fraction(1, 3), "c": Fraction(1, 6)}


def test_the_law_itself_is_no_misfit() -> None:
    assert laws.misfit({"a": 300, "b": 200, "c": 100}, THREE, 1e-9) is None


def test_what_cannot_come_refutes_at_once() -> None:
    assert laws.misfit({"a": 1, "d": 1}, THREE, 1e-9) == "d came 1 times of 2, and cannot come"
    assert laws.misfit({"a": 1, "b": 1}, {"a": Fraction(1), "b": Fraction(0)}, 1e-9) is not None


def test_what_never_comes_refutes_in_the_end() -> None:
    """n·KL(0 ‖ 1/6) = n·ln(6/5) passes ln(6/α) = 22.5 at n = 124; the others' shares stay within."""
    assert laws.misfit({"a": 74, "b": 49, "c": 0}, THREE, 1e-9) is None
    assert laws.misfit({"a": 75, "b": 49, "c": 0}, THREE, 1e-9) is not None


def test_divergence_of_coins() -> None:
    assert laws.divergence(0.25, 0.25) == 0
    assert laws.divergence(1.0, 0.5) == pytest.approx(np.log(2))
    assert laws.divergence(0.5, 0.0) == np.inf


@pytest.mark.parametrize("trials", [128, 512])
def test_a_deviation_of_the_distance_is_seen_and_the_law_is_not(trials: int) -> None:
    generator = np.random.default_rng(20)
    alpha, runs = 1e-6, 400
    off = Fraction(laws.distance(EVEN, trials, alpha)).limit_denominator(1000)
    for probability, least, most in ((0.5, 0, 0), (0.5 + float(off), 0.97 * runs, runs)):
        heads = generator.binomial(trials, probability, runs)
        seen = sum(laws.misfit({"a": int(h), "b": trials - int(h)}, EVEN, alpha) is not None for h in heads)
        assert least <= seen <= most


def test_more_trials_see_more() -> None:
    distances = [laws.distance(THREE, trials, 1e-9) for trials in (64, 256, 1024, 4096)]
    assert distances == sorted(distances, reverse=True) and distances[-1] < 0.1


@pytest.mark.parametrize(
    ("case", "scheme"),
    [
        (ODDS, "per_node"),
        (DRAWN_FORK, "per_node"),
        (APART_FORK, "per_node"),
        (POINT_FORK, "sample_and_match"),
        (DRAWN_FORK, "per_parent"),
        (RISING, "block"),
    ],
)
def test_the_law_of_a_decision_is_what_coins_give(case: VerifyCase, scheme: str) -> None:
    law = schemes.decisions(case, scheme)
    assert sum(law.values()) == 1
    counts: dict[schemes.Share, int] = {}
    for decision in verify_random([case] * 2000, 5, scheme):
        key = (decision.path, decision.frontier)
        counts[key] = counts.get(key, 0) + 1
    assert laws.misfit(counts, law, 1e-9) is None


def test_the_law_of_two_drafts_by_hand() -> None:
    """Both are accepted with one half."""
    law = schemes.decisions(ODDS, "per_node")
    assert law[(0, 1), 2] == Fraction(1, 4) * Fraction(8, 16)
    # rejected at the root: (4 − 2, 0, 6 − 2)/6 is left; behind node 0: (7 − 2, 0, 0)
    assert law[(), 0] == Fraction(1, 2) * Fraction(2, 6) and law[(), 2] == Fraction(1, 2) * Fraction(4, 6)
    assert law[(0,), 0] == Fraction(1, 4) and ((0,), 1) not in law
