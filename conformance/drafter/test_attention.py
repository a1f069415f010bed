"""Attention: what a row sees and reads, which heads share, where rows stand, and how scores are scaled."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.check import Check
from conformance.drafter import mistakes, shapes
from conformance.drafter.asking import OPERATION, STATES, ask, few, judge_all, known, limits, settled
from conformance.drafter.cases import EAGLE3, EVERY, LARGE, PROJECTED, THREES
from conformance.drafter.making import SKEWED, configured, make
from conformance.drafter.strategies import GROUPED, THREE, drafters
from conformance.verdicts import ClauseViolation
from oracle.types import DRAFTERS, DrafterCase

GROUPS = [case for case in EVERY if case.config["num_key_value_heads"] != case.config["num_attention_heads"]]


@pytest.mark.clauses("DRAFTER-501")
def test_the_rows_that_are_seen(check: Check) -> None:
    judge_all(check, shapes.seen_rows, drafters(rows=(2, 5)), EVERY, mistakes.unseen_rows)


@pytest.mark.clauses("DRAFTER-502")
def test_the_tokens_that_are_read(check: Check) -> None:
    first = [*THREES, LARGE[EAGLE3], LARGE[PROJECTED]]
    judge_all(check, shapes.read_tokens, drafters(THREE, rows=(2, 4)), first, mistakes.other_token)


@pytest.mark.clauses("DRAFTER-503")
def test_the_groups_of_heads(check: Check) -> None:
    judge_all(check, shapes.shared_values, drafters(sizes=GROUPED), GROUPS, mistakes.other_groups)


@pytest.mark.clauses("DRAFTER-504")
def test_the_positions(check: Check) -> None:
    """A prefix that moves as a whole gives what it gave, and one that skips gives something else, if it should."""
    check.require(OPERATION)

    def body(case: DrafterCase) -> None:
        start = int(case.positions[0])
        close = shapes.at(case, [start + i for i in range(len(case.positions))])
        far = shapes.at(case, [position + 6 for position in case.positions.tolist()])
        here, moved, joined = (ask(check, one) for one in (case, far, close))
        (off,) = limits(check, case, here, [STATES])
        (other,) = limits(check, far, moved, [STATES])
        apart = ~(np.abs(here.states - moved.states) <= off + other)
        if apart.any():
            at = int(np.flatnonzero(apart)[0])
            raise ClauseViolation(
                f"six positions on, the prefix has another state: entry {at} is {moved.states[0][at]:.9g}, and was "
                f"{here.states[0][at]:.9g}; keys and queries turn together, by their distance"
            )
        seen = ~(np.abs(here.states - joined.states) <= off)
        expected = should_move(check, case, close)
        check.decided(expected)
        if expected and not seen.any():
            raise ClauseViolation(
                f"positions {case.positions.tolist()} and {close.positions.tolist()} have the same state: "
                "the positions that are given are not what rows are turned by"
            )

    drawn = drafters(rows=(2, 4)).filter(lambda case: case.positions[-1] - case.positions[0] >= len(case.positions))
    first = [shapes.attention(settled(check, case)) for case in EVERY]
    check.for_all(drawn.map(lambda c: shapes.attention(settled(check, c))), body, examples=few(check), first=first)


def should_move(check: Check, case: DrafterCase, close: DrafterCase) -> bool:
    """Whether the right states of the two lie further apart than rounding could bring together."""
    right, other = known(case), known(close)
    (off,), (beside,) = (limits(check, c, a, [STATES]) for c, a in ((case, right), (close, other)))
    return bool((np.abs(right.states - other.states) > 2 * off + 2 * beside).any())


@pytest.mark.clauses("DRAFTER-505")
def test_the_scale_of_scores(check: Check) -> None:
    judge_all(check, shapes.unturned, drafters(rows=(2, 4)), EVERY, mistakes.other_scale)


@pytest.mark.clauses("DRAFTER-506")
def test_the_pairs_that_turn(check: Check) -> None:
    judge_all(check, shapes.first_pairs, drafters(rows=(2, 4)), EVERY, mistakes.other_layout)


@pytest.mark.clauses("DRAFTER-507")
def test_the_angles(check: Check) -> None:
    wide = [make(v, SKEWED, 60 + i, 5, 0, theta=20.0, positions=(0, 1, 9, 40, 400)) for i, v in enumerate(DRAFTERS)]
    drawn = drafters(rows=(2, 4)).map(lambda case: configured(case, rope_theta=500.0))
    judge_all(check, shapes.attention, drawn, [*EVERY, *wide], mistakes.other_angle)
