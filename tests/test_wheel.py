"""The wheel: what it ships, and the suite as a pytest plugin in an environment and a folder of its own."""

from __future__ import annotations

import email
import re
import zipfile
from pathlib import Path

import pytest

from tests.running import ROOT, Finished, environment, run

SHIPPED = {"oracle", "conformance", "adapters"}


def installed(python: Path, where: Path, *arguments: str, **settings: str) -> Finished:
    """A run from `where`, which sees the wheel and nothing of this checkout."""
    return run([str(python), "-m", *arguments], where, environment() | {"PYTHONPATH": ""} | settings)


def test_the_wheel_ships_the_three_packages_and_their_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    information = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
    assert {name.partition("/")[0] for name in names} == SHIPPED | {information}
    wanted = [
        path.relative_to(ROOT).as_posix()
        for package in SHIPPED
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in (".py", ".md", ".txt", ".json") and "__pycache__" not in path.parts
    ]
    assert "conformance/acceptance/spec.md" in wanted and "adapters/requirements/vllm.txt" in wanted
    assert sorted(set(wanted) - set(names)) == []


def test_the_wheel_ships_the_fixtures(wheel: Path) -> None:
    fixtures = [path for path in (ROOT / "fixtures").rglob("*") if path.is_file()]
    assert len(fixtures) > 30
    with zipfile.ZipFile(wheel) as archive:
        for path in fixtures:
            shipped = f"conformance/fixtures/data/{path.relative_to(ROOT / 'fixtures').as_posix()}"
            assert archive.read(shipped) == path.read_bytes()


READ = "from conformance.fixtures.reading import home, read; print(home(), len(read(home() / 'v1').vectors))"


def test_the_fixtures_are_found_where_the_wheel_is_installed(installed_python: Path, tmp_path: Path) -> None:
    done = run([str(installed_python), "-c", READ], tmp_path, environment() | {"PYTHONPATH": ""})
    assert done.code == 0, done.output
    home, count = done.output.split()
    assert Path(home).parts[-3:] == ("conformance", "fixtures", "data")
    assert int(count) > 500


def test_the_entry_point_bears_the_name_of_the_module(wheel: Path) -> None:
    """So that `-p conformance.plugin`, which a checkout needs, does not load it a second time."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert archive.read(name).decode().split() == [
            *("[console_scripts]", "eagle-conformance", "=", "conformance.cli.main:main"),
            *("[pytest11]", "conformance.plugin", "=", "conformance.plugin"),
        ]


def test_the_wheel_names_its_dependencies_and_nothing_heavy(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.partition(">")[0] for line in needed) == [
        "hypothesis",
        "networkx",
        "numpy",
        "pytest",
        "pytest-timeout",
        "pytest-xdist",
    ]


def test_the_command_line_tool_is_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    wanted = [line for line in metadata.get_all("Requires-Dist", []) if re.search("extra == .cli.", line)]
    assert sorted(re.split("[>;]", line)[0] for line in wanted) == ["junitparser", "rich", "tomli_w", "typer"]


def test_the_tool_gates_a_release_from_an_empty_folder(installed_python: Path, tmp_path: Path) -> None:
    tool = [str(installed_python.with_name("eagle-conformance"))]
    settings = environment() | {"PYTHONPATH": ""}
    assert run([*tool, "sample", "release"], tmp_path, settings).code == 0
    release = ["release/drafter", "--target=release/target", "--manifest=release/manifest.toml"]
    done = run([*tool, "gate", *release, "--impl=adapters.reference", "--junit=gate.xml"], tmp_path, settings)
    assert done.code == 0 and "implementation: fit" in done.output, done.output
    (tmp_path / "release" / "target" / "config.json").unlink()
    assert run([*tool, "gate", *release], tmp_path, settings).code == 2


def test_without_its_extra_the_tool_says_so(installed_python: Path, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['typer'] = None; from conformance.cli.main import main; sys.exit(main())"
    done = run([str(installed_python), "-c", hidden], tmp_path, environment() | {"PYTHONPATH": ""})
    assert done.code == 2 and "eagle-conformance[cli]" in done.output, done.output


def test_it_judges_the_reference_from_an_empty_folder(installed_python: Path, tmp_path: Path) -> None:
    few = ("--conformance-examples=5", "--conformance-trials=500")  # .ci/run has the reference with all of them
    options = ("--impl=adapters.reference", "--conformance-profile", "quick", *few)
    done = installed(installed_python, tmp_path, "pytest", "--pyargs", "conformance", *options)
    assert done.code == 0, done.output
    assert (done.count("failed"), done.count("harness error")) == (0, 0)
    assert done.count("passed") > 50


CHECKS = ("-k", "(no_drafts or is_a_walk) and greedy")
THEIR_ADAPTER = """
import os
from adapters.interface import Declaration
from oracle.acceptance import verify_greedy as decided

DECLARATION = Declaration("theirs", "3.1")

def verify_greedy(cases):
    if any(len(case.parent) == 0 for case in cases):
        FAULT
    return decided(cases)
"""


@pytest.mark.parametrize(("fault", "workers"), [("raise RuntimeError('theirs')", 0), ("os._exit(1)", 2)])
def test_it_judges_an_adapter_of_the_folder_and_says_how_to_see_a_failure_again(
    installed_python: Path, tmp_path: Path, fault: str, workers: int
) -> None:
    adapter = tmp_path / "their_package" / "their_adapter.py"
    adapter.parent.mkdir()
    adapter.write_text(THEIR_ADAPTER.replace("FAULT", fault), encoding="utf-8")
    (adapter.parent / "__init__.py").touch()
    target = ("--pyargs", "conformance.acceptance.test_structure", f"-n{workers}")
    options = ("--impl=their_package.their_adapter", "--conformance-profile=quick")
    done = installed(installed_python, tmp_path, "pytest", *target, *options, *CHECKS, PYTHONPATH=".")
    assert (done.code, done.count("failed"), done.count("harness error")) == (1, 1, 0), done.output
    assert "conformance: theirs 3.1 (--impl=their_package.their_adapter)" in done.output
    assert done.command.startswith("python -m pytest --pyargs conformance --impl=their_package.their_adapter ")
    again = installed(installed_python, tmp_path, *done.command.split()[2:], PYTHONPATH=".")
    assert (again.code, again.count("failed"), again.count("passed")) == (1, 1, 0), again.output
    adapter.write_text(THEIR_ADAPTER.replace("FAULT", "pass"), encoding="utf-8")
    done = installed(installed_python, tmp_path, "pytest", *target, *options, *CHECKS, PYTHONPATH=".")
    assert done.code == 0, done.output


def test_another_test_run_is_left_alone(installed_python: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("test_theirs.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    assert 'conformance.plugin' in sys.modules\n"
        "    assert not {'numpy', 'oracle', 'adapters', 'conformance.controller'} & set(sys.modules)\n",
        encoding="utf-8",
    )
    done = installed(installed_python, tmp_path, "pytest", "-p", "no:hypothesispytest")
    assert done.code == 0, done.output
    assert "verdict" not in done.output and "1 passed" in done.output
