"""`docs/adapters.md` works as it says: its files are written, run and mended in the order of the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from conformance.clauses import clause

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python (file|append|replace)=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def apply(folder: Path, kind: str, name: str, body: str) -> None:
    path = folder / name
    if kind == "file":
        path.write_text(body, encoding="utf-8")
    elif kind == "append":
        path.write_text(path.read_text(encoding="utf-8") + "\n\n" + body, encoding="utf-8")
    else:
        old, new = body.split("---\n")
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"the page replaces text that {name} holds once"
        path.write_text(text.replace(old, new), encoding="utf-8")


def judge(folder: Path) -> tuple[int, dict[str, list[str]]]:
    """Exit code, and clause ids by verdict."""
    report = folder / "report.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "conformance.plugin", "--pyargs", "conformance"),
            *("--impl=toy_adapter", "--conformance-profile=quick", f"--conformance-report={report}"),
            *("-n0", "-q", "-p", "no:cacheprovider"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for outcome in json.loads(report.read_text(encoding="utf-8"))["outcomes"]:
        found.setdefault(outcome["verdict"], []).extend(outcome["clauses"])
    return done.returncode, {word: sorted(set(ids)) for word, ids in found.items()}


def test_the_page_leads_to_the_faults_it_names(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    steps = [match.groups() for match in BLOCK.finditer(page)]
    told = re.findall(r"^(ACCEPTANCE-\d+) \(", page, re.MULTILINE)
    kinds = [kind for kind, _, _ in steps]
    assert kinds == ["file"] * 2 + ["replace"] * 2 + ["append"] + ["replace"] * 4 + ["append"] * 2 + ["replace"] * 3

    run = iter(steps)
    verdicts = []
    # the engine and its adapter; mended; with coins; mended and declared; with warping; mended and declared
    for count in (2, 2, 2, 3, 3, 2):
        for _ in range(count):
            apply(tmp_path, *next(run))
        verdicts.append(judge(tmp_path))
    assert verdicts[0][0] == 1 and verdicts[0][1]["failed"] == [told[0]]
    assert verdicts[1][0] == 0 and "failed" not in verdicts[1][1]
    assert verdicts[2][0] == 1 and verdicts[2][1]["failed"][:2] == [told[1], told[2]]
    assert set(verdicts[2][1]["failed"][2:]) <= clause(told[2]).implies, "the page names what the others follow from"
    assert verdicts[3][0] == 0 and verdicts[3][1]["known deviation"] == [told[1]]
    assert verdicts[4][0] == 1 and verdicts[4][1]["failed"] == [told[3], told[4]]
    assert verdicts[5][0] == 0 and verdicts[5][1]["known deviation"] == [told[1]]
