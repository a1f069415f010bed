"""The second road to noise: exact rationals."""

from __future__ import annotations

from fractions import Fraction

WIDEST = Fraction(1, 10)
"""Half the interval of the paper."""


def noise(unit: float, length: int, law: str) -> Fraction:
    """The noise of one uniform: from −a at 0 through 0 at ½ towards a at 1."""
    a = half_width(law, length)
    return 2 * a * Fraction(unit) - a


def half_width(law: str, length: int) -> Fraction:
    """a: 0.1 by the paper, 51.2/L scaled by length, or the number that is declared."""
    if law == "paper":
        return WIDEST
    return Fraction(512, 10 * length) if law == "length_scaled" else Fraction(law)
