"""Runs of pytest in a process of their own, as a user starts them."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUITE = ROOT / "conformance"
SMOKE = "conformance.smoke"
_COUNT = re.compile(r"(\d+) ([a-z ]+?)(?:,| →)")


@dataclass(frozen=True)
class Finished:
    """How a run ended, and all that it printed."""

    code: int
    output: str

    @property
    def verdict(self) -> str:
        """The suite's last line, which counts every word."""
        return next(line for line in self.output.splitlines() if re.search(r" → exit \d$", line))

    def count(self, word: str) -> int:
        return {name: int(number) for number, name in _COUNT.findall(self.verdict)}[word]

    @property
    def command(self) -> str:
        """The command of the first failure that says how to see it again."""
        return re.findall(r"^ *reproduce: (.+)$", self.output, re.MULTILINE)[0]

    @property
    def reason(self) -> str:
        """The first reason of a failure, unwrapped."""
        found = re.search(r"^  → (.+(?:\n    \S.*)*)", self.output, re.MULTILINE)
        assert found, self.output
        return " ".join(found[1].split())


def environment(*paths: Path, **settings: str) -> dict[str, str]:
    """What a fresh shell would have, with `paths` and then this repository where Python looks for modules."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_", "PYTHONPATH"))}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))} | settings


def run(command: Sequence[str], where: Path, settings: Mapping[str, str], limit: float = 300) -> Finished:
    done = subprocess.run(
        command, cwd=where, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit
    )
    return Finished(done.returncode, done.stdout)


def run_warm(command: Sequence[str], where: Path, settings: Mapping[str, str], limit: float = 300) -> Finished:
    """`run` of `python -m pytest …`, in a process forked from one that has imported what every run imports.

    For tests that start the suite more than a hundred times. The smoke step is forked as well. No implementation is
    imported before the forks, and of this repository only what judges one.
    """
    assert list(command[:3]) == [sys.executable, "-m", "pytest"]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["hypothesis.strategies", "pytest_timeout", "xdist", "conformance.controller", "conformance.worker", SMOKE]
    )
    with tempfile.NamedTemporaryFile("r", suffix=".log") as output:
        process = context.Process(target=_pytest, args=(list(command[3:]), str(where), dict(settings), output.name))
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(command, limit)
        assert process.exitcode is not None
        return Finished(process.exitcode, output.read())


def _pytest(arguments: list[str], where: str, settings: dict[str, str], output: str) -> None:
    """The forked process: what `python -m pytest` does, in the folder and the environment of the run."""
    sink = os.open(output, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(sink, stream)
    os.chdir(where)
    os.environ.clear()
    os.environ.update(settings)
    paths = [path for path in settings.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [where, *paths, *(path for path in sys.path if path not in ("", where, *paths))]
    sys.argv = [str(Path(pytest.__file__).parent / "__main__.py"), *arguments]
    importlib.import_module("conformance.controller").smoke_process = _forked_smoke
    gc.freeze()  # what was there before the fork is here to stay
    code = int(pytest.main(arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _forked_smoke(spec: str, file: str) -> tuple[str, str]:
    """`conformance.controller.smoke_process`, in a fork instead of an interpreter of its own."""
    with tempfile.NamedTemporaryFile("r", suffix=".log") as errors:
        process = multiprocessing.get_context("fork").Process(target=_smoke, args=(spec, file, errors.name))
        process.start()
        process.join()
        return f"the process ended with code {process.exitcode}", errors.read()


def _smoke(spec: str, file: str, errors: str) -> None:
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    importlib.import_module(SMOKE).main(spec, Path(file))


@dataclass(frozen=True)
class Suite:
    """Runs the suite at its quick profile; `folder` holds the adapters of the test and what the run leaves."""

    folder: Path

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def arguments(self, *options: str, target: str = str(SUITE), workers: int = 0) -> list[str]:
        shared = ["-o", f"cache_dir={self.folder / 'cache'}", f"-n{workers}", "--conformance-profile=quick"]
        return [sys.executable, "-m", "pytest", target, *shared, *options]

    def __call__(self, *options: str, target: str = str(SUITE), workers: int = 0, where: Path = ROOT) -> Finished:
        return run(self.arguments(*options, target=target, workers=workers), where, environment(self.folder))

    def again(self, finished: Finished) -> Finished:
        """What the reproducing command of a failure does."""
        program, *rest = shlex.split(finished.command)
        assert program == "python"
        return run([sys.executable, *rest, "-n0"], ROOT, environment(self.folder))
