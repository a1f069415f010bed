"""The law of a decision, given the drafts, by exact rationals: what a verifier with coins of its own may come to.

Nothing is renormalised: what is left of a row and of its draft row stay two vectors with their masses, and a chance is
one quotient. Where the next token is drawn from the target itself, the law is a product of the target's masses.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from conformance.roads import schemes
from oracle.types import VerifyCase

Outcome = tuple[tuple[int, ...], int]
"""(path, frontier)."""
ZERO, ONE = Fraction(0), Fraction(1)


def decisions(case: VerifyCase, scheme: str) -> dict[Outcome, Fraction]:
    """Every decision that can be, with its probability."""
    walks = {"per_node": _tested, "block": _prefixes}
    found: dict[Outcome, Fraction] = {}
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
    left = _row(case, node)
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
    row = _row(case, node)
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
    reached = [ONE, *schemes.block_prefixes(case), ZERO]
    for count in range(nodes + 1):
        law = schemes.owed(case, count) if count < nodes else _row(case, nodes - 1)
        yield tuple(range(count)), law, reached[count] - reached[count + 1]


def _row(case: VerifyCase, node: int) -> list[Fraction]:
    return [Fraction(float(v)) for v in case.target_probs[node + 1]]


def _children(case: VerifyCase, node: int) -> list[int]:
    return [i for i, above in enumerate(case.parent.tolist()) if above == node]
