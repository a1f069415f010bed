"""`docs/adapters.md` works as it says: its files are written, run and mended in the order of the page."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import jsonschema

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


def test_the_program_of_the_page_says_what_the_page_says(tmp_path: Path) -> None:
    first, mended = steps(PAGE, "javascript")
    apply(tmp_path, *first)
    lines = dict(re.findall(r"^```json (\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    schema = json.loads((ROOT / "adapters" / "process_schema" / "messages.json").read_text(encoding="utf-8"))
    for line in "".join(lines.values()).splitlines():
        jsonschema.validate(json.loads(line), {"anyOf": schema["oneOf"], "$defs": schema["$defs"]})
    command = ["node", first[1]]
    done = subprocess.run(command, cwd=tmp_path, input=lines["suite"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(map(json.loads, done.stdout.splitlines())) == list(map(json.loads, lines["program"].splitlines()))

    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    (told,) = re.findall(r"^\$ (python -m pytest --pyargs conformance\.tree .+)$", text, re.MULTILINE)
    options = [word for word in shlex.split(told)[4:] if not word.startswith(("--impl", "--conformance"))]
    assert options[0] == "conformance.tree"
    code, found, printed = judge(tmp_path, "adapters.process", options[0], options[1:])
    assert code == 1 and found["failed"] == ["TREE-807"] and "gave no answer within 2 s" in printed
    apply(tmp_path, *mended)
    code, found, _ = judge(tmp_path, "adapters.process", options[0], options[1:])
    assert code == 0 and "failed" not in found and "TREE-807" in found["passed"]
