"""`docs/trainers.md` works as it says, and its lists are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from adapters.interface import CONTRACTS, CONVENTIONS, NUMERIC_CONVENTIONS
from conformance.clauses import clause
from tests.pages import apply, judge, steps
from tests.running import ROOT

PAGE = ROOT / "docs" / "trainers.md"


def test_the_page_leads_to_the_faults_it_names(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = re.findall(r"^((?:ROWS|LOSSES)-\d+) \(", page, re.MULTILINE)
    run, verdicts = iter(steps(PAGE)), []
    for count in (2, 1, 2, 1):  # the collator and its adapter; mended; with a loss; mended
        for _ in range(count):
            apply(tmp_path, *next(run))
        verdicts.append(judge(tmp_path, "toy_trainer_adapter"))
    assert not list(run)
    assert verdicts[0][1]["failed"] == told[:1] and verdicts[1][0] == 0
    shown = page.partition("```text\nROWS-310")[2].partition("```")[0]
    printed = "\n".join(line.rstrip() for line in verdicts[0][2].splitlines())
    assert f"ROWS-310{shown}".strip() in printed, "the page shows the failure as it is printed"
    assert sorted(verdicts[2][1]["failed"]) == sorted(told[1:]) and verdicts[3][0] == 0


def test_the_clauses_beside_a_convention_are_about_it() -> None:
    words = {"denominator_epsilon": "epsilon", "restricted_target": "renormalised", "reduction": "over t"}
    words |= {"step_decay": "0.8**s", "draft_map": "map", "rollout_gradient": "gradient"}
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ((?:LOSSES-\d+(?:, )?)+) \|$", text, re.MULTILINE)
    assert len(rows) >= 9
    for name, listed in rows:
        for identity in set(listed.split(", ")) - {"LOSSES-1101"}:  # which is about all of them
            assert words.get(name, name) in clause(identity).sentence.lower(), f"{identity} beside {name}"


def test_the_page_lists_every_operation_and_convention() -> None:
    page = PAGE.read_text(encoding="utf-8")
    cells = {name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    operations = {name for contract in ("rows", "losses", "noise", "visibility") for name in CONTRACTS[contract]}
    of_engines = {"coin_scheme", "frontier_coin", "top_k_ties", "root_in_verification", "selection_order"}
    of_engines |= {"draft_kv", "accepted_count", "fusion_order"}
    assert operations | (set(CONVENTIONS) - of_engines) | set(NUMERIC_CONVENTIONS) | {"noise_amplitude"} <= cells
