"""The other coin schemes by exact rationals: one coin a parent, sample and match, block verification.

Nothing is renormalised on the way: a coin is compared with sums of the target's own masses, cut by cut, and a
block's weight is a product of ratios. As on the road of acceptance, each cut has an exact distance from its
coin, so a decision that rounding may turn is returned beside the exact one, which comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from oracle.types import Coins, Decision, VerifyCase

Exact = list[Fraction]
ZERO, ONE = Fraction(0), Fraction(1)


class Slack(Protocol):
    """How far an implementation's arithmetic may stray: as on the road of acceptance."""

    @property
    def accept(self) -> Callable[[Fraction, Fraction], Fraction]: ...
    @property
    def mass(self) -> Callable[[Fraction, Fraction], Fraction]: ...
    @property
    def cdf(self) -> Fraction: ...


@dataclass(frozen=True)
class Outcome:
    """A decision and how it came about, in words."""

    decision: Decision
    told: tuple[str, ...]


def admissible(case: VerifyCase, coins: Coins, scheme: str, slack: Slack | None) -> list[Outcome]:
    """Every decision of `scheme` within `slack` (None: exact arithmetic), the exact one first."""
    walk = {"per_parent": _per_parent, "sample_and_match": _sample_and_match}.get(scheme)
    found: dict[Decision, Outcome] = {}
    for outcome in walk(case, coins, slack, -1, (), ()) if walk else _block(case, coins, slack):
        found.setdefault(outcome.decision, outcome)
    return list(found.values())


def accepted_when_tested(case: VerifyCase, node: int, scheme: str) -> Fraction:
    """P(the node is accepted | it is tested), given the drafts: every earlier sibling was rejected.

    per_node: min(1, p/q) of what is left. Otherwise p over the mass that its earlier siblings left.
    """
    above = int(case.parent[node])
    p = _row(case.target_probs, above)
    earlier = [i for i in range(node) if case.parent[i] == above]
    token = int(case.token[node])
    if scheme != "per_node" or case.draft_probs is None:
        tried = {int(case.token[i]) for i in earlier}
        rest = ONE - sum((p[v] for v in tried), ZERO)
        return ZERO if token in tried or rest <= 0 else min(ONE, p[token] / rest)
    q = _row(case.draft_probs, above)
    for i in earlier:
        scale_p, scale_q = sum(p, ZERO), sum(q, ZERO)
        p = [max(ZERO, a * scale_q - b * scale_p) for a, b in zip(p, q)]
        if case.proposal == "without_replacement":
            q[int(case.token[i])] = ZERO
    if sum(p, ZERO) == 0 or q[token] == 0:
        return ONE if p[token] > 0 else ZERO
    return min(ONE, p[token] * sum(q, ZERO) / (q[token] * sum(p, ZERO)))


def tested(case: VerifyCase, path: Sequence[int]) -> list[int]:
    """The nodes that were tested on the way to a decision: children of the path, up to the accepted one."""
    found = []
    for i, above in enumerate(case.parent.tolist()):
        if above != -1 and above not in path:
            continue
        siblings = [j for j in range(i) if case.parent[j] == above]
        if not any(j in path for j in siblings):
            found.append(i)
    return found


def block_prefixes(case: VerifyCase) -> list[Fraction]:
    """P(block verification accepts at least i + 1 drafts of the chain), given the drafts."""
    passing = [share for share, _ in _tests(case)]
    missed, chances = ONE, []
    for share in reversed(passing):
        missed *= ONE - share
        chances.append(ONE - missed)
    return chances[::-1]


def is_chain(case: VerifyCase) -> bool:
    parents: list[int] = case.parent.tolist()
    return parents == list(range(-1, len(parents) - 1))


# ---- the law of a decision, given the drafts


Share = tuple[tuple[int, ...], int]
"""(path, frontier)."""


def decisions(case: VerifyCase, scheme: str) -> dict[Share, Fraction]:
    """Every decision that can be, with its probability."""
    walks = {"per_node": _tested, "block": _prefixes}
    found: dict[Share, Fraction] = {}
    for path, law, weight in walks[scheme](case) if scheme in walks else _drawn(case, -1, (), ONE):
        total = sum(law, ZERO)
        for v, mass in enumerate(law):
            if weight * mass > 0:
                found[path, v] = found.get((path, v), ZERO) + weight * mass / total
    return found


Ends = Iterator[tuple[tuple[int, ...], list[Fraction], Fraction]]
"""Where a walk ends: its path, the masses that the frontier is drawn from, and the probability."""


def _tested(case: VerifyCase, node: int = -1, path: tuple[int, ...] = (), weight: Fraction = ONE) -> Ends:
    """A coin a node."""
    left = _row(case.target_probs, node)
    drafts = None if case.draft_probs is None else [Fraction(float(v)) for v in case.draft_probs[node + 1]]
    for child in _children(case, node):
        token = int(case.token[child])
        q = [Fraction(int(v == token)) for v in range(len(left))] if drafts is None else drafts
        whole, drawn = sum(left, ZERO), sum(q, ZERO)
        here, there = left[token] * drawn, q[token] * whole
        chance = min(ONE, here / there) if there else Fraction(int(here > 0))
        if chance:
            yield from _tested(case, child, (*path, child), weight * chance)
        weight *= 1 - chance
        if not weight:
            return
        left = [max(ZERO, a * drawn - b * whole) for a, b in zip(left, q)]
        if case.proposal == "without_replacement" and drafts is not None:
            drafts = [ZERO if v == token else b for v, b in enumerate(drafts)]
    yield path, left, weight


def _drawn(case: VerifyCase, node: int, path: tuple[int, ...], weight: Fraction) -> Ends:
    """The next token comes from the target; who carries it first is stepped into. So it is with a coin cut, too."""
    row = _row(case.target_probs, node)
    carriers: dict[int, int] = {}
    for child in _children(case, node):
        carriers.setdefault(int(case.token[child]), child)
    for token, child in carriers.items():
        if row[token]:
            yield from _drawn(case, child, (*path, child), weight * row[token] / sum(row, ZERO))
    rest = [ZERO if v in carriers else mass for v, mass in enumerate(row)]
    yield path, rest, weight * sum(rest, ZERO) / sum(row, ZERO)


def _prefixes(case: VerifyCase) -> Ends:
    """A block: how often each prefix is the longest that passes, and what the target then owes."""
    nodes = len(case.token)
    reached = [ONE, *block_prefixes(case), ZERO]
    for count in range(nodes + 1):
        law = owed(case, count) if count < nodes else _row(case.target_probs, nodes - 1)
        yield tuple(range(count)), law, reached[count] - reached[count + 1]


# ---- the walks


Walk = Iterator[Outcome]


def _per_parent(
    case: VerifyCase, coins: Coins, slack: Slack | None, node: int, path: tuple[int, ...], told: tuple[str, ...]
) -> Walk:
    p = _row(case.target_probs, node)
    children = _children(case, node)
    tried: set[int] = set()
    shares = []
    for child in children:
        token = int(case.token[child])
        shares.append(ZERO if token in tried else p[token])
        tried.add(token)
    left = [ZERO if v in tried else mass for v, mass in enumerate(p)]
    if children:
        u = Fraction(float(coins.accept[children[0]]))
        for taken in _cuts([*shares, sum(left, ZERO)], u, slack):
            if taken < len(children):
                child = children[taken]
                step = f"node {child}: the coin {float(u):.6g} of its parent falls on its share"
                yield from _per_parent(case, coins, slack, child, (*path, child), (*told, step))
            else:
                yield from _frontier(coins, slack, left if any(left) else p, path, told)
        return
    yield from _frontier(coins, slack, p, path, told)


def _sample_and_match(
    case: VerifyCase, coins: Coins, slack: Slack | None, node: int, path: tuple[int, ...], told: tuple[str, ...]
) -> Walk:
    children = _children(case, node)
    u = Fraction(float(coins.accept[children[0]] if children else coins.frontier))
    for token in _cuts(_row(case.target_probs, node), u, slack):
        step = (
            *told,
            f"the coin {float(u):.6g} draws token {token} after {'the root' if node < 0 else f'node {node}'}",
        )
        carriers = [child for child in children if case.token[child] == token]
        if carriers:
            yield from _sample_and_match(case, coins, slack, carriers[0], (*path, carriers[0]), step)
        else:
            yield Outcome(Decision(path, token), step)


def _block(case: VerifyCase, coins: Coins, slack: Slack | None) -> Walk:
    """Longest first; a test that rounding may turn is followed both ways, its exact answer first."""
    tests = _tests(case)

    def from_node(i: int, told: tuple[str, ...]) -> Walk:
        if i < 0:
            law = owed(case, 0) if tests else _row(case.target_probs, -1)
            yield from _frontier(coins, slack, law, (), told, _strayed(case, 0, slack) if tests else None)
            return
        share, stray = tests[i][0], ZERO
        u = Fraction(float(coins.accept[i]))
        if slack is not None:
            # each ratio before it, one row of differences, one division
            stray = _ratios(case, i + 1, slack) + slack.cdf
            if i + 1 < len(tests):
                stray += 2 * sum(_strayed(case, i + 1, slack) or [], ZERO)
            stray /= tests[i][1]
        exact = u < share
        for accepted in (exact, not exact) if abs(u - share) <= stray and share > 0 else (exact,):
            step = (*told, f"node {i}: u = {float(u):.6g} {'<' if accepted else '≥'} {float(share):.6g}")
            if accepted:
                more = i + 1 < len(tests)
                law = owed(case, i + 1) if more else _row(case.target_probs, i)
                strayed = _strayed(case, i + 1, slack) if more else None
                yield from _frontier(coins, slack, law, tuple(range(i + 1)), step, strayed)
            else:
                yield from from_node(i - 1, step)

    yield from from_node(len(tests) - 1, ())


def _tests(case: VerifyCase) -> list[tuple[Fraction, Fraction]]:
    """For each node of a chain, the share of coins that pass its test, and what that share was divided by."""
    found, weight = [], ONE
    nodes = len(case.parent)
    for i in range(nodes):
        weight = _weight(case, i, weight)
        total = sum(_excess(case, i + 1, weight), ZERO) if i + 1 < nodes else weight
        of = total + ONE - weight if i + 1 < nodes else ONE
        found.append((total / of, of) if of else (ONE, ONE))
    return found


def _weight(case: VerifyCase, i: int, before: Fraction) -> Fraction:
    token = int(case.token[i])
    p, q = _row(case.target_probs, i - 1)[token], _draft(case, i)[token]
    return min(ONE, before * p / q) if q else (ONE if before * p > 0 else ZERO)


def _excess(case: VerifyCase, i: int, weight: Fraction) -> Exact:
    """(w·p − q)+ at the rows that judge node i of a chain."""
    return [max(ZERO, weight * a - b) for a, b in zip(_row(case.target_probs, i - 1), _draft(case, i))]


def owed(case: VerifyCase, i: int) -> Exact:
    """What the frontier is drawn from where node i is the first that is not accepted."""
    weight = ONE
    for j in range(i):
        weight = _weight(case, j, weight)
    excess = _excess(case, i, weight)
    return excess if any(excess) else _row(case.target_probs, i - 1)


def _ratios(case: VerifyCase, count: int, slack: Slack) -> Fraction:
    """The relative error of the weight of the first `count` drafts."""
    total = ZERO
    for i in range(count):
        token = int(case.token[i])
        total += slack.accept(_row(case.target_probs, i - 1)[token], _draft(case, i)[token])
    return total


def _strayed(case: VerifyCase, i: int, slack: Slack | None) -> Exact | None:
    """How far each entry of (w·p − q)+ at node i may lie off: where the two are close, the difference is small."""
    if slack is None:
        return None
    weight = ONE
    for j in range(i):
        weight = _weight(case, j, weight)
    carried = _ratios(case, i, slack)
    pairs = zip(_row(case.target_probs, i - 1), _draft(case, i))
    return [slack.mass(weight * a, b) + carried * weight * a if weight * a > 0 else ZERO for a, b in pairs]


def _frontier(
    coins: Coins,
    slack: Slack | None,
    law: Exact,
    path: tuple[int, ...],
    told: tuple[str, ...],
    strayed: Exact | None = None,
) -> Walk:
    u = Fraction(float(coins.frontier))
    for token in _cuts(law, u, slack, strayed):
        yield Outcome(Decision(path, token), (*told, f"the frontier coin {float(u):.6g} picks token {token}"))


def _cuts(masses: Sequence[Fraction], u: Fraction, slack: Slack | None, strayed: Exact | None = None) -> list[int]:
    """The interval that u falls into, the masses side by side and scaled to one; then those within slack."""
    total = sum(masses, ZERO)
    errors = [ZERO] * len(masses)
    spread = ZERO
    if slack is not None:
        errors = strayed if strayed is not None else [slack.mass(m, ZERO) for m in masses]
        spread = slack.cdf + 2 * sum(errors, ZERO) / total
    exact, close, lower = [], [], ZERO
    for i, mass in enumerate(masses):
        upper = lower + mass / total
        if lower <= u < upper:
            exact.append(i)
        # an error above zero only where the target has mass, so a token outside its support is never let in
        elif (mass > 0 or errors[i] > 0) and lower - spread <= u < upper + spread:
            close.append(i)
        lower = upper
    if not exact:  # floats that sum to a little less than one, and a coin above their sum
        exact = [max(i for i, mass in enumerate(masses) if mass > 0)]
    return [*exact, *(i for i in close if i not in exact)]


def _children(case: VerifyCase, node: int) -> list[int]:
    return [i for i, above in enumerate(case.parent.tolist()) if above == node]


def _row(rows: object, node: int) -> Exact:
    return [Fraction(float(v)) for v in rows[node + 1]]  # type: ignore[index]


def _draft(case: VerifyCase, i: int) -> Exact:
    """The law that node i of a chain was drawn from."""
    if case.draft_probs is None or case.proposal == "point":
        return [Fraction(int(v == case.token[i])) for v in range(case.target_probs.shape[1])]
    return _row(case.draft_probs, i - 1)
