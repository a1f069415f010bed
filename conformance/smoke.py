"""The smoke step: it judges the adapter before the implementation, in a process of its own.

`python -m conformance.smoke SPEC FILE` loads the adapter, reads its declaration, and puts a few easy
cases through each operation. Only form is judged: shapes, dtypes, one decision a case. FILE receives
the findings as JSON; while a step runs, FILE names that step, so that a crash or a hang can be told.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapters.interface import CONTRACTS, AdapterError, Declaration, Implementation, NotApplicable, load
from conformance import compare, handout, training_cases
from conformance.acceptance import proposing, warped
from conformance.acceptance.cases import chain, coins, copy
from conformance.decode import easy as decode_cases
from conformance.drafter import easy as drafter_cases
from conformance.manifest import easy as manifest_cases
from conformance.metrics import easy as metrics_cases
from conformance.publish import easy as publish_cases
from conformance.tree import easy as tree_cases
from conformance.verdicts import ClauseViolation
from conformance.visibility import easy as visibility_cases
from oracle.types import Coins, Decision, ProposalCase, VerifyCase, WarpCase

SLOWER_THAN_DECLARED = 5.0


@dataclasses.dataclass
class Findings:
    """What the smoke step found: problems stop the run, warnings are told."""

    step: str = "importing the adapter"
    done: bool = False
    declaration: dict[str, Any] = dataclasses.field(default_factory=dict)
    operations: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)


def accept_everything(proposal: str) -> VerifyCase:
    """Three drafts that the target is certain of."""
    target = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.125, 0.5, 0.25, 0.125]]
    draft = [[0.25, 0.5, 0.125, 0.125], [0.0, 0.25, 0.25, 0.5], [0.75, 0.125, 0.0, 0.125], [0.25] * 4]
    return chain([1, 3, 0], target, None if proposal == "point" else draft, proposal)


def reject_everything(proposal: str) -> VerifyCase:
    """Two drafts that the target rules out."""
    target = [[0.0, 0.25, 0.5, 0.25], [0.75, 0.0, 0.125, 0.125], [0.25, 0.25, 0.375, 0.125]]
    draft = [[0.5, 0.25, 0.125, 0.125], [0.25, 0.5, 0.125, 0.125], [0.25] * 4]
    return chain([0, 1], target, None if proposal == "point" else draft, proposal)


def main(spec: str, path: Path) -> None:
    findings = Findings()

    def save() -> None:
        path.write_text(json.dumps(dataclasses.asdict(findings)), encoding="utf-8")

    def enter(step: str) -> None:
        findings.step = step
        save()

    save()
    try:
        implementation = load(spec)
        findings.declaration = describe(implementation)
        findings.operations = list(implementation.operations)
        findings.warnings += list(implementation.hints)
        for operation, judge in OPERATIONS.items():
            if operation in implementation.operations:
                judge(implementation, operation, findings, enter)
    except AdapterError as error:
        findings.problems.append(str(error))
    findings.done = True
    save()


def describe(implementation: Implementation) -> dict[str, Any]:
    declaration = dataclasses.asdict(dataclasses.replace(implementation.declaration, conventions={}, cost={}))
    declaration["conventions"] = dict(implementation.declaration.conventions)
    declaration["cost"] = dict(implementation.declaration.cost)
    return declaration


def verifier(implementation: Implementation, operation: str, findings: Findings, enter: Callable[[str], None]) -> None:
    """Form of the decisions on an accept-everything, a reject-everything and a ragged batch.

    A kind of proposal that it has no notion of is passed over.
    """
    kinds = ["point"] if operation == "verify_greedy" else ["iid", "point"]
    wrong_accepts, wrong_rejects = [], []
    for kind in tuple(kinds):
        everything, nothing = accept_everything(kind), reject_everything(kind)
        for name, cases in (
            ("an accept-everything case", [everything]),
            ("a reject-everything case", [nothing]),
            ("a ragged batch", [nothing, everything, nothing]),
        ):
            enter(f"{operation} on {name}, proposal {kind}")
            found = _decide(implementation, operation, cases, findings, may_refuse=len(kinds) > 1)
            if found is None and findings.problems:
                return
            if found is None:
                kinds.remove(kind)
                break
            for case, decision in zip(cases, found):
                if case is everything and decision.path != (0, 1, 2):
                    wrong_accepts.append(f"{name}: accepted {list(decision.path)} of three certain drafts")
                if case is nothing and decision.path:
                    wrong_rejects.append(f"{name}: accepted {list(decision.path)} of two impossible drafts")
    if wrong_accepts and wrong_rejects:
        # the adapter or the implementation: a run tells, so it is told and not stopped
        findings.warnings.append(
            f"{operation}: accept and reject look exchanged, or the path is counted from another end "
            f"({wrong_accepts[0]}; {wrong_rejects[0]})"
        )
    else:
        findings.warnings += [f"{operation} on {text}" for text in (wrong_accepts + wrong_rejects)[:1]]
    enter(f"timing {operation}")
    _time(implementation, operation, _arguments(operation, [reject_everything(kinds[0])] * 50), 50, findings)


def warper(implementation: Implementation, operation: str, findings: Findings, enter: Callable[[str], None]) -> None:
    """Form of the warped rows: one row, and three under one set of parameters."""
    rows = np.array([[0.5, -1.0, 0.25, 2.0], [1.5, 0.0, -0.5, 0.75], [-0.25, 1.0, 0.0, 0.5]])
    for name, case in (
        ("one row", WarpCase(rows[:1])),
        ("a row with a temperature", WarpCase(rows[:1], 0.5)),
        ("three rows", WarpCase(rows, 2.0)),
        ("a vector", WarpCase(rows[0])),
        ("a temperature a row", WarpCase(rows, np.array([0.5, 1.0, 2.0]))),
    ):
        enter(f"warp on {name}")

        def ask(case: WarpCase = case) -> object:
            return warped.array(implementation.operations[operation](warped.copy(case)), case.logits.shape)

        if not _formed(findings, ask, may_refuse=name.startswith("a ")) and findings.problems:
            return
    enter("timing warp")
    _time(implementation, operation, (WarpCase(np.repeat(rows, 10, axis=0)),), 10, findings)


def proposer(implementation: Implementation, operation: str, findings: Findings, enter: Callable[[str], None]) -> None:
    """Form of the proposals, of each kind and shape; a kind that it has no notion of is passed over."""
    known: list[ProposalCase] = []
    for kind in proposing.KINDS:
        for model in proposing.law_shapes(kind):
            enter(f"propose, proposal {kind}, a {'chain' if model.is_chain else 'tree'}")
            case = proposing.asked(model, 3, 5)

            def ask(case: ProposalCase = case) -> object:
                return proposing.read(implementation.operations[operation](proposing.copy(case)), case)

            if _formed(findings, ask, may_refuse=True):
                known.append(case)
            elif findings.problems:
                return
    if not known:
        findings.problems.append("propose: NotApplicable for every kind of proposal; there is nothing to judge")
        return
    enter("timing propose")
    case = dataclasses.replace(known[0], trials=50)
    _time(implementation, operation, (case,), case.trials, findings)


def _decide(
    implementation: Implementation,
    operation: str,
    cases: Sequence[VerifyCase],
    findings: Findings,
    may_refuse: bool = False,
) -> list[Decision] | None:
    found: list[Decision] = []

    def ask() -> None:
        found.extend(compare.decisions(implementation.operations[operation](*_arguments(operation, cases)), len(cases)))

    return found if _formed(findings, ask, may_refuse) else None


def _formed(findings: Findings, ask: Callable[[], object], may_refuse: bool = False) -> bool:
    """Whether a call came back in the right form; what is wrong joins the findings, unless it `may_refuse`."""
    try:
        ask()
    except ClauseViolation as violation:
        findings.problems.append(f"{findings.step}: {violation.reason}")
    except NotApplicable as reason:
        if may_refuse:
            return False
        findings.problems.append(
            f"{findings.step}: NotApplicable({reason}); every implementation is asked for cases like it"
        )
    except AdapterError as error:
        findings.problems.append(f"{findings.step}: {error}")
    except Exception as error:
        trail = " ← ".join(
            f"{Path(f.filename).name}:{f.lineno}" for f in reversed(traceback.extract_tb(error.__traceback__)[-3:])
        )
        findings.problems.append(f"{findings.step}: {type(error).__name__}: {error} ({trail})")
    else:
        return True
    return False


def _arguments(operation: str, cases: Sequence[VerifyCase]) -> tuple[Any, ...]:
    handed = [copy(case) for case in cases]
    if operation == "verify_sampled":
        spent: list[Coins] = [coins([0.25 + 0.125 * i for i in range(len(case.parent))], 0.625) for case in cases]
        return handed, spent
    return (handed, 5) if operation == "verify_random" else (handed,)


def _time(
    implementation: Implementation, operation: str, arguments: tuple[Any, ...], count: int, findings: Findings
) -> None:
    """A declared cost far from the measured one buys far too many trials, or too few."""
    declared = implementation.declaration.cost.get(operation)
    start = time.perf_counter()
    implementation.operations[operation](*arguments)
    measured = (time.perf_counter() - start) / count
    if declared is None:
        findings.warnings.append(f"no cost declared for {operation}; a case took {measured:.1e} s here")
    elif measured > SLOWER_THAN_DECLARED * declared:
        findings.warnings.append(
            f"{operation} took {measured:.1e} s a case, declared {declared:.1e}: checks will be slow"
        )


def answerer(implementation: Implementation, operation: str, findings: Findings, enter: Callable[[str], None]) -> None:
    """Form of the answers on an easy case or two; a case that it has no notion of is passed over."""
    easy = next(make for contract, make in EASY.items() if operation in CONTRACTS[contract])
    arguments, fields = easy(operation, implementation.declaration)
    known = []
    for argument in arguments:
        enter(f"{operation} on an easy case")

        def ask(argument: Any = argument) -> object:
            found = implementation.operations[operation](*_several(argument))
            for answer in found if isinstance(found, list) else [found]:
                for name in fields:
                    if not hasattr(answer, name):
                        raise ClauseViolation(f"the answer is a {type(answer).__name__} without {name}")
            return found

        if _formed(findings, ask, may_refuse=True):
            known.append(argument)
        elif findings.problems:
            return
    if not known:
        findings.problems.append(f"{operation}: NotApplicable for every easy case; there is nothing to judge")
        return
    enter(f"timing {operation}")
    _time(implementation, operation, _several(known[0]), 1, findings)


def _several(argument: Any) -> tuple[Any, ...]:
    """A copy of what an operation is handed: one argument, or a tuple of them."""
    handed = handout.copy(argument)
    return handed if isinstance(handed, tuple) else (handed,)


EASY: dict[str, Callable[[str, Declaration], tuple[list[Any], tuple[str, ...]]]] = {
    **dict.fromkeys(("rows", "losses", "noise"), training_cases.easy),
    "decode": decode_cases.easy,
    "drafter": drafter_cases.easy,
    "manifest": manifest_cases.easy,
    "metrics": metrics_cases.easy,
    "publish": publish_cases.easy,
    "tree": tree_cases.easy,
    "visibility": visibility_cases.easy,
}
"""Contract → what makes the easy cases of an operation, and the fields of its answer."""
OPERATIONS: dict[str, Callable[[Implementation, str, Findings, Callable[[str], None]], None]] = {
    "verify_greedy": verifier,
    "verify_sampled": verifier,
    "verify_random": verifier,
    "warp": warper,
    "propose": proposer,
    **dict.fromkeys((name for contract in EASY for name in CONTRACTS[contract]), answerer),
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
