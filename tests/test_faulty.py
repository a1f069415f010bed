"""The suite refutes every faulty verifier, at the clause declared beforehand, and no harmless one.

Each run is a process of its own, and climbs to the clause that the fault declares; there is one for each clause. With
FAULTS_AT_LENGTH set all faults run, and climb on: what one refutes above its clause must be a consequence that the
specification names (`implies`).
"""

from __future__ import annotations

import json
import os
import re
from types import ModuleType
from typing import Any

import pytest

from adapters.faulty import acceptance as faulty
from adapters.harmless import acceptance as harmless
from adapters.harmless import others
from adapters.interface import Declaration
from conformance import clauses
from tests.running import ROOT, SUITE, Suite, environment, run_warm

CONTRACT = "acceptance"


def verifiers(module: ModuleType) -> dict[str, Any]:
    """The implementations that a module offers: its public classes that declare something."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and not name.startswith("_") and hasattr(value, "DECLARATION")
        if module is faulty or value.__module__ == module.__name__
    }


FAULTS = {name: fault for name, fault in verifiers(faulty).items() if hasattr(fault, "refutes")}
HARMLESS = verifiers(harmless) | verifiers(others)
SCHEMES = ("per_parent", "sample_and_match", "block")


WHOLE = bool(os.environ.get("FAULTS_AT_LENGTH"))
"""Run every fault, and every check on it, also those above its clause: `make full` does."""
FIRST = {fault.refutes: name for name, fault in reversed(FAULTS.items())}
"""Clause → the first fault that names it."""


def judge(suite: Suite, spec: str, profile: str = "quick", *options: str) -> tuple[int, dict[str, Any], str]:
    """Run the suite on `spec` → exit code, report, output."""
    report = suite.folder / f"{profile}.json"
    chosen = [f"--impl={spec}", f"--conformance-profile={profile}", f"--conformance-report={report}"]
    chosen.append("--conformance-shrink=0")  # what is refuted does not depend on how small the case gets
    done = run_warm(suite.arguments(*chosen, *options), ROOT, environment(OMP_NUM_THREADS="1"), limit=900)
    assert report.exists(), f"{spec}: no report\n{done.output[-3000:]}"
    return done.code, json.loads(report.read_text(encoding="utf-8")), done.output


def assert_refuted(found: tuple[int, dict[str, Any], str], clause: str) -> None:
    """The declared clause is the lowest refuted one, and the others follow from it."""
    code, report, output = found
    assert report["refuted"][:1] == [clause], f"refuted: {report['refuted']}\n{output[-3000:]}"
    assert report["lowest_refuted"] == clause
    unexplained = set(report["refuted"]) - {clause} - clauses.clause(clause).implies
    assert not unexplained, f"{clause} does not imply {sorted(unexplained)}"
    assert code == 1


@pytest.mark.parametrize("name", FAULTS if WHOLE else sorted(FIRST.values()))
def test_a_fault_is_refuted_at_its_clause(name: str, suite: Suite) -> None:
    fault = FAULTS[name]
    spec = f"{faulty.__name__}:{name}"
    found = judge(suite, spec, "quick", *([] if WHOLE else [f"--conformance-upto={fault.refutes}"]))
    if fault.seen_in == "quick":
        return assert_refuted(found, fault.refutes)
    # below the power of the quick profile, where nothing else may be refuted either
    code, report, output = found
    assert set(report["refuted"]) <= {fault.refutes}, output[-3000:]
    assert code == (1 if report["refuted"] else 0)
    return assert_refuted(judge(suite, spec, fault.seen_in, "-k", "accounting"), fault.refutes)


@pytest.mark.parametrize("name", [*HARMLESS, *SCHEMES])
def test_a_harmless_implementation_passes(name: str, suite: Suite) -> None:
    module = HARMLESS[name].__module__ if name in HARMLESS else "adapters.reference"
    code, report, output = judge(suite, f"{module}:{name}")
    assert report["refuted"] == [], output[-3000:]
    assert code == 0, output[-3000:]


# ---- without a run


def judged_clauses() -> set[str]:
    """The clauses that some check of the contract is marked with."""
    marks = [
        mark
        for path in (SUITE / CONTRACT).glob("test_*.py")
        for mark in re.findall(r"mark\.clauses\(([^)]*)\)", path.read_text(encoding="utf-8"))
    ]
    return {identity for mark in marks for identity in re.findall(r"[A-Z]+-\d+", mark)}


@pytest.mark.parametrize("identity", [i for i, c in clauses.clauses(CONTRACT).items() if not c.excluded])
def test_a_clause_has_a_check_and_a_fault(identity: str) -> None:
    assert identity in judged_clauses()
    assert identity in {fault.refutes for fault in FAULTS.values()}


def test_no_check_judges_an_excluded_or_unknown_clause() -> None:
    assert judged_clauses() == {i for i, c in clauses.clauses(CONTRACT).items() if not c.excluded}


@pytest.mark.parametrize("name", [*FAULTS, *HARMLESS])
def test_an_implementation_says_what_it_is(name: str) -> None:
    (found,) = [kind[name] for kind in (FAULTS, HARMLESS) if name in kind]
    assert isinstance(found.DECLARATION, Declaration)
    assert found.__doc__ and "\n" not in found.__doc__, "its docstring is one line"
    assert found.__doc__ != found.__base__.__doc__
    if name in FAULTS:
        assert not clauses.clause(found.refutes).excluded
        assert "refutes" in vars(found), "a fault declares its own clause"
    else:
        assert not hasattr(found, "refutes")
