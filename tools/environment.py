"""The virtual environments of this repository: built when they are first needed, shared by every clone.

    python -m tools.environment IMPL|default|cli|dev [ARGUMENT ...]
    python -m tools.environment --clean

The first form runs the environment's python on the arguments; without any it prints that python's path.
IMPL is what `--impl` takes: `adapters.vllm:triton` gets the environment of `adapters/requirements/vllm_triton.txt` or,
where there is no such file, that of `vllm.txt`.
A file that says `# same environment as: NAME` shares the one of NAME.txt.
An adapter without such a file runs in `default`: the project's own dependencies and nothing else. `cli` adds those of
the command line tool, which no implementation gets beside it. `dev` adds to these what the project's own tests need.
The project itself is never installed: commands run from its root.

An environment is a folder of ${EAGLE_CONFORMANCE_HOME:-${XDG_CACHE_HOME:-~/.cache}/eagle-conformance}. Its name
ends in a hash of all that it is made from, so a changed requirement makes a new one. It is complete once its
stamp is written, which is the last step; without the stamp it is built again. A lock keeps two builders apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "adapters" / "requirements"
CONSTRAINTS = ROOT / "constraints.txt"
STAMP = "complete"
FORMAT = 1
"""Part of every hash: counted up when environments come to be built in another way."""
_FOLDER = re.compile(r"[a-z0-9_]+-[0-9a-f]{12}(\.lock)?")
_UNINSTALL = re.compile(r"^# uninstall: (?P<names>.+)$", re.MULTILINE)
_SAME_AS = re.compile(r"^# same environment as: (?P<name>\w+)$", re.MULTILINE)
_NO_DEPS = re.compile(r"^# no-deps: (?P<names>.+)$", re.MULTILINE)


class EnvironmentFailure(Exception):
    """An environment cannot be had; the message says what to do."""


@dataclass(frozen=True)
class Recipe:
    """What an environment is made from.

    remove: packages that come along and have to go again. alone: packages that come without what they require.
    """

    name: str
    packages: tuple[str, ...]
    requirements: str = ""
    remove: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        python = f"{sys.implementation.cache_tag} {sys.version} {sys.base_prefix}"
        parts = (str(FORMAT), python, *self.packages, self.requirements, CONSTRAINTS.read_text(encoding="utf-8"))
        return home() / f"{self.name}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def home() -> Path:
    """The folder of all environments."""
    if chosen := os.environ.get("EAGLE_CONFORMANCE_HOME"):
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "eagle-conformance"


def recipe(name: str) -> Recipe:
    """The recipe of `default`, of `dev`, or of the implementation that `--impl=name` would judge."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = tuple(project["dependencies"])
    extras = project["optional-dependencies"]
    if name == "dev":
        return Recipe("dev", (*base, *extras["cli"], *extras["dev"]))
    if name == "cli":
        return Recipe("cli", (*base, *extras["cli"]))
    module, _, attribute = name.partition(":")
    short = module.rpartition(".")[2]
    variant = f"{short}_{attribute}"
    if re.fullmatch(r"\w+", variant) and (REQUIREMENTS / f"{variant}.txt").is_file():
        short = variant
    file = REQUIREMENTS / f"{short}.txt"
    if not re.fullmatch(r"\w+", short) or not file.is_file():
        return Recipe("default", base)
    text = file.read_text(encoding="utf-8")
    if shared := _SAME_AS.search(text):
        return recipe(shared["name"])
    return Recipe(short.lower(), base, text, _named(_UNINSTALL, text), _named(_NO_DEPS, text))


def _named(line: re.Pattern[str], text: str) -> tuple[str, ...]:
    return tuple(package for match in line.finditer(text) for package in match["names"].split())


def python_of(wanted: Recipe) -> Path:
    """The python of the environment, built if need be. Raises `EnvironmentFailure`."""
    python = wanted.folder / "bin" / "python"
    if _usable(wanted.folder, python):
        return python
    wanted.folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(wanted.folder.with_suffix(".lock")):
        if not _usable(wanted.folder, python):  # somebody else may have built it meanwhile
            _build(wanted, python)
    return python


def _usable(folder: Path, python: Path) -> bool:
    """Whether the build came to its end, and the interpreter below it is still there."""
    return (folder / STAMP).is_file() and os.access(python, os.X_OK)


def _build(wanted: Recipe, python: Path) -> None:
    start = time.monotonic()
    _tell(f"building {wanted.folder}")
    shutil.rmtree(wanted.folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(wanted.folder)], "venv failed; on Debian it is the package python3-venv")
    pip = [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", "--no-input"]
    install = [*pip, "install", "--constraint", str(CONSTRAINTS), *wanted.packages]
    if wanted.requirements:
        listed = wanted.folder / "requirements.txt"
        listed.write_text(wanted.requirements, encoding="utf-8")
        install += ["--requirement", str(listed)]
    _run(install, "pip could not install what the environment needs; the next run starts afresh")
    if wanted.alone:  # not compiled: of a package that needs so little, little is imported
        alone = [*pip, "install", "--no-deps", "--no-compile", *wanted.alone]
        _run(alone, "pip could not install what the requirements name; the next run starts afresh")
    if wanted.remove:
        _run([*pip, "uninstall", "--yes", *wanted.remove], "pip could not uninstall what the requirements name")
    frozen = subprocess.run([*pip, "freeze"], capture_output=True, text=True, check=False).stdout
    partial = wanted.folder / f"{STAMP}.partial"
    partial.write_text(frozen, encoding="utf-8")
    partial.rename(wanted.folder / STAMP)
    _tell(f"built {wanted.name} in {time.monotonic() - start:.0f} s")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One builder at a time; where the system has no flock, the environments are one's own to share."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _tell(f"waiting for another build of {path.stem}")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def clean() -> None:
    """Delete every environment, and nothing else that may lie beside them."""
    folder = home()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if _FOLDER.fullmatch(path.name):
            if path.is_dir():
                (path / STAMP).unlink(missing_ok=True)  # half-deleted is not complete
                shutil.rmtree(path)
            else:
                path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _run(command: Sequence[str], trouble: str) -> None:
    misleading = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET")
    environment = {name: value for name, value in os.environ.items() if name not in misleading}
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise EnvironmentFailure(trouble)


def _tell(text: str) -> None:
    print(f"environment: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 (whoever starts make may have an older one)
        _tell(f"{sys.executable} is Python {sys.version.split()[0]}; 3.11 or newer is needed: make PYTHON=python3.12 …")
        return 2
    if not arguments:
        _tell("which one? " + (__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
        return 2
    if arguments[0] == "--clean":
        clean()
        return 0
    try:
        python = str(python_of(recipe(arguments[0])))
    except EnvironmentFailure as failure:
        _tell(str(failure))
        return 2
    if len(arguments) == 1:
        print(python)
        return 0
    os.execv(python, [python, *arguments[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
