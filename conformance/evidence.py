"""Evidence against a known law from category counts: an e-process, its power, and the α budget.

The null hypothesis says that every observation is drawn independently from a known law p over k
categories. The evidence is the mixture likelihood ratio M of p against Dirichlet alternatives centred on
p. Under the null M is a non-negative martingale that starts at one, so by Ville's inequality
P(M ever reaches 1/α) ≤ α, however often and whenever one looks (J. Ville, Étude critique de la notion de
collectif, 1939; H. Robbins, Ann. Math. Statist. 41, 1970, for mixtures).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oracle.errors import BadInput

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CONCENTRATIONS = tuple(2.0 * 4.0**j for j in range(10))
"""Concentrations c of the Dirichlet(c·p) alternatives, equally weighted.

Small c spreads the alternatives wide and sees a gross fault within a few observations; n observations
see a small shift best through some c between n/100 and n. Having all ten costs at most log(10) = 2.3 nats
against the best of them.
"""

FULL_RUNS = 2000
"""Simulated runs behind each statement of power."""

_QUICK_RUNS = 200  # find the place that the full runs confirm
_SEED = 20_240_229
_DOUBT = 0.01  # of a statement of power: the chance that its runs flatter
_MOST = 2**40  # observations that one test may count
_SHIFT = 10  # of Stirling's series, see _log_growth
DISTANCES = tuple(m / 10**e for e in range(7, 1, -1) for m in range(10, 100))
_TRIALS = tuple(sorted({math.ceil(1.02**j) for j in range(1400)}))


class EProcess:
    """The evidence against `law` ([k], sums to one), fed with counts; alarms at level `alpha`."""

    def __init__(self, law: Sequence[float], alpha: float) -> None:
        self.law = _checked_law("law", law)
        self.alpha = _checked_level("alpha", alpha)
        self._counts = np.zeros(len(self.law), dtype=np.int64)
        self._log_value = 0.0
        self._largest = 0.0

    def update(self, counts: Sequence[int]) -> None:
        """Adds the counts [k] of new observations and looks once."""
        self._counts += _checked_counts(counts, len(self.law))
        self._log_value = float(log_values(self.law, self._counts[np.newaxis])[0])
        self._largest = max(self._largest, self._log_value)

    @property
    def log_value(self) -> float:
        """log M after the last look: a function of the total counts alone; ∞ once the impossible was seen."""
        return self._log_value

    @property
    def largest(self) -> float:
        """The largest log M at any look so far, zero observations included."""
        return self._largest

    @property
    def alarmed(self) -> bool:
        """Whether log M has reached log(1/α) at some look. An alarm stays."""
        return self._largest >= -math.log(self.alpha)

    @property
    def counts(self) -> tuple[int, ...]:
        """Total counts [k]."""
        return tuple(self._counts.tolist())

    @property
    def observations(self) -> int:
        """Number of observations so far."""
        return int(self._counts.sum())


def log_values(law: Sequence[float] | Floats, counts: Integers) -> Floats:
    """log M for each of R rows of counts [R, k] under `law` [k]; the result is [R]. Checks nothing.

    A Dirichlet(c·p) alternative has the likelihood ratio
        M_c = Π_i Π_{j < n_i} (1 + j/(c·p_i))  /  Π_{j < n} (1 + j/c),
    the Dirichlet-multinomial over the multinomial: the powers of p and c cancel.
    """
    p = np.asarray(law, dtype=np.float64)
    possible = p > 0
    seen, p = counts[:, possible], p[possible]
    total = seen.sum(axis=1)
    # Simulated runs share most of their counts: each distinct (count, category) is computed once.
    distinct, where = np.unique(seen * len(p) + np.arange(len(p)), return_inverse=True)
    count, category = np.divmod(distinct, len(p))
    where = where.reshape(seen.shape)
    growth = np.array([_log_growth(c * p[category], count)[where].sum(axis=1) for c in CONCENTRATIONS])
    ratios = growth - _log_growth(np.array(CONCENTRATIONS)[:, np.newaxis], total)
    values: Floats = np.logaddexp.reduce(ratios, axis=0) - math.log(len(CONCENTRATIONS))
    values[counts[:, ~possible].any(axis=1)] = math.inf
    return values


def noncentrality(law: Sequence[float], alternative: Sequence[float]) -> float:
    """Chi-square Σ (a − p)²/p per observation of `alternative` a against `law` p, or ∞."""
    p, a = _checked_pair(law, alternative)
    possible = p > 0
    if a[~possible].any():
        return math.inf
    return float(np.sum((a[possible] - p[possible]) ** 2 / p[possible]))


def detectable_distance(law: Sequence[float], alpha: float, n: int, power: float = 0.99) -> float:
    """The total-variation distance δ from `law` that `n` observations detect, two digits, rounded up.

    Hardest alternatives. Whatever gives a set A the mass P(A) + δ has at least the information of a coin,
    KL(P(A) + δ ‖ P(A)), per observation, and exactly that if it scales p inside A and outside. It is all but
    least for P(A) = (1 − δ)/2; so, for small δ, is the chi-square δ²/(P(A)(1 − P(A))), never below 4δ².

    Claim. At the returned δ, against each of up to four such alternatives (`hardest`), one look after n
    observations alarms with at least `power`: enough of 2000 seeded runs did that a smaller power would
    have done so with probability ≤ 0.01 (1991 runs for 0.99). Looking earlier too can only add alarms.
    That every other alternative at distance ≥ δ is seen as often is not proved; the tests sample it. Where
    p has impossible categories, δ also suffices for mass that is moved onto them.

    Returns 1.0, no claim, if n is too small for any distance or there is one category.
    """
    p = _checked_law("law", law)
    level, observations = _checked_level("alpha", alpha), _checked_natural("n", (), n, least=1)
    _alarms_needed(power)  # refuses a power that the runs cannot support
    return _detectable_distance(tuple(p.tolist()), level, observations, power)


def trials_needed(law: Sequence[float], alternative: Sequence[float], alpha: float, power: float = 0.99) -> int:
    """The number of observations, to 2 %, after which one look alarms with `power` against `alternative`.

    Supported by seeded simulation as in `detectable_distance`.
    """
    p, a = _checked_pair(law, alternative)
    level = _checked_level("alpha", alpha)
    _alarms_needed(power)  # refuses a power that the runs cannot support
    if np.array_equal(p, a):
        raise BadInput("alternative", (), "an alternative differs from the law")

    def holds(step: int, runs: int) -> bool:
        return _detects(p, a, level, _TRIALS[step], power, runs)

    step = _first(len(_TRIALS), holds)
    if step is None:
        raise BadInput("alternative", (), f"an alternative is detectable within {_TRIALS[-1]} observations")
    return _TRIALS[step]


@dataclass(frozen=True)
class Statement:
    """What a test of a null hypothesis found, and what it would have found."""

    null: str
    alpha: float
    trials: int
    categories: int
    distance: float
    """Detectable total-variation distance; 1.0 claims nothing (see `detectable_distance`)."""
    power: float
    alarmed: bool
    log_evidence: float
    """The largest log M, in nats; an alarm is log(1/α) or more."""

    def sentence(self) -> str:
        """The statement on one line."""
        trials = f"{self.trials:,}".replace(",", " ")
        power = f"power ≥ {self.power:g}"
        return "; ".join(
            (
                f"null: {self.null}",
                f"α = {self.alpha:g}",
                f"n = {trials} in {self.categories} categories",
                f"would have detected a total-variation distance ≥ {self.distance:.2g} with {power}"
                if self.distance < 1
                else f"too few observations for {power} at any total-variation distance",
                f"{'ALARM' if self.alarmed else 'no alarm'} (log evidence {self.log_evidence:.1f}, "
                f"alarm at {-math.log(self.alpha):.1f})",
            )
        )


class Ledger:
    """A budget of false-alarm probability: a run raises a false alarm with at most the sum of its grants."""

    def __init__(self, total: float = 1e-6) -> None:
        self.total = _checked_level("total", total)
        self.grants: dict[str, float] = {}

    @property
    def spent(self) -> float:
        """The sum of all grants."""
        return math.fsum(self.grants.values())

    def grant(self, name: str, alpha: float) -> float:
        """Books `alpha` under a new name and returns it; raises `BadInput` if the budget does not hold it."""
        level = _checked_level("alpha", alpha)
        if name in self.grants:
            raise BadInput("name", (), "a name is granted once", name)
        # Equal shares such as 100 × 1e-8 must fit in spite of their rounding.
        if self.spent + level > self.total * (1 + 1e-9):
            raise BadInput("alpha", (), f"the grants of a ledger sum to at most {self.total:g}", alpha)
        self.grants[name] = level
        return level


def _log_growth(x: Floats, m: Integers) -> Floats:
    """log Π_{j < m} (1 + j/x) = log Γ(x + m) − log Γ(x) − m·log x, elementwise, for x > 0 and m ≥ 0.

    Stirling's series at x + 10, where five terms leave an error below 3e-14. Written as differences, since
    log Γ itself would lose the digits that matter for large x.
    """
    y, z = x + _SHIFT, x + m + _SHIFT
    shifted = np.log(_rising(x)) - np.log(_rising(x + m))
    growth = (z - 0.5) * np.log1p(m / y) - m * (1 + np.log(x / y)) + _stirling(z) - _stirling(y)
    return np.asarray(growth + shifted)


def _rising(x: Floats) -> Floats:
    """x·(x + 1)·…·(x + 9) = Γ(x + 10)/Γ(x), below 1e200 for all x that occur."""
    u = x * (x + 9)  # (x + t)·(x + 9 − t) = u + t·(9 − t)
    return u * (u + 8) * (u + 14) * (u + 18) * (u + 20)


def _stirling(z: Floats) -> Floats:
    """log Γ(z) − (z − ½)·log z + z − ½·log 2π for z ≥ 10."""
    s = 1 / (z * z)
    return (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / z


@lru_cache(maxsize=1024)
def _detectable_distance(law: tuple[float, ...], alpha: float, n: int, power: float) -> float:
    p = np.array(law)
    leaves_support = bool((p == 0).any())
    reach = 1.0 if leaves_support else 1 - float(p.min())
    distances = [d for d in DISTANCES if d <= reach]

    def holds(step: int, runs: int) -> bool:
        distance = distances[step]
        if leaves_support and 1 - (1 - distance) ** n < power:
            return False
        found = hardest(p, distance)
        if not (found or leaves_support):  # at the edge of reach, where rounding decides
            return False
        # The first two, which move mass onto A, are enough for a guess.
        tried = found if runs == FULL_RUNS else found[:2]
        return all(_detects(p, a, alpha, n, power, runs) for a in tried)

    step = _first(len(distances), holds)
    return 1.0 if step is None else distances[step]


def hardest(law: Floats, distance: float) -> list[Floats]:
    """The alternatives that move `distance` onto a set A of mass near (1 − distance)/2, or off it.

    A is found greedily, once from the largest category down and once from the smallest up: a category joins
    if that brings the mass nearer. Many rare categories are harder to see than few common ones.
    """
    ascending = np.argsort(law, kind="stable")
    sets = []
    for order in (ascending, ascending[::-1]):
        inside = np.zeros(len(law), dtype=bool)
        missing = (1 - distance) / 2
        for i in order:
            if abs(missing - law[i]) <= abs(missing):
                inside[i] = True
                missing -= law[i]
        sets.append(inside)
    found = []
    for side in (*sets, *(~inside for inside in sets)):
        gaining, losing = law[side].sum(), law[~side].sum()
        if gaining > 0 and losing >= distance:
            found.append(law * np.where(side, 1 + distance / gaining, 1 - distance / losing))
    return found


def _detects(law: Floats, alternative: Floats, alpha: float, n: int, power: float, runs: int) -> bool:
    """Whether `runs` simulated runs of n observations of `alternative`, each looked at once, support `power`.

    Full runs make a statement. Fewer make a guess, kept low since `_first` goes up from there.
    """
    counts = np.random.default_rng(_SEED).multinomial(n, alternative / alternative.sum(), size=runs)
    alarms = int((log_values(law, counts) >= -math.log(alpha)).sum())
    return alarms >= (_alarms_needed(power) if runs == FULL_RUNS else power * runs)


def _first(size: int, holds: Callable[[int, int], bool]) -> int | None:
    """The first step below `size` at which `holds(step, runs)` becomes true.

    Bisection on quick runs finds the place, full runs confirm it and move it up where they must.
    """
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if holds(middle, _QUICK_RUNS):
            high = middle
        else:
            low = middle + 1
    return next((step for step in range(low, size) if holds(step, FULL_RUNS)), None)


@lru_cache(maxsize=64)
def _alarms_needed(power: float) -> int:
    """The number of alarms that the full runs reach with probability ≤ 0.01 if the power is below `power`.

    The exact binomial test, which is the one-sided 99 % Clopper-Pearson bound.
    """
    _checked_level("power", power)
    tail = 0.0
    for alarms in range(FULL_RUNS, -1, -1):
        missed = FULL_RUNS - alarms
        log_ways = math.lgamma(FULL_RUNS + 1) - math.lgamma(alarms + 1) - math.lgamma(missed + 1)
        tail += math.exp(log_ways + alarms * math.log(power) + missed * math.log1p(-power))
        if tail > _DOUBT:
            break
    if alarms == FULL_RUNS:
        raise BadInput("power", (), f"{FULL_RUNS} runs can support the power that is asked for", power)
    return alarms + 1


def _checked_law(field: str, law: Sequence[float]) -> Floats:
    """The law as an array [k] that sums to one as nearly as floats allow."""
    values = [_checked_number(field, (i,), value) for i, value in enumerate(law)]
    if not values:
        raise BadInput(field, (), "a law has at least one category")
    for i, value in enumerate(values):
        if not 0 <= value < math.inf:
            raise BadInput(field, (i,), "a probability is finite and not negative", value)
    total = math.fsum(values)
    # Room for rounding of each entry; what is left of it is normalised away.
    if abs(total - 1) > 1e-9 * len(values):
        raise BadInput(field, (), "a law sums to one", total)
    # A probability below 1e-300 cannot be told from zero, and its logarithms would break.
    return np.array([value if value >= 1e-300 else 0.0 for value in values]) / total


def _checked_pair(law: Sequence[float], alternative: Sequence[float]) -> tuple[Floats, Floats]:
    p, a = _checked_law("law", law), _checked_law("alternative", alternative)
    if len(p) != len(a):
        raise BadInput("alternative", (), f"an alternative has the law's {len(p)} categories", len(a))
    return p, a


def _checked_counts(counts: Sequence[int], categories: int) -> Integers:
    if len(counts) != categories:
        raise BadInput("counts", (), f"there are {categories} counts, one for each category", len(counts))
    naturals = [_checked_natural("counts", (i,), count) for i, count in enumerate(counts)]
    return np.array(naturals, dtype=np.int64)


def _checked_level(field: str, level: float) -> float:
    value = _checked_number(field, (), level)
    if not 0 < value < 1:
        raise BadInput(field, (), "a level lies between zero and one", level)
    return value


def _checked_natural(field: str, index: tuple[int, ...], value: int, least: int = 0) -> int:
    try:
        natural = operator.index(value)
    except TypeError:
        natural = -1
    if not least <= natural <= _MOST:
        raise BadInput(field, index, f"a count is an integer from {least} to 2^40", value)
    return natural


def _checked_number(field: str, index: tuple[int, ...], value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadInput(field, index, "a probability is a number", value) from None
