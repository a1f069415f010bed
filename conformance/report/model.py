"""A run as data: verdicts, the rung reached, deviations and whether they are still real, the exit code."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adapters.interface import CONTRACTS
from conformance import __version__, clauses
from conformance.profiles import ALPHA_OF_A_CHECK, ALPHA_OF_A_RUN
from conformance.report import atomic
from conformance.verdicts import Outcome, Verdict

FORMAT = "eagle-conformance/report/2"
_SAYS_SOMETHING = {Verdict.PASSED, Verdict.FAILED, Verdict.KNOWN_DEVIATION, Verdict.UNDECIDABLE}


class ReportError(ValueError):
    """A report that cannot be read: the file, the field and the rule."""


@dataclass
class Run:
    """One run of the suite on one implementation."""

    spec: str
    profile: str
    seed: int
    declaration: Mapping[str, Any]
    operations: Sequence[str]
    outcomes: list[Outcome]
    complete: bool
    counts: dict[str, int] = field(default_factory=dict)
    rungs_reached: dict[str, str] = field(default_factory=dict)
    """Contract → its highest group that stands with every applicable one below it."""
    rungs_beside: dict[str, list[str]] = field(default_factory=dict)
    lowest_refuted: dict[str, str] = field(default_factory=dict)
    """Contract → the lowest clause of it that some check refuted."""
    stale: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    alpha: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    exit_code: int = 2
    suite: str = __version__
    format: str = FORMAT

    @property
    def title(self) -> str:
        return f"{self.declaration['name']} {self.declaration['version']}"

    @property
    def contracts(self) -> list[str]:
        return sorted({outcome.contract for outcome in self.outcomes})

    @property
    def checks(self) -> list[Outcome]:
        """The outcomes that clauses are judged by: golden cases stand beside them."""
        return [outcome for outcome in self.outcomes if not outcome.fixture]

    @property
    def fixtures(self) -> dict[str, dict[str, list[str]]]:
        """Contract → word → the golden cases that ended so, by operation and id."""
        found: dict[str, dict[str, list[str]]] = {}
        for outcome in self.outcomes:
            if outcome.fixture:
                name = outcome.fixture.partition("/")[2]
                found.setdefault(outcome.contract, {}).setdefault(outcome.verdict, []).append(name)
        return found

    @property
    def observed(self) -> dict[str, str]:
        """Conventions seen at work."""
        return {k: v for outcome in self.outcomes for k, v in sorted(outcome.observed.items())}

    @classmethod
    def collect(
        cls,
        spec: str,
        profile: str,
        seed: int,
        declaration: Mapping[str, Any],
        operations: Sequence[str],
        outcomes: list[Outcome],
        complete: bool,
        required: Sequence[str],
    ) -> Run:
        """Put the outcomes of a run together and reach its verdict."""
        run = cls(spec, profile, seed, declaration, operations, sorted(outcomes, key=_ladder_order), complete)
        run.counts = {word.value: 0 for word in Verdict}
        run.counts |= Counter(outcome.verdict for outcome in outcomes)
        if complete:
            run.counts[Verdict.EXCLUDED.value] += sum(
                bool(c.excluded) for contract in run.contracts for c in clauses.clauses(contract).values()
            )
        run.alpha = ALPHA_OF_A_CHECK * sum(bool(outcome.statistics) for outcome in outcomes)
        run.stale = _stale(run) if complete else []
        run.missing = _missing(run, required)
        _climb(run)
        run.environment = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
            "system": platform.system(),
        }
        run.exit_code = _exit_code(run)
        return run


def clause_verdicts(run: Run) -> dict[str, list[Outcome]]:
    """Clause id → the checks that judged it, in the order of the specification."""
    judged: dict[str, list[Outcome]] = {}
    for outcome in run.checks:
        for identity in dict.fromkeys(outcome.clauses):
            judged.setdefault(identity, []).append(outcome)
    order = (identity for contract in run.contracts for identity in clauses.clauses(contract))
    return {identity: judged[identity] for identity in order if identity in judged}


def refuted(run: Run) -> list[str]:
    """The clauses that some check refuted, lowest first."""
    return [i for i, checks in clause_verdicts(run).items() if any(o.verdict == Verdict.FAILED.value for o in checks)]


def write(run: Run, path: Path) -> None:
    """Write the report as JSON; a half-written one never replaces a whole one."""
    document = dataclasses.asdict(run) | {"observed": run.observed, "refuted": refuted(run)}
    document["outcomes"] = [_brief(one) if one["fixture"] else one for one in document["outcomes"]]
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    atomic.write_text(path, text)


def _brief(outcome: dict[str, Any]) -> dict[str, Any]:
    """Of a golden case, of which there are hundreds, what there is to say."""
    return {name: value for name, value in outcome.items() if value not in ("", 0, [], {})}


def read(path: Path) -> Run:
    """Read a report. Raises `ReportError`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReportError(f"{path}: format: this version reads {FORMAT!r}")
    fields = {f.name for f in dataclasses.fields(Run)}
    missing = fields - set(document)
    if missing:
        raise ReportError(f"{path}: {', '.join(sorted(missing))}: missing, so the report is partial")
    values = {name: document[name] for name in fields}
    try:
        values["outcomes"] = [Outcome(**outcome) for outcome in values["outcomes"]]
        return Run(**values)
    except TypeError as error:
        raise ReportError(f"{path}: outcomes: {error}") from None


def _ladder_order(outcome: Outcome) -> tuple[str, int, str]:
    order = list(clauses.clauses(outcome.contract))
    first = min((order.index(i) for i in outcome.clauses if i in order), default=len(order))
    return outcome.contract, first, outcome.check


def _stale(run: Run) -> list[str]:
    """Deviations that are declared and no longer seen: they pass now, or no check is about them."""
    found = []
    for deviation in run.declaration["deviations"]:
        found += _stale_fixtures(run, deviation)
        if deviation.get("fixtures") and not (deviation["link"] or deviation["witness"]):
            continue
        checks = [outcome for outcome in run.checks if deviation["clause"] in outcome.clauses]
        if any(o.verdict == Verdict.KNOWN_DEVIATION.value for o in checks):
            continue
        spoke = [o for o in checks if o.verdict in {v.value for v in _SAYS_SOMETHING}]
        found.append(f"{deviation['clause']}: {'it passes now' if spoke else 'no check that ran is about it'}")
    return found


def _stale_fixtures(run: Run, deviation: Mapping[str, Any]) -> list[str]:
    """The golden cases that a deviation names and that do not show it."""
    verdicts = {outcome.fixture.rpartition("/")[2]: outcome.verdict for outcome in run.outcomes if outcome.fixture}
    clause, known = deviation["clause"], Verdict.KNOWN_DEVIATION.value
    return [
        f"{clause}: fixture {identity} {f'is {verdicts[identity]}' if identity in verdicts else 'is none that ran'}"
        for identity in deviation.get("fixtures", ())
        if verdicts.get(identity) != known
    ]


def _missing(run: Run, required: Sequence[str]) -> list[str]:
    """What `--require` names and the adapter lacks, where no check could say so."""
    found = []
    for name in required:
        if name in CONTRACTS and name not in run.contracts:
            lacking = [operation for operation in CONTRACTS[name] if operation not in run.operations]
            if lacking:
                found.append(f"{name}: no {', no '.join(lacking)}")
            else:
                found.append(f"{name}: this version of the suite has no check of it")
        elif name not in CONTRACTS and name not in run.operations:
            found.append(f"{name}: not provided")
    return found


def _climb(run: Run) -> None:
    """Of each contract the highest rung that stands with all applicable below it, and the lowest clause refuted."""
    for identity in refuted(run):
        run.lowest_refuted.setdefault(clauses.clause(identity).contract, identity)
    for contract in run.contracts:
        beside = run.rungs_beside.setdefault(contract, [])
        groups: dict[str, list[Outcome]] = {}
        aside: set[str] = set()
        for identity, checks in clause_verdicts(run).items():
            found = clauses.clause(identity)
            if found.contract == contract:
                groups.setdefault(found.group, []).extend(checks)
                aside |= {found.group} if found.beside else set()
        standing = True
        for group, checks in groups.items():
            words = {outcome.verdict for outcome in checks}
            if words <= {Verdict.NOT_PROVIDED.value, Verdict.NOT_APPLICABLE.value}:
                beside.append(f"{group}: {' and '.join(sorted(words))}")
                continue
            broken = words & {Verdict.FAILED.value, Verdict.KNOWN_DEVIATION.value, Verdict.HARNESS_ERROR.value}
            if group in aside:
                beside.append(f"{group}: {' and '.join(sorted(broken)) or Verdict.PASSED.value}")
            elif broken:
                standing = False
            elif Verdict.PASSED.value in words and standing:
                run.rungs_reached[contract] = group


def _exit_code(run: Run) -> int:
    """0 nothing failed, 1 something failed (or is stale, or missing), 2 could not judge."""
    if run.counts[Verdict.HARNESS_ERROR.value] or not any(run.counts[word.value] for word in _SAYS_SOMETHING):
        return 2
    if run.alpha > ALPHA_OF_A_RUN:
        return 2
    return 1 if run.counts[Verdict.FAILED.value] or run.stale or run.missing else 0
