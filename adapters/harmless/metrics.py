"""Right summaries that look different: another convention, another precision, whole arrays, counters of each worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.faulty.counting import Ratio, Round, Summary
from oracle.types import Metrics, RoundsCase


class CountsFrontiers(Summary, conventions={"accepted_count": "drafts_and_frontier"}):
    """Counts the frontier among the accepted, and declares it; its rate is of drafts."""

    @classmethod
    def accepted(cls, rounds: list[Round]) -> int:
        return sum(a + 1 for _, a, _ in rounds)


class Float32(Summary, dtype="float32"):
    """Divides in float32, and says so; its counts are integers."""

    @classmethod
    def divide(cls, part: int, whole: int) -> Ratio:
        return float(np.float32(part) / np.float32(whole)) if whole else None


class WholeArrays(Summary):
    """Works on whole arrays, and hands out NumPy's numbers."""

    @classmethod
    def summarise_rounds(cls, case: RoundsCase) -> Metrics:
        cls.check(case)
        drafted, accepted = case.drafted.astype(np.int64), case.accepted.astype(np.int64)
        depths = np.arange(drafted.max(initial=0))
        # who accepted at least, and who had a draft to test; in blocks, so that deep drafts fit into memory
        lost = np.sort(np.where(accepted < drafted, accepted, np.iinfo(np.int64).max))
        taken = np.sort(accepted)
        passed = len(taken) - np.searchsorted(taken, depths, side="right")
        tried = passed + np.searchsorted(lost, depths, side="right") - np.searchsorted(lost, depths, side="left")
        entries: list[Any] = [np.float64(p) / t if t else None for p, t in zip(passed, tried)]
        n, k, a, e = np.int64(len(drafted)), drafted.sum(), accepted.sum(), case.emitted.sum()
        found: list[Any] = [n, k, a, e, e / n if n else None, a / n if n else None, a / k if k else None, entries]
        return Metrics(*found)


class AddsWorkers(Summary):
    """Counts each worker's rounds on their own, and adds the counters up, as a metrics server does."""

    @classmethod
    def summary(cls, rounds: list[Round], workers: list[int]) -> Metrics:
        total, passed, tried = [0, 0, 0, 0], [0] * cls.deepest(rounds), [0] * cls.deepest(rounds)
        for worker in dict.fromkeys(workers):
            mine = [one for one, who in zip(rounds, workers) if who == worker]
            for i, count in enumerate((len(mine), cls.drafted(mine), cls.accepted(mine), cls.emitted(mine))):
                total[i] += count
            for one, times in cls.grouped(mine).items():
                for depth in range(cls.tests(one)):
                    tried[depth] += times
                    passed[depth] += times * cls.passes(one, depth)
        n, k, a, e = total
        by_depth = tuple(map(cls.divide, passed, tried))
        return Metrics(n, k, a, e, cls.divide(e, n), cls.divide(a, n), cls.divide(a, k), by_depth)
