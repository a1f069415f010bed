"""Summaries of rounds with one fault each: structure, counts, ratios; `metrics_depths` and `_together` hold the others.

`--impl=adapters.faulty.metrics:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from adapters.faulty.counting import Ratio, Round, Summary
from adapters.faulty.metrics_depths import *  # noqa: F403 - one address for every fault
from adapters.faulty.metrics_together import *  # noqa: F403
from oracle.types import Metrics, RoundsCase

# ---- structure


class NeverReset(Summary):
    """Counts on where the run before ended."""

    refutes = "METRICS-101"
    kept: ClassVar[list[Round]] = []

    @classmethod
    def summarise_rounds(cls, case: RoundsCase) -> Metrics:
        cls.check(case)
        cls.kept += cls.rounds(case)
        del cls.kept[:-400]
        return cls.summary(cls.kept, [0] * len(cls.kept))


class OldValuesWhereDraftingIsOff(Summary):
    """Shows the rate of the run before where this one drafts nothing (NVIDIA/TensorRT-LLM#9855)."""

    refutes = "METRICS-101"
    last: ClassVar[list[Ratio]] = [None]

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        found = super().rate(rounds)
        if found is not None:
            cls.last[0] = found
        return cls.last[0]


class CountsAreFloats(Summary):
    """Keeps its counters as floating-point numbers, and hands them out so."""

    refutes = "METRICS-102"

    @classmethod
    def summary(cls, rounds: list[Round], workers: list[int]) -> Metrics:
        found = super().summary(rounds, workers)
        counts: Any = {name: float(getattr(found, name)) for name in ("rounds", "drafted", "accepted", "emitted")}
        return dataclasses.replace(found, **counts)


class DepthsInATable(Summary):
    """Hands out acceptance by depth as a table from depth to ratio."""

    refutes = "METRICS-102"

    @classmethod
    def by_depth(cls, rounds: list[Round]) -> Any:
        return dict(enumerate(super().by_depth(rounds), 1))


class SortsInPlace(Summary):
    """Sorts the rounds that it was handed by depth, in place."""

    refutes = "METRICS-103"

    @classmethod
    def check(cls, case: RoundsCase) -> None:
        super().check(case)
        order = np.argsort(case.drafted, kind="stable")
        for array in (case.drafted, case.accepted, case.emitted):
            array[:] = array[order]


class MinusOneInPlace(Summary):
    """Takes the frontier off the emitted tokens in the array that it was handed."""

    refutes = "METRICS-103"

    @classmethod
    def summarise_rounds(cls, case: RoundsCase) -> Metrics:
        found = super().summarise_rounds(case)
        case.emitted[:] -= 1
        return found


# ---- counts


class OnlyRoundsWithDrafts(Summary):
    """Counts a round when it has drafts, as counters do that are written where drafts are verified."""

    refutes = "METRICS-201"

    @classmethod
    def counted(cls, rounds: list[Round]) -> int:
        return sum(k > 0 for k, _, _ in rounds)


class OnlyRoundsThatAccept(Summary):
    """Counts a round when something was accepted in it."""

    refutes = "METRICS-201"

    @classmethod
    def counted(cls, rounds: list[Round]) -> int:
        return sum(a > 0 for _, a, _ in rounds)


class DeepestDraftForAll(Summary):
    """Takes every round to have drafted as many tokens as the deepest."""

    refutes = "METRICS-202"

    @classmethod
    def drafted(cls, rounds: list[Round]) -> int:
        return cls.deepest(rounds) * len(rounds)


class DraftsThatWereTested(Summary):
    """Counts as drafted what was tested: nothing behind the first refusal."""

    refutes = "METRICS-202"

    @classmethod
    def drafted(cls, rounds: list[Round]) -> int:
        return sum(map(cls.tests, rounds))


class FrontierAcceptedUndeclared(Summary):
    """Counts the frontier as an accepted draft, and does not say so (SafeAILab/EAGLE#132)."""

    refutes = "METRICS-203"

    @classmethod
    def accepted(cls, rounds: list[Round]) -> int:
        return sum(a + 1 for _, a, _ in rounds)


class OutputLessOne(Summary):
    """Takes a round to have accepted its emitted tokens less one, whatever a stop cut off (vllm-project/vllm#27077)."""

    refutes = "METRICS-203"

    @classmethod
    def accepted(cls, rounds: list[Round]) -> int:
        return sum(e - 1 for _, _, e in rounds)


class DeclaresWhatItDoesNotCount(Summary, conventions={"accepted_count": "drafts_and_frontier"}):
    """Declares that it counts frontiers among the accepted, and counts drafts alone."""

    refutes = "METRICS-203"


class EmittedBeforeTheCut(Summary):
    """Counts the tokens behind a stop token as emitted (vllm-project/vllm#56101)."""

    refutes = "METRICS-204"

    @classmethod
    def emitted(cls, rounds: list[Round]) -> int:
        return sum(a + 1 for _, a, _ in rounds)


class OneTokenARound(Summary):
    """Counts one generated token a round, and misses the accepted drafts (vllm-project/vllm#10914)."""

    refutes = "METRICS-204"

    @classmethod
    def emitted(cls, rounds: list[Round]) -> int:
        return len(rounds)


class StopTokenNotCounted(Summary):
    """Leaves the stop token out where it cuts a run short."""

    refutes = "METRICS-204"

    @classmethod
    def emitted(cls, rounds: list[Round]) -> int:
        return sum(e - (e <= a) for _, a, e in rounds)


# ---- ratios


class LengthWithoutFrontier(Summary):
    """Gives the accepted drafts a round for tokens a round (vllm-project/vllm#17908)."""

    refutes = "METRICS-301"

    @classmethod
    def tau(cls, rounds: list[Round]) -> Ratio:
        return cls.accepted_per_round(rounds)


class LengthIsOneMore(Summary):
    """Takes tokens a round to be accepted drafts a round and one, also where a stop cuts (vllm-project/vllm#56101)."""

    refutes = "METRICS-301"

    @classmethod
    def tau(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(cls.accepted(rounds) + len(rounds), len(rounds))


class LengthOfRoundsWithDrafts(Summary):
    """Divides the tokens of all rounds by the rounds that had drafts."""

    refutes = "METRICS-301"

    @classmethod
    def tau(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(cls.emitted(rounds), sum(k > 0 for k, _, _ in rounds) or len(rounds))


class TokensForAccepted(Summary):
    """Gives the tokens a round where the accepted a round are asked for."""

    refutes = "METRICS-302"

    @classmethod
    def accepted_per_round(cls, rounds: list[Round]) -> Ratio:
        return cls.tau(rounds)


class MeanOfRoundsWithDrafts(Summary):
    """Takes the mean of the accepted over the rounds that had drafts."""

    refutes = "METRICS-302"

    @classmethod
    def accepted_per_round(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(cls.accepted(rounds), sum(k > 0 for k, _, _ in rounds) or len(rounds))


class RateWithFrontier(Summary):
    """Has frontiers above the line of the rate, which passes 1 (sgl-project/sglang#11572)."""

    refutes = "METRICS-303"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(sum(a + 1 for _, a, _ in rounds), cls.drafted(rounds))


class RateOfWhatWasTested(Summary):
    """Divides the accepted drafts by those that were tested."""

    refutes = "METRICS-303"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(cls.accepted(rounds), sum(map(cls.tests, rounds)))


class RateAfterTheCut(Summary):
    """Counts in the rate the accepted drafts that came out, and not those behind a stop token."""

    refutes = "METRICS-303"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(sum(min(a, e) for _, a, e in rounds), cls.drafted(rounds))


class MeanOfRates(Summary):
    """Takes the mean of the rounds' rates."""

    refutes = "METRICS-304"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        rates = [Fraction(a, k) for k, a, _ in rounds if k]
        return float(sum(rates) / len(rates)) if rates else None


class RateOfTheDeepest(Summary):
    """Divides by the configured number of drafts, whatever a round really drafted (NVIDIA/TensorRT-LLM#12905)."""

    refutes = "METRICS-304"

    @classmethod
    def rate(cls, rounds: list[Round]) -> Ratio:
        return cls.divide(cls.accepted(rounds), cls.deepest(rounds) * sum(k > 0 for k, _, _ in rounds))
