"""What attention reads: the fused row in EAGLE-1, the normed pair in EAGLE-3. One row sees its own value alone."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.drafter import mistakes, shapes
from conformance.drafter.asking import judge_all
from conformance.drafter.cases import EAGLE1, EAGLE1_CASES, EAGLE3, EAGLE3_CASES, PROJECTED, PROJECTED_CASES
from conformance.drafter.strategies import drafters


@pytest.mark.clauses("DRAFTER-401")
def test_a_norm(check: Check) -> None:
    judge_all(check, shapes.norm_of_the_embedding, drafters([EAGLE3]), EAGLE3_CASES, mistakes.other_norm)


@pytest.mark.clauses("DRAFTER-402")
def test_no_input_norm(check: Check) -> None:
    judge_all(check, shapes.values_of_one_row, drafters([EAGLE1]), EAGLE1_CASES, mistakes.input_norm)


@pytest.mark.clauses("DRAFTER-403")
def test_the_normed_pair(check: Check) -> None:
    judge_all(check, shapes.values_of_one_row, drafters([EAGLE3]), EAGLE3_CASES, mistakes.other_pair)


@pytest.mark.clauses("DRAFTER-404")
def test_the_projected_pair(check: Check) -> None:
    judge_all(check, shapes.values_of_one_row, drafters([PROJECTED]), PROJECTED_CASES, mistakes.other_projection)
