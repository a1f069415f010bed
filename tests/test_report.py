"""Reports: collected, written, read back, refused when partial, and turned into the README's table."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from conformance.report import model, table, text
from conformance.verdicts import Outcome, Verdict

ROOT = Path(__file__).resolve().parents[1]


def outcome(number: int, verdict: Verdict, check: str = "") -> Outcome:
    name = f"acceptance/test_x.py::{check or f'test_{number}_{verdict.name}'}"
    return Outcome(name, "acceptance", [f"ACCEPTANCE-{number}"], verdict.value, reason=f"why {number}")


def deviation(number: int, link: str = "https://example.org/1", witness: str = "") -> dict[str, str]:
    return {"clause": f"ACCEPTANCE-{number}", "reason": "it differs", "link": link, "witness": witness}


def run(*outcomes: Outcome, deviations: tuple[dict[str, str], ...] = (), **changes: Any) -> model.Run:
    arguments: dict[str, Any] = {
        "spec": "their.adapter",
        "profile": "ci",
        "seed": 0,
        "declaration": {"name": "theirs", "version": "1", "deviations": list(deviations), "conventions": {}},
        "operations": ["verify_greedy"],
        "outcomes": list(outcomes),
        "complete": True,
        "required": [],
    }
    return model.Run.collect(**(arguments | changes))


PASSED, FAILED, KNOWN = Verdict.PASSED, Verdict.FAILED, Verdict.KNOWN_DEVIATION


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (run(outcome(101, PASSED)), 0),
        (run(outcome(101, PASSED), outcome(201, FAILED)), 1),
        (run(outcome(101, PASSED), outcome(201, Verdict.HARNESS_ERROR)), 2),
        (run(outcome(101, FAILED), outcome(201, Verdict.HARNESS_ERROR)), 2),
        (run(), 2),
        (run(outcome(101, Verdict.NOT_PROVIDED), outcome(201, Verdict.NOT_APPLICABLE)), 2),
        (run(outcome(302, KNOWN), deviations=(deviation(302),)), 0),
        (run(outcome(302, PASSED), deviations=(deviation(302),)), 1),
        (run(outcome(101, PASSED), deviations=(deviation(302),)), 1),
        (run(outcome(101, PASSED), deviations=(deviation(302),), complete=False), 0),
        (run(outcome(101, PASSED), required=["acceptance"]), 0),
        (run(outcome(101, PASSED), required=["tree"]), 1),
        (run(outcome(101, PASSED), required=["verify_sampled"]), 1),
        (run(outcome(101, PASSED), required=["verify_greedy"]), 0),
    ],
)
def test_exit_codes(found: model.Run, code: int) -> None:
    assert found.exit_code == code


def test_the_rung_is_the_highest_that_stands_with_all_below() -> None:
    assert (
        reached(run(outcome(101, PASSED), outcome(201, PASSED), outcome(301, FAILED), outcome(401, PASSED))) == "greedy"
    )
    assert reached(run(outcome(101, FAILED), outcome(201, PASSED))) is None
    beside = run(outcome(101, PASSED), outcome(201, Verdict.NOT_PROVIDED), outcome(301, PASSED))
    assert reached(beside) == "support" and beside.rungs_beside == {"acceptance": ["greedy: not provided"]}
    assert run(outcome(401, FAILED), outcome(301, FAILED)).lowest_refuted == {"acceptance": "ACCEPTANCE-301"}


def reached(found: model.Run) -> str | None:
    return found.rungs_reached.get("acceptance")


def test_every_word_is_counted() -> None:
    found = run(*(outcome(101, verdict) for verdict in Verdict if verdict is not Verdict.EXCLUDED))
    last = list(text.summary(found))[-1]
    for verdict in Verdict:
        assert f"{2 if verdict is Verdict.EXCLUDED else 1} {verdict.value}" in last  # two clauses are excluded


def test_a_report_reads_back(tmp_path: Path) -> None:
    found = run(outcome(101, PASSED), outcome(302, KNOWN), deviations=(deviation(302),))
    model.write(found, tmp_path / "deep" / "report.json")
    again = model.read(tmp_path / "deep" / "report.json")
    assert dataclasses.asdict(again) == json.loads(json.dumps(dataclasses.asdict(found)))
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: d.pop("outcomes"), "outcomes: missing"),
        (lambda d: d.update(format="other"), "format: this version reads"),
        (lambda d: d["outcomes"].append({"check": "x"}), "outcomes:"),
    ],
)
def test_partial_reports_are_refused(tmp_path: Path, spoil: Any, words: str) -> None:
    path = tmp_path / "report.json"
    model.write(run(outcome(101, PASSED)), path)
    document = json.loads(path.read_text(encoding="utf-8"))
    spoil(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(model.ReportError, match=words):
        model.read(path)


def test_an_unreadable_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(model.ReportError):
        model.read(tmp_path / "nowhere.json")
    (tmp_path / "half.json").write_text('{"format": ', encoding="utf-8")
    with pytest.raises(model.ReportError):
        model.read(tmp_path / "half.json")


def test_the_table_names_what_does_not_hold() -> None:
    found = run(
        outcome(101, PASSED),
        outcome(201, Verdict.NOT_PROVIDED),
        outcome(301, PASSED),
        outcome(302, KNOWN),
        deviations=(deviation(302, link="", witness="some_case"),),
    )
    content = table.implementations([found])
    assert "| `their.adapter` | 1 | ✓ | – | 302 |" in content
    told = table.findings([found])
    assert "### `their.adapter` 1\n\n- ACCEPTANCE-302: it differs (witness `some_case`: why 302)." in told


@pytest.mark.parametrize("name", ["README.md", "docs/findings.md"])
def test_a_page_holds_what_the_committed_reports_say(name: str) -> None:
    """`python -m conformance.report.table PAGE docs/reports/*.json` writes it."""
    page = (ROOT / name).read_text(encoding="utf-8")
    runs = [model.read(path) for path in sorted((ROOT / "docs" / "reports").glob("*.json"))]
    assert len(runs) >= 5
    assert table.written(page, runs) == page


def test_committed_reports_speak_of_no_machine() -> None:
    """No absolute path of the machine that ran them."""
    for path in sorted((ROOT / "docs" / "reports").glob("*.json")):
        written = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w:/.])/[a-z]+/[a-z.]", written), path.name


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(model.ReportError, match="once each"):
        table.replace("no markers", "conventions", "x")
    with pytest.raises(model.ReportError, match="the page has a part"):
        table.written("no markers", [])
