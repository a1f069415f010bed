"""`docs/fixtures.md`: its commands run and print what it quotes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.fixtures.golden import TOLERANCES
from tests.running import ROOT, environment

PAGE = (ROOT / "docs" / "fixtures.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```console tool(?: exit=(?P<exit>\d))?\n(?P<text>(?:(?!```).*\n)*)```$", re.MULTILINE)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """A shell in which `eagle-conformance` is this checkout's."""
    (tmp_path / "bin").mkdir()
    for name, module in (("eagle-conformance", "-m conformance.cli"), ("python", "")):
        tool = tmp_path / "bin" / name
        tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n', encoding="utf-8")
        tool.chmod(0o755)
    return environment(PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", OMP_NUM_THREADS="1")


def printed(line: str, output: str) -> bool:
    """Whether a line of the page stands in the output; `…` stands for any text."""
    return re.search(".*".join(map(re.escape, line.split("…"))), output) is not None


def test_its_commands_do_what_it_says(shell: dict[str, str], tmp_path: Path) -> None:
    """One after the other, in one folder."""
    blocks = list(_BLOCK.finditer(PAGE))
    assert len(blocks) >= 5
    for block in blocks:
        runs = [part.splitlines() for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE) if part]
        for i, (command, *lines) in enumerate(runs, 1):
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=300
            )
            output = done.stdout + done.stderr
            assert done.returncode == (int(block["exit"] or 0) if i == len(runs) else 0), f"{command}\n{output}"
            assert [line for line in lines if not printed(line, output)] == [], f"{command}\n{output}"


def test_it_tells_every_tolerance() -> None:
    told = re.findall(r"^\| `(\w+)` \| (?:integers|numbers|so many|what the value|there is none)", PAGE, re.MULTILINE)
    assert sorted(told) == sorted(TOLERANCES)
