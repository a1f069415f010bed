"""Summaries of rounds with one fault each: rounds of several workers, long runs, refusals."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np

from adapters.faulty.counting import Ratio, Round, Summary
from oracle.types import Metrics, RoundsCase

# ---- workers


class _ByWorker(Summary):
    """Looks at each worker's rounds."""

    @classmethod
    def split(cls, rounds: list[Round], workers: list[int]) -> list[list[Round]]:
        return [[one for one, who in zip(rounds, workers) if who == worker] for worker in sorted(set(workers))]

    @classmethod
    def together(cls, whole: Metrics, parts: list[list[Round]]) -> Metrics:
        return whole

    @classmethod
    def summary(cls, rounds: list[Round], workers: list[int]) -> Metrics:
        return cls.together(super().summary(rounds, workers), cls.split(rounds, workers))


class FirstWorkerAlone(_ByWorker):
    """Shows what the first worker counted (NVIDIA/TensorRT-LLM#17082)."""

    refutes = "METRICS-601"

    @classmethod
    def summary(cls, rounds: list[Round], workers: list[int]) -> Metrics:
        least = min(workers, default=0)
        first = [one for one, who in zip(rounds, workers) if who == least]
        return super().summary(first, [0] * len(first))


class IdleWorkersLeftOut(_ByWorker):
    """Leaves out the rounds of a worker that drafted nothing."""

    refutes = "METRICS-601"

    @classmethod
    def summary(cls, rounds: list[Round], workers: list[int]) -> Metrics:
        parts = cls.split(rounds, workers)
        busy = [one for part in parts for one in part if len(parts) == 1 or cls.drafted(part)]
        return super().summary(busy, [0] * len(busy))


class MeanOverWorkers(_ByWorker):
    """Takes the mean of the workers' tokens a round."""

    refutes = "METRICS-602"

    @classmethod
    def together(cls, whole: Metrics, parts: list[list[Round]]) -> Metrics:
        means = [Fraction(cls.emitted(part), len(part)) for part in parts]
        return dataclasses.replace(whole, tau=float(sum(means) / len(means))) if len(parts) > 1 else whole


class MeanRateOverWorkers(_ByWorker):
    """Takes the mean of the workers' rates, where they have any."""

    refutes = "METRICS-602"

    @classmethod
    def together(cls, whole: Metrics, parts: list[list[Round]]) -> Metrics:
        rates = [Fraction(sum(a for _, a, _ in part), cls.drafted(part)) for part in parts if cls.drafted(part)]
        return dataclasses.replace(whole, rate=float(sum(rates) / len(rates))) if len(parts) > 1 and rates else whole


class OneWorkerAboveTheLine(_ByWorker):
    """Divides one worker's acceptances at a depth by the tests of all workers (vllm-project/speculators#1095)."""

    refutes = "METRICS-603"

    @classmethod
    def together(cls, whole: Metrics, parts: list[list[Round]]) -> Metrics:
        if len(parts) < 2:
            return whole
        rounds = [one for part in parts for one in part]
        entries = []
        for depth in range(cls.deepest(rounds)):
            tried = sum(cls.tests(one) > depth for one in rounds)
            passed = sum(cls.passes(one, depth) for one in parts[0])
            entries.append(cls.divide(passed, tried))
        return dataclasses.replace(whole, by_depth=tuple(entries))


class DepthOfTheFirstWorker(_ByWorker):
    """Has as many entries by depth as the first worker's drafts are deep."""

    refutes = "METRICS-603"

    @classmethod
    def together(cls, whole: Metrics, parts: list[list[Round]]) -> Metrics:
        depth = cls.deepest(parts[0]) if parts else 0
        return dataclasses.replace(whole, by_depth=whole.by_depth[:depth])


# ---- long runs


class CountsIn32Bits(Summary):
    """Adds its counts in 32 bits, which wrap around."""

    refutes = "METRICS-701"

    @classmethod
    def drafted(cls, rounds: list[Round]) -> int:
        return (super().drafted(rounds) + 2**31) % 2**32 - 2**31


class CountsIn16Bits(Summary):
    """Adds the emitted tokens in 16 bits, which wrap around."""

    refutes = "METRICS-701"

    @classmethod
    def emitted(cls, rounds: list[Round]) -> int:
        return super().emitted(rounds) % 2**16


class CountsInFloat32(Summary):
    """Adds the accepted drafts in float32, and hands out an integer."""

    refutes = "METRICS-701"

    @classmethod
    def accepted(cls, rounds: list[Round]) -> int:
        return int(np.float32(super().accepted(rounds)))


class LastThousandRounds(Summary):
    """Shows the rate of the last thousand rounds, and counts all of them."""

    refutes = "METRICS-702"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        return super().rate(rounds[-1000:])


class FadesOut(Summary):
    """Lets early rounds of a long run fade from the tokens a round, two thousand of them at a time."""

    refutes = "METRICS-702"

    @classmethod
    def tau(cls, rounds: list[Round]) -> Ratio:
        if len(rounds) <= 2000:
            return super().tau(rounds)
        recent = cls.emitted(rounds[-2000:]) / 2000
        return 0.9 * recent + 0.1 * (cls.tau(rounds[:-2000]) or recent)


# ---- refusals


class BroadcastsASingleNumber(Summary):
    """Takes one number for all rounds where an array has a single one."""

    refutes = "METRICS-901"

    @classmethod
    def check_arrays(cls, case: RoundsCase) -> None:
        np.broadcast_arrays(case.drafted, case.accepted, case.emitted)

    @classmethod
    def rounds(cls, case: RoundsCase) -> list[Round]:
        flat = [a.reshape(-1) for a in np.broadcast_arrays(case.drafted, case.accepted, case.emitted)]
        return [(int(k), int(a), int(e)) for k, a, e in zip(*flat)]


class StopsAtTheShortest(Summary):
    """Sums up as many rounds as the shortest array has."""

    refutes = "METRICS-901"

    @classmethod
    def check_arrays(cls, case: RoundsCase) -> None:
        for array in (case.drafted, case.accepted, case.emitted):
            if np.ndim(array) != 1 or np.asarray(array).dtype.kind not in "iu":
                raise ValueError("integers")


class NegativeIsNone(Summary):
    """Takes a negative count for 0."""

    refutes = "METRICS-902"

    @classmethod
    def rounds(cls, case: RoundsCase) -> list[Round]:
        return [(max(k, 0), max(a, 0), e) for k, a, e in super().rounds(case)]


class AcceptsMoreThanWasDrafted(Summary):
    """Accepts more drafts than there were."""

    refutes = "METRICS-903"

    @classmethod
    def check_accepted(cls, drafted: int, accepted: int) -> None:
        return None


class RoundsWithoutOutput(Summary):
    """Lets a round emit nothing, and counts it (vllm-project/vllm#27077)."""

    refutes = "METRICS-904"

    @classmethod
    def check_emitted(cls, accepted: int, emitted: int) -> None:
        if not 0 <= emitted <= accepted + 1:
            raise ValueError("at most the accepted drafts and a frontier")


class TwoFrontiers(Summary):
    """Lets a round emit two tokens beside its accepted drafts."""

    refutes = "METRICS-904"

    @classmethod
    def check_emitted(cls, accepted: int, emitted: int) -> None:
        if not 1 <= emitted <= accepted + 2:
            raise ValueError("at least one token")
