"""Options that narrow a run."""

from __future__ import annotations

import json
import re

from tests.running import Suite


def test_a_run_climbs_no_higher_than_it_is_told(suite: Suite) -> None:
    report = suite.folder / "report.json"
    found = suite("--conformance-upto=ACCEPTANCE-202", f"--conformance-report={report}")
    assert found.code == 0, found.output
    content = json.loads(report.read_text(encoding="utf-8"))
    judged = {identity for outcome in content["outcomes"] for identity in outcome["clauses"]}
    assert {"ACCEPTANCE-101", "ACCEPTANCE-202"} <= judged
    assert not any(identity > "ACCEPTANCE-202" for identity in judged)
    assert content["complete"] is False, "a part of the suite is no verdict on the whole"


def test_an_unknown_clause_is_named(suite: Suite) -> None:
    for name in ("ACCEPTANCE-299", "WARPING-1", "nonsense"):
        found = suite(f"--conformance-upto={name}")
        assert found.code == 2 and f"--conformance-upto={name}: no such clause" in found.output


def test_no_time_for_shrinking_still_shows_a_case(suite: Suite) -> None:
    options = (
        "--conformance-shrink=0",
        "--conformance-upto=ACCEPTANCE-201",
        "--impl=adapters.faulty.acceptance:JudgesByTheRootRow",
    )
    found = suite(*options)
    assert found.code == 1 and "ACCEPTANCE-201 (greedy)" in found.output and found.command


def test_how_many_cases_are_drawn_is_a_whole_number(suite: Suite) -> None:
    for option, count in (("examples", "0"), ("examples", "-3"), ("trials", "many")):
        found = suite(f"--conformance-{option}={count}")
        told = f"{count}: cases and trials of a check are a whole number of at least 1"
        assert found.code == 4 and told in found.output


def test_a_statistical_check_gets_as_many_trials_as_asked_also_when_repeated(suite: Suite) -> None:
    fault = ("--impl=adapters.faulty.acceptance:AbsoluteResidual", "--conformance-shrink=0")
    found = suite(*fault, "--conformance-upto=ACCEPTANCE-401", "--conformance-trials=500", "-k", "by_evidence")
    assert found.code == 1 and re.search(r"→ 250 first tokens fell", found.output), found.output  # half, then the alarm
    assert " --conformance-trials=500 " in found.command and suite.again(found).reason == found.reason


def test_cases_that_are_not_applicable_are_counted(suite: Suite) -> None:
    found = suite("--impl=adapters.harmless.tree:Engine", "-k", "test_the_best_candidates_are_drafted")
    assert found.code == 0
    assert re.search(r"1 checks passed on \d+ cases and passed over \d+ that were not applicable", found.output)


def test_a_case_of_warping_and_one_of_proposing_are_replayed(suite: Suite) -> None:
    for name, clause in (("IgnoresTheTemperature", "ACCEPTANCE-1003"), ("FirstSiblingIsTheArgmax", "ACCEPTANCE-1106")):
        found = suite(
            f"--impl=adapters.faulty.acceptance:{name}", f"--conformance-upto={clause}", "--conformance-shrink=1"
        )
        assert found.code == 1 and clause in found.output
        again = suite.again(found)
        assert again.code == 1 and found.reason == again.reason, again.output
