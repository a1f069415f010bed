"""A right summary of rounds, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full beside it: it walks the rounds, as engines do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.faulty.declared import Declared
from oracle.types import Metrics, RoundsCase

Round = tuple[int, int, int]
"""Drafted, accepted, emitted."""
Ratio = float | None


class Summary(Declared, cost={"summarise_rounds": 1e-4}):
    """A right summary; every step is a method that a fault may override."""

    @classmethod
    def summarise_rounds(cls, case: RoundsCase) -> Metrics:
        cls.check(case)
        return cls.summary(cls.rounds(case), cls.workers(case))

    # ---- the case

    @classmethod
    def check(cls, case: RoundsCase) -> None:
        cls.check_arrays(case)
        for drafted, accepted, emitted in cls.rounds(case):
            cls.check_sign(drafted, accepted)
            cls.check_accepted(drafted, accepted)
            cls.check_emitted(accepted, emitted)

    @classmethod
    def check_arrays(cls, case: RoundsCase) -> None:
        given = [case.drafted, case.accepted, case.emitted, *([] if case.worker is None else [case.worker])]
        for array in given:
            if np.ndim(array) != 1 or len(array) != len(case.drafted) or np.asarray(array).dtype.kind not in "iu":
                raise ValueError("an integer a round")

    @classmethod
    def check_sign(cls, drafted: int, accepted: int) -> None:
        if drafted < 0 or accepted < 0:
            raise ValueError("no count is negative")

    @classmethod
    def check_accepted(cls, drafted: int, accepted: int) -> None:
        if accepted > drafted:
            raise ValueError("no more is accepted than was drafted")

    @classmethod
    def check_emitted(cls, accepted: int, emitted: int) -> None:
        if not 1 <= emitted <= accepted + 1:
            raise ValueError("a round emits at least one token, and at most its accepted drafts and a frontier")

    @classmethod
    def rounds(cls, case: RoundsCase) -> list[Round]:
        return list(zip(case.drafted.tolist(), case.accepted.tolist(), case.emitted.tolist()))

    @classmethod
    def workers(cls, case: RoundsCase) -> list[int]:
        """Who counted each round; one worker where nobody is named."""
        return [0] * len(case.drafted) if case.worker is None else case.worker.tolist()

    # ---- the answer

    @classmethod
    def summary(cls, rounds: list[Round], workers: list[int]) -> Metrics:
        return Metrics(
            cls.counted(rounds),
            cls.drafted(rounds),
            cls.accepted(rounds),
            cls.emitted(rounds),
            cls.tau(rounds),
            cls.accepted_per_round(rounds),
            cls.rate(rounds),
            cls.by_depth(rounds),
        )

    @classmethod
    def counted(cls, rounds: list[Round]) -> int:
        return len(rounds)

    @classmethod
    def drafted(cls, rounds: list[Round]) -> int:
        return sum(k for k, _, _ in rounds)

    @classmethod
    def accepted(cls, rounds: list[Round]) -> int:
        return sum(a for _, a, _ in rounds)

    @classmethod
    def emitted(cls, rounds: list[Round]) -> int:
        return sum(e for _, _, e in rounds)

    @classmethod
    def tau(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(cls.emitted(rounds), cls.counted(rounds))

    @classmethod
    def accepted_per_round(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(cls.accepted(rounds), cls.counted(rounds))

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(sum(a for _, a, _ in rounds), cls.drafted(rounds))

    @classmethod
    def by_depth(cls, rounds: list[Round]) -> Any:
        deepest = cls.deepest(rounds)
        passed, tried = [0] * (deepest + 1), [0] * (deepest + 1)
        for one, times in cls.grouped(rounds).items():
            for depth in range(min(cls.tests(one), deepest)):
                tried[depth] += times
                passed[depth] += times * cls.passes(one, depth)
        return tuple(map(cls.entry, passed[:deepest], tried[:deepest]))

    @classmethod
    def deepest(cls, rounds: list[Round]) -> int:
        return max((k for k, _, _ in rounds), default=0)

    @classmethod
    def grouped(cls, rounds: list[Round]) -> dict[Round, int]:
        """How often each round occurs."""
        found: dict[Round, int] = {}
        for one in rounds:
            found[one] = found.get(one, 0) + 1
        return found

    @classmethod
    def tests(cls, one: Round) -> int:
        """How many drafts of a round were tested: the accepted ones, and the first refused one."""
        drafted, accepted, _ = one
        return min(drafted, accepted + 1)

    @classmethod
    def passes(cls, one: Round, depth: int) -> bool:
        return depth < one[1]

    @classmethod
    def entry(cls, passed: int, tried: int) -> Ratio:
        return cls.divide(passed, tried)

    @classmethod
    def divide(cls, part: int, whole: int) -> Ratio:
        return part / whole if whole else None
