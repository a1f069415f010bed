"""Publications with one fault each that single rounds do not show: what is remembered between rounds, wrongly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from adapters.faulty.publishing import PAD, Publisher, Round, floats, ids
from oracle.types import CommittedState, PublishCase

Key = tuple[bytes, bytes, bytes]
MOST_LINES = 50
"""Requests that are remembered."""


def key(state: CommittedState) -> Key:
    """What a state is known by."""
    return state.prompt.tobytes(), state.output.tobytes(), state.kv.tobytes()


def sequence(state: CommittedState) -> tuple[int, ...]:
    return tuple(state.prompt.tolist() + state.output.tolist())


class Line:
    """The states that one request was returned with, one after the other."""

    def __init__(self) -> None:
        self.states: dict[Key, CommittedState] = {}
        self.rejected: dict[Key, list[float]] = {}
        """The KV of what the round before a state rejected."""

    @property
    def latest(self) -> CommittedState:
        return list(self.states.values())[-1]


class Remembering(Publisher):
    """A right publication that knows the states it returned, and so a request from round to round."""

    lines: ClassVar[dict[Key, Line]]
    """By the state that a request came with."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.lines = {}

    @classmethod
    def line(cls, state: CommittedState) -> Line | None:
        """That of a state which was returned before."""
        held = key(state)
        return next((line for line in cls.lines.values() if held in line.states), None)

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        before = found.case.state
        line = cls.line(before)
        if line is None:
            after = cls.newcomer(found, super().member(found))
            cls.lines.pop(key(before), None)
            line = cls.lines[key(before)] = Line()
            cls.lines = dict(list(cls.lines.items())[-MOST_LINES:])
        else:
            after = cls.again(found, line, super().member(found))
        held = key(after)
        line.states.pop(held, None)
        line.states[held] = after
        line.rejected[held] = after.freed.tolist()  # type: ignore[union-attr]
        return after

    @classmethod
    def newcomer(cls, found: Round, after: CommittedState) -> CommittedState:
        """The state after the first round of a request, or after the first one since its rows were made anew."""
        return after

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        """The state after another round."""
        return after


class LosesTheFrontierOfTheLastRound(Remembering):
    """Appends to an output that the last frontier has not reached yet (vllm-project/vllm#52179)."""

    refutes = "PUBLISH-1101"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        new = after.output.tolist()[len(found.output) :]
        return dataclasses.replace(after, output=ids(found.output[:-1] + new))


class StaleToken(Remembering):
    """Puts the frontier of the round before last in the place of the last one."""

    refutes = "PUBLISH-1101"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        output = after.output.copy()
        output[len(found.output) - 1] = sequence(found.case.state)[-2]
        return dataclasses.replace(after, output=output)


class KeepsRejectedRowsWhereDraftingStops(Remembering):
    """Leaves the rows that a round rejected where the next one has no drafts (NVIDIA/TensorRT-LLM#10160)."""

    refutes = "PUBLISH-1102"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        rejected = line.rejected[key(found.case.state)]
        if any(node not in (-1, PAD) for node in found.nodes) or not rejected:
            return after
        kv = after.kv.tolist()
        held = len(found.case.state.kv)
        return dataclasses.replace(after, kv=floats([*kv[:held], *rejected, *kv[held:]]))


class WritesOnePlaceFurtherARound(Remembering):
    """Counts one token a round, and so writes features over those of the round before (transformers#30068)."""

    refutes = "PUBLISH-1102"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        features = after.features.copy()
        new, held = len(features) - len(found.case.state.features), len(found.case.state.features)
        if new and held:
            features[held - 1] = features[held]
        return dataclasses.replace(after, features=features)


class LosesARejectedRowOfLaterRounds(Remembering):
    """Gives back all rejected rows but the last one, from the second round on (sgl-project/sglang#2711)."""

    refutes = "PUBLISH-1103"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        return dataclasses.replace(after, freed=after.freed[:-1])


class GivesBackTwice(Remembering):
    """Gives back what it gave back the last time, too."""

    refutes = "PUBLISH-1103"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        earlier = line.rejected[key(found.case.state)]
        return dataclasses.replace(after, freed=floats([*earlier, *after.freed]))

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        after = super().member(found)
        line = cls.line(after)
        if line is not None:  # what counts is what this round rejected
            line.rejected[key(after)] = [kv for kv in after.freed if kv in found.kv]
        return after


class RollbackDoesNothing(Remembering):
    """Goes on behind the rows of the latest round, whatever state a request went back to (ml-explore/mlx-lm#1109)."""

    refutes = "PUBLISH-1104"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        latest = line.latest
        if key(latest) == key(found.case.state):
            return after
        kv = after.kv.tolist()[len(found.case.state.kv) :]
        return dataclasses.replace(after, kv=floats([*latest.kv.tolist(), *kv]))


class WritesIntoTheStateItReturned(Remembering):
    """Reuses the memory of the features that it returned the last time."""

    refutes = "PUBLISH-1104"

    @classmethod
    def again(cls, found: Round, line: Line, after: CommittedState) -> CommittedState:
        earlier = line.states[key(found.case.state)].features
        earlier[-1:] = after.features[-1:]
        return after


class ResumesWithTheOldRows(Remembering):
    """Finds the rows of a sequence by its tokens, and so those that a preempted request had before."""

    refutes = "PUBLISH-1105"

    @classmethod
    def newcomer(cls, found: Round, after: CommittedState) -> CommittedState:
        earlier = cls.before_preemption(found)
        if earlier is None:
            return after
        kv = after.kv.copy()
        kv[: len(earlier.kv)] = earlier.kv
        return dataclasses.replace(after, kv=kv)

    @classmethod
    def before_preemption(cls, found: Round) -> CommittedState | None:
        """The latest state with the tokens of this one, of a request that was there for some rounds."""
        now = found.case.state
        states = [state for line in cls.lines.values() for state in line.states.values() if len(line.states) > 1]
        alike = [state for state in states if found.output and sequence(state) == sequence(now)]
        return alike[-1] if alike and len(alike[-1].kv) == len(now.kv) else None


class DraftRowsSurvivePreemption(ResumesWithTheOldRows):
    """Keeps a preempted request's draft rows (vllm-project/vllm#28558)."""

    refutes = "PUBLISH-1105"

    @classmethod
    def newcomer(cls, found: Round, after: CommittedState) -> CommittedState:
        earlier = cls.before_preemption(found)
        if earlier is None or earlier.draft_kv is None or after.draft_kv is None:
            return after
        rows = after.draft_kv.copy()
        rows[: len(earlier.draft_kv)] = earlier.draft_kv
        return dataclasses.replace(after, draft_kv=rows)


class PlacesOfTheLastRound(Remembering):
    """Reads a request's rows where it stood the last time, if the same ones are there (vllm-project/vllm#41044)."""

    refutes = "PUBLISH-1106"
    last: ClassVar[list[Key]] = []

    @classmethod
    def batch(cls, cases: Sequence[PublishCase], states: list[CommittedState]) -> list[CommittedState]:
        places = [cls.last.index(key(case.state)) for case in cases if key(case.state) in cls.last]
        cls.last = [key(state) for state in states]
        if len(places) < len(cases) or sorted(places) == places:
            return states
        order = np.argsort(places)  # whose state stands where this one stood
        found = []
        for i, state in enumerate(states):
            kv, held = cases[order[i]].state.kv, len(cases[i].state.kv)
            found.append(dataclasses.replace(state, kv=floats([*kv.tolist(), *state.kv.tolist()[held:]])))
        return found


class PlacesOfTheFinished(Remembering):
    """Leaves the places of finished requests in the batch, and so reads others' rows once one is gone."""

    refutes = "PUBLISH-1107"
    last: ClassVar[list[CommittedState]] = []

    @classmethod
    def batch(cls, cases: Sequence[PublishCase], states: list[CommittedState]) -> list[CommittedState]:
        before, cls.last = cls.last, states
        left = [key(state) for state in before if not state.finished]
        if len(left) == len(before) or left != [key(case.state) for case in cases]:
            return states
        found = []
        for case, state, old in zip(cases, states, before):
            new = state.kv.tolist()[len(case.state.kv) :]
            found.append(dataclasses.replace(state, kv=floats([*old.kv.tolist(), *new])))
        return found
