"""`docs/adapters.md` works as it says: its files are written, run and mended in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.clauses import clause
from tests.pages import apply, judge, steps
from tests.running import ROOT

PAGE = ROOT / "docs" / "adapters.md"


def test_the_page_leads_to_the_faults_it_names(tmp_path: Path) -> None:
    page, taken = PAGE.read_text(encoding="utf-8"), steps(PAGE)
    told = re.findall(r"^(ACCEPTANCE-\d+) \(", page, re.MULTILINE)
    kinds = [kind for kind, _, _ in taken]
    assert kinds == ["file"] * 2 + ["replace"] * 2 + ["append"] + ["replace"] * 4 + ["append"] * 2 + ["replace"] * 3

    run = iter(taken)
    verdicts = []
    # the engine and its adapter; mended; with coins; mended and declared; with warping; mended and declared
    for count in (2, 2, 2, 3, 3, 2):
        for _ in range(count):
            apply(tmp_path, *next(run))
        verdicts.append(judge(tmp_path, "toy_adapter"))
    assert verdicts[0][0] == 1 and verdicts[0][1]["failed"] == [told[0]]
    assert verdicts[1][0] == 0 and "failed" not in verdicts[1][1]
    assert verdicts[2][0] == 1 and verdicts[2][1]["failed"][:2] == [told[1], told[2]]
    assert set(verdicts[2][1]["failed"][2:]) <= clause(told[2]).implies, "the page names what the others follow from"
    assert verdicts[3][0] == 0 and verdicts[3][1]["known deviation"] == [told[1]]
    assert verdicts[4][0] == 1 and verdicts[4][1]["failed"] == [told[3], told[4]]
    assert verdicts[5][0] == 0 and verdicts[5][1]["known deviation"] == [told[1]]
