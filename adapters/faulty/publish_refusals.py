"""Publications with one fault each: batches, what nobody reads, and what they do not refuse."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from adapters.faulty.publishing import Publisher, Round
from oracle.types import CommittedState, Decision, PublishCase

# ---- batches


class OneLengthForAll(Publisher):
    """Cuts all paths of a batch at the shortest one (sgl-project/sglang#15790)."""

    refutes = "PUBLISH-901"

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        shortest = min((len(case.decision.path) for case in cases), default=0)
        cut = [Decision(case.decision.path[:shortest], case.decision.frontier) for case in cases]
        return super().publish([dataclasses.replace(case, decision=one) for case, one in zip(cases, cut)])


class RowsOfTheNeighbour(Publisher):
    """Reads the KV of a verification by the place in the batch, counted from one."""

    refutes = "PUBLISH-901"

    @classmethod
    def batch(cls, cases: Sequence[PublishCase], states: list[CommittedState]) -> list[CommittedState]:
        turned = states[1:] + states[:1]
        return [dataclasses.replace(state, kv=other.kv) for state, other in zip(states, turned)]


class DraftlessFirst(Publisher):
    """Answers for requests without drafts before the others (HabanaAI/vllm-fork#1780)."""

    refutes = "PUBLISH-902"

    @classmethod
    def batch(cls, cases: Sequence[PublishCase], states: list[CommittedState]) -> list[CommittedState]:
        drafted = [any(node >= 0 for node in case.verified.row_node.tolist()) for case in cases]
        order = sorted(range(len(cases)), key=lambda member: drafted[member])
        return [states[member] for member in order]


class OneEndForAll(Publisher):
    """Finishes a batch together with the first of its requests."""

    refutes = "PUBLISH-902"

    @classmethod
    def batch(cls, cases: Sequence[PublishCase], states: list[CommittedState]) -> list[CommittedState]:
        ended = any(state.finished for state in states)
        return [dataclasses.replace(state, finished=ended) for state in states]


class PaddingSpreads(Publisher):
    """Multiplies all rows by a mask and adds them up, so that NaN of padding is everywhere."""

    refutes = "PUBLISH-903"

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        held = len(found.case.state.kv)
        kv = super().kv(found, nodes)
        return kv[:held] + [math.nan if any(map(math.isnan, found.kv)) else value for value in kv[held:]]


class AbsurdPadding(Publisher):
    """Refuses a negative token wherever it stands."""

    refutes = "PUBLISH-903"

    @classmethod
    def check(cls, case: PublishCase) -> None:
        super().check(case)
        if (case.verified.row_token < 0).any():
            raise ValueError("a token is negative")


class FrontierIsAlwaysThere(Publisher):
    """Refuses a frontier that is no token, also where the path is cut before it."""

    refutes = "PUBLISH-903"

    @classmethod
    def check(cls, case: PublishCase) -> None:
        super().check(case)
        if case.decision.frontier < 0:
            raise ValueError("the frontier is no token")


# ---- what is not refused


class PublishesTwice(Publisher):
    """Does not look at the token of the root's row."""

    refutes = "PUBLISH-1001"

    @classmethod
    def check_twice(cls, found: Round) -> None:
        """Checks nothing."""


class GoesOnAfterTheEnd(Publisher):
    """Publishes on finished requests (sgl-project/sglang#23456)."""

    refutes = "PUBLISH-1002"

    @classmethod
    def check_finished(cls, found: Round) -> None:
        """Checks nothing."""


class GoesOnAtTheLimit(Publisher):
    """Publishes on requests that are at their limit."""

    refutes = "PUBLISH-1002"

    @classmethod
    def check_limit(cls, found: Round) -> None:
        """Checks nothing."""


class RootAsItComes(Publisher):
    """Takes a root row where nothing is pending, and does without one where a token is."""

    refutes = "PUBLISH-1003"

    @classmethod
    def check_root(cls, found: Round) -> None:
        """Checks nothing."""


class AnyPath(Publisher):
    """Takes a node twice, and the root for one."""

    refutes = "PUBLISH-1004"

    @classmethod
    def check_path(cls, found: Round) -> None:
        """Checks nothing."""


class FirstRowOfANode(Publisher):
    """Takes the first of two rows of a node."""

    refutes = "PUBLISH-1004"

    @classmethod
    def check_nodes(cls, found: Round) -> None:
        """Checks nothing."""


class AnyNumberOfRows(Publisher):
    """Does not count the rows that a state holds (ggml-org/llama.cpp#26478)."""

    refutes = "PUBLISH-1005"

    @classmethod
    def check_sizes(cls, found: Round) -> None:
        """Checks nothing."""


class PublishesTheOthers(Publisher):
    """Publishes the good members of a batch, and leaves a bad one as it was."""

    refutes = "PUBLISH-1006"

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        states = []
        for case in cases:
            try:
                states += super().publish([case])
            except (ValueError, LookupError):
                if len(cases) == 1:
                    raise
                states.append(case.state)
        return states


class ChecksAsItGoes(Publisher):
    """Moves rows of one member after the other, and puts them back only where it comes to the end."""

    refutes = "PUBLISH-1006"

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        before, states = [case.verified.kv.copy() for case in cases], []
        for case in cases:
            states += super().publish([case])
            case.verified.kv[:] = case.verified.kv[::-1].copy()
        for case, kv in zip(cases, before):
            case.verified.kv[:] = kv
        return states
