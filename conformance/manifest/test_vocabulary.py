"""Vocabulary: sizes, the draft map, heads, tokenizers.

A release is made with one fault of the clause, and the clause is what is to be found: that one and no other.
"""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.manifest.asking import judge_all
from conformance.manifest.cases import faults


@pytest.mark.clauses("MANIFEST-401")
def test_vocabulary_sizes(check: Check) -> None:
    judge_all(check, faults("MANIFEST-401"))


@pytest.mark.clauses("MANIFEST-402")
def test_draft_vocabulary_sizes(check: Check) -> None:
    judge_all(check, faults("MANIFEST-402"))


@pytest.mark.clauses("MANIFEST-403")
def test_map_of_distinct_tokens(check: Check) -> None:
    judge_all(check, faults("MANIFEST-403"))


@pytest.mark.clauses("MANIFEST-404")
def test_map_that_rises(check: Check) -> None:
    judge_all(check, faults("MANIFEST-404"))


@pytest.mark.clauses("MANIFEST-405")
def test_marked_tokens(check: Check) -> None:
    judge_all(check, faults("MANIFEST-405"))


@pytest.mark.clauses("MANIFEST-406")
def test_offsets_and_absolute_ids(check: Check) -> None:
    judge_all(check, faults("MANIFEST-406"))


@pytest.mark.clauses("MANIFEST-407")
def test_head_of_a_reduced_vocabulary(check: Check) -> None:
    judge_all(check, faults("MANIFEST-407"))


@pytest.mark.clauses("MANIFEST-408")
def test_map_of_a_reduced_vocabulary(check: Check) -> None:
    judge_all(check, faults("MANIFEST-408"))


@pytest.mark.clauses("MANIFEST-409")
def test_own_and_shared_parts(check: Check) -> None:
    judge_all(check, faults("MANIFEST-409"))


@pytest.mark.clauses("MANIFEST-410")
def test_tokenizers(check: Check) -> None:
    judge_all(check, faults("MANIFEST-410"))
