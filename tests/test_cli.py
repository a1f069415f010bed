"""The command line tool: its commands and what they say, what it needs, and that nothing ends in 1 by chance."""

from __future__ import annotations

import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.theme import Theme
from typer.testing import CliRunner

from adapters.interface import CONTRACTS
from conformance.cli import main as entry
from conformance.cli.app import app
from conformance.plugin import PROFILE_NAMES
from tests.running import ROOT, environment, run

COMMANDS = ("gate", "reference", "manifest", "sample", "report", "run", "fixtures", "bench")
HEAVY = {"numpy", "hypothesis", "pytest", "networkx", "oracle", "adapters", "junitparser", "tomli_w", "torch"}


def call(*arguments: object) -> tuple[int, str]:
    """Exit code and all that was printed."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return done.exit_code, done.output


def test_every_command_explains_itself() -> None:
    code, output = call("--help")
    assert code == 0 and all(re.search(rf"^\W*{name} ", output, re.MULTILINE) for name in COMMANDS), output
    for name in COMMANDS:
        code, output = call(name, "--help")
        assert code == 0 and f"{name} [OPTIONS]" in output
    assert all(word in call("gate", "--help")[1] for word in ("0 fit", "1 unfit", "2 could not judge"))


def test_it_starts_with_nothing_heavy(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom conformance.cli.main import main\n"
        "sys.argv = ['eagle-conformance', '--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = run([sys.executable, "-c", text], tmp_path, environment())
    version, _, modules = done.output.partition("\n")
    assert done.code == 0 and version == f"eagle-conformance {importlib.import_module('conformance').__version__}"
    assert not HEAVY & set(re.findall(r"'(\w+)'", modules))


def test_it_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(entry, "find_spec", lambda name: None if name == "typer" else find_spec(name))
    assert entry.main() == 2
    assert "typer missing" in (told := capsys.readouterr().err) and "eagle-conformance[cli]" in told


def test_a_fault_of_the_tool_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def spoilt(*_: object) -> None:
        raise ZeroDivisionError("somewhere")

    monkeypatch.setattr("conformance.gate.judge.gate", spoilt)
    monkeypatch.setattr(sys, "argv", ["eagle-conformance", "gate", str(tmp_path), "--target", str(tmp_path)])
    assert entry.main() == 2
    assert "nothing was judged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [(), ("gate",), ("gate", "x"), ("guess",), ("gate", "x", "--target", "y", "--seed", "-1")]
)
def test_what_it_cannot_read_is_no_verdict(arguments: tuple[str, ...]) -> None:
    assert call(*arguments)[0] == 2


class Started:
    """Stands for `subprocess.run`."""

    def __init__(self, code: int) -> None:
        self.returncode, self.command = code, [""]

    def __call__(self, command: list[str], **_: Any) -> Started:
        self.command = command
        return self


@pytest.mark.parametrize(("pytests", "ours"), [(0, 0), (1, 1), (2, 2), (4, 2), (5, 2), (-9, 2)])
def test_run_is_a_front_of_pytest(pytests: int, ours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(pytests)
    monkeypatch.setattr(subprocess, "run", started)
    options = ("--impl", "their.adapter", "--contract", "tree", "--profile", "quick", "--report", "found.json")
    assert call("run", *options, "--", "-k", "greedy")[0] == ours
    assert started.command[started.command.index("--pyargs") + 1 :] == [
        *("conformance.tree", "--impl=their.adapter", "--conformance-profile=quick", "--conformance-report=found.json"),
        *("-k", "greedy"),
    ]


def test_run_leaves_defaults_to_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(0)
    monkeypatch.setattr(subprocess, "run", started)
    call("run")
    assert started.command[-2:] == ["--pyargs", "conformance"]
    assert "|".join(PROFILE_NAMES) in call("run", "--help")[1]
    code, output = call("run", "--contract", "conformance")
    assert code == 2 and all(name in output for name in CONTRACTS)


def test_run_judges(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "conformance.cli", "run", "--contract", "metrics", "--profile", "quick"]
    report = tmp_path / "found.json"
    done = run([*command, "--report", str(report), "--", "-n0", "-q", "-k", "accepted"], tmp_path, environment())
    assert done.code == 0 and done.count("passed") > 0, done.output
    code, output = call("report", report)
    assert code == 0 and output.startswith("reference ") and done.verdict in output


# ---- terminals


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_any_encoding_will_do(encoding: str, tmp_path: Path) -> None:
    tool = [sys.executable, "-m", "conformance.cli"]
    assert run([*tool, "sample", "release"], tmp_path, environment()).code == 0
    settings = environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    done = subprocess.run(
        [*tool, "gate", "release/drafter", "--target=release/target"], cwd=tmp_path, env=settings, capture_output=True
    )
    assert done.returncode == 0 and b"exit 0" in done.stdout, done.stderr


def test_a_reader_that_leaves_changes_no_verdict(tmp_path: Path) -> None:
    tool = shlex.join([sys.executable, "-m", "conformance.cli"])
    script = (
        f"{tool} sample release >nothing\n"
        f"{tool} gate release/drafter --target release/target --report gate.json | (exec 0<&-; sleep 4)\n"
        'exit "${PIPESTATUS[0]}"\n'
    )
    done = run(["bash", "-c", script], tmp_path, environment())
    assert done.code == 0 and (tmp_path / "gate.json").exists(), done.output


def test_a_terminal_gets_colours_and_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.cli import gate, showing

    monkeypatch.setattr(gate, "SHOWN_BYTES", 1)
    plain, written = showing.console, io.StringIO()
    call("sample", tmp_path / "release")
    release = ("gate", tmp_path / "release" / "drafter", "--target", tmp_path / "release" / "target")
    said = ("--manifest", tmp_path / "release" / "manifest.toml")

    def terminal(stderr: bool = False) -> Console:
        out = plain(stderr)
        return Console(file=written, force_terminal=True, theme=Theme(showing._STYLES), highlighter=out.highlighter)

    monkeypatch.setattr(gate, "console", terminal)
    monkeypatch.setattr(showing, "console", terminal)
    assert call(*release, *said)[0] == 0
    assert "fingerprints" in written.getvalue() and "\x1b[1;32mfit\x1b[0m: 9 fit" in written.getvalue()


# ---- stored reports


def test_a_report_is_shown_and_several_are_a_table(tmp_path: Path) -> None:
    stored = sorted((ROOT / "docs" / "reports").glob("vllm*.json"))[:3]
    code, output = call("report", stored[0])
    document = json.loads(stored[0].read_text(encoding="utf-8"))
    assert code == 0 and output.startswith(f"{document['declaration']['name']} {document['declaration']['version']}")
    assert output.rstrip().endswith(f"→ exit {document['exit_code']}")
    call("sample", tmp_path / "release")
    release = [tmp_path / "release" / "drafter", "--target", tmp_path / "release" / "target"]
    call("gate", *release, "--report", tmp_path / "gate.json")
    code, output = call("report", *stored, tmp_path / "gate.json")
    lines = output.splitlines()
    assert code == 0 and sum("(adapters.vllm" in line for line in lines) == 3
    assert any("gate" in line and " fit" in line for line in lines)
    assert call("report", tmp_path / "gate.json")[1].splitlines()[-1].endswith("→ exit 0")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", "null", "[" * 100_000, "\x00", '{"format": []}'),
        *(f'{{"format": "eagle-conformance/{name}"}}' for name in ("gate/1", "gate/9", "report/2")),
    ],
)
def test_a_broken_report_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    code, output = call("report", path)
    assert code == 2 and output.startswith("eagle-conformance: ") and len(output) < 400


def test_a_report_that_lies_of_its_form_is_refused(tmp_path: Path) -> None:
    call("sample", tmp_path / "release")
    path = tmp_path / "gate.json"
    call("gate", tmp_path / "release" / "drafter", "--target", tmp_path / "release" / "target", "--report", path)
    for key, value in (("parts", [1]), ("parts", 3), ("conventions", [{}]), ("parts", [{"name": "x"}])):
        document = json.loads(path.read_text(encoding="utf-8")) | {key: value}
        (tmp_path / "spoilt.json").write_text(json.dumps(document), encoding="utf-8")
        assert call("report", tmp_path / "spoilt.json")[0] == 2
        assert call("report", tmp_path / "spoilt.json", path)[0] == 2
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe")
    assert call("report", tmp_path / "latin.json")[0] == call("report", tmp_path / "nowhere.json")[0] == 2


# ---- tiny releases


def test_a_sample_is_made_in_an_empty_folder_alone(tmp_path: Path) -> None:
    code, output = call("sample", tmp_path, "--layout", "vllm", "--seed", 5)
    assert code == 0 and all((tmp_path / name).exists() for name in ("drafter", "target", "manifest.toml"))
    assert [line.split()[0] for line in output.splitlines()] == ["drafter", "target", "manifest"]
    assert call("sample", tmp_path)[0] == 2
    code, output = call("sample", tmp_path / "new", "--fault", "flawless")
    assert code == 2 and "other_epsilon" in output and not (tmp_path / "new").exists()
    assert call("sample", tmp_path / "new", "--layout", "onnx")[0] == 2
    assert "other_epsilon: eagle, " in call("sample", tmp_path, "--list")[1]
