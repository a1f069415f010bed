"""Asking an implementation about a release, and judging which clauses it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.check import Check
from conformance.handout import copy
from conformance.manifest.cases import Recipe, drawn, expected, first, made
from conformance.verdicts import ClauseViolation, HarnessError
from oracle.manifest.release import check_release
from oracle.types import ReleaseCase, Violation

OPERATION = "check_release"
FIELDS = ("clause", "field", "message")
WORDS_BESIDE = 6
"""A message has more words than it takes to show two values: those that say what goes wrong."""


def ask(check: Check, case: ReleaseCase) -> list[Any]:
    """The violations that the implementation finds; that they are a list is judged, what each says is not."""
    found = check.call(OPERATION, copy(case))
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise ClauseViolation(f"the answer is a {type(found).__name__}; it is a list of violations")
    for one in found:
        if missing := [name for name in FIELDS if not hasattr(one, name)]:
            raise ClauseViolation(f"a violation is a {type(one).__name__} without {', '.join(missing)}")
    return list(found)


def judge(check: Check, recipe: Recipe) -> None:
    """`ClauseViolation` unless the release is found to break exactly what it was made to break."""
    right = expected(recipe)
    ours: list[Violation] = []
    with made(recipe) as case:
        if not check.is_oracle:
            ours = check_release(case)
            if {one.clause for one in ours} != right:
                raise HarnessError(f"{recipe} is made to break {sorted(right)}; the oracle finds {_told(ours)}")
        found = ask(check, case)
    named = {str(one.clause) for one in found}
    if named == right:
        return
    if missed := right - named:
        broken = _told(ours) or " and ".join(sorted(missed))
        raise ClauseViolation(f"not found: {broken}; found: {_told(found) or 'nothing'}")
    raise ClauseViolation(f"{'nothing' if not right else 'nothing else'} is wrong with it; found {_told(found, right)}")


def judge_all(check: Check, names: Sequence[str]) -> None:
    """Every fault of `names` once, then drawn ones."""
    check.require(OPERATION)
    check.for_all(drawn(names), lambda recipe: judge(check, recipe), first=first(names))


def _told(found: Sequence[Any], right: frozenset[str] | set[str] = frozenset()) -> str:
    return "; ".join(f"{v.clause} {v.field}: {v.message}" for v in found if v.clause not in right)
