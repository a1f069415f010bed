"""`docs/gate.md` and the GitHub Action do what they say: commands run, quoted lines are printed, keys are told."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from conformance.cli.app import app
from conformance.gate import references
from conformance.gate.verdict import FORMAT, PARTS, WORDS, Verdict
from conformance.gate.weights import ALL_SHOWN, LIMIT_BYTES, SHOWN
from tests.running import ROOT, Finished, environment, run

PAGE = ROOT / "docs" / "gate.md"
ACTION = ROOT / ".github" / "actions" / "gate" / "action.yml"
ELSEWHERE = {"python -m pip install '.[cli]'": "tests/test_wheel.py"}
_BLOCK = re.compile(r"^```console(?: exit=(?P<exit>\d))?\n(?P<text>(?:(?!```).*\n)*)```$", re.MULTILINE)


@dataclass(frozen=True)
class Told:
    """A command, the lines that follow it on the page, and the exit code of the block's last command."""

    command: str
    lines: tuple[str, ...]
    code: int


def commands(page: str) -> Iterator[Told]:
    for block in _BLOCK.finditer(page):
        runs = [part.splitlines() for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE) if part]
        for i, (command, *lines) in enumerate(runs, 1):
            yield Told(command, tuple(lines), int(block["exit"] or 0) if i == len(runs) else 0)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """A shell in which `eagle-conformance` is this checkout's."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "eagle-conformance"
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m conformance.cli "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    return environment(PATH=f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def printed(line: str, output: str) -> bool:
    """Whether a line of the page stands in the output; `…` stands for any text, blanks of a table for any number."""
    pattern = ".*".join(re.sub(r"(\\ )+", " +", re.escape(part)) for part in line.split("…"))
    return re.search(f"^{pattern} *$", output, re.MULTILINE) is not None


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path, shell: dict[str, str]) -> None:
    told = list(commands(PAGE.read_text(encoding="utf-8")))
    assert len(told) > 10
    for one in told:
        if one.command in ELSEWHERE:
            assert "extra" in (ROOT / ELSEWHERE[one.command]).read_text(encoding="utf-8")
            continue
        assert one.command.startswith("eagle-conformance ")
        done = run(shlex.split(one.command), tmp_path, shell)
        assert done.code == one.code, f"{one.command}\n{done.output}"
        for line in one.lines:
            assert printed(line, done.output), f"{one.command}\nprints no {line!r}\n{done.output}"


def test_the_page_tells_of_every_part_word_and_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    document = Verdict("d", "t", None, None, 0, []).document()
    for key in (*document, *references.FLOATS, *references.IDS, "format", "dtype", "made_by"):
        assert f"`{key}`" in page, key
    keys = {"name", "word", "reason", "wanted", "numbers", "findings", "clause", "field", "message"}
    assert all(f"`{key}`" in page for key in keys | {"trainer", "server", "agree"})
    assert f"`{FORMAT}`" in page and f"`{references.FORMAT}`" in page
    assert all(f"| {word} |" in page for word in WORDS)
    between = {"tensors", "vocabulary", "addresses", "positions"}  # `digests` to `numbers`
    assert all(f"`{name}`" in page for name in set(PARTS) - between)
    sizes = f"Of more than {ALL_SHOWN} logits or states a row {SHOWN} are judged"
    assert f"{LIMIT_BYTES >> 30} GiB" in page and sizes in " ".join(page.split())


def test_commands_of_a_checkout_name_options_that_exist() -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"--[a-z]+", block)) <= options("gate")
    assert block.startswith("python -m tools.environment cli -m conformance.cli gate ")


def options(name: str) -> set[str]:
    """The options of a command."""
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


# ---- the action


@pytest.fixture
def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return found


def test_inputs_of_the_action_are_options_and_say_what_they_are(action: dict[str, Any]) -> None:
    assert action["name"] and action["description"] and action["runs"]["using"] == "composite"
    assert all(one["description"].endswith(".") for one in action["inputs"].values())
    assert {name for name, one in action["inputs"].items() if one.get("required")} == {"drafter", "target"}
    assert all("default" in one for name, one in action["inputs"].items() if not one.get("required"))
    assert {f"--{name}" for name in action["inputs"]} - {"--drafter"} <= options("gate")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (used,) = (step for step in yaml.safe_load(example)["steps"] if "gate@" in step["uses"])
    assert set(used["with"]) <= set(action["inputs"]) and "/.github/actions/gate@" in used["uses"]


def test_steps_of_the_action_take_inputs_from_the_environment_alone(action: dict[str, Any]) -> None:
    """An input that stood in a script would be run as one."""
    install, judge = action["runs"]["steps"]
    assert install["run"] == 'python -m pip install "$SOURCE[cli]"'
    assert (ACTION.parent / install["env"]["SOURCE"].partition("}}/")[2]).resolve() == ROOT
    for step in (install, judge):
        assert step["shell"] == "bash" and "${{" not in step["run"]
    assert judge["env"] == {name.upper(): f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    output = action["outputs"]["exit-code"]["value"]
    assert output == f"${{{{ steps.{judge['id']}.outputs.exit-code }}}}"


@pytest.mark.parametrize(("require", "code"), [("digests", 0), ("reference", 2), ("$(touch run)", 2)])
def test_the_action_judges(
    require: str, code: int, action: dict[str, Any], tmp_path: Path, shell: dict[str, str]
) -> None:
    assert run(["eagle-conformance", "sample", "release"], tmp_path, shell).code == 0
    given = {"drafter": "release/drafter", "target": "release/target", "manifest": "release/manifest.toml"}
    values = {name.upper(): one.get("default", "") for name, one in action["inputs"].items()}
    values |= {name.upper(): value for name, value in given.items()} | {"REQUIRE": require}
    done = bash(action["runs"]["steps"][1]["run"], tmp_path, shell | values | {"GITHUB_OUTPUT": str(tmp_path / "out")})
    assert done.code == code, done.output
    assert (tmp_path / "out").read_text(encoding="utf-8") == f"exit-code={code}\n"
    assert not (tmp_path / "run").exists()
    if code == 0:
        assert json.loads((tmp_path / "gate.json").read_text(encoding="utf-8"))["exit_code"] == 0
        assert (tmp_path / "gate.xml").exists()


def bash(script: str, where: Path, settings: dict[str, str]) -> Finished:
    """As GitHub runs a step of the shell `bash`."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=where, env=settings, capture_output=True, text=True, check=False, timeout=120)
    return Finished(done.returncode, done.stdout + done.stderr)
