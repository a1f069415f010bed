"""Batches: each request by itself, wherever it stands and whoever stands beside it; and what nobody reads."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.publish import asking, strategies
from conformance.publish.cases import (
    ALL_END,
    ALONE,
    CHAINS,
    CUT,
    ENDS,
    GAPS,
    MIXED,
    NOTHING,
    PADDED,
    PERMUTED,
    RAGGED,
    ROOTLESS,
    WITHOUT_ROOT,
    Rounds,
    poisoned,
)


@pytest.mark.clauses("PUBLISH-901")
def test_a_request_of_a_ragged_batch_is_as_it_is_alone(check: Check) -> None:
    check.require("publish")
    first = [RAGGED, ALONE, Rounds(GAPS), Rounds(CHAINS), Rounds(tuple(reversed(CHAINS)))]
    check.for_all(
        strategies.batches(plain=True), lambda call: asking.batch(check, call), examples=asking.few(check), first=first
    )


@pytest.mark.clauses("PUBLISH-902")
def test_a_request_is_the_same_wherever_it_stands(check: Check) -> None:
    check.require("publish")

    def body(call: Rounds) -> None:
        size = len(call.rounds)
        for turn in range(size):
            asking.batch(check, Rounds(call.rounds[turn:] + call.rounds[:turn]))

    first = [MIXED, ALL_END, Rounds((*NOTHING, PERMUTED)), Rounds((*WITHOUT_ROOT, *NOTHING)), Rounds(ENDS[::3])]
    check.for_all(strategies.batches(), body, examples=asking.few(check), first=first)


@pytest.mark.clauses("PUBLISH-903")
@pytest.mark.parametrize("batch", ["alone", "together"])
def test_what_nobody_reads_changes_nothing(check: Check, batch: str) -> None:
    check.require("publish")
    padded = tuple(poisoned(case) for case in (*PADDED, ROOTLESS))
    cut = tuple(poisoned(case) for case in CUT)
    if batch == "alone":
        endings = ("never", "path", "limit", "both")
        drawn = strategies.anything(endings).map(lambda case: Rounds((poisoned(case),)))
        first = [Rounds((case,)) for case in (*padded, *cut)]
    else:
        drawn = strategies.batches().map(lambda call: Rounds(tuple(poisoned(case) for case in call.rounds)))
        first = [Rounds((PERMUTED, *padded)), Rounds((*cut, *padded[:2], *CHAINS[:2]))]
    check.for_all(drawn, lambda call: asking.batch(check, call), examples=asking.few(check), first=first)
