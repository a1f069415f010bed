"""The loss of a rollout: steps, weights, what counts and over what, on a draft vocabulary."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance import draw as drawing
from conformance.check import Check
from conformance.losses import judge, strategies
from conformance.losses.cases import (
    ALONE,
    beside_an_empty_step,
    empty_laws,
    impossible_behind_a_zero,
    tied_gate,
)
from conformance.losses.conventions import VALUES, Settled, settled, surroundings
from conformance.losses.large import long_rollout
from conformance.losses.separating import candidates, separating
from conformance.losses.tolerance import Counter
from conformance.roads import losses as road
from conformance.verdicts import ClauseViolation
from oracle.types import RolloutLossCase

OPERATION = "rollout_loss"


def parts_of(check: Check, strategy: st.SearchStrategy[RolloutLossCase], first: str = "") -> None:
    """Judge parts on drawn cases, and before on those that tell values of the convention `first` apart."""
    check.require(OPERATION)
    given = settled(check)
    cases = apart(given, first) if first else []
    check.for_all(strategy, lambda case: judge.parts(check, OPERATION, case), judge.some(check), cases)


def apart(given: Settled, name: str) -> list[RolloutLossCase]:
    """Cases that tell the values of a convention apart, one for each value that can be asked for."""
    values = [given[name]] if name in given else candidates(name)
    return [case for value in values for case in separating(name, value, given)]


@pytest.mark.clauses("LOSSES-701")
def test_a_step_is_the_mean_over_its_rows(check: Check) -> None:
    """One vocabulary, every row supervised: no map, no gate and no denominator has a say."""
    parts_of(check, strategies.rollouts(settled(check)))


@pytest.mark.clauses("LOSSES-702")
def test_the_loss_is_the_weighted_sum_of_the_steps(check: Check) -> None:
    check.require(OPERATION)
    strategy = strategies.rollouts(settled(check), free=("step_weights", "reduction"))
    first = [long_rollout(settled(check))]
    check.for_all(strategy, lambda case: judge.value(check, OPERATION, case), judge.some(check), first)


@pytest.mark.clauses("LOSSES-703")
def test_the_draft_has_its_own_vocabulary(check: Check) -> None:
    """What has no draft id is masked, so both restricted targets are one law; a gate, where it is settled, is open."""
    parts_of(check, strategies.rollouts(settled(check), mapped="alone", gate="none"))


@pytest.mark.clauses("LOSSES-704")
def test_the_restricted_target(check: Check) -> None:
    """The most probable token is a draft token, so that a gate that is settled closes no row."""
    free = ("restricted_target",)
    parts_of(check, strategies.rollouts(settled(check), mapped="inside", free=free, gate="none"))


@pytest.mark.clauses("LOSSES-705")
def test_the_gate(check: Check) -> None:
    """A row counts where its gradient is not zero, over whatever denominator."""
    check.require(OPERATION)
    given = settled(check)

    def body(case: RolloutLossCase) -> None:
        answer = judge.ask(check, OPERATION, case)
        right = judge.by_road(check, OPERATION, case)
        moved = np.abs(answer.gradient("draft_logits", case.draft_logits.shape)).max(axis=2)
        if not judge.decides(check, case, right):
            return
        rows = {row.index: row for _, row in right.rows()}
        for s, r in np.argwhere(case.supervise).tolist():
            counts = (s, r) in rows
            if right.parts[s].weight == 0 or bool(moved[s, r] != 0) == counts:
                continue
            if counts and max(abs(float(p) - math.exp(x)) for p, x in zip(rows[s, r].p, rows[s, r].log_q)) < 1e-3:
                continue  # the drafter has learnt the row
            row = case.target_logits[s, r]
            best = int(row.argmax())
            ids = ids_of(case)
            verb, did = ("counts", "has no gradient") if counts else ("does not count", "has a gradient")
            raise ClauseViolation(
                f"step {s}, row {r}: the target logits {drawing.row(row)} have their largest at token {best}, which is "
                f"{'one' if best in ids else 'none'} of the draft tokens {ids}; the gate is {case.gate!r}, so by "
                f"{{clause}} the row {verb}; in the implementation it {did}"
            )

    first = [*apart(given, "gate"), *(tied_gate(given, ids) for ids in ([0, 2], [1, 3], [2, 3]))]
    check.for_all(strategies.rollouts(given, True, "anywhere", ("gate",)), body, first=first)


@pytest.mark.clauses("LOSSES-706")
def test_the_denominator(check: Check) -> None:
    given = settled(check)
    free = ("denominator", "gate", "restricted_target")
    strategy = strategies.rollouts(given, True) | strategies.rollouts(given, True, "anywhere", free)
    parts_of(check, strategy, "denominator")


@pytest.mark.clauses("LOSSES-707")
def test_the_epsilon(check: Check) -> None:
    parts_of(check, strategies.rollouts(settled(check), True, "anywhere", ("denominator_epsilon", "denominator")))


@pytest.mark.clauses("LOSSES-708")
def test_steps_that_add_nothing(check: Check) -> None:
    check.require(OPERATION)

    given = settled(check)

    def body(case: RolloutLossCase) -> None:
        answer = judge.ask(check, OPERATION, case)
        right = judge.by_road(check, OPERATION, case)
        found = answer.gradient("draft_logits", case.draft_logits.shape)
        for s, part in enumerate(right.parts):
            if (part.value is None or part.weight == 0) and np.any(found[s] != 0):
                raise ClauseViolation(f"step {s} adds nothing, and its gradient is {found[s].tolist()}")
        judge.numbers(answer)
        if case.divergence == given.get("divergence", VALUES["divergence"][0]):
            judge.parts(check, OPERATION, case)
            judge.value(check, OPERATION, case)
        else:  # which divergence it is, is said further up
            adds_up(check, case, right, answer)

    first = [] if "step_decay" in given else [impossible_behind_a_zero(given)]
    first += [beside_an_empty_step(asked) for asked in surroundings(given, (*ALONE, "reduction"))]
    check.for_all(adding_nothing(given), body, judge.few(check), first)


def adds_up(check: Check, case: RolloutLossCase, right: road.Loss, answer: judge.Answer) -> None:
    """`ClauseViolation` unless the parts are None where no row counts, and the loss is the sum of its own parts."""
    found = answer.parts(len(right.parts))
    bounds = Counter(case, check.arithmetic.dtype).bounds(right, False)
    total, allowed = 0.0, bounds.value or 0.0
    for s, (part, own, bound) in enumerate(zip(right.parts, found, bounds.parts)):
        if (part.value is None) != (own is None):
            raise ClauseViolation(f"step {s} counts {'no' if part.value is None else 'a'} row, and its part is {own}")
        if own is not None and part.weight != 0:
            total, allowed = total + float(part.weight) * own, allowed + abs(float(part.weight)) * (bound or 0.0)
    expected = None if all(own is None for own in found) else total
    judge.judge(expected, answer.value, allowed, lambda: f"its own parts are {found}")


@pytest.mark.clauses("LOSSES-709")
def test_the_divergence(check: Check) -> None:
    given = settled(check)
    strategy = strategies.rollouts(given, free=ALONE) | strategies.rollouts(given, True, "anywhere", ALONE)
    parts_of(check, strategy, "divergence")


@pytest.mark.clauses("LOSSES-710")
def test_the_gradient(check: Check) -> None:
    check.require(OPERATION)
    given = settled(check)
    free = (*VALUES, "denominator_epsilon", "step_weights")
    strategy = strategies.rollouts(given, True, free=free) | strategies.rollouts(given, True, "anywhere", free)
    first = [case for name in VALUES for case in apart(given, name)]
    first.append(long_rollout(given, step_weights=(1.5, 0.75, 0.25, 2.0, 0.5, 1.25, 1.0)))
    check.for_all(strategy, lambda case: judge.gradient(check, OPERATION, case), judge.few(check), first)


@pytest.mark.clauses("LOSSES-711")
def test_a_row_without_a_draft_token_does_not_count(check: Check) -> None:
    """A gate closes it, and without one nothing is left to learn from: either way it leaves no trace."""
    check.require(OPERATION)
    given = settled(check)
    first = [case for asked in surroundings(given, ALONE) for case in empty_laws(asked)]
    check.for_all(without_draft_tokens(given), lambda case: judge.whole(check, OPERATION, case), 10, first)


# ---- cases


def ids_of(case: RolloutLossCase) -> list[int]:
    ids = np.arange(case.draft_logits.shape[2]) if case.draft_to_target is None else case.draft_to_target
    return [int(v) for v in ids]


@st.composite
def adding_nothing(draw: st.DrawFn, given: Settled) -> RolloutLossCase:
    """One step without a row that counts: none supervised, or each behind a gate; or a step of zero weight."""
    mapped = draw(st.sampled_from(("no", "inside")))
    strategy = strategies.rollouts(given, True, mapped, (*ALONE, "reduction"))
    case = draw(strategy.filter(lambda case: len(case.draft_logits) > 1))
    step = draw(st.integers(0, len(case.draft_logits) - 1))
    if "step_decay" not in given and draw(st.integers(0, 3)) == 0:
        steps = len(case.draft_logits)
        alone = (1.0, 0.0, 0.0)[:steps]  # the powers of 0
        return dataclasses.replace(
            case, step_weights=draw(st.sampled_from((alone, tuple(0.0 if s == step else 1.5 for s in range(steps)))))
        )
    if mapped == "inside" and case.gate == "argmax" and draw(st.booleans()):
        target = case.target_logits.copy()
        outside = [v for v in range(target.shape[2]) if v not in ids_of(case)]
        target[step, :, outside[0]] = 4.5
        return dataclasses.replace(case, target_logits=target)
    supervise = case.supervise.copy()
    supervise[step] = np.False_
    return dataclasses.replace(case, supervise=supervise)


@st.composite
def without_draft_tokens(draw: st.DrawFn, given: Settled) -> RolloutLossCase:
    """The last row of a step has no target mass on the draft vocabulary."""
    strategy = strategies.rollouts(given, False, "inside", ("divergence", "denominator", "restricted_target"))
    case = draw(strategy.filter(lambda case: case.draft_logits.shape[1] > 1))
    target = case.target_logits.copy()
    target[-1, -1, ids_of(case)] = -np.inf
    return dataclasses.replace(case, target_logits=target, gate=given.get("gate", "none"))
