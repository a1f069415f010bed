"""Addresses and positions: which layers feed the drafter, how far it reaches, how it turns.

A release is made with one fault of the clause, and the clause is what is to be found: that one and no other.
"""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.manifest.asking import judge_all
from conformance.manifest.cases import faults


@pytest.mark.clauses("MANIFEST-501")
def test_layers_are_named(check: Check) -> None:
    judge_all(check, faults("MANIFEST-501"))


@pytest.mark.clauses("MANIFEST-502")
def test_layers_of_the_target(check: Check) -> None:
    judge_all(check, faults("MANIFEST-502"))


@pytest.mark.clauses("MANIFEST-503")
def test_distinct_layers(check: Check) -> None:
    judge_all(check, faults("MANIFEST-503"))


@pytest.mark.clauses("MANIFEST-504")
def test_two_words_on_layers(check: Check) -> None:
    judge_all(check, faults("MANIFEST-504"))


@pytest.mark.clauses("MANIFEST-505")
def test_as_many_layers_as_features(check: Check) -> None:
    judge_all(check, faults("MANIFEST-505"))


@pytest.mark.clauses("MANIFEST-506")
def test_norms_of_features(check: Check) -> None:
    judge_all(check, faults("MANIFEST-506"))


@pytest.mark.clauses("MANIFEST-601")
def test_context_length(check: Check) -> None:
    judge_all(check, faults("MANIFEST-601"))


@pytest.mark.clauses("MANIFEST-602")
def test_rotary_settings(check: Check) -> None:
    judge_all(check, faults("MANIFEST-602"))
