"""Losses in sixty decimal digits, each as a sum of rows, and their gradients by central differences.

The oracle sums −p log q in floats and has its gradients in closed form. Here nothing is shifted by a maximum, a
cross-entropy is Z · (H(p/Z) + KL(p/Z ‖ q)) with Z = Σp, smooth-L1 is a Moreau envelope, and a gradient is what moving
one number by 10⁻²⁰ does to the row that holds it. Every loss here is smooth in what is trained, smooth-L1 at |r| = β
included, so a central difference is off by less than 10⁻³⁵.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from oracle.types import (
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    HassLossCase,
    RegressionCase,
    RolloutLossCase,
    StateGradientCase,
    TopKCase,
)

CONTEXT = Context(prec=60, Emax=10**12, Emin=-(10**12))
STEP = Decimal("1e-20")
NONE, MASKED = Decimal(0), Decimal("-Infinity")

Numbers = tuple[Decimal, ...]
Values = Sequence[Any] | np.ndarray
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """A row that counts: where it is trained, its loss before any mean, and what moves it.

    slope: its derivatives with respect to the trained row, empty unless they were asked for. Of a distilled row p is
    the target's law on the draft's vocabulary (0 outside a top-K set), log_q the drafter's, and `target`, `draft` the
    logits behind them; of a regression `residual` is predicted − target.
    """

    index: tuple[int, ...]
    value: Decimal
    slope: Numbers = ()
    p: Numbers = ()
    log_q: Numbers = ()
    target: Numbers = ()
    draft: Numbers = ()
    residual: Numbers = ()


@dataclass(frozen=True)
class Over:
    """What a mean divides by, as an implementation declares it; rollouts have it in their case."""

    denominator: str = "supervised"
    epsilon: float = 0.0


SUPERVISED = Over()


@dataclass(frozen=True)
class Term:
    """The sum of its rows over `denominator`, by `weight`."""

    weight: Decimal
    denominator: Decimal
    rows: tuple[Row, ...]

    @property
    def value(self) -> Decimal | None:
        """Before the weight; None where no row counts."""
        with localcontext(CONTEXT):
            return sum((row.value for row in self.rows), NONE) / self.denominator if self.rows else None


@dataclass(frozen=True)
class Part:
    """Terms, summed by their weights."""

    weight: Decimal
    terms: tuple[Term, ...]

    @property
    def value(self) -> Decimal | None:
        """Before the weight; None where no row counts."""
        return weighted([(term.weight, term.value) for term in self.terms])


@dataclass(frozen=True)
class Loss:
    """Parts, summed by their weights; `trained` names the trained input and `shape` is its shape."""

    parts: tuple[Part, ...]
    trained: str
    shape: tuple[int, ...]
    shows_parts: bool = True

    @property
    def value(self) -> Decimal | None:
        """None where no row counts."""
        return weighted([(part.weight, part.value) for part in self.parts])

    def rows(self) -> Iterator[tuple[Decimal, Row]]:
        """Each row with what it weighs in the loss; rows of no weight are left out."""
        with localcontext(CONTEXT):
            for part in self.parts:
                for term in part.terms:
                    weight = part.weight * term.weight / term.denominator if term.rows else NONE
                    if weight != 0:
                        yield from ((weight, row) for row in term.rows)

    def gradient(self) -> np.ndarray:
        """In floats, of `shape`."""
        found = np.full(self.shape, NONE, dtype=object)
        with localcontext(CONTEXT):
            for weight, row in self.rows():
                found[row.index] = [old + weight * slope for old, slope in zip(found[row.index], row.slope)]
        return found.astype(np.float64)


def weighted(pairs: Sequence[tuple[Decimal, Decimal | None]]) -> Decimal | None:
    """Σ weight · value over the values that are not None; a zero weight drops its value."""
    counted = [(weight, value) for weight, value in pairs if value is not None]
    with localcontext(CONTEXT):
        return sum((weight * value for weight, value in counted if weight != 0), NONE) if counted else None


def in_digits(function: Callable[P, T]) -> Callable[P, T]:
    """Run the function in this module's arithmetic."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        with localcontext(CONTEXT):
            return function(*args, **kwargs)

    return inner


# ---- the losses


@in_digits
def feature_regression(case: RegressionCase, slopes: bool = True, over: Over = SUPERVISED) -> Loss:
    """Smooth-L1, as a mean over d in each row and then over the rows."""
    counted = _true(case.supervise)
    rows = [_regressed((r,), case.predicted[r], case.target[r], case.beta, slopes) for r in counted]
    return _single(rows, over, case.supervise, "predicted", case.predicted.shape)


@in_digits
def soft_cross_entropy(case: DistillCase, slopes: bool = True, over: Over = SUPERVISED) -> Loss:
    """Cross-entropy against the whole law."""
    rows = [
        _crossed((r,), _log_law(_digits(case.target_logits[r])), case.target_logits[r], case.draft_logits[r], slopes)
        for r in _true(case.supervise)
    ]
    return _single(rows, over, case.supervise, "draft_logits", case.draft_logits.shape)


@in_digits
def topk_distillation(case: TopKCase, slopes: bool = True, over: Over = SUPERVISED) -> Loss:
    """Cross-entropy over the k tokens of the largest target logits."""
    rows = [
        _crossed((r,), top(_digits(case.target_logits[r]), case.k), case.target_logits[r], case.draft_logits[r], slopes)
        for r in _true(case.supervise)
    ]
    return _single(rows, over, case.supervise, "draft_logits", case.draft_logits.shape)


@in_digits
def eagle1_loss(case: Eagle1Case, slopes: bool = True, over: Over = SUPERVISED) -> Loss:
    """Two parts of one term each."""
    near, far = [], []
    for r in _true(case.supervise):
        target = _logits(case.head, _digits(case.target[r]))
        near.append(_regressed((r,), case.predicted[r], case.target[r], case.beta, slopes))
        far.append(_crossed((r,), _log_law(target), target, case.predicted[r], slopes, case.head))
    weights = case.regression_weight, case.classification_weight
    parts = [Part(_exact(w), (_term(1, rows, over, case.supervise),)) for w, rows in zip(weights, (near, far))]
    return Loss(tuple(parts), "predicted", case.predicted.shape)


@in_digits
def hass_loss(case: HassLossCase, slopes: bool = True, over: Over = SUPERVISED) -> Loss:
    """A part a step, of three terms each."""
    weights = case.regression_weight, case.classification_weight, case.topk_weight
    parts = []
    for s, supervise in enumerate(case.supervise):
        rows: tuple[list[Row], list[Row], list[Row]] = ([], [], [])
        for r in _true(supervise):
            predicted, target = case.predicted[s, r], _logits(case.head, _digits(case.target[r]))
            rows[0].append(_regressed((s, r), predicted, case.target[r], case.beta, slopes))
            for found, log_p in zip(rows[1:], (_log_law(target), top(target, case.k))):
                found.append(_crossed((s, r), log_p, target, predicted, slopes, case.head))
        parts.append(Part(_exact(1), tuple(_term(w, found, over, supervise) for w, found in zip(weights, rows))))
    return Loss(tuple(parts), "predicted", case.predicted.shape)


@in_digits
def rollout_loss(case: RolloutLossCase, slopes: bool = True) -> Loss:
    """A part a step, of one term each."""
    steps, _, width = case.draft_logits.shape
    ids = list(range(width)) if case.draft_to_target is None else [int(v) for v in case.draft_to_target]
    if case.step_weights is None:
        weights = [Decimal("0.8") ** s for s in range(steps)]
    else:
        weights = [_exact(weight) for weight in case.step_weights]
    parts = []
    for s in range(steps):
        rows = []
        for r in _true(case.supervise[s]):
            full = [float(x) for x in case.target_logits[s, r]]
            # the lowest id among the largest
            if case.gate == "argmax" and full.index(max(full)) not in ids:
                continue
            if all(full[v] == -math.inf for v in ids):
                continue
            rows.append(_restricted((s, r), full, ids, case, slopes))
        over = Over(case.denominator, case.denominator_epsilon)
        shared = _exact(steps if case.reduction == "mean" else 1)
        parts.append(Part(weights[s] / shared, (_term(1, rows, over, case.supervise[s]),)))
    return Loss(tuple(parts), "draft_logits", case.draft_logits.shape)


def draft_to_target(case: DraftMapCase) -> list[int] | None:
    """The target ids, or None where the map is to be refused."""
    ids = [int(entry) + (i if case.convention == "offset" else 0) for i, entry in enumerate(case.d2t)]
    marked = None if case.t2d is None else _true(case.t2d)
    if len(set(ids)) < len(ids) or any(v < 0 for v in ids):
        return None
    return ids if marked is None or sorted(ids) == marked else None


def state_gradient(case: StateGradientCase) -> list[list[bool]]:
    """[s][r]: whether the loss of step s reaches the state of step r against the arrows of what was fed to what."""
    fed = {s: [s - 1] if s > 0 and case.gradient == "flows" else [] for s in range(case.steps)}
    reached = []
    for s in range(case.steps):
        pending, seen = [s], set()
        while pending:
            here = pending.pop()
            seen.add(here)
            pending.extend(fed[here])
        reached.append([r in seen for r in range(case.steps)])
    return reached


# ---- one row


def top(row: Numbers, k: int) -> Numbers:
    """log p of the k tokens that fewer than k others outrank, by a larger logit or an equal one at a lower id."""

    def above(v: int) -> int:
        return sum(row[w] > row[v] or (row[w] == row[v] and w < v) for w in range(len(row)))

    return tuple(x if above(v) < k else MASKED for v, x in enumerate(_log_law(row)))


def _regressed(index: tuple[int, ...], predicted: Values, target: Values, beta: float, slopes: bool) -> Row:
    """min over z of |z| + (r − z)²/2β, which is smooth-L1: the best z is r, brought β nearer to 0."""
    here, there, width = _digits(predicted), _digits(target), _exact(beta)

    def loss(point: Sequence[Decimal]) -> Decimal:
        total = NONE
        for x, y in zip(point, there):
            r = x - y
            z = max(abs(r) - width, NONE).copy_sign(r)
            total += abs(z) + (r - z) ** 2 / (2 * width)
        return total / len(there)

    residual = tuple(x - y for x, y in zip(here, there))
    return Row(index, loss(here), _slopes(loss, here) if slopes else (), residual=residual)


def _restricted(
    index: tuple[int, int], full: Sequence[float], ids: Sequence[int], case: RolloutLossCase, slopes: bool
) -> Row:
    """A row of a rollout: the target's law on the draft vocabulary against the drafter's."""
    whole = _digits(full)
    if case.restricted_target == "raw":
        log_p = tuple(_log_law(whole)[v] for v in ids)
    else:
        log_p = _log_law([whole[v] for v in ids])
    return _crossed(index, log_p, whole, case.draft_logits[index], slopes, less_entropy=case.divergence == "kl")


def _crossed(
    index: tuple[int, ...],
    log_p: Numbers,
    target: Values,
    trained: Values,
    slopes: bool,
    head: np.ndarray | None = None,
    less_entropy: bool = False,
) -> Row:
    """A cross-entropy as a function of what is trained: the draft's logits, or the feature behind its head."""
    here, columns = _digits(trained), None if head is None else [_digits(weights) for weights in head]
    of_logits = _divergence(log_p, less_entropy)

    def loss(point: Numbers) -> Decimal:
        return of_logits(point if columns is None else _logits(columns, point))

    draft = here if columns is None else _logits(columns, here)
    value = of_logits(draft)
    moved = _slopes(loss, here) if slopes and value.is_finite() else ()
    return Row(index, value, moved, tuple(map(_exp, log_p)), _log_law(draft), _digits(target), draft)


def _divergence(log_p: Numbers, less_entropy: bool) -> Callable[[Numbers], Decimal]:
    """Z·(H(p/Z) + KL(p/Z ‖ q)) as a function of the draft's logits, or that less the entropy −Σ p log p."""
    mass = sum((_exp(x) for x in log_p), NONE)
    if mass == 0:
        return lambda draft: NONE
    log_mass = _ln(mass)
    shares = [(v, _exp(x - log_mass), x - log_mass) for v, x in enumerate(log_p) if x != MASKED]
    entropy = -sum((share * log for _, share, log in shares), NONE)
    removed = mass * (entropy - log_mass) if less_entropy else NONE

    def loss(draft: Numbers) -> Decimal:
        log_q = _log_law(draft)
        if any(log_q[v] == MASKED for v, _, _ in shares):
            return Decimal("Infinity")
        relative = sum((share * (log - log_q[v]) for v, share, log in shares), NONE)
        return mass * (entropy + relative) - removed

    return loss


# ---- arithmetic


def _slopes(function: Callable[[Numbers], Decimal], point: Numbers) -> Numbers:
    """Central differences, one entry at a time; a masked entry moves nothing."""
    found = []
    for i, x in enumerate(point):
        if x == MASKED:
            found.append(NONE)
            continue
        up, down = ((*point[:i], x + step, *point[i + 1 :]) for step in (STEP, -STEP))
        found.append((function(up) - function(down)) / (2 * STEP))
    return tuple(found)


def _log_law(logits: Sequence[Decimal]) -> Numbers:
    """log p: logits less the logarithm of the sum of their exponentials."""
    norm = _ln(sum((_exp(x) for x in logits), NONE))
    return tuple(x if x == MASKED else x - norm for x in logits)


@lru_cache(maxsize=1 << 16)
def _exp(x: Decimal) -> Decimal:
    return NONE if x == MASKED else CONTEXT.exp(x)


@lru_cache(maxsize=1 << 14)
def _ln(x: Decimal) -> Decimal:
    return CONTEXT.ln(x)


def _exact(value: float) -> Decimal:
    return Decimal(float(value))


def _digits(values: Values) -> Numbers:
    return tuple(x if isinstance(x, Decimal) else Decimal(float(x)) for x in values)


def _logits(head: Sequence[Values] | np.ndarray, feature: Numbers) -> Numbers:
    return tuple(sum((w * x for w, x in zip(_digits(weights), feature)), NONE) for weights in head)


def _true(flags: np.ndarray) -> list[int]:
    return [i for i, flag in enumerate(flags) if flag]


def _term(weight: float, rows: Sequence[Row], over: Over, supervise: np.ndarray) -> Term:
    sizes = {"supervised": len(rows), "mask": len(_true(supervise)), "rows": len(supervise)}
    return Term(_exact(weight), sizes[over.denominator] + _exact(over.epsilon), tuple(rows))


def _single(rows: Sequence[Row], over: Over, supervise: np.ndarray, trained: str, shape: tuple[int, ...]) -> Loss:
    return Loss((Part(_exact(1), (_term(1, rows, over, supervise),)),), trained, shape, shows_parts=False)
