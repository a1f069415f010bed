"""Digests: what a release was made from.

A release is made with one fault of the clause, and the clause is what is to be found: that one and no other.
"""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.manifest.asking import judge_all
from conformance.manifest.cases import REFILED, faults


@pytest.mark.clauses("MANIFEST-201")
def test_the_targets_weights(check: Check) -> None:
    judge_all(check, faults("MANIFEST-201"))


@pytest.mark.clauses("MANIFEST-202")
def test_how_it_is_filed(check: Check) -> None:
    judge_all(check, REFILED)


@pytest.mark.clauses("MANIFEST-203")
def test_the_targets_configuration(check: Check) -> None:
    judge_all(check, faults("MANIFEST-203"))


@pytest.mark.clauses("MANIFEST-204")
def test_the_targets_tokenizer(check: Check) -> None:
    judge_all(check, faults("MANIFEST-204"))


@pytest.mark.clauses("MANIFEST-205")
def test_head_and_embedding(check: Check) -> None:
    judge_all(check, faults("MANIFEST-205"))


@pytest.mark.clauses("MANIFEST-206")
def test_the_draft_map(check: Check) -> None:
    judge_all(check, faults("MANIFEST-206"))


@pytest.mark.clauses("MANIFEST-207")
def test_cached_features(check: Check) -> None:
    judge_all(check, faults("MANIFEST-207"))
