"""The suite refutes every faulty verifier, at the clause declared beforehand, and no harmless one.

Each run is a process of its own, and climbs to the clause that the fault declares; there is one for each clause. It
goes over few drawn cases first, and over all that the profile has where these do not refute it. With FAULTS_AT_LENGTH
set all faults run, with all cases, and climb on: what one refutes above its clause must be a consequence that the
specification names (`implies`); and right ones get as many cases as the profile has.
"""

from __future__ import annotations

import json
import os
import re
from types import ModuleType
from typing import Any

import pytest

from adapters.faulty import (
    acceptance,
    decode,
    drafter,
    losses,
    manifest,
    metrics,
    noise,
    publish,
    rows,
    training,
    tree,
    visibility,
)
from adapters.harmless import acceptance as harmless
from adapters.harmless import decode as harmless_decode
from adapters.harmless import drafter as harmless_drafter
from adapters.harmless import losses as harmless_losses
from adapters.harmless import manifest as harmless_manifest
from adapters.harmless import metrics as harmless_metrics
from adapters.harmless import noise as harmless_noise
from adapters.harmless import others, paged
from adapters.harmless import publish as harmless_publish
from adapters.harmless import rows as harmless_rows
from adapters.harmless import tree as harmless_tree
from adapters.harmless import visibility as harmless_visibility
from adapters.interface import Declaration
from conformance import clauses
from tests.running import ROOT, SUITE, Suite, environment, run_warm

FAULTY = {
    "acceptance": (acceptance,),
    "rows": (rows,),
    "losses": (losses, training),
    "noise": (noise,),
    "tree": (tree,),
    "visibility": (visibility,),
    "decode": (decode,),
    "drafter": (drafter,),
    "manifest": (manifest,),
    "metrics": (metrics,),
    "publish": (publish,),
}
RIGHT = {
    "acceptance": (harmless, others),
    "rows": (harmless_rows,),
    "losses": (harmless_losses,),
    "noise": (harmless_noise,),
    "tree": (harmless_tree,),
    "visibility": (harmless_visibility,),
    "decode": (harmless_decode,),
    "drafter": (harmless_drafter,),
    "manifest": (harmless_manifest,),
    "metrics": (harmless_metrics,),
    "publish": (harmless_publish, paged),
}
"""Contract → the modules that hold its implementations, faulty and right ones."""


def implementations(module: ModuleType) -> dict[str, Any]:
    """What a module offers: its public classes that declare something."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and not name.startswith("_") and hasattr(value, "DECLARATION")
    }


FAULTS = {
    f"{module.__name__}:{name}": fault
    for modules in FAULTY.values()
    for module in modules
    for name, fault in implementations(module).items()
    if hasattr(fault, "refutes")
}
"""What `--impl` takes → the fault."""
HARMLESS = {
    f"{module.__name__}:{name}": kind
    for modules in RIGHT.values()
    for module in modules
    for name, kind in implementations(module).items()
    if kind.__module__ == module.__name__
}
VARIANTS = {
    **{f"adapters.reference:{name}": "acceptance" for name in ("per_parent", "sample_and_match", "block")},
    **{f"adapters.reference:paged_{size}": "publish" for size in (1, 4, 16)},
}
"""Variants of the reference → the contract they are about."""


WHOLE = bool(os.environ.get("FAULTS_AT_LENGTH"))
"""Run every fault, and every check on it, also those above its clause: `make full` does."""
FEW = ("--conformance-examples=8", "--conformance-trials=500")
FIRST = {fault.refutes: name for name, fault in reversed(FAULTS.items())}
"""Clause → the first fault that names it."""


def contract_of(spec: str) -> str:
    """The contract that an implementation of ours is about."""
    module = spec.partition(":")[0]
    named = {m.__name__: contract for kinds in (FAULTY, RIGHT) for contract, modules in kinds.items() for m in modules}
    return VARIANTS.get(spec) or named[module]


def judge(suite: Suite, spec: str, profile: str = "quick", *options: str) -> tuple[int, dict[str, Any], str]:
    """Run its contract on `spec` → exit code, report, output."""
    report = suite.folder / f"{profile}.json"
    chosen = [f"--impl={spec}", f"--conformance-profile={profile}", f"--conformance-report={report}"]
    chosen.append("--conformance-shrink=0")  # what is refuted does not depend on how small the case gets
    folder = str(SUITE / contract_of(spec))
    done = run_warm(
        suite.arguments(*chosen, *options, target=folder), ROOT, environment(OMP_NUM_THREADS="1"), limit=900
    )
    assert report.exists(), f"{spec}: no report\n{done.output[-3000:]}"
    return done.code, json.loads(report.read_text(encoding="utf-8")), done.output


def assert_refuted(found: tuple[int, dict[str, Any], str], clause: str) -> None:
    """The declared clause is the lowest refuted one, and the others follow from it."""
    code, report, output = found
    assert report["refuted"][:1] == [clause], f"refuted: {report['refuted']}\n{output[-3000:]}"
    assert report["lowest_refuted"] == {clauses.clause(clause).contract: clause}
    unexplained = set(report["refuted"]) - {clause} - clauses.clause(clause).implies
    assert not unexplained, f"{clause} does not imply {sorted(unexplained)}"
    assert code == 1


@pytest.mark.parametrize("spec", FAULTS if WHOLE else sorted(FIRST.values()))
def test_a_fault_is_refuted_at_its_clause(spec: str, suite: Suite) -> None:
    fault = FAULTS[spec]
    climbs = [] if WHOLE else [f"--conformance-upto={fault.refutes}"]
    found = judge(suite, spec, "quick", *climbs, *([] if WHOLE else FEW))
    if not WHOLE and not found[1]["refuted"]:
        found = judge(suite, spec, "quick", *climbs)
    seen_in = getattr(fault, "seen_in", "quick")
    if seen_in == "quick":
        return assert_refuted(found, fault.refutes)
    # below the power of the quick profile, where nothing else may be refuted either
    code, report, output = found
    assert set(report["refuted"]) <= {fault.refutes}, output[-3000:]
    assert code == (1 if report["refuted"] else 0)
    return assert_refuted(judge(suite, spec, seen_in, "-k", "accounting"), fault.refutes)


@pytest.mark.parametrize("spec", [*HARMLESS, *VARIANTS])
def test_a_harmless_implementation_passes(spec: str, suite: Suite) -> None:
    code, report, output = judge(suite, spec, "quick", *([] if WHOLE else FEW))
    assert report["refuted"] == [], output[-3000:]
    assert code == 0, output[-3000:]


# ---- without a run


def judged_clauses(contract: str) -> set[str]:
    """The clauses that some check of the contract is marked with."""
    marks = [
        mark
        for path in (SUITE / contract).glob("test_*.py")
        for mark in re.findall(r"mark\.clauses\(([^)]*)\)", path.read_text(encoding="utf-8"))
    ]
    return {identity for mark in marks for identity in re.findall(r"[A-Z]+-\d+", mark)}


CLAUSES = [c for contract in clauses.contracts() for c in clauses.clauses(contract).values() if not c.excluded]


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda c: c.id)
def test_a_clause_has_a_check_and_a_fault(clause: clauses.Clause) -> None:
    assert clause.id in judged_clauses(clause.contract)
    assert clause.id in {fault.refutes for fault in FAULTS.values()}


@pytest.mark.parametrize("contract", clauses.contracts())
def test_no_check_judges_an_excluded_or_unknown_clause(contract: str) -> None:
    assert judged_clauses(contract) == {c.id for c in CLAUSES if c.contract == contract}


@pytest.mark.parametrize("spec", [*FAULTS, *HARMLESS])
def test_an_implementation_says_what_it_is(spec: str) -> None:
    found = FAULTS.get(spec) or HARMLESS[spec]
    assert isinstance(found.DECLARATION, Declaration)
    assert found.__doc__ and "\n" not in found.__doc__, "its docstring is one line"
    assert found.__doc__ != found.__base__.__doc__
    if spec in FAULTS:
        assert not clauses.clause(found.refutes).excluded
        assert contract_of(spec) == clauses.clause(found.refutes).contract
        assert "refutes" in vars(found), "a fault declares its own clause"
    else:
        assert not hasattr(found, "refutes")
