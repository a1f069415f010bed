"""`docs/trees.md` works as it says, and lists what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from adapters.interface import CONTRACTS
from oracle.types import MASK_FORMS
from tests.pages import apply, judge, steps
from tests.running import ROOT

PAGE = ROOT / "docs" / "trees.md"


def test_the_page_leads_to_the_faults_it_names(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = re.findall(r"^(TREE-\d+) \(", page, re.MULTILINE)
    run, verdicts = iter(steps(PAGE)), []
    for count in (2, 1, 2, 1):  # the mask and its adapter; mended; with words; mended
        for _ in range(count):
            apply(tmp_path, *next(run))
        verdicts.append(judge(tmp_path, "toy_tree_adapter", "conformance.tree"))
    assert not list(run)
    assert verdicts[0][1]["failed"] == told[:1] and verdicts[1][0] == 0
    assert verdicts[2][1]["failed"] == told[1:] and verdicts[3][0] == 0
    shown = page.partition("```text\n")[2].partition("```")[0]
    printed = "\n".join(line.rstrip() for line in verdicts[0][2].splitlines())
    assert shown.strip() in printed, "the page shows the failure as it is printed"


def test_the_page_lists_every_operation_and_form() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in CONTRACTS["tree"])
    assert all(f"`{form}`" in page for form in MASK_FORMS)
