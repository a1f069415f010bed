"""Laws on a finite vocabulary as plain lists: the same lines run on float64 and on `fractions.Fraction`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Number = Any  # float or Fraction: only added, subtracted, multiplied, divided and compared
Row = list[Number]


def residual(p: Row, q: Row) -> Row:
    """(p − q)+ renormalised: what the target still owes after a draft from q was rejected.

    Where rounding leaves nothing, p and q are equal up to rounding and the law is p itself.
    """
    left = [max(a - b, a * 0) for a, b in zip(p, q)]
    total = mass(left)
    return [a / total for a in left] if total > 0 else p


def without(q: Row, token: int) -> Row:
    """The draft law of the next sibling: q with `token` taken out, renormalised; all zero if none is left."""
    left = [b * 0 if v == token else b for v, b in enumerate(q)]
    total = mass(left)
    return [b / total for b in left] if total > 0 else left


def one_hot(token: int, size: int) -> Row:
    """The draft law of a point proposal: all of its mass on the drafted token."""
    return [1 if v == token else 0 for v in range(size)]


def inverse_cdf(law: Row, coin: Number) -> int:
    """The first token v with coin < CDF(v), or the last token of positive mass where rounding leaves none."""
    cumulative = law[0] * 0
    last = 0
    for v, probability in enumerate(law):
        cumulative = cumulative + probability
        if probability > 0:
            last = v
            if coin < cumulative:
                return v
    return last


def mass(row: Sequence[Number]) -> Number:
    """Sum from left to right: one order of rounding on every Python."""
    total: Number = 0
    for value in row:
        total = total + value
    return total


def argmax(row: Row) -> int:
    """The lowest token id among the most probable ones."""
    best = 0
    for v, probability in enumerate(row):
        if probability > row[best]:
            best = v
    return best
