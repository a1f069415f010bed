"""The pytest plugin: options, and switching the suite on where it is asked for.

It loads in every pytest of its environment, so it imports nothing but pytest until the suite's own
folder is among the arguments; then `conformance.controller` and `conformance.worker` take over.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DEFAULT_IMPLEMENTATION = "adapters.reference"
PROCESS = "adapters.process"
"""The adapter of any program."""
PROFILE_NAMES = ("quick", "ci", "deep")
DEFAULT_PROFILE = "ci"
MOST_WORKERS = 4
FIXTURES = "fixtures"
"""The folder whose checks replay golden cases: its items are of the contracts of their cases."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "EAGLE conformance suite")
    group.addoption(
        "--impl",
        dest="conformance_impl",
        metavar="MODULE[:ATTR]",
        help=f"the adapter to judge (default: {DEFAULT_IMPLEMENTATION})",
    )
    group.addoption(
        "--process",
        dest="conformance_process",
        metavar="COMMAND",
        help=f"the program to judge, with --impl={PROCESS}: it answers JSON lines (docs/adapters.md)",
    )
    group.addoption(
        "--process-seconds",
        dest="conformance_process_seconds",
        type=float,
        metavar="N",
        help="most time that the program may take for one answer (default: 60)",
    )
    group.addoption(
        "--require",
        dest="conformance_require",
        metavar="NAMES",
        default="",
        help="contracts or operations, comma-separated: one that is not provided is a failure",
    )
    group.addoption(
        "--conformance-profile",
        dest="conformance_profile",
        choices=PROFILE_NAMES,
        help="how thorough: quick (seconds), ci (the default: minutes, repeatable), deep (new cases each time)",
    )
    group.addoption(
        "--conformance-seed",
        dest="conformance_seed",
        type=int,
        metavar="N",
        help="seed of every draw (default: 0; deep draws one and prints it)",
    )
    group.addoption(
        "--conformance-shrink",
        dest="conformance_shrink",
        type=float,
        metavar="SECONDS",
        help="most time spent on making a failing case smaller (default: 5 in quick, 20 in ci, 120 in deep)",
    )
    group.addoption(
        "--conformance-examples",
        dest="conformance_examples",
        type=_count,
        metavar="N",
        help="most cases drawn for a check (default: 25 in quick, 150 in ci, 2000 in deep); named cases all run",
    )
    group.addoption(
        "--conformance-trials",
        dest="conformance_trials",
        type=_count,
        metavar="N",
        help="most trials of a statistical check (default: 4000 in quick, 40000 in ci, 1000000 in deep)",
    )
    group.addoption(
        "--conformance-upto",
        dest="conformance_upto",
        metavar="CLAUSE",
        help="climb no higher than this clause: run the checks of it and of those below it",
    )
    group.addoption(
        "--conformance-report", dest="conformance_report", metavar="FILE", help="write the verdicts as JSON"
    )
    group.addoption(
        "--case", dest="conformance_case", metavar="FILE", help="run the one check of a case file on that case"
    )


def _count(text: str) -> int:
    """A number of cases or trials, at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: cases and trials of a check are a whole number of at least 1")
    return int(text)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Switch isolation on before pytest-xdist and pytest-timeout read their options."""
    if hasattr(config, "workerinput"):
        if "conformance" in config.workerinput and config.pluginmanager.hasplugin("timeout"):
            # a worker parses the command line again, so what was set by hand has to be set again
            config.option.timeout, config.option.timeout_method = config.workerinput["conformance"]["timeout"]
    elif targets_suite(config):
        _isolate(config)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        if "conformance" in config.workerinput:
            from conformance.worker import Worker

            config.pluginmanager.register(Worker(config, config.workerinput["conformance"]), "conformance-worker")
        return
    if not targets_suite(config):
        _refuse_stray_options(config)
        return
    if clash := name_clash():
        pytest.exit(clash, returncode=2)
    from conformance.controller import Controller
    from conformance.worker import Worker

    controller = Controller(config)
    config.pluginmanager.register(controller, "conformance-controller")
    if not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Worker(config, controller.settings), "conformance-worker")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`pytest .` in a checkout passes the suite by: it runs only where it is named."""
    if collection_path == HERE and not hasattr(config, "workerinput") and not targets_suite(config):
        return True
    return None


def targets_suite(config: pytest.Config) -> bool:
    """Whether an argument names the suite's folder, or something inside it."""
    return bool(suite_arguments(config))


def suite_arguments(config: pytest.Config) -> list[tuple[Path, str]]:
    """The arguments inside the suite's folder: the path, and the part after `::`."""
    found = []
    for argument in config.args:
        name, _, inside = str(argument).partition("::")
        if config.option.pyargs and (name == "conformance" or name.startswith("conformance.")):
            found.append((HERE.joinpath(*name.split(".")[1:]), inside))
            continue
        path = Path(os.path.abspath(config.invocation_params.dir / name)).resolve()
        if path == HERE or HERE in path.parents:
            found.append((path, inside))
    return found


def profile_name(config: pytest.Config) -> str:
    """The profile that the options ask for."""
    return config.option.conformance_profile or DEFAULT_PROFILE


def name_clash() -> str:
    """A sentence about a package of ours that another one of the same name hides, or nothing."""
    from importlib.util import find_spec

    for name in ("oracle", "adapters"):
        spec = find_spec(name)
        wanted = HERE.parent / name
        places = [Path(p).resolve() for p in (spec.submodule_search_locations or ())] if spec else []
        if wanted not in places[:1]:
            found = places[0] if places else (spec.origin if spec else "nothing")
            return (
                f"the name {name!r} resolves to {found}, which hides the suite's own package {wanted}: rename that "
                "folder, or run from another one"
            )
    return ""


def _isolate(config: pytest.Config) -> None:
    """Give the implementation processes of its own and a time limit, unless the user decided already."""
    from conformance.profiles import PROFILES

    option = config.option
    profile = PROFILES[profile_name(config)]
    manager = config.pluginmanager
    debugging = getattr(option, "usepdb", False) or getattr(option, "trace", False)
    if manager.hasplugin("xdist") and option.numprocesses is None and not debugging and not option.collectonly:
        workers = 1 if option.conformance_case else min(MOST_WORKERS, available_cores())
        option.numprocesses = workers
        # workers share the cores: numeric libraries that each take all of them slow down a hundredfold
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // workers)))
        if option.dist == "no":
            option.dist = "worksteal"
        if option.maxworkerrestart is None:
            option.maxworkerrestart = "1000"
    if manager.hasplugin("timeout") and not debugging:
        if option.timeout is None:
            option.timeout = profile.timeout
        if option.timeout_method is None:
            # a signal cannot interrupt native code, and a search that repeats its example would hang again
            option.timeout_method = "thread"


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _refuse_stray_options(config: pytest.Config) -> None:
    """Options of the suite without the suite would silently do nothing."""
    option = config.option
    given = [
        name
        for name, value in (
            ("--impl", option.conformance_impl),
            ("--process", option.conformance_process),
            ("--process-seconds", option.conformance_process_seconds),
            ("--require", option.conformance_require or None),
            ("--conformance-profile", option.conformance_profile),
            ("--conformance-seed", option.conformance_seed),
            ("--conformance-shrink", option.conformance_shrink),
            ("--conformance-examples", option.conformance_examples),
            ("--conformance-trials", option.conformance_trials),
            ("--conformance-upto", option.conformance_upto),
            ("--conformance-report", option.conformance_report),
            ("--case", option.conformance_case),
        )
        if value is not None
    ]
    if given:
        raise pytest.UsageError(
            f"{', '.join(given)}: no argument names the suite; add --pyargs conformance"
            + (" (the folder conformance here is another one)" if _other_conformance(config) else "")
        )


def _other_conformance(config: pytest.Config) -> bool:
    folder = (config.invocation_params.dir / "conformance").resolve()
    return folder.is_dir() and folder != HERE


def command_prefix() -> str:
    """How pytest was started, for the commands that a failure prints."""
    return "python -m pytest" if Path(sys.argv[0]).name == "__main__.py" else "pytest"
