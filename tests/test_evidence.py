"""The e-process is a martingale under its null, keeps α at every look, and has the power it states.

The simulations here know nothing of `log_values`: they multiply predictive probabilities, observation by
observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.calibration import published_laws, write_between
from conformance.evidence import (
    CONCENTRATIONS,
    EProcess,
    Floats,
    Ledger,
    Statement,
    detectable_distance,
    log_values,
    noncentrality,
    trials_needed,
)
from oracle.errors import BadInput

ALPHA = 1e-8
GEOMETRIC = tuple(2.0 ** -min(i, 10) for i in range(1, 12))
RARE = (0.5, 0.49, 0.009, 0.0009, 0.0001)
LAWS = {"binary": (0.95, 0.05), "uniform": (1 / 27,) * 27, "geometric": GEOMETRIC, "rare": RARE}


def largest_values(
    law: Sequence[float], source: Sequence[float], n: int, runs: int, seed: int, every: int = 1
) -> Floats:
    """The largest log M [runs] when n observations of `source` are looked at one by one, or every few."""
    rng = np.random.default_rng(seed)
    p, ends = np.array(law), np.cumsum(source)
    ends[-1] = np.inf
    c, row = np.array(CONCENTRATIONS), np.arange(runs)
    counts, logs, largest = np.zeros((runs, len(p))), np.zeros((runs, len(c))), np.zeros(runs)
    for t in range(n):
        drawn = ends.searchsorted(rng.random(runs), side="right")
        seen, chance = counts[row, drawn, np.newaxis], p[drawn, np.newaxis]
        logs += np.log((c * chance + seen) / ((c + t) * chance))
        counts[row, drawn] += 1
        if (t + 1) % every == 0:
            largest = np.maximum(largest, np.logaddexp.reduce(logs, axis=1) - math.log(len(c)))
    return largest


def moved(law: Sequence[float], part: NDArray[np.bool_], distance: float) -> list[float]:
    """`law` after `distance` moved onto `part` in proportion; empty where there is not so much to move."""
    p = np.array(law)
    gaining, losing = p[part].sum(), p[~part].sum()
    if gaining == 0 or losing < distance:
        return []
    return [float(a) for a in p * np.where(part, 1 + distance / gaining, 1 - distance / losing)]


# The null: mean one, and no more false alarms than α


@pytest.mark.parametrize(("law", "n"), [((0.95, 0.05), 9), ((0.5, 0.3, 0.2), 6), ((0.7, 0.0, 0.2999, 0.0001), 5)])
def test_the_mean_over_all_sequences_is_one(law: tuple[float, ...], n: int) -> None:
    possible = [i for i, probability in enumerate(law) if probability > 0]
    sequences = list(product(possible, repeat=n))
    counts = np.array([[sequence.count(i) for i in range(len(law))] for sequence in sequences])
    chances = [math.prod(law[i] for i in sequence) for sequence in sequences]
    mean = math.fsum(chance * math.exp(value) for chance, value in zip(chances, log_values(law, counts), strict=True))
    assert mean == pytest.approx(1, abs=1e-12)


@given(st.lists(st.integers(0, 5000), min_size=3, max_size=3))
def test_the_mean_of_the_next_value_is_the_value(counts: list[int]) -> None:
    law = (0.2, 0.79, 0.01)
    now = log_values(law, np.array([counts]))[0]
    after = log_values(law, np.array(counts) + np.eye(3, dtype=np.int64))
    assert math.fsum(p * math.exp(v - now) for p, v in zip(law, after, strict=True)) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("every", [1, 50])
def test_false_alarms_stay_below_alpha_at_any_look(every: int) -> None:
    runs, alpha = 4000, 0.05
    largest = largest_values((0.6, 0.3, 0.1), (0.6, 0.3, 0.1), n=1000, runs=runs, seed=1, every=every)
    rate = float((largest >= math.log(1 / alpha)).mean())
    assert 0 < rate <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


# The value


@given(st.lists(st.integers(0, 10**6), min_size=4, max_size=4), st.sampled_from([1e-12, 1e-3, 0.25]))
def test_the_value_is_the_dirichlet_multinomial_over_the_multinomial(counts: list[int], small: float) -> None:
    law = (small, 0.5 - small, 0.3, 0.2)
    n, logs = sum(counts), []
    for c in CONCENTRATIONS:
        dirichlet = math.lgamma(c) - math.lgamma(c + n)
        dirichlet += sum(math.lgamma(c * p + m) - math.lgamma(c * p) for p, m in zip(law, counts, strict=True))
        logs.append(dirichlet - sum(m * math.log(p) for p, m in zip(law, counts, strict=True)))
    expected = float(np.logaddexp.reduce(logs)) - math.log(len(logs))
    process = EProcess(law, ALPHA)
    process.update(counts)
    assert process.log_value == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=5), st.randoms())
def test_the_value_depends_on_the_totals_alone(chunks: list[list[int]], random: Callable[..., object]) -> None:
    forward, shuffled, at_once = (EProcess((0.2, 0.3, 0.5), ALPHA) for _ in range(3))
    for chunk in chunks:
        forward.update(chunk)
    for chunk in random.sample(chunks, len(chunks)):  # type: ignore[attr-defined]
        shuffled.update(chunk)
    at_once.update(np.sum(chunks, axis=0))
    assert forward.log_value == shuffled.log_value == at_once.log_value
    assert forward.counts == at_once.counts
    assert forward.observations == sum(map(sum, chunks))
    assert forward.largest >= forward.log_value


def test_an_alarm_stays() -> None:
    process = EProcess((0.5, 0.5), 0.01)
    process.update((20, 0))
    assert process.alarmed
    process.update((0, 20))
    assert process.alarmed
    assert process.log_value < math.log(100) <= process.largest


@pytest.mark.parametrize("impossible", [0.0, 1e-310])
def test_the_impossible_alarms_at_once_and_breaks_nothing(impossible: float) -> None:
    process = EProcess((0.5, 0.5, impossible), ALPHA)
    process.update((10, 12, 0))
    assert not process.alarmed
    process.update((0, 0, 1))
    assert process.alarmed
    assert process.log_value == process.largest == math.inf
    process.update((5, 5, 0))
    assert process.log_value == math.inf
    assert math.isfinite(log_values((0.5, 0.5, 0.0), np.array([[3, 4, 0], [3, 4, 1]]))[0])


def test_one_category_is_never_evidence() -> None:
    process = EProcess((1.0,), ALPHA)
    process.update((1000,))
    assert process.log_value == pytest.approx(0, abs=1e-9)
    assert detectable_distance((1.0,), ALPHA, 10**6) == 1.0


# The power


@pytest.mark.parametrize(
    ("law", "alternative", "least", "most"),
    [
        ((0.95, 0.05), (0.931, 0.069), 12_000, 14_000),
        ((0.95, 0.05), (0.969, 0.031), 9_000, 10_500),
        ((0.97, 0.03), (0.9894, 0.0106), 4_200, 5_000),
        ((0.5, 0.5), (0.9, 0.1), 100, 125),
    ],
)
def test_trials_needed_hold_in_a_sequential_run(
    law: tuple[float, ...], alternative: tuple[float, ...], least: int, most: int
) -> None:
    n = trials_needed(law, alternative, ALPHA)
    assert least <= n <= most
    runs = 400
    alarms = int((largest_values(law, alternative, n, runs, seed=2, every=20) >= -math.log(ALPHA)).sum())
    assert alarms >= 0.99 * runs - 3 * math.sqrt(0.99 * 0.01 * runs)


@pytest.mark.parametrize("name", LAWS)
def test_the_detectable_distance_is_detected_in_a_sequential_run(name: str) -> None:
    law, n, runs, rng = LAWS[name], 600, 400, np.random.default_rng(3)
    distance = detectable_distance(law, ALPHA, n)
    parts = [part for part in rng.random((300, len(law))) < 0.5 if moved(law, part, distance)]
    hardest = min(parts, key=lambda part: noncentrality(law, moved(law, part, distance)))
    for part in (hardest, ~hardest):
        alternative = moved(law, part, distance)
        if alternative:
            assert np.abs(np.subtract(alternative, law)).sum() / 2 == pytest.approx(distance)
            alarms = (largest_values(law, alternative, n, runs, seed=4, every=20) >= -math.log(ALPHA)).sum()
            assert alarms >= 0.99 * runs - 3 * math.sqrt(0.99 * 0.01 * runs)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("n", [60, 2000])
def test_other_directions_are_detected_too(name: str, n: int) -> None:
    law, runs, rng = np.array(LAWS[name]), 1000, np.random.default_rng(5)
    distance = detectable_distance(LAWS[name], ALPHA, n)
    tried = 0
    for i in range(60):
        kinds = (
            rng.dirichlet(np.full(len(law), 0.3)),
            rng.dirichlet(5 * law),
            np.eye(len(law))[i % len(law)],
        )
        toward = kinds[i % 3]
        away = np.abs(toward - law).sum() / 2
        if away < distance:
            continue
        tried += 1
        counts = rng.multinomial(n, law + (toward - law) * distance / away, size=runs)
        alarms = int((log_values(law, counts) >= -math.log(ALPHA)).sum())
        assert alarms >= 0.99 * runs - 4 * math.sqrt(0.99 * 0.01 * runs)
    assert tried > 0


def test_the_detectable_distance_shrinks_with_observations_and_grows_with_certainty() -> None:
    law = LAWS["uniform"]
    distances = [detectable_distance(law, ALPHA, n) for n in (3, 100, 1000, 10_000, 100_000)]
    assert distances[0] == 1.0
    assert distances == sorted(distances, reverse=True)
    assert detectable_distance(law, 0.01, 1000) < detectable_distance(law, ALPHA, 1000)
    assert detectable_distance(law, ALPHA, 1000, power=0.5) < detectable_distance(law, ALPHA, 1000)


def test_mass_on_an_impossible_category_is_detected_by_its_first_appearance() -> None:
    distance = detectable_distance((1.0, 0.0), ALPHA, 1000)
    assert 1 - (1 - distance) ** 1000 >= 0.99
    assert distance == 0.0046
    assert trials_needed((1.0, 0.0), (0.9, 0.1), ALPHA) == pytest.approx(50, abs=5)


def test_noncentrality() -> None:
    assert noncentrality((0.5, 0.5), (0.6, 0.4)) == pytest.approx(0.04)
    assert noncentrality((0.5, 0.5, 0.0), (0.5, 0.5, 0.0)) == 0
    assert noncentrality((1.0, 0.0), (0.9, 0.1)) == math.inf


# The sentence, the budget, and bad input


def test_the_sentence() -> None:
    statement = Statement("emitted pairs follow the target", 1e-8, 40_000, 27, 0.014, 0.99, False, -3.21)
    assert statement.sentence() == (
        "null: emitted pairs follow the target; α = 1e-08; n = 40 000 in 27 categories; "
        "would have detected a total-variation distance ≥ 0.014 with power ≥ 0.99; "
        "no alarm (log evidence -3.2, alarm at 18.4)"
    )
    hopeless = Statement("coins are fair", 1e-8, 3, 2, 1.0, 0.99, True, math.inf)
    assert "too few observations for power ≥ 0.99" in hopeless.sentence()
    assert "ALARM (log evidence inf" in hopeless.sentence()


def test_the_ledger_holds_its_total() -> None:
    ledger = Ledger(total=1e-6)
    for i in range(100):
        assert ledger.grant(f"test {i}", 1e-8) == 1e-8
    assert ledger.spent == pytest.approx(1e-6)
    with pytest.raises(BadInput, match="sum to at most 1e-06"):
        ledger.grant("one more", 1e-9)
    with pytest.raises(BadInput, match="granted once"):
        ledger.grant("test 0", 1e-9)
    assert len(ledger.grants) == 100


@pytest.mark.parametrize(
    ("call", "field", "index"),
    [
        (lambda: EProcess((), ALPHA), "law", ()),
        (lambda: EProcess((0.5, 0.4), ALPHA), "law", ()),
        (lambda: EProcess((1.5, -0.5), ALPHA), "law", (1,)),
        (lambda: EProcess((math.nan, 1.0), ALPHA), "law", (0,)),
        (lambda: EProcess((1.0, math.inf), ALPHA), "law", (1,)),
        (lambda: EProcess((1.0, "x"), ALPHA), "law", (1,)),  # type: ignore[arg-type]
        (lambda: EProcess((0.5, 0.5), 0.0), "alpha", ()),
        (lambda: EProcess((0.5, 0.5), 1.0), "alpha", ()),
        (lambda: EProcess((0.5, 0.5), ALPHA).update((1, 2, 3)), "counts", ()),
        (lambda: EProcess((0.5, 0.5), ALPHA).update((1, -1)), "counts", (1,)),
        (lambda: EProcess((0.5, 0.5), ALPHA).update((1.0, 1)), "counts", (0,)),  # type: ignore[arg-type]
        (lambda: EProcess((0.5, 0.5), ALPHA).update((2**63, 1)), "counts", (0,)),
        (lambda: detectable_distance((0.5, 0.5), ALPHA, 0), "n", ()),
        (lambda: detectable_distance((0.5, 0.5), 2.0, 10), "alpha", ()),
        (lambda: detectable_distance((0.5, 0.5), ALPHA, 10, power=0.9999), "power", ()),
        (lambda: trials_needed((0.5, 0.5), (0.5, 0.5), ALPHA), "alternative", ()),
        (lambda: trials_needed((0.5, 0.5), (0.5, 0.3, 0.2), ALPHA), "alternative", ()),
        (lambda: noncentrality((0.5, 0.5), (1.0,)), "alternative", ()),
        (lambda: Ledger(0.0), "total", ()),
        (lambda: Ledger().grant("test", -1e-9), "alpha", ()),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], field: str, index: tuple[int, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        call()
    assert (caught.value.field, caught.value.index) == (field, index)


def test_bad_counts_leave_the_process_as_it_was() -> None:
    process = EProcess((0.5, 0.5), ALPHA)
    process.update((3, 4))
    with pytest.raises(BadInput):
        process.update((1, -1))
    assert process.counts == (3, 4)


# The calibration


def test_the_calibration_draws_from_laws_and_writes_between_its_markers(tmp_path: Path) -> None:
    for law in published_laws().values():
        assert math.fsum(law) == pytest.approx(1)
        assert min(law) > 0
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n", encoding="utf-8")
    write_between(page, "x", "new")
    assert page.read_text(encoding="utf-8") == "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"
    with pytest.raises(BadInput):
        write_between(page, "y", "new")
