"""The conventions at work: what an implementation answers, and what explains it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.check import Check
from conformance.compare import plain
from conformance.losses import judge
from conformance.losses.conventions import names, settled
from conformance.losses.separating import CONVENTIONS, alternatives, candidates, separating, shown_value
from conformance.losses.tolerance import Counter, number
from conformance.roads import losses as road
from conformance.verdicts import ClauseViolation, HarnessError
from oracle.training import state_gradient
from oracle.types import GRADIENTS, RolloutLossCase, StateGradientCase


@pytest.mark.clauses("LOSSES-1101")
@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_convention_is_the_declared_one(check: Check, name: str) -> None:
    """What is observed is what the answers agree with, and "argument" where each value that is asked for is at work."""
    check.require("rollout_loss")
    given = settled(check)
    declared = name in given
    values = [given[name]] if declared else list(candidates(name))
    told = {given[name]: check.convention(name, "")} if declared else {}
    agreed: dict[Any, set[Any]] = {}
    """Value asked for → the values that explain every answer to it."""

    def body(case: RolloutLossCase) -> None:
        answer = judge.ask(check, "rollout_loss", case)
        judge.by_road(check, "rollout_loss", case)  # the oracle agrees with it
        agreeing = [value for value, other in alternatives(case, name, given) if explains(check, other, answer)]
        here = shown_value(name, case)
        agreed[here] = agreed.get(here, set(agreeing)) & set(agreeing)
        if here not in agreeing:
            asked = f"declared is {name} {told[here]!r}" if declared else f"asked for is {name} {here!r}"
            right = judge.by_road(check, "rollout_loss", case)
            raise ClauseViolation(
                f"{asked}, which gives {judge.shown(number(right.value))} of the parts "
                f"{[judge.shown(number(part.value)) for part in right.parts]}; the implementation gives "
                f"{judge.shown(answer.value)}{measured(name, case, answer)}. What explains it: "
                f"{names([str(value) for value in agreeing])}"
            )

    check.for_each([case for value in values for case in separating(name, value, given)], body)
    if not declared and set(values) <= set(agreed):
        check.observe(name, "argument")
    else:
        seen = sorted({told.get(value, str(value)) for found in agreed.values() for value in found})
        check.observe(name, " or ".join(seen))


def measured(name: str, case: RolloutLossCase, answer: judge.Answer) -> str:
    """Of a step decay: the ratio that the loss and its own parts show, step upon step."""
    parts = answer.parts(len(case.draft_logits))
    if name != "step_decay" or answer.value is None or any(part is None for part in parts):
        return ""
    total = answer.value * (len(parts) if case.reduction == "mean" else 1)
    terms = [float(part or 0) for part in parts]
    roots = np.roots([*terms[:0:-1], terms[0] - total])  # Σ ratio**s · part of step s is the loss
    ratios = [float(x.real) for x in roots if abs(x.imag) < 1e-9 and x.real > 0]
    return f", where each step contributes {ratios[0]:.4g} of the step before" if len(ratios) == 1 else ""


@pytest.mark.clauses("LOSSES-1102")
def test_the_gradient_to_earlier_states(check: Check) -> None:
    check.require("state_gradient")
    declared = check.convention("rollout_gradient", "")

    def body(case: StateGradientCase) -> None:
        found = plain(check.call("state_gradient", case), "the result")
        expected = road.state_gradient(case)
        if state_gradient(case).tolist() != expected:
            raise HarnessError(f"the oracle gives {state_gradient(case).tolist()}, the second road {expected}")
        if found.shape != (case.steps, case.steps) or found.dtype != np.bool_:
            raise ClauseViolation(f"the result is {found.dtype} {list(found.shape)}, not bool {[case.steps] * 2}")
        for s, r in np.ndindex(found.shape):
            if found[s, r] != expected[s][r]:
                verb, did = ("reaches", "does not") if expected[s][r] else ("does not reach", "does")
                raise ClauseViolation(
                    f"the gradient {'declared' if declared else 'asked for'} is {case.gradient!r}, so the loss of step "
                    f"{s} {verb} the state of step {r}; in the implementation it {did}"
                )

    kinds = [declared] if declared else GRADIENTS
    check.for_each([StateGradientCase(steps, kind) for steps in (1, 2, 4) for kind in kinds], body)
    check.observe("rollout_gradient", declared or "argument")


def explains(check: Check, case: RolloutLossCase, answer: judge.Answer) -> bool:
    """Whether the loss and its parts are those of the case."""
    right = road.rollout_loss(case, False)
    bounds = Counter(case, check.arithmetic.dtype).bounds(right, False)
    pairs = [(right.value, answer.value, bounds.value)]
    pairs += list(zip([part.value for part in right.parts], answer.parts(len(right.parts)), bounds.parts))
    return all(judge.close(number(expected), found, allowed) for expected, found, allowed in pairs)
