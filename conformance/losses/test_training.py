"""The training step, seen from outside: what moves, what must not, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from conformance import compare
from conformance.check import Check
from conformance.handout import copy
from conformance.losses import training
from conformance.losses.conventions import fields, settled
from conformance.losses.judge import close, real
from conformance.losses.tolerance import Counter, number
from conformance.roads import losses as road
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import RolloutLossCase, TrainingCase

EXAMPLES = 12
"""A step of a real trainer takes a second."""


@pytest.mark.clauses("LOSSES-1201")
def test_the_target_learns_nothing(check: Check) -> None:
    check.require("training_step")

    def body(case: TrainingCase) -> None:
        found = training.ask(check, case)
        if not found.target:
            raise Inapplicable("it trains from cached features, and holds no target")
        for name, distance in training.moved(found.target, "target").items():
            raise ClauseViolation(f"the target's parameter {name!r} moved by {distance:.2g}")
        for name, gradient in found.target_grad.items():
            if gradient is not None and np.any(compare.plain(gradient, f"target_grad[{name!r}]") != 0):
                raise ClauseViolation(f"the target's parameter {name!r} got a gradient")
        if tuple(found.target_trainable):
            raise ClauseViolation(f"the target's parameters {', '.join(found.target_trainable)} may be trained")

    check.for_all(training.cases(supervised=True), body, EXAMPLES)


@pytest.mark.clauses("LOSSES-1202")
def test_the_drafter_learns(check: Check) -> None:
    check.require("training_step")

    def body(case: TrainingCase) -> None:
        found = training.ask(check, case)
        gradients = [g for g in found.drafter_grad.values() if g is not None]
        if not any(np.any(compare.plain(g, "drafter_grad") != 0) for g in gradients):
            raise ClauseViolation("rows are supervised, and no parameter of the drafter got a gradient")
        if not training.moved(found.drafter, "drafter"):
            raise ClauseViolation("rows are supervised, and no parameter of the drafter moved")

    check.for_all(training.cases(supervised=True), body, EXAMPLES)


@pytest.mark.clauses("LOSSES-1203")
def test_nothing_supervised_moves_no_parameter(check: Check) -> None:
    check.require("training_step")

    def body(case: TrainingCase) -> None:
        for name, distance in training.moved(training.ask(check, case).drafter, "drafter").items():
            raise ClauseViolation(f"no row is supervised, and the drafter's parameter {name!r} moved by {distance:.2g}")

    check.for_all(training.cases(supervised=False), body, EXAMPLES)


@pytest.mark.clauses("LOSSES-1204")
def test_nothing_supervised_leaves_the_optimizer_alone(check: Check) -> None:
    check.require("training_step")

    def body(case: TrainingCase) -> None:
        found = training.ask(check, case)
        if not found.optimizer:
            raise Inapplicable("it shows no state of an optimizer")
        for name, distance in training.moved(found.optimizer, "optimizer").items():
            raise ClauseViolation(f"no row is supervised, and the optimizer's {name!r} moved by {distance:.2g}")

    check.for_all(training.cases(supervised=False), body, EXAMPLES)


@pytest.mark.clauses("LOSSES-1205")
def test_the_step_loss_is_that_of_its_logits(check: Check) -> None:
    check.require("training_step")

    def body(case: TrainingCase) -> None:
        found = training.ask(check, case)
        training.shown(found)
        draft, target = (
            compare.plain(getattr(found, name), name).astype(np.float64) for name in ("draft_logits", "target_logits")
        )
        flags = compare.plain(found.supervise, "supervise").astype(bool)
        ids = getattr(found, "draft_to_target", None)
        given = RolloutLossCase(
            draft[None],
            target[None],
            flags[None],
            draft_to_target=None if ids is None else compare.plain(ids, "draft_to_target").astype(np.int64),
            **fields(settled(check), 1, {}),
        )
        right = road.rollout_loss(given, False).parts[0]
        bounds = Counter(given, check.arithmetic.dtype).bounds(road.rollout_loss(given, False), False)
        answered, wanted = real(found.step_loss, "step_loss"), number(right.value)
        if not close(wanted, answered, bounds.parts[0]):
            raise ClauseViolation(
                f"the logits of the step and its {int(flags.sum())} supervised rows give {wanted}; the step says "
                f"{answered}, and accumulation in {check.arithmetic.dtype} allows a difference of {bounds.parts[0]:.2g}"
            )

    check.for_all(training.cases(supervised=True), body, EXAMPLES)


@pytest.mark.hostile
@pytest.mark.clauses("LOSSES-1206")
def test_stale_features_are_refused(check: Check) -> None:
    check.require("training_step")
    check.for_each([training.cached(None)], lambda case: training.ask(check, case))

    stale = [training.cached(name) for name in ("target_revision", "layer", "tokenizer")]
    check.for_each(stale, lambda case: check.refuses("training_step", copy(case)))
