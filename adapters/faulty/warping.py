"""Warpers with one fault each. The right one is written apart from the oracle and cut into steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adapters.interface import Declaration
from oracle.types import WarpCase

Row = list[float]


@dataclass(frozen=True)
class Given:
    """What one row is warped with."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float


class Warper:
    """A right warper: `kept` are the tokens that survive, most probable first."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    seen_in: ClassVar[str] = "quick"
    order: ClassVar[Sequence[str]] = ("temperature", "top_k", "top_p", "min_p")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        conventions = {"filter_order": "temperature,top_k,top_p,min_p", "top_k_ties": "exact"}
        cls.DECLARATION = Declaration(cls.__name__, "1", conventions=conventions, cost={"warp": 3e-5})

    @classmethod
    def warp(cls, case: WarpCase) -> np.ndarray:
        rows = case.logits.reshape(-1, case.logits.shape[-1])
        given = [cls.given(case, r, len(rows)) for r in range(len(rows))]
        return np.array(cls.rows(rows.tolist(), given)).reshape(case.logits.shape)

    @classmethod
    def given(cls, case: WarpCase, row: int, rows: int) -> Given:
        t, k, p, m = (
            np.broadcast_to(v, (rows,))[row].item() for v in (case.temperature, case.top_k, case.top_p, case.min_p)
        )
        return Given(t, k, p, m)

    @classmethod
    def rows(cls, rows: list[Row], given: list[Given]) -> list[Row]:
        return [cls.row(logits, one) for logits, one in zip(rows, given)]

    @classmethod
    def row(cls, logits: Row, given: Given) -> Row:
        logits = cls.checked(logits)
        if given.temperature == 0:
            return cls.coldest(logits)
        kept = cls.ranked(logits, cls.candidates(logits))
        scaled = logits
        for stage in cls.order:
            if stage == "temperature":
                scaled = cls.scale(logits, given)
                continue
            law = cls.softmax(scaled, kept)
            kept = kept[: max(1, {"top_k": cls.top_k, "top_p": cls.top_p, "min_p": cls.min_p}[stage](law, kept, given))]
        return cls.finish(cls.softmax(scaled, kept), logits, kept, given)

    @classmethod
    def checked(cls, logits: Row) -> Row:
        if any(x != x or x == math.inf for x in logits) or max(logits) == -math.inf:
            raise ValueError("no row of logits")
        return logits

    @classmethod
    def coldest(cls, logits: Row) -> Row:
        """Temperature zero."""
        return [float(v == logits.index(max(logits))) for v in range(len(logits))]

    @classmethod
    def candidates(cls, logits: Row) -> list[int]:
        return [v for v, x in enumerate(logits) if x > -math.inf]

    @classmethod
    def ranked(cls, logits: Row, tokens: list[int]) -> list[int]:
        return sorted(tokens, key=lambda v: (-logits[v], v))

    @classmethod
    def scale(cls, logits: Row, given: Given) -> Row:
        highest = max(logits)
        return [(x - highest) / given.temperature for x in logits]

    @classmethod
    def softmax(cls, scaled: Row, kept: list[int]) -> Row:
        highest = max(scaled)
        weights = [math.exp(x - highest) if v in kept else 0.0 for v, x in enumerate(scaled)]
        return [w / sum(weights) for w in weights]

    @classmethod
    def top_k(cls, law: Row, kept: list[int], given: Given) -> int:
        """How many of the tokens kept survive."""
        return given.top_k or len(kept)

    @classmethod
    def top_p(cls, law: Row, kept: list[int], given: Given) -> int:
        reached = 0.0
        for count, v in enumerate(kept, 1):
            reached += law[v]
            if reached >= given.top_p < 1:
                return count
        return len(kept)

    @classmethod
    def min_p(cls, law: Row, kept: list[int], given: Given) -> int:
        return sum(law[v] >= given.min_p * law[kept[0]] for v in kept)

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        return law


# ---- one law


class ForgetsToRenormalise(Warper):
    """Leaves the survivors the mass they had before the filters."""

    refutes = "ACCEPTANCE-1001"

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        whole = cls.softmax(cls.scale(logits, given), cls.candidates(logits))
        return [p if v in kept else 0.0 for v, p in enumerate(whole)]


class ReturnsLogits(Warper):
    """Returns the logarithms of the law."""

    refutes = "ACCEPTANCE-1001"

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        return [math.log(p) if p > 0 else -math.inf for p in law]


# ---- temperature


class MultipliesByTheTemperature(Warper):
    """Multiplies the logits by the temperature."""

    refutes = "ACCEPTANCE-1003"

    @classmethod
    def scale(cls, logits: Row, given: Given) -> Row:
        return [x * given.temperature for x in logits]


class SoftmaxOfProbabilities(Warper):
    """Takes the softmax of a law that is one already."""

    refutes = "ACCEPTANCE-1003"

    @classmethod
    def softmax(cls, scaled: Row, kept: list[int]) -> Row:
        law = super().softmax(scaled, kept)
        return super().softmax(law, kept)


class IgnoresTheTemperature(Warper):
    """Warps as if the temperature were one."""

    refutes = "ACCEPTANCE-1003"

    @classmethod
    def scale(cls, logits: Row, given: Given) -> Row:
        return logits


class TemperatureOfWholeNumbers(Warper):
    """Rounds the temperature to an integer, one at least."""

    refutes = "ACCEPTANCE-1003"

    @classmethod
    def scale(cls, logits: Row, given: Given) -> Row:
        return [x / max(1, round(given.temperature)) for x in logits]


class ZeroMeansUnset(Warper):
    """Takes temperature zero for one that was not given."""

    refutes = "ACCEPTANCE-1004"

    @classmethod
    def coldest(cls, logits: Row) -> Row:
        return cls.softmax(logits, cls.candidates(logits))


class HighestIdWhenCold(Warper):
    """At temperature zero it takes the highest id among the largest logits."""

    refutes = "ACCEPTANCE-1004"

    @classmethod
    def coldest(cls, logits: Row) -> Row:
        return super().coldest(logits[::-1])[::-1]


class SharesWhenCold(Warper):
    """At temperature zero it shares the mass among tied tokens."""

    refutes = "ACCEPTANCE-1004"

    @classmethod
    def coldest(cls, logits: Row) -> Row:
        ties = [float(x == max(logits)) for x in logits]
        return [t / sum(ties) for t in ties]


class DividesByZero(Warper):
    """Divides by temperature zero, which leaves no number."""

    refutes = "ACCEPTANCE-1004"

    @classmethod
    def coldest(cls, logits: Row) -> Row:
        return [math.nan] * len(logits)


class FloorsTheTemperature(Warper):
    """Never goes below a temperature of 0.01."""

    refutes = "ACCEPTANCE-1005"

    @classmethod
    def scale(cls, logits: Row, given: Given) -> Row:
        return [(x - max(logits)) / max(given.temperature, 0.01) for x in logits]


class KeepsTheMaximum(Warper):
    """Exponentiates the logits as they are."""

    refutes = "ACCEPTANCE-1005"

    @classmethod
    def scale(cls, logits: Row, given: Given) -> Row:
        return [x / given.temperature for x in logits]

    @classmethod
    def softmax(cls, scaled: Row, kept: list[int]) -> Row:
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.where(np.isin(np.arange(len(scaled)), kept), np.exp(np.array(scaled)), 0.0)
            law: Row = (weights / weights.sum()).tolist()
        return law


class ClampsLogits(Warper):
    """Clamps logits to ±50."""

    refutes = "ACCEPTANCE-1005"

    @classmethod
    def checked(cls, logits: Row) -> Row:
        return [x if x == -math.inf else min(max(x, -50.0), 50.0) for x in super().checked(logits)]


# ---- filters, one at a time


class OneTokenMore(Warper):
    """Top-k leaves one token more than k."""

    refutes = "ACCEPTANCE-1006"

    @classmethod
    def top_k(cls, law: Row, kept: list[int], given: Given) -> int:
        return given.top_k + 1 if given.top_k else len(kept)


class RanksByMagnitude(Warper):
    """Ranks tokens by the absolute value of their logits."""

    refutes = "ACCEPTANCE-1006"

    @classmethod
    def ranked(cls, logits: Row, tokens: list[int]) -> list[int]:
        return sorted(tokens, key=lambda v: (-abs(logits[v]), v))


class TopPStopsBefore(Warper):
    """Top-p drops the token with which the mass is reached."""

    refutes = "ACCEPTANCE-1007"

    @classmethod
    def top_p(cls, law: Row, kept: list[int], given: Given) -> int:
        return super().top_p(law, kept, given) - (given.top_p < 1)


class TopPOfOneToken(Warper):
    """Top-p keeps the tokens that have, each alone, more than 1 − p."""

    refutes = "ACCEPTANCE-1007"

    @classmethod
    def top_p(cls, law: Row, kept: list[int], given: Given) -> int:
        return sum(law[v] > 1 - given.top_p for v in kept) if given.top_p < 1 else len(kept)


class MinPOfTheWhole(Warper):
    """Min-p compares with one, not with the largest probability."""

    refutes = "ACCEPTANCE-1008"

    @classmethod
    def min_p(cls, law: Row, kept: list[int], given: Given) -> int:
        return sum(law[v] >= given.min_p for v in kept)


class MinPIsDropped(Warper):
    """Takes min-p and does nothing with it."""

    refutes = "ACCEPTANCE-1008"

    @classmethod
    def min_p(cls, law: Row, kept: list[int], given: Given) -> int:
        return len(kept)


class TopPOfOneCutsTheTail(Warper):
    """Looks for the mass of one, too, which rounding reaches before the last token."""

    refutes = "ACCEPTANCE-1002"

    @classmethod
    def top_p(cls, law: Row, kept: list[int], given: Given) -> int:
        reached = np.cumsum([law[v] for v in kept])
        return min(len(kept), int((reached < given.top_p).sum()) + 1)


class TopKWrapsAround(Warper):
    """Takes k modulo the size of the vocabulary."""

    refutes = "ACCEPTANCE-1002"

    @classmethod
    def top_k(cls, law: Row, kept: list[int], given: Given) -> int:
        return given.top_k % len(law) or len(kept)


class FloorUnderMinP(Warper):
    """Never goes below a min-p of 1e-6."""

    refutes = "ACCEPTANCE-1002"

    @classmethod
    def min_p(cls, law: Row, kept: list[int], given: Given) -> int:
        return sum(law[v] >= max(given.min_p, 1e-6) * law[kept[0]] for v in kept)


class SharesTheLostMass(Warper):
    """Gives what the filters removed to the survivors in equal parts."""

    refutes = "ACCEPTANCE-1009"

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        whole = cls.softmax(cls.scale(logits, given), cls.candidates(logits))
        lost = sum(p for v, p in enumerate(whole) if v not in kept)
        return [whole[v] + lost / len(kept) if v in kept else 0.0 for v in range(len(law))]


class LostMassToTheFirst(Warper):
    """Gives what the filters removed to the most probable token."""

    refutes = "ACCEPTANCE-1009"

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        whole = cls.softmax(cls.scale(logits, given), cls.candidates(logits))
        lost = sum(p for v, p in enumerate(whole) if v not in kept)
        return [whole[v] + (lost if v == kept[0] else 0.0) if v in kept else 0.0 for v in range(len(law))]
