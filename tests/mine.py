"""An adapter that a test writes: the oracle's greedy verifier, with one fault where a case has no drafts."""

from __future__ import annotations

from tests.running import Finished, Suite

ADAPTER = """
import ctypes, os, sys, time
from adapters.interface import Declaration, Deviation
from oracle.acceptance import verify_greedy as decided
from oracle.types import Decision

DECLARATION = Declaration("mine", "1.0", cost={"verify_greedy": 1e-4}, deviations=(DEVIATIONS))

def verify_greedy(cases):
    if any(len(case.parent) == 0 for case in cases):
        FAULT
    return decided(cases)
"""
TWO_CHECKS = ("-k", "(no_drafts or is_a_walk) and verify_greedy")
"""The first hands over a case without drafts, where the adapters below have their fault; the second does not."""


def adapter(suite: Suite, fault: str = "pass", deviations: str = "") -> str:
    suite.write("mine.py", ADAPTER.replace("FAULT", fault).replace("DEVIATIONS", deviations))
    return "--impl=mine"


def deviation(clause: str) -> str:
    return f'Deviation("{clause}", "it is as it is", link="https://example.org/1"),'


def one_sentence(finished: Finished) -> str:
    """The only line that the run prints, for whoever has to act on it."""
    (line,) = (line for line in finished.output.splitlines() if line.strip() and not line.startswith("!"))
    return line.removeprefix("Exit: ")
