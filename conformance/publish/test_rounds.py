"""Many rounds: sequential decoding, rows, accounts, states that were kept, preemption, requests beside each other."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.publish.long_runs import ACCOUNTED, BELONGING, ENDING, KEPT, PREEMPTED, SEQUENTIAL, TOGETHER, judged


@pytest.mark.clauses("PUBLISH-1101")
def test_the_output_is_what_sequential_decoding_gives(check: Check) -> None:
    judged(check, SEQUENTIAL)


@pytest.mark.clauses("PUBLISH-1102")
def test_every_row_belongs_to_its_token(check: Check) -> None:
    judged(check, BELONGING)


@pytest.mark.clauses("PUBLISH-1103")
def test_every_row_is_held_or_given_back_once(check: Check) -> None:
    judged(check, ACCOUNTED)


@pytest.mark.clauses("PUBLISH-1104")
def test_a_kept_state_is_as_it_was(check: Check) -> None:
    judged(check, KEPT)


@pytest.mark.clauses("PUBLISH-1105")
def test_a_preempted_request_goes_on_with_its_own(check: Check) -> None:
    judged(check, PREEMPTED)


@pytest.mark.clauses("PUBLISH-1106")
def test_requests_do_not_disturb_each_other(check: Check) -> None:
    judged(check, TOGETHER)


@pytest.mark.clauses("PUBLISH-1107")
def test_requests_end_beside_those_that_go_on(check: Check) -> None:
    judged(check, ENDING)
