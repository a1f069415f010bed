"""HASS's top-K term: the set, its mass, its normaliser, its gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from conformance.check import Check
from conformance.losses import judge, strategies
from conformance.losses.cases import ABOVE_THE_VOCABULARY, TIED_LOGITS
from conformance.losses.large import WIDE_TOP
from conformance.losses.tolerance import Counter, number
from conformance.verdicts import ClauseViolation
from oracle.types import DistillCase, TopKCase

Form = tuple[bool, bool]
"""Whether the mass is renormalised on the set, and whether log q is normalised on it."""


@pytest.mark.clauses("LOSSES-501")
def test_the_set(check: Check) -> None:
    """Whatever is made of the set: its mass and its normaliser are other clauses'."""
    check.require("topk_distillation")
    check.for_all(strategies.topks(mixed=True), lambda case: explained(check, case, FORMS), first=[WIDE_TOP])


@pytest.mark.clauses("LOSSES-502")
def test_ties_go_to_the_lower_ids(check: Check) -> None:
    check.require("topk_distillation")
    check.for_each(TIED_LOGITS, lambda case: explained(check, case, FORMS))


@pytest.mark.clauses("LOSSES-503")
def test_the_mass_is_left_as_it_is(check: Check) -> None:
    check.require("topk_distillation")
    check.for_all(strategies.topks(mixed=True), lambda case: explained(check, case, [(False, False), (False, True)]))


@pytest.mark.clauses("LOSSES-504")
def test_the_normaliser_is_of_the_whole_vocabulary(check: Check) -> None:
    check.require("topk_distillation")
    strategy = strategies.topks(mixed=True) | strategies.topks(mixed=True, whole=True)
    check.for_all(strategy, lambda case: judge.value(check, "topk_distillation", case))


@pytest.mark.clauses("LOSSES-504")
def test_all_tokens_give_soft_cross_entropy(check: Check) -> None:
    check.require("topk_distillation", "soft_cross_entropy")

    def body(case: TopKCase) -> None:
        whole = DistillCase(case.draft_logits, case.target_logits, case.supervise)
        found, other = (
            judge.ask(check, *asked).value for asked in (("topk_distillation", case), ("soft_cross_entropy", whole))
        )
        allowed = Counter(case, check.arithmetic.dtype).bounds(judge.by_road(check, "topk_distillation", case), False)
        judge.judge(other, found, 2 * (allowed.value or 0), lambda: f"k = {case.k} of {case.k} tokens")

    check.for_all(strategies.topks(mixed=True, whole=True), body)


@pytest.mark.clauses("LOSSES-505")
def test_the_gradient_of_the_top_k_term(check: Check) -> None:
    check.require("topk_distillation")
    check.for_all(
        strategies.topks(mixed=True),
        lambda case: judge.gradient(check, "topk_distillation", case),
        judge.few(check),
        [WIDE_TOP],
    )


@pytest.mark.clauses("LOSSES-506")
def test_k_above_the_vocabulary(check: Check) -> None:
    check.require("topk_distillation")
    check.for_each(ABOVE_THE_VOCABULARY, lambda case: judge.value(check, "topk_distillation", case))


# ---- what explains a value

MOST_CHOICES = 10_000
FORMS: list[Form] = [(False, False), (True, False), (False, True), (True, True)]


def explained(check: Check, case: TopKCase, forms: list[Form]) -> None:
    """`ClauseViolation` unless the right sets, in one of the forms, give the value."""
    found = judge.ask(check, "topk_distillation", case).value
    right = judge.by_road(check, "topk_distillation", case)
    if not judge.decides(check, case, right):
        return
    allowed = Counter(case, check.arithmetic.dtype).bounds(right, False).value
    divisor = float(right.parts[0].terms[0].denominator)
    counted = np.flatnonzero(case.supervise).tolist()
    sets = [[v for v, p in enumerate(row.p) if p > 0] for row in right.parts[0].terms[0].rows]

    def matches(kept: list[list[int]], form: Form) -> bool:
        value = sum(crossed(case, r, tokens, form) for r, tokens in zip(counted, kept)) / divisor
        wider = (allowed or 0) * (4 if form != (False, False) else 1) / min(1.0, *(mass(case, r) for r in counted))
        return found is not None and abs(value - found) <= wider

    if judge.close(number(right.value), found, allowed) or any(matches(sets, form) for form in forms[1:]):
        return
    told = "; ".join(f"row {r} keeps {tokens}" for r, tokens in zip(counted, sets))
    others = next((kept for kept in alternatives(case, len(counted)) if any(matches(kept, f) for f in FORMS)), None)
    other = "" if others is None else f", which the sets {others} explain"
    if others == sets:
        other = ", which the same sets explain with another mass or normaliser"
    raise ClauseViolation(
        f"k = {case.k}: {told}, so {{clause}} gives {float(right.value or 0):.9g}; the implementation gives "
        f"{judge.shown(found)}{other}"
    )


def mass(case: TopKCase, row: int) -> float:
    """A lower bound of the mass of any set of k tokens."""
    law = np.sort(np.exp(case.target_logits[row] - case.target_logits[row].max()))
    return float(law[: case.k].sum() / law.sum())


def crossed(case: TopKCase, row: int, kept: list[int], form: Form) -> float:
    """The cross-entropy of a row on a set."""
    p = np.exp(case.target_logits[row] - case.target_logits[row].max())
    p = p[kept] / (p[kept].sum() if form[0] else p.sum())
    draft = case.draft_logits[row] - case.draft_logits[row].max()
    log_q = draft[kept] - np.log(np.exp(draft[kept] if form[1] else draft).sum())
    return float(-(p * log_q).sum())


def alternatives(case: TopKCase, rows: int) -> Iterator[list[list[int]]]:
    """Every choice of k tokens in each row; none where there are too many."""
    vocabulary = range(case.draft_logits.shape[1])
    if math.comb(len(vocabulary), min(case.k, len(vocabulary))) ** rows > MOST_CHOICES:
        return
    sets = [list(kept) for kept in itertools.combinations(vocabulary, min(case.k, len(vocabulary)))]
    yield from (list(chosen) for chosen in itertools.product(sets, repeat=rows))
