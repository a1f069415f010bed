"""`docs/serving.md` works as it says, and lists what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from adapters.interface import CONTRACTS, CONVENTIONS
from tests.pages import apply, judge, steps
from tests.running import ROOT

PAGE = ROOT / "docs" / "serving.md"


def number(clause: str) -> int:
    return int(clause.partition("-")[2])


def test_the_page_leads_to_the_faults_it_names(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = iter(re.findall(r"^((?:PUBLISH|DECODE)-\d+ \(.*)$", page, re.MULTILINE))
    run, printed = iter(steps(PAGE)), ""
    for adapter, target, counts in (
        ("toy_server_adapter", "conformance.publish", (2, 1, 6, 1)),  # as it is; mended; with ends; mended
        ("toy_engine_adapter", "conformance.decode", (2, 1)),
    ):
        for i, count in enumerate(counts):
            for _ in range(count):
                apply(tmp_path, *next(run))
            code, verdicts, output = judge(tmp_path, adapter, target)
            if i % 2:
                assert code == 0, output[-3000:]
                continue
            lowest = next(told)
            assert code == 1 and min(verdicts["failed"], key=number) == lowest.partition(" ")[0]
            assert lowest in output
            printed += "\n".join(line.rstrip() for line in output.splitlines())
    assert not list(run) and not list(told)
    shown = next(block for block in re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "→" in block)
    assert shown.rstrip() in printed, "the page shows the failure as it is printed"


def test_the_page_lists_every_operation_and_convention() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for part in ("publish", "metrics", "decode") for name in CONTRACTS[part])
    assert all(f"| `{name}` | `{CONVENTIONS[name][0]}`" in page for name in ("draft_kv", "accepted_count"))
