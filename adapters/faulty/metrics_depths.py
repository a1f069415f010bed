"""Summaries of rounds with one fault each in acceptance by depth, and in what is undefined."""

from __future__ import annotations

from typing import Any

from adapters.faulty.counting import Ratio, Round, Summary

# ---- by depth


class EndsAtTheDeepestAccepted(Summary):
    """Has no entry for depths that nobody accepted."""

    refutes = "METRICS-401"

    @classmethod
    def deepest(cls, rounds: list[Round]) -> int:
        return max((a for _, a, _ in rounds), default=0)


class EndsWhereNobodyTried(Summary):
    """Leaves out the depths that no round reached."""

    refutes = "METRICS-401"

    @classmethod
    def by_depth(cls, rounds: list[Round]) -> Any:
        return tuple(entry for entry in super().by_depth(rounds) if entry is not None)


class RoomForOneMore(Summary):
    """Has an entry for the depth below the deepest draft."""

    refutes = "METRICS-401"

    @classmethod
    def deepest(cls, rounds: list[Round]) -> int:
        return super().deepest(rounds) + 1


class NotConditional(Summary):
    """Divides the rounds that accepted a depth by all that drafted it, also those that had lost an earlier one."""

    refutes = "METRICS-402"

    @classmethod
    def tests(cls, one: Round) -> int:
        return one[0]


class ByAllRounds(Summary):
    """Divides the rounds that accepted a depth by all rounds, as vLLM's log does."""

    refutes = "METRICS-402"

    @classmethod
    def by_depth(cls, rounds: list[Round]) -> Any:
        depths, found = range(cls.deepest(rounds)), cls.grouped(rounds).items()
        return tuple(cls.divide(sum(n for one, n in found if one[1] > depth), len(rounds)) for depth in depths)


class OneDepthOff(Summary):
    """Shows at each depth the acceptance of the one before, and 1 at the first."""

    refutes = "METRICS-402"

    @classmethod
    def by_depth(cls, rounds: list[Round]) -> Any:
        return (1.0, *super().by_depth(rounds)[:-1]) if cls.deepest(rounds) else ()


class CutDraftsAreRefused(Summary):
    """Takes accepted drafts behind a stop token for refused ones."""

    refutes = "METRICS-402"

    @classmethod
    def passes(cls, one: Round, depth: int) -> bool:
        return depth < min(one[1], one[2])


class EndOfDraftIsARefusal(Summary):
    """Counts who accepted all that it drafted as refused one depth below."""

    refutes = "METRICS-403"

    @classmethod
    def tests(cls, one: Round) -> int:
        return one[1] + 1


class DeepDraftsAlone(Summary):
    """Reads acceptance by depth off the rounds that drafted the most."""

    refutes = "METRICS-403"

    @classmethod
    def grouped(cls, rounds: list[Round]) -> dict[Round, int]:
        deepest = cls.deepest(rounds)
        return {one: times for one, times in super().grouped(rounds).items() if one[0] == deepest}


# ---- undefined


class NoRoundsNoTokens(Summary):
    """Says that no rounds have a length of 0."""

    refutes = "METRICS-501"

    @classmethod
    def tau(cls, rounds: list[Round]) -> Ratio:
        return super().tau(rounds) if rounds else 0.0


class AlwaysAFrontier(Summary):
    """Says that no rounds have a length of 1, the frontier's."""

    refutes = "METRICS-501"

    @classmethod
    def tau(cls, rounds: list[Round]) -> Ratio:
        return super().tau(rounds) if rounds else 1.0


class NothingDraftedNothingAccepted(Summary):
    """Says that rounds without drafts have a rate of 0."""

    refutes = "METRICS-502"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        found = super().rate(rounds)
        return 0.0 if found is None and rounds else found


class NothingDraftedIsNotANumber(Summary):
    """Divides zero by zero where nothing was drafted: NaN."""

    refutes = "METRICS-502"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        found = super().rate(rounds)
        return float("nan") if found is None and rounds else found


class UnreachedIsZero(Summary):
    """Says 0 of a depth that no round reached."""

    refutes = "METRICS-503"

    @classmethod
    def entry(cls, passed: int, tried: int) -> Ratio:
        return passed / max(tried, 1)


class UnreachedIsNotANumber(Summary):
    """Divides zero by zero at a depth that no round reached: NaN."""

    refutes = "METRICS-503"

    @classmethod
    def entry(cls, passed: int, tried: int) -> Ratio:
        return passed / tried if tried else float("nan")
