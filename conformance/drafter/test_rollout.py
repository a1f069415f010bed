"""The rollout: what is fed back and how, what a rollout row sees, where it stands, which token it consumes."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.drafter import mistakes_rollout as mistakes
from conformance.drafter import shapes
from conformance.drafter.asking import LOGITS, STATES, judge_all
from conformance.drafter.cases import EVERY, LARGE, LONGER, THREES
from conformance.drafter.strategies import THREE, drafters
from oracle.types import DRAFTERS


@pytest.mark.clauses("DRAFTER-901")
def test_the_state_that_is_fed_back(check: Check) -> None:
    judge_all(check, shapes.fed_back, drafters(rollout=(1, 3)), EVERY, mistakes.other_state, since=1)


@pytest.mark.clauses("DRAFTER-902")
def test_the_state_is_not_fused(check: Check) -> None:
    judge_all(check, shapes.fused_again, drafters(THREE, rollout=(1, 3)), THREES, mistakes.fused_state, since=1)


@pytest.mark.clauses("DRAFTER-903")
def test_what_a_rollout_row_sees(check: Check) -> None:
    drawn = drafters(rows=(2, 3), rollout=(2, 3))
    judge_all(check, shapes.rollout_seen, drawn, EVERY, mistakes.unseen_prefix, since=1)


@pytest.mark.clauses("DRAFTER-904")
def test_where_a_rollout_row_stands(check: Check) -> None:
    judge_all(check, shapes.rollout_positions, drafters(rollout=(1, 3)), EVERY, mistakes.other_position, since=1)


@pytest.mark.clauses("DRAFTER-905")
def test_a_whole_rollout(check: Check) -> None:
    first = [*EVERY, *LONGER, *(LARGE[v] for v in DRAFTERS)]
    drawn = drafters(rollout=(1, 4))
    judge_all(check, shapes.whole, drawn, first, mistakes.other_rollout_token, [STATES, LOGITS])
