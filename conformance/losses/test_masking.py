"""Masking selects rows: what does not count is not read, and how much of it there is changes nothing unsaid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check, Raised
from conformance.losses import judge, masked, strategies
from conformance.losses.cases import Pair, drawn
from conformance.losses.conventions import settled
from conformance.losses.tolerance import Counter
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import RolloutLossCase

WITH_PARTS = ("eagle1_loss", "hass_loss", "rollout_loss")


def seeded(check: Check, operation: str, mixed: bool = True) -> st.SearchStrategy[tuple[Any, int]]:
    return st.tuples(drawn(check, operation, mixed), strategies.seeds)


@pytest.mark.clauses("LOSSES-901")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_what_is_not_supervised_is_not_read(check: Check, operation: str) -> None:
    check.require(operation)
    strategy = seeded(check, operation).map(lambda pair: masked.poisoned(pair[0], operation, pair[1]))
    strategy = strategy.filter(lambda case: not case.supervise.all())
    check.for_all(strategy, lambda case: judge.whole(check, operation, case), 20)


@pytest.mark.clauses("LOSSES-902")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_nothing_supervised(check: Check, operation: str) -> None:
    check.require(operation)
    name = judge.TRAINED[operation]

    def body(case: Any) -> None:
        answer = judge.ask(check, operation, case)
        found = answer.gradient(name, getattr(case, name).shape)
        if np.any(found != 0):
            raise ClauseViolation(f"no row is supervised, and grad[{name!r}] is {found.tolist()}")
        judge.numbers(answer)
        if answer.value is not None:
            raise ClauseViolation(
                f"no row is supervised, so {{clause}} asks for None; the implementation gives "
                f"{judge.shown(answer.value)}"
            )
        if operation in WITH_PARTS:
            parts = answer.parts(2 if operation == "eagle1_loss" else len(case.supervise))
            if any(part is not None for part in parts):
                raise ClauseViolation(f"no row is supervised, and the parts are {parts}, not None")

    check.for_all(drawn(check, operation).map(masked.emptied), body, 20)


@pytest.mark.hostile
@pytest.mark.clauses("LOSSES-903")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_what_is_no_number_gives_no_number(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: Any) -> None:
        for name in masked.pairs(operation):
            values = getattr(case, name)
            place = np.argwhere(np.isnan(values) | (values == np.inf))
            if len(place):
                break
        try:
            found = judge.ask(check, operation, case).value
        except Raised:
            return
        if found is not None and not math.isfinite(found):
            return
        entry = tuple(int(i) for i in place[0])
        raise ClauseViolation(
            f"{name}{list(entry)} is {values[entry]}, in a row that counts; the implementation gives the loss "
            f"{judge.shown(found)}"
        )

    spoilt = st.tuples(drawn(check, operation), st.integers(0, 3)).map(
        lambda pair: list(masked.spoilt(pair[0], operation))[pair[1]][3]
    )
    check.for_all(spoilt, body, 20)


@pytest.mark.clauses("LOSSES-904")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_unsupervised_rows_change_nothing(check: Check, operation: str) -> None:
    check.require(operation)
    if check.convention("denominator", "supervised") == "rows":
        raise Inapplicable("the denominator, as declared, is all rows")
    beside(check, operation, seeded(check, operation), scaled=False)


@pytest.mark.clauses("LOSSES-905")
@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_unsupervised_rows_scale_a_mean_over_all(check: Check, operation: str) -> None:
    check.require(operation)
    declared = check.convention("denominator", "")
    if declared not in ("", "rows") or (operation != "rollout_loss" and declared != "rows"):
        raise Inapplicable("the denominator is not all rows")
    strategy = seeded(check, operation)
    if operation == "rollout_loss":
        given = {**settled(check), "denominator": "rows"}
        strategy = st.tuples(strategies.rollouts(given, True), strategies.seeds)
    beside(check, operation, strategy, scaled=True)


def beside(check: Check, operation: str, strategy: st.SearchStrategy[tuple[Any, int]], scaled: bool) -> None:
    """Compare the loss of a case with that of the case and more unsupervised rows."""

    def body(pair: Pair) -> None:
        found = [judge.ask(check, operation, case).value for case in pair.cases]
        losses = [judge.by_road(check, operation, case) for case in pair.cases]
        if not judge.decides(check, pair.cases[0], losses[0]):
            return
        bounds = [
            Counter(case, check.arithmetic.dtype).bounds(loss, False).value or 0
            for case, loss in zip(pair.cases, losses)
        ]
        ratio = 1.0
        if scaled:
            ratio = float(losses[0].parts[0].terms[0].denominator / losses[1].parts[0].terms[0].denominator)
        expected = None if found[0] is None else found[0] * ratio
        rows = pair.cases[0].supervise.shape[-1]
        judge.judge(
            expected,
            found[1],
            bounds[0] * ratio + bounds[1],
            lambda: f"{rows} rows lose {judge.shown(found[0])}; beside {masked.ADDED} more, none supervised",
        )

    check.for_all(strategy.map(lambda pair: masked.beside_more(pair[0], operation, pair[1])), body, 40)


@pytest.mark.clauses("LOSSES-906")
def test_the_order_of_the_draft_vocabulary(check: Check) -> None:
    """Widths may be equal: then the map is nothing but an order."""
    check.require("rollout_loss")
    given = settled(check)
    free = ("restricted_target", "gate", "denominator")
    strategy = strategies.rollouts(given, True, "anywhere", free, permuted=True)
    strategy |= strategies.rollouts(given, True, permuted=True)
    check.for_all(strategy, lambda case: judge.whole(check, "rollout_loss", case, False), 40)


@pytest.mark.clauses("LOSSES-906")
def test_another_order_gives_the_same(check: Check) -> None:
    check.require("rollout_loss")

    def body(pair: Pair) -> None:
        (case, other), order = pair.cases, list(pair.order)
        assert isinstance(case, RolloutLossCase) and isinstance(other, RolloutLossCase)
        answers = [judge.ask(check, "rollout_loss", one) for one in (case, other)]
        right = judge.by_road(check, "rollout_loss", case, slopes=True)
        if not judge.decides(check, case, right):
            return
        bounds = Counter(case, check.arithmetic.dtype).bounds(right, True)
        allowed = 2 * (bounds.value or 0)
        judge.judge(answers[0].value, answers[1].value, allowed, lambda: f"in ascending order; in the order {order}")
        straight, turned = (
            answer.gradient("draft_logits", one.draft_logits.shape) for answer, one in zip(answers, (case, other))
        )
        assert bounds.gradient is not None
        if not (np.abs(straight[..., order] - turned) <= 2 * bounds.gradient[..., order]).all():
            raise ClauseViolation(
                f"the gradient is {straight.tolist()} in ascending order, and {turned.tolist()} in the order {order}"
            )

    strategy = st.tuples(strategies.rollouts(settled(check), True, "anywhere"), strategies.seeds)
    check.for_all(strategy.map(lambda pair: masked.reordered(*pair)), body, 40)
