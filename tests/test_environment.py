"""The environments of `make`: which one an implementation gets, and that a half-built one is never used.

Nothing is installed here; the build itself is replaced.
"""

from __future__ import annotations

import multiprocessing
import re
import time
from pathlib import Path

import pytest

from tests.running import ROOT
from tools import environment
from tools.environment import STAMP, Recipe, recipe


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EAGLE_CONFORMANCE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("adapters.reference", "default"),
        ("adapters.faulty.acceptance:Something", "default"),
        ("their_package.their_adapter", "default"),
        ("adapters.transformers", "transformers"),
        ("adapters.vllm", "vllm"),
        ("adapters.vllm:triton", "vllm"),
        ("adapters.sglang:block", "sglang"),
        ("adapters.specforge", "trainers"),
        ("adapters.speculators:fused", "trainers"),
        ("adapters.tiny:bfloat16", "trainers"),
        ("adapters.eagle:release", "eagle_release"),
        ("adapters.eagle:serving", "trainers"),
        ("adapters.eagle_release", "eagle_release"),
        ("../../vllm", "default"),
        ("default", "default"),
        ("cli", "cli"),
        ("dev", "dev"),
    ],
)
def test_an_implementation_gets_its_environment(spec: str, name: str) -> None:
    assert recipe(spec).name == name


def test_vllm_is_rid_of_what_its_requirements_name() -> None:
    assert recipe("adapters.vllm").remove == ("torchvision", "torchaudio", "torchcodec")


def test_sglang_comes_without_what_it_requires() -> None:
    wanted = recipe("adapters.sglang")
    assert wanted.alone == ("sglang==0.5.23",) and not wanted.remove
    assert not [line for line in wanted.requirements.splitlines() if line.startswith("sglang")]


def test_a_variant_may_have_an_environment_of_its_own() -> None:
    wanted = recipe("adapters.eagle:release")
    assert wanted.alone == ("eagle-llm==1.2.1",)
    assert recipe("adapters.eagle:../release").name == "trainers"


def test_the_reference_needs_no_torch() -> None:
    assert not [package for package in recipe("default").packages if package.startswith("torch")]


def test_only_the_command_line_tool_and_the_tests_get_its_packages() -> None:
    for name in ("default", "adapters.vllm", "adapters.sglang"):
        assert not [
            package for package in recipe(name).packages if package.startswith(("typer", "rich", "junitparser"))
        ]
    assert set(recipe("default").packages) < set(recipe("cli").packages) < set(recipe("dev").packages)


def test_the_folder_is_named_after_all_that_it_is_made_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {
        Recipe("a", ("numpy",)).folder,
        Recipe("a", ("numpy", "pytest")).folder,
        Recipe("a", ("numpy",), "torch").folder,
    }
    monkeypatch.setattr(environment.sys, "version", "3.99")
    folders.add(Recipe("a", ("numpy",)).folder)
    assert len(folders) == 4
    assert all(folder.parent == home and re.fullmatch(r"a-[0-9a-f]{12}", folder.name) for folder in folders)


def test_the_home_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EAGLE_CONFORMANCE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.home() == tmp_path / "eagle-conformance"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert environment.home() == tmp_path / ".cache" / "eagle-conformance"


def fake(wanted: Recipe, python: Path, complete: bool = True) -> None:
    """A build that takes a moment and counts itself."""
    (wanted.folder / "bin").mkdir(parents=True, exist_ok=True)
    with (wanted.folder.parent / "builds").open("a") as stream:
        stream.write("built\n")
    time.sleep(0.3)
    python.touch(mode=0o755)
    if complete:
        (wanted.folder / STAMP).touch()


def build(name: str) -> None:
    environment._build = fake
    environment.python_of(Recipe(name, ()))


def test_two_builders_build_once(home: Path) -> None:
    context = multiprocessing.get_context("fork")
    builders = [context.Process(target=build, args=("a",)) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(30)
        assert builder.exitcode == 0
    assert (home / "builds").read_text() == "built\n"


def test_a_half_built_one_is_built_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Recipe("a", ())
    fake(wanted, wanted.folder / "bin" / "python", complete=False)
    monkeypatch.setattr(environment, "_build", fake)
    environment.python_of(wanted)
    environment.python_of(wanted)
    assert (home / "builds").read_text() == "built\n" * 2


def test_a_failing_build_leaves_no_stamp_and_says_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "CONSTRAINTS", home / "gone.txt")
    wanted = recipe("default")
    home.mkdir()
    (home / "gone.txt").write_text("numpy==0.0.0\n", encoding="utf-8")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(environment.EnvironmentFailure, match="could not install"):
        environment.python_of(wanted)
    assert not (wanted.folder / STAMP).exists()


def test_cleaning_leaves_what_is_not_an_environment(home: Path) -> None:
    fake(Recipe("a", ()), Recipe("a", ()).folder / "bin" / "python")
    (home / "a-0123456789ab.lock").touch()
    (home / "mine").mkdir()
    environment.clean()
    assert sorted(path.name for path in home.iterdir()) == ["builds", "mine"]
    environment.clean()


def test_every_requirement_is_pinned() -> None:
    """What a fresh machine installs is what was tried here."""
    pinned = {re.split("[=]", line)[0].lower() for line in environment.CONSTRAINTS.read_text().splitlines()}
    for name in ("default", "cli", "dev"):
        assert {re.split("[>=]", package)[0] for package in recipe(name).packages} <= pinned
    for file in (ROOT / "adapters" / "requirements").glob("*.txt"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                assert "==" in line or re.split("[>=]", line)[0] in pinned, line
        assert all("==" in package for package in recipe(f"adapters.{file.stem}").alone)
