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
from conformance.verdicts import Inapplicable
from oracle.types import VerifyCase

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
    """For each case, the coins that accept `node` when the others are `spent`."""

    def accepted(values: Sequence[float]) -> list[bool]:
        tossed = [coins([*row[:node], value, *row[node + 1 :]], 0.5) for row, value in zip(spent, values)]
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
    """For each case, the share of frontier coins that publish each token when the accept coins are `spent`."""
    size = cases[0].target_probs.shape[1]

    def tokens(values: Sequence[float]) -> list[int]:
        tossed = [coins(row, value) for row, value in zip(spent, values)]
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


@dataclass(frozen=True)
class _Alive:
    """A case on its way through the walk: how likely it got here, and with which coins."""

    case: VerifyCase
    tokens: Prefix
    weight: float
    spent: tuple[float, ...]

    def after(self, node: int, coin: float, share: float) -> _Alive:
        spent = (*self.spent[:node], coin, *self.spent[node + 1 :])
        return _Alive(self.case, self.tokens, self.weight * share, spent)


def emitted_law(check: Check, model: TableModel, steps: int) -> dict[Prefix, float]:
    """The law of what one round publishes, integrated over the implementation's coins.

    All assignments of drafts walk through the tree together, so that each search is one call a step.
    """
    law: dict[Prefix, float] = {}

    def visit(node: int, alive: Sequence[_Alive]) -> None:
        siblings = [i for i, above in enumerate(model.parent) if above == node]
        for child in siblings:
            cases, spent = [a.case for a in alive], [a.spent for a in alive]
            accepted, rejected = [], []
            for one, interval in zip(alive, accept_intervals(check, cases, child, spent, steps)):
                if interval.inside is not None:
                    accepted.append(one.after(child, interval.inside, interval.share))
                if interval.outside is not None:
                    rejected.append(one.after(child, interval.outside, 1 - interval.share))
            _ensure_node_order(check, child, siblings, accepted)
            _ensure_coins_of_their_own(check, child, siblings, rejected)
            if accepted:
                visit(child, accepted)
            alive = rejected
            if not alive:
                return
        shares = frontier_shares(check, [a.case for a in alive], [a.spent for a in alive], steps)
        for one, row in zip(alive, shares):
            for v, share in enumerate(row):
                if share > 0:
                    key = (*model.prefix(one.tokens, node), v)
                    law[key] = law.get(key, 0.0) + one.weight * share

    unspent = (0.5,) * model.nodes
    visit(-1, [_Alive(model.case(tokens), tokens, float(w), unspent) for tokens, w in model.drafted()])
    return law


def _ensure_node_order(check: Check, child: int, siblings: Sequence[int], accepted: Sequence[_Alive]) -> None:
    """An accepted child must not depend on the coins of its later siblings; else no law can be read off so."""
    later = [i for i in siblings if i > child]
    if not later or not accepted:
        return
    tempted = [coins([0.0 if i in later else u for i, u in enumerate(a.spent)], 0.5) for a in accepted]
    if any(child not in found.path for found in sampled(check, [a.case for a in accepted], tempted)):
        raise Inapplicable("it does not test siblings in node order, so its coins do not tell its law")


def _ensure_coins_of_their_own(check: Check, child: int, siblings: Sequence[int], rejected: Sequence[_Alive]) -> None:
    """Which coin rejected a child must not decide on its next sibling; else no law can be read off so."""
    following = [i for i in siblings if i > child][:1]
    if not following or not rejected:
        return
    cases, answers = [a.case for a in rejected], []
    for place in ("as it was", "barely rejected", "at the end"):
        tossed = []
        for one in rejected:
            spent = list(one.spent)
            # its coin lies halfway between the threshold and one
            barely = min(EDGE, 2 * spent[child] - 1 + 2.0**-10)
            spent[child] = {"as it was": spent[child], "barely rejected": barely, "at the end": EDGE}[place]
            spent[following[0]] = 0.0
            tossed.append(coins(spent, 0.5))
        found = sampled(check, cases, tossed)
        answers.append([(child in f.path, following[0] in f.path) for f in found])
    for seen in zip(*answers):
        if len({second for first, second in seen if not first}) > 1:
            raise Inapplicable(
                "the coin that rejects a sibling decides on the next one, so its coins are not a node's own"
            )


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
    owed = min(sum(max(Fraction(0), a - b) for a, b in zip(model.target[k], model.draft[k])) for k in model.target)
    breakpoints = allowed.cdf + (2 * allowed.mass(Fraction(1), Fraction(1)) + threshold) / (owed or 1)
    resolution = 2.0**-steps + 2.0**-24
    return (model.nodes + 1) * (float(threshold + breakpoints) + model.vocabulary * resolution)
