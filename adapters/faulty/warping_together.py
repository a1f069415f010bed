"""Warpers with one fault each, of the kind that shows where filters, rows or conventions meet."""

from __future__ import annotations

import math

import numpy as np

from adapters.faulty.warping import Given, Row, Warper
from oracle.types import WarpCase

# ---- masks and ties


class MaskIsANumber(Warper):
    """Takes −∞ for −20, so masked tokens keep a little mass."""

    refutes = "ACCEPTANCE-1010"

    @classmethod
    def checked(cls, logits: Row) -> Row:
        return [-20.0 if x == -math.inf else x for x in super().checked(logits)]


class MaskedTokensTakePlaces(Warper):
    """Top-k counts k among all tokens by id, the masked ones included, before it ranks them."""

    refutes = "ACCEPTANCE-1010"

    @classmethod
    def row(cls, logits: Row, given: Given) -> Row:
        masked = sum(x == -math.inf for x in logits)
        fewer = Given(given.temperature, max(1, given.top_k - masked) if given.top_k else 0, given.top_p, given.min_p)
        return super().row(logits, fewer)


class HighestIdsAtTheCut(Warper):
    """Among tied tokens it keeps the higher ids."""

    refutes = "ACCEPTANCE-1011"

    @classmethod
    def ranked(cls, logits: Row, tokens: list[int]) -> list[int]:
        return sorted(tokens, key=lambda v: (-logits[v], -v))


class KeepsTiesUndeclared(Warper):
    """Top-k keeps every token tied with the k-th, and declares exactly k."""

    refutes = "ACCEPTANCE-1011"

    @classmethod
    def top_k(cls, law: Row, kept: list[int], given: Given) -> int:
        count = min(given.top_k or len(kept), len(kept))
        return sum(law[v] >= law[kept[count - 1]] for v in kept)


# ---- filters together


class TopPBeforeTopK(Warper):
    """Applies top-p before top-k, and declares the opposite."""

    refutes = "ACCEPTANCE-1012"
    order = ("temperature", "top_p", "top_k", "min_p")


class MinPBeforeTopP(Warper):
    """Applies min-p before top-p, and declares the opposite."""

    refutes = "ACCEPTANCE-1012"
    order = ("temperature", "top_k", "min_p", "top_p")


class TemperatureLast(Warper):
    """Filters first and divides by the temperature afterwards."""

    refutes = "ACCEPTANCE-1012"
    order = ("top_k", "top_p", "min_p", "temperature")


class TopPOfTheWholeLaw(Warper):
    """Top-p looks at the law before top-k, though it stands behind it."""

    refutes = "ACCEPTANCE-1012"

    @classmethod
    def row(cls, logits: Row, given: Given) -> Row:
        if not (given.top_k and given.top_p < 1 and given.temperature):
            return super().row(logits, given)
        whole = cls.softmax(cls.scale(logits, given), cls.candidates(logits))
        ranked = cls.ranked(logits, cls.candidates(logits))
        count = min(given.top_k, Warper.top_p(whole, ranked, given))
        return super().row(logits, Given(given.temperature, count, 1.0, given.min_p))


class LastFilterWins(Warper):
    """Where both are given, it applies top-p and forgets top-k."""

    refutes = "ACCEPTANCE-1012"

    @classmethod
    def top_k(cls, law: Row, kept: list[int], given: Given) -> int:
        return len(kept) if given.top_p < 1 else super().top_k(law, kept, given)


class TemperatureTwiceBehindAFilter(Warper):
    """Divides by the temperature once more where a filter is in use."""

    refutes = "ACCEPTANCE-1012"

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        if len(kept) == len(logits):
            return law
        return cls.softmax([x / given.temperature for x in cls.scale(logits, given)], kept)


# ---- rows together


class WarpsTheLastRowOnly(Warper):
    """Warps the last row, the bonus token's, and leaves the drafted ones at their softmax."""

    refutes = "ACCEPTANCE-1013"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        plain = [cls.row(logits, Given(1.0, 0, 1.0, 0.0)) for logits in rows[:-1]]
        return [*plain, cls.row(rows[-1], given[-1])]


class FirstRowsSurvivors(Warper):
    """Chooses the survivors of every row by the first one."""

    refutes = "ACCEPTANCE-1013"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        laws = super().rows(rows, given)
        if len(rows) == 1:
            return laws
        mask = [p > 0 for p in laws[0]]
        wanted = [[x if keep else -math.inf for x, keep in zip(row, mask)] for row in rows]
        return [laws[0], *(cls.row(row, Given(g.temperature, 0, 1.0, 0.0)) for row, g in zip(wanted[1:], given[1:]))]


class MaximumOfTheBatch(Warper):
    """Takes the maximum of the whole batch for min-p."""

    refutes = "ACCEPTANCE-1013"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        free = [cls.row(logits, Given(g.temperature, g.top_k, g.top_p, 0.0)) for logits, g in zip(rows, given)]
        highest = max(max(law) for law in free)
        laws = []
        for law, one in zip(free, given):
            kept = [p if p >= one.min_p * highest else 0.0 for p in law]
            laws.append([p / sum(kept) for p in kept] if any(kept) else law)
        return laws


class FirstRowsTemperature(Warper):
    """Divides every row by the temperature of the first."""

    refutes = "ACCEPTANCE-1014"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        first = given[0].temperature
        return [cls.row(logits, Given(first, g.top_k, g.top_p, g.min_p)) for logits, g in zip(rows, given)]


class LargestTopKForAll(Warper):
    """Takes the largest top-k of a batch for all of its rows."""

    refutes = "ACCEPTANCE-1014"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        largest = max(g.top_k for g in given)
        return [cls.row(logits, Given(g.temperature, largest, g.top_p, g.min_p)) for logits, g in zip(rows, given)]


class ParametersInReverse(Warper):
    """Hands the parameters to the rows in reverse order."""

    refutes = "ACCEPTANCE-1014"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        return super().rows(rows, given[::-1])


class FirstRowsMask(Warper):
    """Masks in every row what is masked in the first."""

    refutes = "ACCEPTANCE-1013"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        mask = [x == -math.inf for x in rows[0]]
        masked = [[-math.inf if hide else x for x, hide in zip(row, mask)] for row in rows]
        return super().rows([m if max(m) > -math.inf else row for m, row in zip(masked, rows)], given)


class ColdRowCoolsTheBatch(Warper):
    """Warps a whole batch at temperature zero where one of its rows asks for it."""

    refutes = "ACCEPTANCE-1014"

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        cold = any(g.temperature == 0 for g in given)
        return super().rows(rows, [Given(0.0, 0, 1.0, 0.0) if cold else g for g in given])


# ---- what is no row, and what belongs to the caller


class NanIsMasked(Warper):
    """Takes NaN for a masked token."""

    refutes = "ACCEPTANCE-1015"

    @classmethod
    def checked(cls, logits: Row) -> Row:
        return super().checked([-math.inf if x != x else x for x in logits])


class InfinityIsCertain(Warper):
    """Takes +∞ for a token that is certain."""

    refutes = "ACCEPTANCE-1015"

    @classmethod
    def checked(cls, logits: Row) -> Row:
        return super().checked([0.0 if x == math.inf else -math.inf for x in logits] if math.inf in logits else logits)


class WarpsInPlace(Warper):
    """Divides the caller's logits by the temperature."""

    refutes = "ACCEPTANCE-1016"

    @classmethod
    def warp(cls, case: WarpCase) -> np.ndarray:
        law = super().warp(case)
        temperature = np.asarray(case.temperature, dtype=np.float64)
        logits = case.logits
        logits /= temperature[:, None] if temperature.ndim else max(float(temperature), 0.5)
        return law


class PrintsItsLaws(Warper):
    """Prints each law that it returns."""

    refutes = "ACCEPTANCE-805"

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        print(law)
        return law
