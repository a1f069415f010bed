"""What the tests of this project share."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.running import ROOT, Suite, environment, run


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Runs the suite, on adapters that the test writes."""
    return Suite(tmp_path)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since a build leaves folders behind."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("oracle", "conformance", "adapters", "fixtures", "bench", "docs", "tests", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(made), str(source)]
    done = run(command, source, environment())
    assert done.code == 0, done.output
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel; its dependencies come from the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", f"--python={python}", "--disable-pip-version-check"]
    done = run([*pip, "install", "--no-deps", "--no-index", str(wheel)], folder, environment())
    assert done.code == 0, done.output
    return python
