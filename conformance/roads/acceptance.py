"""Acceptance by exact rationals: every float of a case is taken as the rational that it is.

The oracle renormalises after each rejection and divides; here nothing is divided. The law that is left
stays an unnormalised vector `left` with its mass, and each comparison is cross-multiplied. Because the
arithmetic is exact, each comparison also has an exact distance from its tie, so this road knows which
decisions an implementation of a given precision may reach, and can tell the arithmetic of every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from oracle.types import Coins, Decision, VerifyCase

Exact = list[Fraction]


@dataclass(frozen=True)
class Test:
    """One node tested: its coin u, token, p under the law that is left, q under the draft's."""

    node: int
    token: int
    u: Fraction
    p: Fraction
    q: Fraction
    accepted: bool


@dataclass(frozen=True)
class Draw:
    """The frontier drawn: the law it is drawn from (normalised), its coin and the token."""

    law: tuple[Fraction, ...]
    u: Fraction
    token: int
    after_rejection: bool


@dataclass(frozen=True)
class Trace:
    """A decision with every step that led to it."""

    tests: tuple[Test, ...]
    draw: Draw
    decision: Decision


@dataclass(frozen=True)
class Slack:
    """How far an implementation's arithmetic may stray.

    accept(p, q): relative error of u·q against p. frontier(p_row, q_row): absolute error of the CDF of
    the law drawn from, and per token the absolute error of its mass before normalising.
    """

    accept: Callable[[Fraction, Fraction], Fraction]
    mass: Callable[[Fraction, Fraction], Fraction]
    cdf: Fraction


EXACT = Slack(lambda p, q: Fraction(0), lambda p, q: Fraction(0), Fraction(0))


def decide(case: VerifyCase, coins: Coins) -> Trace:
    """The decision of exact arithmetic."""
    return next(traces(case, coins, EXACT))


def admissible(case: VerifyCase, coins: Coins, slack: Slack) -> list[Trace]:
    """Every decision within `slack` of the exact one, the exact one first."""
    found: dict[Decision, Trace] = {}
    for trace in traces(case, coins, slack):
        found.setdefault(trace.decision, trace)
    return list(found.values())


def traces(case: VerifyCase, coins: Coins, slack: Slack) -> Iterator[Trace]:
    """Depth-first over the near-ties; the branch that exact arithmetic takes comes first."""
    return _at_node(case, coins, slack, -1, ())


def greedy(case: VerifyCase) -> Decision:
    """Follow sorted order: the first of (−p, token id) at each row, then the child that carries it."""
    path: list[int] = []
    node = -1
    while True:
        row = case.target_probs[node + 1]
        best = min(range(len(row)), key=lambda v: (-float(row[v]), v))
        children = [i for i, above in enumerate(case.parent) if above == node and case.token[i] == best]
        if not children:
            return Decision(tuple(path), best)
        node = children[0]
        path.append(node)


def _at_node(case: VerifyCase, coins: Coins, slack: Slack, node: int, tests: tuple[Test, ...]) -> Iterator[Trace]:
    p = [Fraction(float(v)) for v in case.target_probs[node + 1]]
    children = [i for i, above in enumerate(case.parent) if above == node]
    q = None
    if children and case.proposal != "point" and case.draft_probs is not None:
        q = [Fraction(float(v)) for v in case.draft_probs[node + 1]]
    error = [Fraction(0)] * len(p)
    return _at_child(case, coins, slack, children, p, error, q, tests)


def _at_child(
    case: VerifyCase,
    coins: Coins,
    slack: Slack,
    children: Sequence[int],
    left: Exact,
    error: Exact,
    q: Exact | None,
    tests: tuple[Test, ...],
) -> Iterator[Trace]:
    if not children:
        yield from _frontier(coins, slack, left, error, tests)
        return
    child = children[0]
    token = int(case.token[child])
    u = Fraction(float(coins.accept[child]))
    total_left = sum(left)
    total_draft = sum(q) if q is not None else Fraction(1)
    draft_mass = q[token] if q is not None else Fraction(1)
    # u · q/Σq < left/Σleft, cross-multiplied
    here, there = u * draft_mass * total_left, left[token] * total_draft
    p_now, q_now = left[token] / total_left, draft_mass / total_draft
    exact = here < there
    tolerance = slack.accept(p_now, q_now) * max(here, there) + error[token] * total_draft
    # a token without target mass is never accepted: no rounding makes a zero positive
    near = abs(here - there) <= tolerance and left[token] > 0
    for accepted in (exact, not exact) if near and slack is not EXACT else (exact,):
        test = Test(child, token, u, p_now, q_now, accepted)
        if accepted:
            yield from _at_node(case, coins, slack, child, (*tests, test))
            continue
        draft = q if q is not None else [Fraction(int(v == token)) for v in range(len(left))]
        # left/Σleft − q/Σq, times both sums; what was an exact zero stays one
        reduced = [max(Fraction(0), a * total_draft - b * total_left) for a, b in zip(left, draft)]
        strayed = [
            (e * total_draft + slack.mass(a * total_draft, b * total_left)) if a > 0 else Fraction(0)
            for a, b, e in zip(left, draft, error)
        ]
        if sum(reduced) == 0:
            # p and q are equal: exact arithmetic rejects with probability zero, rounding may all the same
            reduced, strayed = list(left), list(left)
        rest = q
        if case.proposal == "without_replacement" and q is not None:
            rest = [Fraction(0) if v == token else b for v, b in enumerate(q)]
        yield from _at_child(case, coins, slack, children[1:], reduced, strayed, rest, (*tests, test))


def _frontier(coins: Coins, slack: Slack, left: Exact, error: Exact, tests: tuple[Test, ...]) -> Iterator[Trace]:
    u = Fraction(float(coins.frontier))
    total = sum(left)
    law = tuple(a / total for a in left)
    path = tuple(test.node for test in tests if test.accepted)
    draw = Draw(law, u, 0, bool(tests) and not tests[-1].accepted)
    strayed = error if any(error) else [slack.mass(a, Fraction(0)) for a in left]
    spread = slack.cdf + sum(strayed) / total
    lower = Fraction(0)
    exact: list[int] = []
    close: list[int] = []
    for v, probability in enumerate(law):
        upper = lower + probability
        if lower <= u < upper:
            exact.append(v)
        # error > 0 only where the target has mass, so a token outside its support is never let in
        elif (probability > 0 or error[v] > 0) and lower - spread <= u < upper + spread:
            close.append(v)
        lower = upper
    if not exact:  # the row sums to a little less than one and the coin lies above it
        exact = [max(v for v, probability in enumerate(law) if probability > 0)]
    for v in (*exact, *(() if slack is EXACT else close)):
        yield Trace(tests, replace(draw, token=v), Decision(path, v))


def first_token_law(p: Sequence[Fraction], q: Sequence[Fraction]) -> list[Fraction]:
    """min(p, q) + (1 − Σ min(p, q)) · (p − q)+ / Σ (p − q)+: the identity behind losslessness."""
    kept = [min(a, b) for a, b in zip(p, q)]
    owed = [max(Fraction(0), a - b) for a, b in zip(p, q)]
    total = sum(owed)
    return [k + ((1 - sum(kept)) * o / total if total else Fraction(0)) for k, o in zip(kept, owed)]


def acceptance(p: Sequence[Fraction], q: Sequence[Fraction]) -> Fraction:
    """Σ min(p, q) = 1 − TV(p, q): how often a first child drawn from q is accepted."""
    return sum((min(a, b) for a, b in zip(p, q)), Fraction(0))


def sequence_law(target: Mapping[tuple[int, ...], Sequence[Fraction]], length: int) -> dict[tuple[int, ...], Fraction]:
    """The chain rule, written as a recursion on the last token."""
    if length == 0:
        return {(): Fraction(1)}
    shorter = sequence_law(target, length - 1)
    return {
        (*prefix, v): weight * target[prefix][v]
        for prefix, weight in shorter.items()
        for v in range(len(target[prefix]))
        if target[prefix][v] > 0
    }
