"""Tensors: those that the variant needs, in the right shapes.

A release is made with one fault of the clause, and the clause is what is to be found: that one and no other.
"""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.manifest.asking import judge_all
from conformance.manifest.cases import faults


@pytest.mark.clauses("MANIFEST-301")
def test_missing_tensors(check: Check) -> None:
    judge_all(check, faults("MANIFEST-301"))


@pytest.mark.clauses("MANIFEST-302")
def test_unexpected_tensors(check: Check) -> None:
    judge_all(check, faults("MANIFEST-302"))


@pytest.mark.clauses("MANIFEST-303")
def test_shapes(check: Check) -> None:
    judge_all(check, faults("MANIFEST-303"))


@pytest.mark.clauses("MANIFEST-304")
def test_hidden_sizes(check: Check) -> None:
    judge_all(check, faults("MANIFEST-304"))


@pytest.mark.clauses("MANIFEST-305")
def test_the_variant(check: Check) -> None:
    judge_all(check, faults("MANIFEST-305"))
