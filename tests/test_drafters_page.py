"""`docs/drafters.md` works as it says, and lists what the code has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from adapters.interface import CONTRACTS, CONVENTIONS
from tests.pages import apply, judge, steps
from tests.running import ROOT, environment, run

PAGE = ROOT / "docs" / "drafters.md"


def test_the_page_leads_to_the_fault_it_names(tmp_path: Path) -> None:
    (told,) = re.findall(r"^(DRAFTER-\d+ \(.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    drafter, adapter, mended = steps(PAGE)
    apply(tmp_path, *drafter)
    apply(tmp_path, *adapter)
    code, verdicts, output = judge(tmp_path, "toy_drafter_adapter", "conformance.drafter")
    lowest = min(verdicts["failed"], key=lambda clause: int(clause.partition("-")[2]))
    assert code == 1 and lowest == told.partition(" ")[0]
    assert told in output
    apply(tmp_path, *mended)
    code, _, output = judge(tmp_path, "toy_drafter_adapter", "conformance.drafter")
    assert code == 0, output[-3000:]


def test_a_pair_is_compared_as_the_page_says(tmp_path: Path) -> None:
    for step in steps(PAGE):
        apply(tmp_path, *step)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (commands,) = (block.splitlines() for block in blocks if "conformance.report.pairs" in block)
    for command in commands:
        done = run(["bash", "-c", command.replace("python", sys.executable, 1)], tmp_path, environment(tmp_path))
        assert done.code == 0, done.output
    (row,) = re.findall(r"^\| `adapters.eagle` \|.*$", done.output, re.MULTILINE)
    assert "`toy_drafter_adapter`" in done.output and "differs" not in row


def test_the_release_of_the_page_is_judged_as_it_says(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    done = run([sys.executable, "-c", text], tmp_path, environment())
    assert done.code == 0, done.output
    assert "rms_norm_eps" in done.output or "config" in done.output


def test_the_page_lists_every_operation_and_convention() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for part in ("drafter", "manifest") for name in CONTRACTS[part])
    assert f"| `fusion_order` | `{CONVENTIONS['fusion_order'][0]}`" in page
