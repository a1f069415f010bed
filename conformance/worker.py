"""The side of the plugin that runs checks: the `check` fixture, and turning what happened into a verdict."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import shlex
import textwrap
import traceback
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.interface import AdapterError, Deviation, Implementation, load
from conformance import casefile, clauses
from conformance.check import Check, Raised
from conformance.draw import drawn
from conformance.journal import Journal
from conformance.plugin import FIXTURES, HERE
from conformance.profiles import PROFILES
from conformance.verdicts import CheckOutcome, ClauseViolation, NotProvided, Outcome, Verdict
from oracle.errors import BadInput

_CHECK = pytest.StashKey[Check]()
_PYTEST_OUTCOME = {Verdict.PASSED: "passed", Verdict.FAILED: "failed", Verdict.HARNESS_ERROR: "failed"}


def check_name(path: Path, name: str) -> str:
    """contract/file::test[parameters]: the same wherever the suite is installed."""
    return f"{path.parent.name}/{path.name}::{name}"


class Worker:
    """Runs in each worker process, or in the only process where pytest-xdist is off."""

    def __init__(self, config: pytest.Config, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.profile = PROFILES[settings["profile"]]
        if settings["shrink"] is not None:
            self.profile = dataclasses.replace(self.profile, shrink_seconds=settings["shrink"])
        if settings["examples"] is not None:
            self.profile = dataclasses.replace(self.profile, examples=settings["examples"])
        if settings["trials"] is not None:
            self.profile = dataclasses.replace(self.profile, trials=settings["trials"])
        self.replay: casefile.CaseFile | None = None
        if settings["case"]:
            self.replay = casefile.load(Path(settings["case"]))
        self.deselected = 0
        self._implementation: Implementation | None = None
        config.addinivalue_line("markers", "clauses(*ids): the clauses that a check judges")
        config.addinivalue_line("markers", "hostile: a check whose cases hold what a right implementation refuses")
        config.addinivalue_line("markers", "statistical: a check that spends a share of the run's α")

    @property
    def implementation(self) -> Implementation:
        """Loaded on first use, in the process that runs it."""
        if self._implementation is None:
            self._implementation = load(self.settings["impl"])
        return self._implementation

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Under `--case`, keep the check that the file names; under `--conformance-upto`, those of its clauses."""
        for item in items:
            if HERE in item.path.parents:  # what pytest would draw of an outcome, at great length, is told otherwise
                item.repr_failure = _told_otherwise  # type: ignore[method-assign]
        kept = list(items)
        if self.replay is not None:
            kept = [item for item in items if check_name(item.path, item.name) == self.replay.check]
        if self.settings["upto"] is not None:
            kept = [item for item in kept if _reaches(item, set(self.settings["upto"]))]
        if len(kept) < len(items):
            config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = self._once_an_operation(kept)

    def _once_an_operation(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Of an operation that is not provided one golden case says so for all: nothing else could be said of them."""
        try:
            provided = self.implementation.operations
        except AdapterError:  # each check will say why
            return items
        said: set[str] = set()
        kept = []
        for item in items:
            operation = fixture_of(item).rpartition("/")[0]
            lacking = bool(operation) and operation.rpartition("/")[2] not in provided
            if not lacking or operation not in said:
                kept.append(item)
            if lacking:
                said.add(operation)
        return kept

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.deselected += len(items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """pytest-xdist: what was left out makes the run a part of the suite; only the controller can say so."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["conformance_deselected"] = self.deselected

    @pytest.fixture
    def check(self, request: pytest.FixtureRequest) -> Iterator[Check]:
        """The implementation under test, with the cases and the evidence of this test."""
        item = request.node
        name = check_name(item.path, item.name)
        digest = hashlib.sha256(f"{self.settings['seed']}:{name}".encode()).digest()
        made = Check(
            name=name,
            contract=contract_of(item),
            clauses=clauses_of(item),
            implementation=self.implementation,
            profile=self.profile,
            seed=int.from_bytes(digest[:8], "big") % 2**20,
            journal=Journal(Path(self.settings["journal"]), name),
            replay=None if self.replay is None else self.replay.case,
            witnesses=tuple(self._witnesses(item).values()),
        )
        if self.replay is not None and item.get_closest_marker("hostile") is None:
            _validate(made.contract, self.replay.case)
        made.journal.begin()
        item.stash[_CHECK] = made
        yield made
        made.journal.close()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if HERE not in item.path.parents or (call.when != "call" and call.excinfo is None):
            return report
        outcome = self._judge(item, call)
        report.conformance = dataclasses.asdict(outcome)
        verdict = Verdict(outcome.verdict)
        report.outcome = _PYTEST_OUTCOME.get(verdict, "skipped")
        if report.outcome == "failed":
            report.longrepr = self._explain(item, call, outcome)
        elif report.outcome == "skipped":
            report.longrepr = (str(item.path), item.location[1] or 0, f"{verdict.value}: {outcome.reason}")
        else:
            report.longrepr = None
        return report

    def _judge(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Outcome:
        """The verdict of one check, from how its test ended."""
        check = item.stash.get(_CHECK, None)
        outcome = Outcome(
            check=check_name(item.path, item.name),
            contract=contract_of(item),
            fixture=fixture_of(item),
            clauses=list(clauses_of(item)),
            verdict=Verdict.PASSED.value,
            seconds=round(call.duration, 3),
        )
        if check is not None:
            outcome.statistics = [dataclasses.asdict(s) | {"sentence": s.sentence()} for s in check.statistics]
            outcome.observed = dict(check.observed)
            outcome.compared, outcome.undecided = check.compared, check.undecided
            outcome.passed_over = len(check.skipped)
        if call.excinfo is None:
            return outcome
        error = call.excinfo.value
        if isinstance(error, NotProvided) and self._required(check, error):
            outcome.verdict, outcome.reason = Verdict.FAILED.value, f"required, but {error.reason}"
        elif isinstance(error, CheckOutcome):
            outcome.verdict, outcome.reason = error.verdict.value, self._worded(error.reason, outcome)
        elif isinstance(error, pytest.skip.Exception):
            outcome.verdict, outcome.reason = Verdict.EXCLUDED.value, str(error)
        elif isinstance(error, BadInput):
            outcome.verdict, outcome.reason = Verdict.HARNESS_ERROR.value, f"the case is bad input: {error}"
        elif isinstance(error, AdapterError):
            outcome.verdict, outcome.reason = Verdict.HARNESS_ERROR.value, f"the adapter is at fault: {error}"
        else:
            outcome.verdict = Verdict.HARNESS_ERROR.value
            outcome.reason = f"the suite raised {type(error).__name__}: {error}"
            if self.replay is not None:
                outcome.reason += f" (or {self.settings['case']} holds no case of this check)"
        if isinstance(error, ClauseViolation):
            self._keep_case(outcome, error.case if error.case is not None else getattr(check, "case", None))
            self._excuse(item, outcome, error)
        return outcome

    def _deviations(self, item: pytest.Item) -> list[Deviation]:
        return [d for d in self.implementation.declaration.deviations if d.clause in clauses_of(item)]

    def _witnesses(self, item: pytest.Item) -> dict[str, Any]:
        """The cases that the declared deviations of this check name."""
        if fixture_of(item):
            return {}
        known = getattr(importlib.import_module(f"conformance.{contract_of(item)}.cases"), "WITNESSES", {})
        return {d.witness: known[d.witness] for d in self._deviations(item) if d.witness in known}

    def _excuse(self, item: pytest.Item, outcome: Outcome, error: ClauseViolation) -> None:
        """A declared deviation covers what its link reports, or the cases that it names and no other."""
        if fixture_of(item) and any(outcome.fixture.endswith(f"/{one}") for one in self._told_fixtures()):
            outcome.verdict = Verdict.KNOWN_DEVIATION.value
            return
        witnesses = [_text(outcome, case) for case in self._witnesses(item).values()]
        for deviation in self._deviations(item):
            if deviation.link or (error.case is not None and _text(outcome, error.case) in witnesses):
                outcome.verdict = Verdict.KNOWN_DEVIATION.value
                return
        if witnesses:
            outcome.reason += " (a deviation is declared here, but its witness is another case)"

    def _told_fixtures(self) -> list[str]:
        return [identity for d in self.implementation.declaration.deviations for identity in d.fixtures]

    def _required(self, check: Check | None, lacking: NotProvided) -> bool:
        names = set(self.settings["require"])
        return check is not None and bool(names & {check.contract, *lacking.operations})

    @staticmethod
    def _worded(reason: str, outcome: Outcome) -> str:
        """The reason with its clause's id filled in."""
        return reason.replace("{clause}", outcome.clauses[0] if outcome.clauses else "the contract")

    def _keep_case(self, outcome: Outcome, case: object) -> None:
        if case is None:
            return
        if outcome.fixture:
            outcome.command = f"{self.settings['command']} -k {outcome.fixture.rpartition('/')[2]}"
            return
        content = casefile.CaseFile(outcome.contract, outcome.check, tuple(outcome.clauses), case)
        path = casefile.save(content, Path(self.settings["cases"]))
        outcome.case_file = _near(path, Path(self.settings["invocation"]))
        outcome.command = f"{self.settings['command']} --case {shlex.quote(outcome.case_file)}"

    def _explain(self, item: pytest.Item, call: pytest.CallInfo[None], outcome: Outcome) -> str:
        """What a person reads of a failure."""
        lines = headline(outcome)
        error = call.excinfo.value if call.excinfo is not None else None
        case = error.case if isinstance(error, ClauseViolation) else None
        if case is not None:
            lines += ["", textwrap.indent(drawn(case), "    ")]
        wrapper = textwrap.TextWrapper(110, initial_indent="  → ", subsequent_indent="    ")
        wrapper.break_on_hyphens = wrapper.break_long_words = False  # a path stays whole
        lines.append("")
        for line in filter(str.strip, outcome.reason.splitlines()):  # an indented line is a row of a matrix
            lines += ["    " + line] if line.startswith("  ") else wrapper.wrap(line)
            wrapper.initial_indent = "    "
        if isinstance(error, Raised):
            lines += ["", *textwrap.indent(error.traceback(), "    ").splitlines()]
        if outcome.command:
            lines += ["", f"  reproduce: {outcome.command}"]
        if outcome.verdict == Verdict.HARNESS_ERROR.value and error is not None:
            lines += ["", *"".join(traceback.format_exception(error)).splitlines()[-30:]]
        return "\n".join(lines)


def _validate(contract: str, case: object) -> None:
    """Refuse a case that no implementation answers for: it says so itself, or the cases of its contract do."""
    validate = getattr(case, "validate", None)
    if validate is not None:
        validate()
        return
    of_contract = getattr(importlib.import_module(f"conformance.{contract}.cases"), "validate", None)
    if of_contract is not None:
        of_contract(case)


def _text(outcome: Outcome, case: object) -> str:
    """The case as its file would hold it: equal texts are equal cases."""
    return casefile.dumps(casefile.CaseFile(outcome.contract, outcome.check, tuple(outcome.clauses), case))


def headline(outcome: Outcome) -> list[str]:
    """Clause and sentence, looked up."""
    lines = []
    for identity in outcome.clauses:
        found = clauses.clause(identity)
        lines.append(f"{identity} ({found.group}): {found.sentence}")
    return lines


def clauses_of(item: pytest.Item) -> tuple[str, ...]:
    return tuple(identity for marker in item.iter_markers("clauses") for identity in marker.args)


def _told_otherwise(excinfo: object, style: object = None) -> str:
    return ""


def contract_of(item: pytest.Item) -> str:
    """The contract that a check belongs to: its folder's, or that of the golden case."""
    return fixture_of(item).partition("/")[0] or item.path.parent.name


def fixture_of(item: pytest.Item) -> str:
    """The golden case that an item replays, or nothing."""
    vector = getattr(getattr(item, "callspec", None), "params", {}).get("vector")
    return str(vector.name) if item.path.parent.name == FIXTURES and vector is not None else ""


def _reaches(item: pytest.Item, upto: set[str]) -> bool:
    """Whether a check judges one of these clauses; a golden case is compared whole, so it touches no other."""
    touched = set(clauses_of(item))
    return touched <= upto if fixture_of(item) else bool(touched & upto)


def _near(path: Path, folder: Path) -> str:
    """The path as one types it from `folder`."""
    try:
        return str(path.relative_to(folder))
    except ValueError:
        return str(path)
