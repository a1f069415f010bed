"""The side of the plugin that speaks: smoke step, header, verdict words, the last lines, exit code, report."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance import casefile, clauses
from conformance.journal import Journal
from conformance.plugin import (
    DEFAULT_IMPLEMENTATION,
    DEFAULT_PROFILE,
    FIXTURES,
    HERE,
    PROCESS,
    command_prefix,
    profile_name,
    suite_arguments,
)
from conformance.profiles import ALPHA_OF_A_CHECK, ALPHA_OF_A_RUN, PROFILES
from conformance.report import model, text
from conformance.verdicts import Outcome, Verdict

if TYPE_CHECKING:
    from conformance.fixtures.documents import Vector

SMOKE_SECONDS = 180
_LETTERS = {
    Verdict.PASSED: (".", "PASSED", {"green": True}),
    Verdict.FAILED: ("F", "FAILED", {"red": True}),
    Verdict.NOT_PROVIDED: ("n", "NOT PROVIDED", {"yellow": True}),
    Verdict.NOT_APPLICABLE: ("a", "NOT APPLICABLE", {"yellow": True}),
    Verdict.KNOWN_DEVIATION: ("k", "KNOWN DEVIATION", {"yellow": True}),
    Verdict.UNDECIDABLE: ("u", "UNDECIDABLE", {"yellow": True}),
    Verdict.EXCLUDED: ("x", "EXCLUDED", {"yellow": True}),
    Verdict.HARNESS_ERROR: ("H", "HARNESS ERROR", {"red": True}),
}


class Controller:
    """Runs once a session, in the process that the user started."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.option
        self.config = config
        self.profile = PROFILES[profile_name(config)]
        self.spec: str = option.conformance_impl or DEFAULT_IMPLEMENTATION
        self._name_program()
        self.folder = _own_folder(config)
        self.narrowed = _is_narrowed(config)
        self.deselected = 0
        self.places: dict[str, str] = {}
        self.uncollected: list[str] = []
        self.foreign_failures = 0
        self.complaints: list[str] = []
        self.outcomes: dict[str, Outcome] = {}
        self.smoke: dict[str, Any] = {}
        self.run: model.Run | None = None
        seed = option.conformance_seed
        if seed is None:
            seed = 0 if self.profile.repeatable else random.SystemRandom().randrange(2**31)
        invocation = Path(str(config.invocation_params.dir))
        self.settings: Mapping[str, Any] = {
            "impl": self.spec,
            "profile": self.profile.name,
            "shrink": config.option.conformance_shrink,
            "examples": config.option.conformance_examples,
            "trials": config.option.conformance_trials,
            "upto": self._upto(option.conformance_upto),
            "seed": seed,
            "case": str((invocation / option.conformance_case).resolve()) if option.conformance_case else "",
            "require": [name.strip() for name in option.conformance_require.split(",") if name.strip()],
            "journal": tempfile.mkdtemp(prefix="conformance-journal-"),
            "cases": str(self.folder / "cases"),
            "invocation": str(invocation),
            "command": self._command(seed),
            "timeout": (getattr(option, "timeout", None), getattr(option, "timeout_method", None)),
        }
        self._check_requirements()
        if self.settings["case"]:
            try:
                casefile.load(Path(self.settings["case"]))
            except casefile.CaseFileError as error:
                pytest.exit(f"--case: {error}", returncode=2)
        if not option.collectonly:
            self._smoke()

    # ---- before the run

    def _name_program(self) -> None:
        """Hand the program to judge to every process of this run: they inherit the environment."""
        from adapters.process import COMMAND, SECONDS

        option = self.config.option
        command, seconds = option.conformance_process, option.conformance_process_seconds
        if self.spec.partition(":")[0] != PROCESS:
            if command is not None or seconds is not None:
                pytest.exit(f"--process goes with --impl={PROCESS}, and --impl={self.spec} was given", returncode=2)
            return
        if command is not None:
            os.environ[COMMAND] = command
        if seconds is not None:
            if not 0 < seconds < 86400:
                pytest.exit(f"--process-seconds={seconds:g}: a time above zero, of a day at most", returncode=2)
            os.environ[SECONDS] = repr(seconds)
        if not os.environ.get(COMMAND, "").strip():
            pytest.exit(f'--impl={PROCESS}: which program? Name it with --process "COMMAND"', returncode=2)

    @staticmethod
    def _upto(identity: str | None) -> list[str] | None:
        """The clauses up to `identity`, or None for all."""
        if identity is None:
            return None
        try:
            clauses.clause(identity)
        except (KeyError, OSError):
            pytest.exit(f"--conformance-upto={identity}: no such clause", returncode=2)
        known = list(clauses.clauses(identity.partition("-")[0].lower()))
        return known[: known.index(identity) + 1]

    def _command(self, seed: int) -> str:
        option = self.config.option
        here = (self.config.invocation_params.dir / "conformance").resolve() == HERE
        where = "conformance" if here and not option.pyargs else "--pyargs conformance"
        seeded = f" --conformance-seed={seed}" if seed or option.conformance_seed is not None else ""
        profile = "" if self.profile.name == DEFAULT_PROFILE else f" --conformance-profile={self.profile.name}"
        process = f" --process {shlex.quote(option.conformance_process)}" if option.conformance_process else ""
        # a chunk of a sample depends on how many trials there are
        trials = f" --conformance-trials={option.conformance_trials}" if option.conformance_trials else ""
        return f"{command_prefix()} {where} --impl={shlex.quote(self.spec)}{process}{profile}{seeded}{trials}"

    def _check_requirements(self) -> None:
        from adapters.interface import CONTRACTS, OPERATIONS

        for name in self.settings["require"]:
            if name not in CONTRACTS and name not in OPERATIONS:
                pytest.exit(
                    f"--require: {name!r} is neither a contract ({', '.join(CONTRACTS)}) nor an operation", returncode=2
                )

    def _smoke(self) -> None:
        """Judge the adapter in a process of its own, which may crash or hang."""
        handle, name = tempfile.mkstemp(prefix="conformance-smoke-", suffix=".json")
        os.close(handle)
        path = Path(name)
        ended, output = smoke_process(self.spec, name)
        try:
            self.smoke = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.smoke = {}
        path.unlink(missing_ok=True)
        if not self.smoke.get("done"):
            step = self.smoke.get("step", "starting")
            tail = "\n".join(output.strip().splitlines()[-12:])
            pytest.exit(f"smoke step, {step}: {ended}\n{tail}", returncode=2)
        if self.smoke["problems"]:
            listed = "\n  ".join(self.smoke["problems"])
            pytest.exit(f"smoke step: the adapter cannot be judged yet; for its author:\n  {listed}", returncode=2)
        if not self.smoke["operations"]:
            pytest.exit(f"smoke step: {self.spec} provides none of the operations: nothing to check", returncode=2)

    def pytest_report_header(self) -> list[str]:
        if not self.smoke:
            return []
        declaration = self.smoke["declaration"]
        judged = text.judged_operations()
        missing = [name for name in judged if name not in self.smoke["operations"]]
        conventions = ", ".join(f"{k}={v}" for k, v in sorted(declaration["conventions"].items())) or "none"
        seed = f"seed {self.settings['seed']}" + ("" if self.profile.repeatable else " (drawn anew)")
        if self.config.option.conformance_seed is not None:
            seed = f"seed {self.settings['seed']}"
        return [
            f"conformance: {declaration['name']} {declaration['version']} (--impl={self.spec})",
            f"  provides {', '.join(self.smoke['operations'])}; not provided: {', '.join(missing) or 'none'}",
            f"  declares {conventions}; {len(declaration['deviations'])} known deviations; "
            f"{declaration['arithmetic']['dtype']} arithmetic",
            f"  profile {self.profile.name}, {seed}, α ≤ {ALPHA_OF_A_RUN:.0e} for the run "
            f"({ALPHA_OF_A_CHECK:.0e} a statistical check)",
            *(f"  smoke: {warning}" for warning in self.smoke["warnings"]),
        ]

    def pytest_configure_node(self, node: Any) -> None:
        """pytest-xdist: hand the settings to a worker."""
        node.workerinput["conformance"] = dict(self.settings)

    # ---- during the run

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """pytest-xdist: a worker collects, so a worker knows what was left out."""
        self.deselected += getattr(node, "workeroutput", {}).get("conformance_deselected", 0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.uncollected.append(report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """A node id is relative to the argument that named the file, so its path may be empty; this one is not."""
        self.places[nodeid] = location[0]

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """pytest-xdist: a worker died. The journal says whose fault it was, and on which case."""
        path, _, name = crashitem.partition("::")
        file = Path(self.places.get(crashitem, path))
        check = f"{file.parent.name}/{file.name}::{name}"
        journal = Journal(Path(self.settings["journal"]), check)
        remains = journal.read()
        outcome = Outcome(check, file.parent.name, [], Verdict.HARNESS_ERROR.value, "the worker process died")
        self._adopt_fixture(outcome)
        drawn = ""
        if remains is not None:
            outcome.seconds = round(remains.seconds, 1)
            limit = getattr(self.config.option, "timeout", None) or 0
            hung = bool(limit) and remains.seconds >= 0.95 * limit
            what = f"gave no answer within {limit:g} s" if hung else "killed its process (a crash or an exit)"
            if remains.calling:
                outcome.verdict, outcome.reason = Verdict.FAILED.value, f"the implementation {what}"
            else:
                outcome.reason = f"the suite itself {what}"
            drawn = self._adopt_case(outcome, remains.case_text)
            journal.close()
        report.conformance = dataclasses.asdict(outcome)
        report.longrepr = text.crash(outcome, drawn)

    def _adopt_fixture(self, outcome: Outcome) -> None:
        """Where the check replays a golden case: its contract, its clauses, and the command that replays it."""
        vector = fixture(outcome.check)
        if vector is not None:
            outcome.contract, outcome.fixture, outcome.clauses = vector.contract, vector.name, list(vector.clauses)
            outcome.command = f"{self.settings['command']} -k {vector.id}"

    def _adopt_case(self, outcome: Outcome, case_text: str) -> str:
        """Keep the case of a dead check, name its clauses, and draw it."""
        from conformance.draw import drawn

        handle, name = tempfile.mkstemp(suffix=".json")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(case_text)
        try:
            content = casefile.load(Path(name))
        except casefile.CaseFileError:
            return ""
        finally:
            Path(name).unlink()
        outcome.clauses = list(content.clauses)
        path = casefile.save(content, Path(self.settings["cases"]))
        outcome.case_file = os.path.relpath(path, self.settings["invocation"])
        outcome.command = f"{self.settings['command']} --case {shlex.quote(outcome.case_file)}"
        return drawn(content.case)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        found = getattr(report, "conformance", None)
        if found is not None:
            self.outcomes[found["check"]] = Outcome(**found)
        elif report.failed:
            self.foreign_failures += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        found = getattr(report, "conformance", None)
        if found is None:
            return None
        verdict = Verdict(found["verdict"])
        letter, word, colour = _LETTERS[verdict]
        return verdict.value, letter, (word, colour)

    # ---- after the run

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        if self.smoke and (exitstatus in (0, 1, 5) or self._stopped_early(exitstatus)):
            self.run = model.Run.collect(
                spec=self.spec,
                profile=self.profile.name,
                seed=self.settings["seed"],
                declaration=self.smoke["declaration"],
                operations=self.smoke["operations"],
                outcomes=list(self.outcomes.values()),
                complete=not self.narrowed and not self.deselected,
                required=self.settings["require"],
            )
            if self.uncollected:
                self.complaints.append(f"not collected: {', '.join(self.uncollected)}")
            if self.settings["case"] and not self.outcomes:
                check = casefile.load(Path(self.settings["case"])).check
                self.complaints.append(f"--case: {self.settings['case']}: check = {check!r}: no such check was run")
            if self.complaints:
                self.run.exit_code = 2
            if self.foreign_failures:
                self.complaints.append(f"failed beside the suite: {self.foreign_failures} other tests")
                self.run.exit_code = self.run.exit_code or 1
            self._write_report(self.run)
            session.exitstatus = self.run.exit_code
        elif self.smoke:
            session.exitstatus = 2
        result = yield
        shutil.rmtree(self.settings["journal"], ignore_errors=True)
        return result

    def _stopped_early(self, exitstatus: int) -> bool:
        """Whether `--maxfail` ended the run: pytest-xdist then says "interrupted", but there is a verdict."""
        most: int = self.config.option.maxfail or 0
        failed = sum(o.verdict in (Verdict.FAILED.value, Verdict.HARNESS_ERROR.value) for o in self.outcomes.values())
        return exitstatus == 2 and 0 < most <= failed

    def _write_report(self, run: model.Run) -> None:
        name = self.config.option.conformance_report
        if not name:
            return
        try:
            model.write(run, Path(self.settings["invocation"]) / name)
        except OSError as error:
            self.complaints.append(f"--conformance-report: {name}: {error.strerror or error}")
            run.exit_code = 2

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.run is None:
            return
        excluded = [c for contract in self.run.contracts for c in clauses.clauses(contract).values() if c.excluded]
        if excluded and self.run.complete:
            terminalreporter.stats.setdefault(Verdict.EXCLUDED.value, []).extend(excluded)
        for report in terminalreporter.stats.get(Verdict.HARNESS_ERROR.value, []):
            terminalreporter.section(f"HARNESS ERROR {report.nodeid}", sep="_")
            terminalreporter.line(str(report.longrepr))
        terminalreporter.section(f"verdict: {self.run.title}")
        for line in self.complaints:
            terminalreporter.line(line)
        for line in text.summary(self.run):
            terminalreporter.line(line)


def fixture(check: str) -> Vector | None:
    """The golden case that a check of this name replays, or None."""
    folder, _, name = check.partition("::")
    if not folder.startswith(f"{FIXTURES}/"):
        return None
    from conformance.fixtures import reading

    return next((one for one in reading.own() if f"[{one.name}]" in name), None)


def smoke_process(spec: str, file: str) -> tuple[str, str]:
    """Run the smoke step in an interpreter of its own → how that ended, and what it wrote to stderr."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    command = [sys.executable, "-P", "-m", "conformance.smoke", spec, file]
    try:
        done = subprocess.run(
            command, env=environment, timeout=SMOKE_SECONDS, capture_output=True, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        return f"no answer within {SMOKE_SECONDS} s", str(error.stderr or "")
    if done.returncode < 0:
        return f"the process died of signal {-done.returncode}", done.stderr
    return f"the process ended with code {done.returncode}", done.stderr


def _own_folder(config: pytest.Config) -> Path:
    """A folder for the cases of failures: pytest's cache, or a temporary one where that is switched off."""
    cache = getattr(config, "cache", None)
    if cache is not None:
        return Path(str(cache.mkdir("conformance")))
    return Path(tempfile.mkdtemp(prefix="conformance-"))


def _is_narrowed(config: pytest.Config) -> bool:
    """Whether the user asked for a part of the suite: then what did not run says nothing."""
    option = config.option
    narrowing = (
        "keyword",
        "markexpr",
        "conformance_case",
        "lf",
        "stepwise",
        "maxfail",
        "deselect",
        "ignore",
        "ignore_glob",
    )
    return (HERE, "") not in suite_arguments(config) or any(getattr(option, name, None) for name in narrowing)
