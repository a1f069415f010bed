"""The words of a verdict, and the exceptions by which a check reaches one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """Only `PASSED` is a pass; every word is counted in the last line of a run."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_PROVIDED = "not provided"
    NOT_APPLICABLE = "not applicable"
    KNOWN_DEVIATION = "known deviation"
    UNDECIDABLE = "undecidable"
    EXCLUDED = "excluded"
    HARNESS_ERROR = "harness error"


class CheckOutcome(Exception):
    """Raised by a check that ends in something other than a pass."""

    verdict: Verdict

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotProvided(CheckOutcome):
    """The adapter lacks `operations`, which the check calls."""

    verdict = Verdict.NOT_PROVIDED

    def __init__(self, reason: str, operations: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.operations = tuple(operations)


class Inapplicable(CheckOutcome):
    verdict = Verdict.NOT_APPLICABLE


class Undecidable(CheckOutcome):
    verdict = Verdict.UNDECIDABLE


class Excluded(CheckOutcome):
    verdict = Verdict.EXCLUDED


class HarnessError(CheckOutcome):
    """The suite is at fault, and says so."""

    verdict = Verdict.HARNESS_ERROR


class ClauseViolation(CheckOutcome):
    """The implementation breaks the clauses of this check, on `case`, for `reason`."""

    verdict = Verdict.FAILED

    def __init__(self, reason: str, case: object = None) -> None:
        super().__init__(reason)
        self.case = case


@dataclass
class Outcome:
    """What one check found, in plain values: it crosses process borders and goes into reports."""

    check: str
    contract: str
    clauses: list[str]
    verdict: str
    reason: str = ""
    case_file: str = ""
    command: str = ""
    seconds: float = 0.0
    statistics: list[Mapping[str, Any]] = field(default_factory=list)
    observed: dict[str, str] = field(default_factory=dict)
    undecided: int = 0
    passed_over: int = 0
    compared: int = 0
    fixture: str = ""
    """Where it is a golden case: contract/operation/id."""
