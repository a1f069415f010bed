"""The feed-forward part, the head with the norm before it, and biases."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.drafter import mistakes, shapes
from conformance.drafter.asking import LOGITS, STATES, judge_all
from conformance.drafter.cases import EVERY, THREES
from conformance.drafter.strategies import SMALL, THREE, drafters
from oracle.types import DrafterCase

MAPS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "input_projection", "lm_head")


@pytest.mark.clauses("DRAFTER-601")
def test_the_feed_forward_part(check: Check) -> None:
    judge_all(check, shapes.unit_state, drafters(), EVERY, mistakes.other_gate)


@pytest.mark.clauses("DRAFTER-602")
def test_what_the_feed_forward_part_reads(check: Check) -> None:
    judge_all(check, shapes.one_step, drafters(), EVERY, mistakes.other_middle)


@pytest.mark.clauses("DRAFTER-701")
def test_the_head(check: Check) -> None:
    judge_all(check, shapes.headed, drafters(), EVERY, mistakes.other_head, [LOGITS])


@pytest.mark.clauses("DRAFTER-702")
def test_the_map_beside_the_head(check: Check) -> None:
    judge_all(check, shapes.mapped, drafters(THREE), THREES, mistakes.applied_map, [LOGITS])


@pytest.mark.clauses("DRAFTER-703")
def test_the_last_row(check: Check) -> None:
    judge_all(check, shapes.unit_rows, drafters(rows=(2, 4)), EVERY, mistakes.other_row, [LOGITS])


@pytest.mark.clauses("DRAFTER-704")
def test_the_final_norm(check: Check) -> None:
    judge_all(check, shapes.one_step, drafters(), EVERY, mistakes.other_final_norm, [LOGITS])


@pytest.mark.parametrize("part", MAPS)
@pytest.mark.clauses("DRAFTER-801")
def test_the_bias_of_a_map(check: Check, part: str) -> None:
    def shape(case: DrafterCase) -> DrafterCase:
        return shapes.biased(case, part)

    known = [case for case in EVERY if part != "input_projection" or case.variant == "eagle3_projected"]
    variants = sorted({case.variant for case in known})
    judge_all(check, shape, drafters(variants, [SMALL]), known[:6], mistakes.no_bias, [STATES, LOGITS])
