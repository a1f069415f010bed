"""The second road to metrics: every round is walked, draft by draft, and ratios are exact rationals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from oracle.types import RoundsCase

Round = tuple[int, int, int]
Test = tuple[int, bool]


def rounds(case: RoundsCase) -> Counter[Round]:
    """The rounds (drafted, accepted, emitted), equal ones together."""
    return Counter(zip(*(map(int, values) for values in (case.drafted, case.accepted, case.emitted))))


def tests(one: Round) -> Iterator[Test]:
    """A round as its verifier lives it: (depth, whether it passed), from depth 0 up to the first refusal."""
    drafted, left, _ = one
    for depth in range(drafted):
        left -= 1
        yield depth, left >= 0
        if left < 0:
            return


def counts(case: RoundsCase) -> tuple[int, int, int, int]:
    """Rounds, drafts, accepted drafts and emitted tokens."""
    total = [0, 0, 0, 0]
    for one, times in rounds(case).items():
        for i, amount in enumerate((1, *one)):
            total[i] += times * amount
    return total[0], total[1], total[2], total[3]


def by_depth(case: RoundsCase) -> list[tuple[int, int]]:
    """Entry d: how many tests at depth d passed, and how many there were; as many entries as the deepest draft has."""
    found = rounds(case)
    passed: Counter[int] = Counter()
    refused: Counter[int] = Counter()
    for one, times in found.items():
        for depth, ok in tests(one):
            (passed if ok else refused)[depth] += times
    deepest = max((drafted for drafted, _, _ in found), default=0)
    return [(passed[d], passed[d] + refused[d]) for d in range(deepest)]


def quotient(part: int, whole: int) -> Fraction | None:
    """part / whole; None where there is nothing to divide by."""
    return None if whole == 0 else Fraction(part, whole)
