"""The two-sample e-process is a martingale under its null, keeps α at every look, and has the power it states.

The simulations here know nothing of `log_growth`: they bet pair by pair, with predictions written out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from conformance import two_samples
from conformance.evidence import noncentrality
from conformance.two_samples import STRENGTHS, TwoSamples, detectable_distance, log_growth, sizes
from oracle.errors import BadInput

ALPHA = 1e-8
LAW = (0.5, 0.3, 0.15, 0.05)


def run(first: tuple[float, ...], second: tuple[float, ...], pairs: int, seed: int, alpha: float = ALPHA) -> TwoSamples:
    """One test of samples drawn from two laws."""
    generator = np.random.default_rng(seed)
    test = TwoSamples(len(first), alpha)
    for size in sizes(pairs):
        test.update(*(generator.choice(len(p), size, p=p).tolist() for p in (first, second)))
    return test


# The null: mean one, whatever the law, and no more false alarms than α


@pytest.mark.parametrize("law", [(0.5, 0.5), (0.9, 0.1), (1.0, 0.0)])
def test_the_mean_over_all_outcomes_is_one(law: tuple[float, ...]) -> None:
    """Three steps of one pair, one of two: every way that the eight observations fall."""
    mean = 0.0
    for outcomes in itertools.product(range(len(law)), repeat=8):
        test = TwoSamples(len(law), ALPHA)
        first, second = outcomes[:4], outcomes[4:]
        for start, end in ((0, 1), (1, 2), (2, 4)):
            test.update(first[start:end], second[start:end])
        mean += math.prod(law[v] for v in outcomes) * math.exp(test.log_value)
    assert mean == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("law", [LAW, (0.97, 0.01, 0.02)])
def test_false_alarms_stay_below_alpha(law: tuple[float, ...]) -> None:
    alpha, runs = 0.05, 400
    alarms = sum(run(law, law, 240, seed, alpha).alarmed for seed in range(runs))
    assert alarms / runs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


# The value


def test_the_first_step_is_no_evidence() -> None:
    test = TwoSamples(2, ALPHA)
    test.update([0] * 50, [1] * 50)
    assert test.log_value == pytest.approx(0)
    test.update([0] * 50, [1] * 50)
    assert test.alarmed


def test_a_bet_written_out() -> None:
    """After four pairs (0, 1) and one (1, 1): the odds that a pair {0, 1} has its 0 in the first sample."""
    before = (np.array([[4.0, 1.0]]), np.array([[0.0, 5.0]]))
    pairs = np.array([[[0, 2], [1, 3]]])
    common = [4.5 / 11, 6.5 / 11]
    wanted = []
    for strength in STRENGTHS:
        f = [(n + strength * c) / (5 + strength) for n, c in zip((4, 1), common)]
        g = [(n + strength * c) / (5 + strength) for n, c in zip((0, 5), common)]
        right = f[0] * g[1] / (f[0] * g[1] + f[1] * g[0])
        wanted.append(2 * math.log(2 * right) + math.log(2 * (1 - right)))
    assert log_growth(*before, pairs)[0].tolist() == pytest.approx(wanted)


def test_which_sample_comes_first_does_not_matter() -> None:
    one, other = TwoSamples(3, ALPHA), TwoSamples(3, ALPHA)
    for step in range(4):
        first, second = [0, 1, 2, step % 3], [1, 1, 0, 0]
        one.update(first, second)
        other.update(second, first)
    assert one.log_value == pytest.approx(other.log_value)
    assert one.shares == other.shares[::-1]
    assert sum(one.common) == pytest.approx(1)
    assert one.pairs == 16


def test_an_alarm_stays() -> None:
    test = TwoSamples(2, 0.01)
    for _ in range(3):
        test.update([0] * 20, [1] * 20)
    assert test.alarmed
    for _ in range(3):
        test.update([1] * 20, [0] * 20)
    assert test.alarmed and test.log_value < test.largest


# The power


@pytest.mark.parametrize("pairs", [360, 1000])
def test_the_stated_distance_is_detected(pairs: int) -> None:
    """At the stated distance, in the direction that a chi-square says is hardest of many."""
    distance = detectable_distance(LAW, ALPHA, pairs)
    law, generator = np.array(LAW), np.random.default_rng(5)
    moved = []
    for part in generator.random((100, len(law))) < 0.5:
        gaining, losing = law[part].sum(), law[~part].sum()
        if gaining > 0 and losing >= distance:
            moved.append(law * np.where(part, 1 + distance / gaining, 1 - distance / losing))
    hardest = min(moved, key=lambda alternative: noncentrality(LAW, alternative.tolist()))
    assert np.abs(hardest - law).sum() / 2 == pytest.approx(distance)
    alternative = tuple((hardest / hardest.sum()).tolist())
    runs = 200
    alarms = sum(run(alternative, LAW, pairs, seed).alarmed for seed in range(runs))
    assert alarms >= 0.99 * runs - 3 * math.sqrt(0.99 * 0.01 * runs)


def test_the_stated_distance_shrinks_and_claims_nothing_of_few_pairs() -> None:
    distances = [detectable_distance(LAW, ALPHA, pairs) for pairs in (24, 240, 2400, 24_000)]
    assert distances[0] == 1.0
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.06
    assert detectable_distance((1.0,), ALPHA, 1000) == 1.0


def test_steps_make_up_all_pairs() -> None:
    assert [sum(sizes(n)) for n in (1, 5, 12, 37)] == [1, 5, 12, 37]
    assert len(sizes(37)) == two_samples.STEPS


@pytest.mark.parametrize(
    ("call", "field", "index"),
    [
        (lambda: TwoSamples(0, ALPHA), "categories", ()),
        (lambda: TwoSamples(2, 0.0), "alpha", ()),
        (lambda: TwoSamples(2, ALPHA).update([0, 1], [0]), "second", ()),
        (lambda: TwoSamples(2, ALPHA).update([0, 2], [0, 1]), "first", (1,)),
        (lambda: TwoSamples(2, ALPHA).update([0, 1], [-1, 1]), "second", (0,)),
        (lambda: detectable_distance((0.5, 0.4), ALPHA, 100), "law", ()),
        (lambda: detectable_distance((), ALPHA, 100), "law", ()),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], field: str, index: tuple[int, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        call()
    assert (caught.value.field, caught.value.index) == (field, index)
