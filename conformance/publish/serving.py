"""Histories put through an implementation: it gets its own states back, and is judged after every step.

What a clause does not ask of a state comes from the model, so that a fault of a higher clause spoils no lower one; so
does what an implementation does not show, and what a round leaves that it has no notion of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from conformance import compare
from conformance.check import Check
from conformance.compare import is_shown
from conformance.handout import copy
from conformance.publish import asking
from conformance.publish.history import GoBack, History, Join, Keep, Leave, Preempt, Resume, Step, Together
from conformance.publish.model import Model
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle import publish as oracle
from oracle.types import CommittedState, PublishCase


@dataclass(frozen=True)
class Seen:
    """One request after a round: the case that was handed out, the state that is right, and the one found."""

    request: int
    case: PublishCase
    right: CommittedState
    found: CommittedState


@dataclass(frozen=True)
class Clause:
    """What is judged of each request of a round, and the fields of its own states that an implementation gets back.

    keeps: a state that was kept is judged, too, at every step.
    """

    judge: Callable[[Seen], None]
    fed: Sequence[str] = asking.FIELDS
    keeps: bool = False


class Serving:
    """The requests of one history, served by the implementation."""

    def __init__(self, check: Check, clause: Clause) -> None:
        self.check, self.clause = check, clause
        self.model = Model(asking.draft_kv(check))
        self.states: dict[int, CommittedState] = {}
        self.kept: dict[int, list[tuple[Any, CommittedState]]] = {}
        self.answers: dict[int, Any] = {}
        self.taken = self.published = 0

    def take(self, step: Step) -> None:
        """Take one step; `ClauseViolation` where it shows a fault, `Inapplicable` where there is nothing to judge."""
        number, self.taken = self.taken, self.taken + 1
        rounds = self.model.take(step)
        try:
            if isinstance(step, Together):
                self._publish([turn.request for turn in step.turns], rounds)
            else:
                self._other(step)
            self._judge_kept()
        except ClauseViolation as violation:
            violation.reason = f"step {number}: {violation.reason}"
            raise

    def _publish(self, names: Sequence[int], rounds: Sequence[PublishCase]) -> None:
        cases = [dataclasses.replace(case, state=self.states[name]) for name, case in zip(names, rounds)]
        truths = {name: self.model.requests[name].state() for name in names}
        self._agree(rounds, [truths[name] for name in names])
        self.states.update(truths)  # what goes on from a round that the implementation has no notion of
        for name in names:
            self.answers.pop(name, None)
        for name, case, answer in zip(names, cases, self._answers(cases)):
            if answer is None:
                continue
            try:
                found = asking.formed(answer)
                self.clause.judge(Seen(name, case, truths[name], found))
            except ClauseViolation as violation:
                raise ClauseViolation(f"request {name}: {violation.reason}") from None
            own = {field: getattr(found, field) for field in self.clause.fed if is_shown(getattr(found, field))}
            self.states[name] = dataclasses.replace(truths[name], **own)
            self.answers[name] = answer
        self.published += 1

    def _answers(self, cases: Sequence[PublishCase]) -> list[Any]:
        """The states of a batch; member by member where it has no notion of the batch, None of such a member."""
        try:
            return compare.members(self.check.call("publish", [copy(case) for case in cases]), len(cases))
        except Inapplicable as outcome:
            answers: list[Any] = []
            for case in cases if len(cases) > 1 else ():
                try:
                    answers += compare.members(self.check.call("publish", [copy(case)]), 1)
                except Inapplicable:
                    answers.append(None)
            if all(answer is None for answer in answers):
                raise outcome from None
            return answers

    def _other(self, step: Join | Keep | GoBack | Preempt | Resume | Leave) -> None:
        name = step.request
        if isinstance(step, Keep):
            self.kept.setdefault(name, []).append((self.answers.get(name), self.states[name]))
        elif isinstance(step, GoBack):
            answer, state = self.kept[name][step.to]
            self.states[name] = state
            self.answers[name] = answer
        elif isinstance(step, Leave):
            for held in (self.states, self.answers, self.kept):
                held.pop(name, None)
        else:
            self.states[name] = self.model.requests[name].state()
            self.answers.pop(name, None)

    def _judge_kept(self) -> None:
        """What was returned once and kept is still what it was."""
        for name, kept in self.kept.items() if self.clause.keeps else ():
            for number, (answer, state) in enumerate(kept):
                now = state if answer is None else asking.formed(answer)
                for field in asking.FIELDS:
                    found = getattr(now, field)
                    if is_shown(found) and not asking.same(getattr(state, field), found):
                        words = f"request {name}: {field} of the state kept as number {number} was "
                        raise ClauseViolation(f"{words}{listed(getattr(state, field))} and is now {listed(found)}")

    def _agree(self, rounds: Sequence[PublishCase], truths: Sequence[CommittedState]) -> None:
        """The oracle goes the same way as the model, round by round."""
        if self.check.is_oracle:
            return
        for ours, truth in zip(oracle.publish(rounds, asking.draft_kv(self.check)), truths):
            for field in asking.FIELDS:
                if not asking.same(getattr(truth, field), getattr(ours, field)):
                    raise HarnessError(f"the oracle and the model of many rounds disagree about {field}")


def listed(value: Any) -> str:
    """A field in plain words."""
    values = value.tolist() if hasattr(value, "tolist") else value
    return str(list(values)) if isinstance(values, (list, tuple)) else asking.said(values)


def replayed(check: Check, clause: Clause, history: History) -> None:
    """Take all steps of a history; `ClauseViolation` names the one that diverged."""
    serving, reason = Serving(check, clause), None
    for step in history.steps:
        try:
            serving.take(step)
        except Inapplicable as outcome:
            reason = outcome.reason
    if not serving.published and reason is not None:
        raise Inapplicable(reason)
