"""Structure: calls that do not depend on each other, the form of an answer, rollouts without nodes; and refusals."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.check import Check
from conformance.compare import plain
from conformance.handout import copy, written
from conformance.verdicts import ClauseViolation
from conformance.visibility import asking, strategies
from conformance.visibility.asking import OPERATIONS
from conformance.visibility.cases import EDGES, WHOLE, Rollouts, rollout, traced
from conformance.visibility.drawing import named
from oracle.types import RolloutCase, RolloutMaskCase

NODES = ("rollout_visibility", "rollout_attention")
SIZES = [(5, 2), (8, 2), (5, 2), (8, 3), (8, 1), (5, 2), (8, 3)]
"""Lengths and steps in the order of the calls."""


@pytest.mark.clauses("VISIBILITY-101")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_does_not_depend_on_those_before_it(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: Rollouts) -> None:
        answers: list[tuple[RolloutCase, str, bytes]] = []
        for one in case.rollouts:
            shape, held = fingerprint(check, operation, one)
            size = (one.length, one.steps)
            for earlier, *told in answers:
                same = size == (earlier.length, earlier.steps)
                if same != (told == [shape, held]):
                    was = "not what it was when asked before" if same else (
                        f"bit by bit that to length {earlier.length} and steps {earlier.steps}, asked before"
                    )  # fmt: skip
                    raise ClauseViolation(f"the answer to length {size[0]} and steps {size[1]} is {was}: {shape}")
            answers.append((one, shape, held))

    check.for_each([Rollouts(tuple(rollout(*size) for size in SIZES))], body)


@pytest.mark.clauses("VISIBILITY-102")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_form_of_an_answer(check: Check, operation: str) -> None:
    check.require(operation)
    check.for_all(
        strategies.anything(), lambda case: asked(check, operation, case), examples=asking.few(check), first=EDGES
    )


@pytest.mark.clauses("VISIBILITY-103")
@pytest.mark.parametrize("operation", NODES)
def test_nodes_are_ordered(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: RolloutCase) -> None:
        for one, after in itertools.pairwise(asked(check, operation, case).nodes):
            if one >= after:
                raise ClauseViolation(f"{named(after)} comes after {named(one)}")

    check.for_all(strategies.full(), body, examples=asking.few(check), first=WHOLE)


@pytest.mark.clauses("VISIBILITY-104")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rollout_without_nodes(check: Check, operation: str) -> None:
    check.require(operation)
    cases = [rollout(0, 1), rollout(0, 3), rollout(1, 2, valid=[0]), rollout(4, 3, valid=[0, 0, 0, 0])]

    def body(case: RolloutCase) -> None:
        found = asked(check, operation, case)  # what rows of a mask show that no node has, another clause asks
        nodes = [] if operation == "rollout_mask" else asking.extra(check, case, found.nodes)
        if nodes:
            raise ClauseViolation(f"there is no token, and there are nodes {', '.join(map(named, nodes))}")

    check.for_each(cases, body)


@pytest.mark.clauses("VISIBILITY-105")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_case_is_left_alone(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: RolloutCase) -> None:
        whole = handed(check, operation, case)
        mine = copy(whole)
        check.call(operation, [mine] if operation == "rollout_attention" else mine)
        if names := written(whole, mine):
            raise ClauseViolation(f"{operation} wrote into {', '.join(names)}")

    check.for_each([dataclasses.replace(case, position=places(case)) for case in EDGES], body)


@pytest.mark.hostile
@pytest.mark.clauses("VISIBILITY-901")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_positions_that_do_not_increase_are_refused(check: Check, operation: str) -> None:
    check.require(operation)
    cases = [
        rollout(3, 2, position=[0, 0, 1]),
        rollout(3, 2, position=[2, 1, 3]),
        rollout(4, 1, valid=[1, 1, 0, 1], position=[0, 2, 9, 2]),
        rollout(4, 2, segment=[5, 1, 1, 5], position=[4, 0, 1, 4]),
    ]
    check.for_each(cases, lambda case: refuses(check, operation, case))


@pytest.mark.hostile
@pytest.mark.clauses("VISIBILITY-902")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_arrays_that_do_not_fit_are_refused(check: Check, operation: str) -> None:
    check.require(operation)
    right = rollout(4, 2, position=[0, 1, 2, 3])
    halves: Any = np.array([0.5, 1.5, 2.5, 3.5])
    cases = [
        dataclasses.replace(right, valid=right.valid[:3]),
        dataclasses.replace(right, segment=right.segment[:3]),
        dataclasses.replace(right, position=np.arange(5)),
        dataclasses.replace(right, valid=right.valid.astype(np.int64)),
        dataclasses.replace(right, segment=halves),
        dataclasses.replace(right, position=halves),
        dataclasses.replace(right, valid=right.valid[None], segment=right.segment[None]),
    ]
    check.for_each(cases, lambda case: refuses(check, operation, case))


@pytest.mark.hostile
@pytest.mark.clauses("VISIBILITY-902")
def test_values_that_do_not_fit_are_refused(check: Check) -> None:
    check.require("rollout_attention")
    right = traced(rollout(4, 2))
    shapes = [right.value[:1], right.value[:, :3], right.value.reshape(8, 8), np.concatenate([right.value] * 2)]
    cases = [dataclasses.replace(right, value=value.copy()) for value in shapes]
    check.for_each(cases, lambda case: check.refuses("rollout_attention", [copy(case)]))


@pytest.mark.hostile
@pytest.mark.clauses("VISIBILITY-903")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_has_no_meaning_is_refused(check: Check, operation: str) -> None:
    check.require(operation)
    cases = [rollout(4, 0), rollout(4, -1)]
    check.for_each(cases, lambda case: refuses(check, operation, case))


@pytest.mark.hostile
@pytest.mark.clauses("VISIBILITY-903")
def test_an_anchor_without_a_meaning_is_refused(check: Check) -> None:
    check.require("rollout_mask")
    cases = [RolloutMaskCase(rollout(4, 2), anchor) for anchor in ("", "Start", "middle")]
    check.for_each(cases, lambda case: check.refuses("rollout_mask", copy(case)))


# ---- what these checks share


def handed(check: Check, operation: str, case: RolloutCase) -> Any:
    """The case as the operation takes it; values of a rollout that has no shape are those of another."""
    if operation == "rollout_mask":
        return RolloutMaskCase(case, asking.row_anchor(check))
    if operation == "rollout_attention":
        return dataclasses.replace(traced(rollout(case.length, max(case.steps, 1))), rollout=case)
    return case


def refuses(check: Check, operation: str, case: RolloutCase) -> None:
    given = copy(handed(check, operation, case))
    check.refuses(operation, [given] if operation == "rollout_attention" else given)


def asked(check: Check, operation: str, case: RolloutCase) -> Any:
    """The answer, its form judged."""
    reading: dict[str, Callable[[], Any]] = {
        "rollout_visibility": lambda: asking.listed(check, case),
        "rollout_mask": lambda: asking.mask(check, case, asking.row_anchor(check)),
        "rollout_attention": lambda: asking.attended(check, [traced(case)])[0],
    }
    return reading[operation]()


def fingerprint(check: Check, operation: str, case: RolloutCase) -> tuple[str, bytes]:
    """An answer, whatever form it has: the shapes of its arrays, and their bytes; of weights which are zero."""
    given = copy(handed(check, operation, case))
    found = check.call(operation, [given] if operation == "rollout_attention" else given)
    if operation == "rollout_attention":
        (found,) = found
    names = {"rollout_visibility": ("step", "anchor", "position", "visible"), "rollout_attention": ("step", "anchor")}
    parts = [getattr(found, name, None) for name in names.get(operation, ())]
    if operation == "rollout_mask":
        parts = [found]
    elif operation == "rollout_attention":
        parts.append(plain(getattr(found, "output", None), "output") != 0)
    arrays = [np.ascontiguousarray(plain(part, "an array of the answer")) for part in parts if part is not None]
    return ", ".join(str(list(array.shape)) for array in arrays), b"".join(array.tobytes() for array in arrays)


def places(case: RolloutCase) -> np.ndarray:
    """Positions written out."""
    return np.arange(case.length) if case.position is None else case.position
