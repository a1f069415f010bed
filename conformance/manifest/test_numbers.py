"""Numbers: finite weights and logits, in the dtype that serves.

A release is made with one fault of the clause, and the clause is what is to be found: that one and no other.
"""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.manifest.asking import judge_all
from conformance.manifest.cases import faults


@pytest.mark.clauses("MANIFEST-701")
def test_finite_weights(check: Check) -> None:
    judge_all(check, faults("MANIFEST-701"))


@pytest.mark.clauses("MANIFEST-702")
def test_weights_in_the_serving_dtype(check: Check) -> None:
    judge_all(check, faults("MANIFEST-702"))


@pytest.mark.clauses("MANIFEST-703")
def test_logits_in_the_serving_dtype(check: Check) -> None:
    judge_all(check, faults("MANIFEST-703"))


@pytest.mark.clauses("MANIFEST-704")
def test_the_stored_dtype(check: Check) -> None:
    judge_all(check, faults("MANIFEST-704"))
