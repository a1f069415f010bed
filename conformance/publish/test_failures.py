"""Failures in the middle of a publication: one at every change of what is stored, and the same round once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conformance import compare
from conformance.check import Check
from conformance.compare import is_shown
from conformance.handout import copy
from conformance.publish import asking, strategies
from conformance.publish.cases import (
    ALL_END,
    BACKWARDS,
    CHAIN,
    LIMIT_IN_A_TREE,
    MIXED,
    NO_DRAFTS,
    PADDED_MIDDLE,
    PERMUTED,
    PREFILLED,
    RAGGED,
    ROOTLESS,
    WHOLE,
    Rounds,
    a_round,
)
from conformance.publish.serving import listed
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle.types import CommittedState

MOST_CHANGES = 20_000
"""A publication that has more of them never ends."""
PREFIX = Rounds((a_round(CHAIN, 2, prompt=8, output=0, pending=False), a_round(CHAIN, 1, prompt=7, output=0)))
"""The second request has the first rows of the first one."""
FIRST = (
    Rounds((WHOLE,)),
    PREFIX,
    RAGGED,
    MIXED,
    ALL_END,
    Rounds((PERMUTED, BACKWARDS)),
    Rounds((LIMIT_IN_A_TREE, ROOTLESS, PADDED_MIDDLE)),
    Rounds((PREFILLED, NO_DRAFTS)),
)


@pytest.mark.clauses("PUBLISH-1201")
def test_a_failure_leaves_every_state_as_it_was(check: Check) -> None:
    def body(call: Rounds) -> None:
        judged = 0
        for step, states in failures(check, call):
            for member, (case, state) in enumerate(zip(call.rounds, states)):
                for name in asking.FIELDS:
                    was, now = getattr(case.state, name), getattr(state, name)
                    judged += is_shown(now)
                    if is_shown(now) and not asking.same(was, now):
                        words = f"a failure at change {step} of the publication leaves member {member} with another "
                        raise ClauseViolation(f"{words}{name}: it was {listed(was)}, and is {listed(now)}")
        if not judged:
            raise ClauseViolation("the publication changes nothing that could fail")

    every(check, body)


@pytest.mark.clauses("PUBLISH-1202")
def test_after_a_failure_the_round_is_published_as_if_nothing_had_happened(check: Check) -> None:
    check.require("publish")

    def body(call: Rounds) -> None:
        for step, _ in failures(check, call):
            try:
                asking.batch(check, call)
            except Inapplicable:
                raise
            except ClauseViolation as violation:
                raise ClauseViolation(f"after a failure at change {step}: {violation.reason}") from violation

    every(check, body)


def every(check: Check, body: Callable[[Rounds], None]) -> None:
    """Batches by name and drawn ones; each is published as often as it has changes."""
    check.require("interrupted_publish")
    check.for_all(strategies.batches(least=1), body, examples=max(5, asking.few(check) // 5), first=FIRST)


def failures(check: Check, call: Rounds) -> Iterator[tuple[int, list[CommittedState]]]:
    """Each change at which a publication can fail, and the states that are found afterwards."""
    for step in range(MOST_CHANGES):
        found = check.call("interrupted_publish", [copy(case) for case in call.rounds], step)
        if found is None:
            return
        yield step, [asking.formed(state) for state in compare.members(found, len(call.rounds))]
    raise HarnessError(f"a publication of {len(call.rounds)} requests has more than {MOST_CHANGES} changes")
