"""Asking an implementation to sum up rounds, reading its answer, and judging one number of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.interface import DTYPES
from conformance import compare
from conformance.check import Check
from conformance.handout import copy
from conformance.roads import metrics as road
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle import metrics as oracle
from oracle.types import RoundsCase

OPERATION = "summarise_rounds"
COUNTS = ("rounds", "drafted", "accepted", "emitted")
RATIOS = ("tau", "accepted_per_round", "rate")
QUOTIENTS = {
    "tau": ("emitted", "rounds"),
    "accepted_per_round": ("accepted", "rounds"),
    "rate": ("accepted", "drafted"),
}
"""Ratio → what is divided by what; the accepted of `rate` are drafts under either convention."""
ROUNDINGS = 4
"""Two sums are cast, divided, and the answer is cast: counts are integers, and their sums exact."""


@dataclass(frozen=True)
class Answer:
    """An answer in plain numbers; NaN stays what it is. A ratio that is not shown is not among the ratios."""

    counts: dict[str, int]
    ratios: dict[str, float | None]
    by_depth: list[float | None]


def ask(check: Check, case: RoundsCase) -> Answer:
    """The implementation's answer, its form judged."""
    found = check.call(OPERATION, copy(case))
    counts = {name: _integer(getattr(found, name, None), name) for name in COUNTS}
    values = {name: getattr(found, name, None) for name in RATIOS}
    ratios = {name: _ratio(value, name) for name, value in values.items() if compare.is_shown(value)}
    return Answer(counts, ratios, _ratios(getattr(found, "by_depth", None)))


def few(check: Check) -> int:
    """How many drawn cases a check runs on, where many checks draw the same: a third of the profile's, 25 at least."""
    return max(min(check.profile.examples, 25), check.profile.examples // 3)


def counts(check: Check, case: RoundsCase) -> dict[str, int]:
    """The right counts, by the declared `accepted_count`."""
    right = dict(zip(COUNTS, _agreed(check, case)))
    if check.convention("accepted_count", "drafts") == "drafts_and_frontier":
        right["accepted"] += right["rounds"]
    return right


def judge_counts(check: Check, case: RoundsCase, found: Answer, names: Sequence[str] = COUNTS) -> None:
    """`ClauseViolation` unless those counts are right."""
    right = counts(check, case)
    for name in names:
        if found.counts[name] != right[name]:
            raise ClauseViolation(f"{name} is {found.counts[name]}; {{clause}} gives {right[name]}")


def judge_ratios(check: Check, case: RoundsCase, found: Answer, names: Sequence[str] = RATIOS) -> None:
    """`ClauseViolation` unless those that are shown are right, and None where undefined; `Inapplicable` if none is."""
    if not any(name in found.ratios for name in names):
        raise Inapplicable(f"the implementation shows no {' and no '.join(names)}")
    sums = counts(check, case)
    drafts = {**sums, "accepted": _agreed(check, case)[COUNTS.index("accepted")]}
    for name in (name for name in names if name in found.ratios):
        part, whole = QUOTIENTS[name]
        held = drafts if name == "rate" else sums
        judge(check, name, found.ratios[name], held[part], held[whole], f"{held[part]} {part} / {held[whole]} {whole}")


def judge_depths(check: Check, case: RoundsCase, found: Answer, undefined: bool = False) -> None:
    """`ClauseViolation` at the first entry of `by_depth` that is wrong, of the reached ones or the `undefined` ones.

    How many entries there are, another clause asks.
    """
    for d, ((passed, tried), entry) in enumerate(zip(depths(check, case), found.by_depth)):
        if (tried == 0) == undefined:
            words = f"{passed} rounds accepted depth {d + 1} of {tried} that drafted it and accepted all before"
            judge(check, f"by_depth[{d}]", entry, passed, tried, words)


def judge_length(check: Check, case: RoundsCase, found: Answer) -> None:
    """`ClauseViolation` unless `by_depth` has an entry a depth."""
    deepest = len(depths(check, case))
    if len(found.by_depth) != deepest:
        raise ClauseViolation(f"by_depth has {len(found.by_depth)} entries; the deepest draft has {deepest} tokens")


def judge(check: Check, name: str, found: float | None, part: int, whole: int, words: str) -> None:
    """`ClauseViolation` unless `found` is the quotient, within rounding; None where there is nothing to divide by."""
    right = road.quotient(part, whole)
    if right is None:
        if found is not None:
            raise ClauseViolation(f"{name} is {found}; {words} is undefined: None")
        return
    if found is None:
        raise ClauseViolation(f"{name} is None, undefined; {words} is {float(right):.9g}")
    unit = Fraction(DTYPES[check.arithmetic.dtype])
    allowed = abs(right) * ROUNDINGS * unit / (1 - ROUNDINGS * unit)
    if not math.isfinite(found) or abs(Fraction(found) - right) > allowed:
        raise ClauseViolation(
            f"{name} is {found:.9g}; {words} is {float(right):.9g}, and rounding allows a difference of "
            f"{float(allowed):.2g}"
        )


# ---- the right answer


def depths(check: Check, case: RoundsCase) -> list[tuple[int, int]]:
    """By depth: the rounds that accepted it, and those that tried it."""
    right = road.by_depth(case)
    if not check.is_oracle:
        ours = oracle.count_rounds(case)
        _agree(right == list(zip(ours.passed, ours.tried)), "by_depth")
    return right


def _agreed(check: Check, case: RoundsCase) -> tuple[int, int, int, int]:
    right = road.counts(case)
    if not check.is_oracle:
        ours = oracle.count_rounds(case)
        _agree(right == (ours.rounds, ours.drafted, ours.accepted, ours.emitted), "the counts")
    return right


def _agree(same: bool, what: str) -> None:
    if not same:
        raise HarnessError(f"the oracle and the second road disagree about {what}")


# ---- reading


def _integer(value: Any, name: str) -> int:
    array = compare.plain(value, name)
    if array.size != 1 or array.dtype.kind not in "iu":
        raise ClauseViolation(f"{name} is {_shown(value)}; a count is an integer")
    return int(array.reshape(-1)[0])


def _ratio(value: Any, name: str) -> float | None:
    if value is None:
        return None
    array = compare.plain(value, name)
    if array.size != 1 or array.dtype.kind not in "fiu":
        raise ClauseViolation(f"{name} is {_shown(value)}; a ratio is a number, or None where it is undefined")
    return float(array.reshape(-1)[0])


def _ratios(value: Any) -> list[float | None]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        array = compare.plain(value, "by_depth")
        if array.ndim != 1:
            raise ClauseViolation(f"by_depth is {_shown(value)}; it is a sequence with one ratio a depth")
        value = array.tolist()
    return [_ratio(entry, f"by_depth[{d}]") for d, entry in enumerate(value)]


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"{value!r:.60}"
