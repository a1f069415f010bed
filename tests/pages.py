"""Pages that build an adapter: their files are written in the order of the page, and judged in between."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.running import ROOT

_BLOCK = re.compile(r"^```(\w+) (file|append|replace)=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Step = tuple[str, str, str]


def steps(page: Path, language: str = "python") -> list[Step]:
    """What the page does to its files of a language: kind, file name, text."""
    found = (match.groups() for match in _BLOCK.finditer(page.read_text(encoding="utf-8")))
    return [(kind, name, text) for spoken, kind, name, text in found if spoken == language]


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


def judge(
    folder: Path, adapter: str, target: str = "conformance", options: Sequence[str] = ()
) -> tuple[int, dict[str, list[str]], str]:
    """Exit code, clause ids by verdict, and what was printed."""
    report = folder / "report.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "conformance.plugin", "--pyargs", target),
            *(f"--impl={adapter}", "--conformance-profile=quick", f"--conformance-report={report}"),
            *("-n0", "-q", "-p", "no:cacheprovider", *options),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for outcome in json.loads(report.read_text(encoding="utf-8"))["outcomes"]:
        if not outcome.get("fixture"):  # golden cases bear the clauses of what they are compared in, whole
            found.setdefault(outcome["verdict"], []).extend(outcome["clauses"])
    return done.returncode, {word: sorted(set(ids)) for word, ids in found.items()}, done.stdout
