"""Reading a verifier's law off its coins: thresholds and breakpoints by bisection, then integration.

A draft is accepted by an interval of coins and the frontier is a step function of its own coin, so for a
small model the whole law that comes out is a finite sum of products of interval lengths: no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from conformance import compare
from conformance.acceptance.calls import sampled
from conformance.acceptance.cases import Prefix, TableModel, coins
from conformance.check import Check
from oracle.types import Coins, VerifyCase

EDGE = 1 - 2.0**-24


@dataclass(frozen=True)
class Interval:
    """The coins that accept a node: a share of [0, 1), and one coin inside and one outside of it."""

    share: float
    inside: float | None
    outside: float | None


def bisect(
    ask: Callable[[Sequence[float]], Sequence[bool]], count: int, steps: int, low: float = 0.0, high: float = EDGE
) -> list[tuple[float, float]]:
    """`count` searches in lockstep; each `ask` answers true at `low` and false at `high` → brackets."""
    lows, highs = [low] * count, [high] * count
    for _ in range(steps):
        middles = [(a + b) / 2 for a, b in zip(lows, highs)]
        for i, answer in enumerate(ask(middles)):
            if answer:
                lows[i] = middles[i]
            else:
                highs[i] = middles[i]
    return list(zip(lows, highs))


def accept_intervals(
    check: Check, cases: Sequence[VerifyCase], node: int, spent: Sequence[Sequence[float]], steps: int
) -> list[Interval]:
    """For each chain, the coins that accept `node` when the earlier ones are `spent`."""

    def accepted(values: Sequence[float]) -> list[bool]:
        tossed = [_coins(case, [*earlier, value]) for case, earlier, value in zip(cases, spent, values)]
        return [node in found.path for found in sampled(check, cases, tossed)]

    at_zero, at_edge = accepted([0.0] * len(cases)), accepted([EDGE] * len(cases))
    # the accepting side may be either end: what matters for the law is how long it is
    brackets = bisect(lambda us: [a == z for a, z in zip(accepted(us), at_zero)], len(cases), steps)
    found = []
    for low_accepts, high_accepts, (low, high) in zip(at_zero, at_edge, brackets):
        cut = (low + high) / 2
        if low_accepts and high_accepts:
            found.append(Interval(1.0, 0.5, None))
        elif not low_accepts and not high_accepts:
            found.append(Interval(0.0, None, 0.5))
        elif low_accepts:
            found.append(Interval(cut, low / 2, (high + 1) / 2))
        else:
            found.append(Interval(1 - cut, (high + 1) / 2, low / 2))
    return found


def frontier_shares(
    check: Check, cases: Sequence[VerifyCase], spent: Sequence[Sequence[float]], steps: int
) -> list[list[float]]:
    """For each chain, the share of frontier coins that publish each token when the accept coins are `spent`."""
    size = cases[0].target_probs.shape[1]

    def tokens(values: Sequence[float]) -> list[int]:
        tossed = [_coins(case, accept, value) for case, accept, value in zip(cases, spent, values)]
        return [found.frontier for found in sampled(check, cases, tossed)]

    first, last = tokens([0.0] * len(cases)), tokens([EDGE] * len(cases))
    rising = [a <= b for a, b in zip(first, last)]
    edges: list[list[float]] = [[] for _ in cases]
    for v in range(1, size):

        def below(values: Sequence[float], v: int = v) -> list[bool]:
            return [(t < v) == up for t, up in zip(tokens(values), rising)]

        for i, (low, high) in enumerate(bisect(below, len(cases), steps)):
            middle = (low + high) / 2
            one_sided = (min(first[i], last[i]) >= v, max(first[i], last[i]) < v)
            cut = 0.0 if one_sided[0] else 1.0 if one_sided[1] else (middle if rising[i] else 1 - middle)
            edges[i].append(cut)
    return [[b - a for a, b in zip([0.0, *cuts], [*cuts, 1.0])] for cuts in edges]


def emitted_law(check: Check, model: TableModel, steps: int) -> dict[Prefix, float]:
    """The law of what one round publishes, integrated over the implementation's coins."""
    drafted = list(model.drafted())
    cases = [model.case(tokens) for tokens, _ in drafted]
    weight = [float(w) for _, w in drafted]
    inside: list[list[float]] = [[] for _ in cases]
    law: dict[Prefix, float] = {}
    alive = list(range(len(cases)))
    for node in range(model.drafts + 1):
        stops: list[tuple[int, float, list[float]]] = []
        if node < model.drafts and alive:
            intervals = accept_intervals(check, [cases[i] for i in alive], node, [inside[i] for i in alive], steps)
        else:
            intervals = [Interval(0.0, None, None)] * len(alive)
        going = []
        for i, interval in zip(alive, intervals):
            if interval.share < 1:
                rejecting = inside[i] if node == model.drafts else [*inside[i], interval.outside or 0.0]
                stops.append((i, weight[i] * (1 - interval.share), rejecting))
            if interval.inside is not None:
                weight[i] *= interval.share
                inside[i].append(interval.inside)
                going.append(i)
        if stops:
            shares = frontier_shares(check, [cases[i] for i, _, _ in stops], [spent for _, _, spent in stops], steps)
            for (i, mass, _), row in zip(stops, shares):
                for v, share in enumerate(row):
                    if share > 0:
                        key = (*drafted[i][0][:node], v)
                        law[key] = law.get(key, 0.0) + mass * share
        alive = going
    return law


def completed(law: dict[Prefix, float], model: TableModel, length: int) -> dict[Prefix, float]:
    """`law` continued from the target's table up to `length` tokens."""
    whole: dict[Prefix, float] = {}
    for tokens, mass in law.items():
        partial = {tokens[:length]: mass}
        while len(next(iter(partial))) < length:
            partial = {
                (*prefix, v): m * float(p)
                for prefix, m in partial.items()
                for v, p in enumerate(model.target[prefix])
                if p
            }
        for key, m in partial.items():
            whole[key] = whole.get(key, 0.0) + m
    return whole


def bound(check: Check, model: TableModel, steps: int) -> float:
    """How far a right implementation's measured law may lie off, from the clauses' tolerances.

    Each node adds its threshold's bound and each frontier its breakpoints', both at the smallest masses of
    the model; the search adds its resolution, and the part of [0, 1) above the last coin.
    """
    allowed = compare.slack(check.arithmetic, model.vocabulary)
    smallest = min(p for rows in (model.target, model.draft) for row in rows.values() for p in row if p > 0)
    threshold = allowed.accept(smallest, smallest)
    owed = min(
        sum(max(Fraction(0), a - b) for a, b in zip(model.target[k], model.draft[k])) for k in model.target
    )
    breakpoints = allowed.cdf + (2 * allowed.mass(Fraction(1), Fraction(1)) + threshold) / (owed or 1)
    resolution = 2.0**-steps + 2.0**-24
    return (model.drafts + 1) * (float(threshold + breakpoints) + model.vocabulary * resolution)


def _coins(case: VerifyCase, accept: Sequence[float], frontier: float = 0.5) -> Coins:
    padded = [*accept, *([0.5] * (len(case.parent) - len(accept)))]
    return coins(padded, frontier)


