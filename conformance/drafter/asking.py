"""Asking for a drafter's steps, reading the answer, and judging it within what the declared dtype may round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from adapters.interface import CONVENTIONS, DTYPES
from conformance import compare
from conformance.check import Check
from conformance.drafter.making import configured, setting, weight
from conformance.handout import copy
from conformance.roads import drafter as road
from conformance.roads.tape import Rounding
from conformance.verdicts import ClauseViolation, HarnessError
from oracle import drafter as oracle
from oracle.types import DrafterCase, Rows

OPERATION = "draft_logits"
ACCUMULATOR: Mapping[str, str] = {"bfloat16": "float32", "float16": "float32"}
"""Sums of products in a narrow dtype are kept in a wider one."""
STATES, LOGITS = "states", "logits"
AGREED = 1e-9
"""How far, relative to the largest entry, oracle and second road may lie apart; both compute in float64."""


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """logits [steps, Vd] and states [steps, d], in float64."""

    logits: Rows
    states: Rows

    def part(self, name: str) -> Rows:
        return self.states if name == STATES else self.logits


Wrong = Callable[[DrafterCase, Rows], Mapping[str, Callable[[], Answer]]]
"""What known mistakes give, in a case and with the states fed back: words for "it is what … gives" → answer.

The first is what a check is about; the others are computed to explain a failure.
"""


def few(check: Check) -> int:
    """How many drawn cases a check runs on: bounds are slow, and a fault of arithmetic shows in any case."""
    return max(8, check.profile.examples // 10)


def rounding(check: Check) -> Rounding:
    """What the declared dtype rounds."""
    dtype = check.arithmetic.dtype
    return Rounding(DTYPES[dtype], DTYPES[ACCUMULATOR.get(dtype, dtype)])


def settled(check: Check, case: DrafterCase) -> DrafterCase:
    """The case in the fusion order that the implementation declares; where it declares none, the case's own."""
    if case.variant == "eagle1" and "fusion_order" in check.implementation.declaration.conventions:
        return configured(case, fusion_order=check.convention("fusion_order", CONVENTIONS["fusion_order"][0]))
    return case


def ask(check: Check, case: DrafterCase) -> Answer:
    """The implementation's answer, its form judged."""
    found = check.call(OPERATION, copy(case))
    count = len(case.rollout_tokens) + 1
    wanted = {LOGITS: (count, len(weight(case, "lm_head"))), STATES: (count, setting(case, "hidden_size"))}
    return Answer(**{name: _array(getattr(found, name, None), name, shape) for name, shape in wanted.items()})


def _array(value: object, name: str, shape: tuple[int, int]) -> Rows:
    array = compare.plain(value, name)
    if array.shape != shape:
        what = f"{shape[0]} step{'s' if shape[0] > 1 else ''} of {shape[1]} {name if name == LOGITS else 'entries'}"
        raise ClauseViolation(f"{name} has shape {array.shape}; {shape} is asked for: {what}")
    if array.dtype.kind != "f":
        raise ClauseViolation(f"{name} is {array.dtype}; its entries are floating-point numbers")
    return array.astype(np.float64)


def judge_all(
    check: Check,
    shape: Callable[[DrafterCase], DrafterCase],
    drawn: st.SearchStrategy[DrafterCase],
    first: Sequence[DrafterCase],
    wrong: Wrong,
    parts: Sequence[str] = (STATES,),
    since: int = 0,
) -> None:
    """Judge the cases of `first` and `drawn`, in the shape that leaves what the clause is about."""
    check.require(OPERATION)

    def shaped(case: DrafterCase) -> DrafterCase:
        return shape(settled(check, case))

    def body(case: DrafterCase) -> None:
        judge(check, case, ask(check, case), parts, since, wrong)

    check.for_all(drawn.map(shaped), body, examples=few(check), first=list(map(shaped, first)))


def judge(
    check: Check,
    case: DrafterCase,
    found: Answer,
    parts: Sequence[str] = (STATES,),
    since: int = 0,
    wrong: Wrong | None = None,
) -> None:
    """`ClauseViolation` at the first step from `since`, and the first entry, that rounding does not explain.

    Each step is judged by the states that the implementation says it fed back. A case in which the mistake that the
    check is about lies within rounding is told to decide nothing.
    """
    right = road.rollout(case, rounding(check), found.states)
    agree(check, case)
    mistakes = wrong(case, found.states) if wrong is not None else {}
    for i, step in enumerate(right[since:], since):
        for part in parts:
            expected, off = bounds(step, part)
            given = found.part(part)[i]
            apart = ~(np.abs(given - expected) <= off)  # NaN lies apart, too
            if apart.any():
                at = int(np.flatnonzero(apart)[0])
                raise ClauseViolation(
                    f"step {i} ({words(case, i)}): {part}[{i}][{at}] is {given[at]:.9g}; {{clause}} gives "
                    f"{expected[at]:.9g}, and {check.arithmetic.dtype} allows ±{off[at]:.2g}; {int(apart.sum())} of "
                    f"{len(apart)} entries are off{_guess(mistakes, part, i, given, off)}"
                )
    if mistakes:
        mistake = next(iter(mistakes.values()))()
        check.decided(any(_apart(mistake, right[i], part, i) for part in parts for i in range(since, len(right))))


def bounds(step: road.Step, part: str) -> tuple[Rows, Rows]:
    """What is right of a part, and how far it may be off."""
    return (step.state, step.state_off) if part == STATES else (step.logits, step.logits_off)


def _apart(mistake: Answer, step: road.Step, part: str, i: int) -> bool:
    """Whether rounding can no longer hide the mistake in this step: both sides have their bound."""
    expected, off = bounds(step, part)
    return bool((np.abs(mistake.part(part)[i] - expected) > 2 * off).any())


def limits(check: Check, case: DrafterCase, found: Answer, parts: Sequence[str]) -> list[Rows]:
    """How far rounding may move those parts of an answer, [steps, n] each."""
    steps = road.rollout(case, rounding(check), found.states)
    return [np.array([bounds(step, part)[1] for step in steps]) for part in parts]


def known(case: DrafterCase, fed_back: Rows | None = None) -> Answer:
    """The second road's answer, as of an implementation: of a case that stands for a mistake."""
    steps = road.rollout(case, fed_back=fed_back)
    return Answer(np.array([s.logits for s in steps]), np.array([s.state for s in steps]))


def agree(check: Check, case: DrafterCase) -> None:
    """`HarnessError` unless oracle and second road say the same; the oracle itself is judged by the road alone."""
    if check.is_oracle:
        return
    right, ours = road.rollout(case), oracle.draft_logits(case)
    for part, expected in ((LOGITS, [s.logits for s in right]), (STATES, [s.state for s in right])):
        given = getattr(ours, part)
        if not np.abs(given - expected).max() <= AGREED * (1 + np.abs(given).max()):
            raise HarnessError(f"the oracle and the second road disagree about {part}")


def words(case: DrafterCase, step: int) -> str:
    """What a step consumes."""
    if step == 0:
        return f"the prefix of {len(case.tokens)} row{'s' if len(case.tokens) > 1 else ''}"
    position = int(case.positions[-1]) + step
    return f"rollout token {int(case.rollout_tokens[step - 1])} at position {position}"


def _guess(mistakes: Mapping[str, Callable[[], Answer]], part: str, step: int, given: Rows, off: Rows) -> str:
    """The known mistake that explains the entries of a step."""
    for name, answer in mistakes.items():
        rows = answer().part(part)
        if step < len(rows) and (np.abs(rows[step] - given) <= off).all():
            return f". It is what {name} gives"
    return ""
