"""Whole runs of the suite on a program: what its faults take down, what a person reads, which options name it."""

from __future__ import annotations

import os
import sys

import pytest

from adapters import process
from tests.running import SUITE, Suite

STRUCTURE = str(SUITE / "acceptance" / "test_structure.py")
SILENCE = str(SUITE / "acceptance" / "test_reproducibility.py")
TWO_CHECKS = ("-k", "(no_drafts or is_a_walk) and verify_greedy")
DEATH = "verify_greedy: the program ended with code 3"


def program_with(fault: str) -> tuple[str, ...]:
    return "--impl=adapters.process", "--process", f"{sys.executable} -m tests.reference_program {fault}"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_crash_takes_down_one_check(suite: Suite, workers: int) -> None:
    done = suite(*program_with("dies"), *TWO_CHECKS, target=STRUCTURE, workers=workers)
    assert (done.code, done.count("failed"), done.count("passed"), done.count("harness error")) == (1, 1, 1, 0), (
        done.output
    )
    assert done.reason == DEATH, done.output
    assert "no drafts: giving up" in done.output and "reference program" in done.output
    assert f"--process '{sys.executable} -m tests.reference_program dies'" in done.command


def test_the_command_of_a_failure_names_the_program(suite: Suite) -> None:
    done = suite(*program_with("dies"), "-k", "no_drafts and verify_greedy", target=STRUCTURE)
    again = suite.again(done)
    assert (again.code, again.reason) == (done.code, done.reason) == (1, DEATH), again.output


def test_a_crash_is_no_refusal(suite: Suite) -> None:
    done = suite(*program_with("'dies of bad input'"), "-k", "refused and verify_greedy", target=STRUCTURE)
    assert done.code == 1 and done.count("passed") == 0, done.output
    assert "the program ended with code 4" in done.reason


def test_what_it_prints_between_its_answers_is_told_by_the_clause_about_it(suite: Suite) -> None:
    done = suite(*program_with("prints"), "-k", "standard_output and verify_greedy", target=SILENCE)
    assert (done.code, done.count("failed")) == (1, 1), done.output
    assert "ACCEPTANCE-805" in done.output and "drafting …" in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--impl=adapters.process",), '--impl=adapters.process: which program? Name it with --process "COMMAND"'),
        (("--process", "cat"), "--process goes with --impl=adapters.process, and --impl=adapters.reference was given"),
        (("--impl=adapters.process", "--process", "no-such-program"), "'no-such-program': cannot be started"),
        (("--impl=adapters.process", "--process=cat", "--process-seconds=0"), "--process-seconds=0: a time above zero"),
        (("--impl=adapters.process", "--process=cat"), "the answer to the start is {id, value: {…}}, and nothing else"),
    ],
)
def test_options_that_name_no_program(suite: Suite, options: tuple[str, ...], words: str) -> None:
    done = suite(*options, target=STRUCTURE)
    assert done.code == 2 and words in done.output and "Traceback" not in done.output, done.output


def test_the_environment_names_the_program_as_well(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(process.COMMAND, f"{sys.executable} -m tests.reference_program right")
    done = suite("--impl=adapters.process", *TWO_CHECKS, target=STRUCTURE)
    assert (done.code, done.count("passed")) == (0, 2), done.output
    assert os.environ[process.COMMAND]
