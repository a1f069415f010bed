"""Evidence that two samples come from different laws, neither of which is known: an e-process of bets on pairs.

The observations come in pairs, one of each sample. The null hypothesis says that both samples are drawn independently
from one law, whatever it is. Then, given which two outcomes make up a pair, either of them is the first sample's with
probability one half. A bettor who has seen earlier pairs predicts which; a bet that wins with the probability it
claims multiplies the stake by twice that probability. Under the null the stake is a non-negative martingale that starts
at one, so by Ville's inequality P(it ever reaches 1/α) ≤ α, whenever one looks, and whatever the law is.

The bettor estimates the two laws from the counts so far, drawn towards what both have in common with one of several
strengths. Stakes are split equally over the strengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from conformance.evidence import DISTANCES, Floats, Integers, hardest
from oracle.errors import BadInput

STRENGTHS = tuple(4.0 * 16.0**j for j in range(4))
"""Observations that the common law counts for, when one of the two laws is estimated."""
STEPS = 12
"""A test bets in so many steps; a bet knows what the steps before it have shown."""
RUNS = 500
"""Simulated runs behind a statement of power: all of them alarm, which a power below 0.99 has do with 0.99⁵⁰⁰ < 1 %."""
POWER = 0.99
_QUICK_RUNS = 100  # find the place that the runs confirm
_SEED = 20_250_301


class TwoSamples:
    """The evidence against one law of two samples in `categories` categories; alarms at level `alpha`."""

    def __init__(self, categories: int, alpha: float) -> None:
        if categories < 1:
            raise BadInput("categories", (), "there is at least one category", categories)
        if not 0 < alpha < 1:
            raise BadInput("alpha", (), "a level lies between zero and one", alpha)
        self.alpha = alpha
        self.categories = categories
        self._first = np.zeros((1, categories))
        self._second = np.zeros((1, categories))
        self._log_stakes = np.zeros((1, len(STRENGTHS)))
        self._largest = 0.0

    def update(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Bet on the pairs (first[i], second[i]), all at once, and look once."""
        if len(first) != len(second):
            raise BadInput("second", (), f"there is one outcome for each of {len(first)}", len(second))
        pairs = np.zeros((1, self.categories, self.categories), dtype=np.int64)
        for field, outcomes in (("first", first), ("second", second)):
            for i, outcome in enumerate(outcomes):
                if not 0 <= outcome < self.categories:
                    raise BadInput(field, (i,), f"a category lies in [0, {self.categories})", outcome)
        np.add.at(pairs, (0, list(first), list(second)), 1)
        self._log_stakes += log_growth(self._first, self._second, pairs)
        self._first += pairs.sum(axis=2)
        self._second += pairs.sum(axis=1)
        self._largest = max(self._largest, self.log_value)

    @property
    def log_value(self) -> float:
        """The logarithm of the stake after the last look."""
        return float(_mean(self._log_stakes)[0])

    @property
    def largest(self) -> float:
        """The largest logarithm at any look so far, the start included."""
        return self._largest

    @property
    def alarmed(self) -> bool:
        """Whether the stake has reached 1/α at some look. An alarm stays."""
        return self._largest >= -math.log(self.alpha)

    @property
    def pairs(self) -> int:
        """How many pairs were seen."""
        return int(self._first.sum())

    @property
    def shares(self) -> tuple[list[float], list[float]]:
        """How often each category was seen in the first sample, and in the second."""
        total = max(self.pairs, 1)
        return (self._first[0] / total).tolist(), (self._second[0] / total).tolist()

    @property
    def common(self) -> list[float]:
        """The law of both samples together."""
        return [float(n) / max(2 * self.pairs, 1) for n in (self._first + self._second)[0]]


def log_growth(first: Floats, second: Floats, pairs: Integers) -> Floats:
    """What a step adds to the logarithms of the stakes, [R, strengths], for R tests side by side.

    first, second: counts before the step, [R, k]. pairs: counts of the step, [R, k, k], first × second sample. With
    estimates f and g of the two laws, a pair {a, b} was the other way round with odds f(b)g(a) : f(a)g(b).
    """
    k = first.shape[1]
    seen = first.sum(axis=1, keepdims=True)
    common = (first + second + 0.5) / (2 * seen + 0.5 * k)
    upper = np.triu_indices(k, 1)
    forward, backward = pairs[:, upper[0], upper[1]], pairs[:, upper[1], upper[0]]
    growth = np.zeros((len(first), len(STRENGTHS)))
    for j, strength in enumerate(STRENGTHS):
        lean = np.log((first + strength * common) / (second + strength * common))
        odds = lean[:, upper[0]] - lean[:, upper[1]]
        lost = np.log1p(np.exp(-np.abs(odds)))  # −log of the larger share is this, of the smaller |odds| more
        against = np.where(odds > 0, backward, forward) * np.abs(odds)
        growth[:, j] = ((forward + backward) * (math.log(2) - lost) - against).sum(axis=1)
    return growth


def detectable_distance(law: Sequence[float], alpha: float, pairs: int) -> float:
    """The total-variation distance that `pairs` pairs detect with power 0.99, where one sample follows `law`.

    The other sample follows one of up to four laws at that distance that are hardest to tell from it (see
    `conformance.evidence`). All of `RUNS` simulated tests, in `STEPS` steps, alarm at the distance returned. That every
    other law at this distance is seen as often is not proved; the tests sample it. Returns 1.0, no claim, where the
    pairs are too few.
    """
    p = np.array(law, dtype=np.float64)
    if len(p) < 1 or not np.all(p >= 0) or abs(p.sum() - 1) > 1e-6:
        raise BadInput("law", (), "a law sums to one", float(p.sum()))
    p = p / p.sum()
    distances: list[float] = [d for d in DISTANCES if d <= 1 - float(p.min())]

    def detects(distance: float, runs: int) -> bool:
        tried = hardest(p, distance)[: 2 if runs < RUNS else 4]
        return bool(tried) and all(_alarms(p, a, alpha, pairs, runs) == runs for a in tried)

    low, high = 0, len(distances)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if detects(distances[middle], _QUICK_RUNS) else (middle + 1, high)
    while low < len(distances):  # a quick guess is low: it is moved up by a twelfth until the full runs confirm it
        low = next((i for i, d in enumerate(distances) if d >= distances[low] * 13 / 12), len(distances))
        if low < len(distances) and detects(distances[low], RUNS):
            return float(distances[low])
    return 1.0


def _alarms(law: Floats, alternative: Floats, alpha: float, pairs: int, runs: int) -> int:
    """How many of `runs` simulated tests alarm, where the first sample follows `alternative`."""
    generator = np.random.default_rng(_SEED)
    k = len(law)
    joint = np.outer(alternative, law).reshape(-1)
    joint = joint / joint.sum()
    first, second = np.zeros((runs, k)), np.zeros((runs, k))
    stakes, largest = np.zeros((runs, len(STRENGTHS))), np.zeros(runs)
    for size in sizes(pairs):
        counts = generator.multinomial(size, joint, size=runs).reshape(runs, k, k)
        stakes += log_growth(first, second, counts)
        first += counts.sum(axis=2)
        second += counts.sum(axis=1)
        largest = np.maximum(largest, _mean(stakes))
    return int((largest >= -math.log(alpha)).sum())


def sizes(pairs: int) -> list[int]:
    """How many pairs each step of a test has."""
    return [len(part) for part in np.array_split(np.arange(pairs), STEPS) if len(part)]


def _mean(log_stakes: Floats) -> Floats:
    """The logarithm of the mean stake, [R]."""
    values: Floats = np.logaddexp.reduce(log_stakes, axis=1) - math.log(len(STRENGTHS))
    return values
