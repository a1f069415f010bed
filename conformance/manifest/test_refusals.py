"""Refusals: documents and checkpoints that cannot be read, or are made to harm."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.handout import copy
from conformance.manifest.asking import OPERATION
from conformance.manifest.cases import HOSTILE, Recipe, made
from conformance.manifest.hostile import MARKER
from conformance.verdicts import ClauseViolation

LAYOUTS = ("eagle3", "modelopt", "eagle")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-901")
def test_unknown_keys_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-901")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-902")
def test_other_documents_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-902")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-903")
def test_cut_checkpoints_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-903")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-904")
def test_byte_ranges_that_do_not_fit_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-904")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-905")
def test_impossible_headers_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-905")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-906")
def test_tensors_that_stand_twice_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-906")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-907")
def test_pickled_files_are_refused_and_not_loaded(check: Check) -> None:
    refuses(check, "MANIFEST-907")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-908")
def test_ways_out_of_the_folder_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-908")


@pytest.mark.hostile
@pytest.mark.clauses("MANIFEST-909")
def test_missing_and_broken_files_are_refused(check: Check) -> None:
    refuses(check, "MANIFEST-909")


def refuses(check: Check, clause: str) -> None:
    """`ClauseViolation` unless each damage of the clause is refused, and no pickled file is loaded."""
    check.require(OPERATION)

    def body(recipe: Recipe) -> None:
        with made(recipe) as case:
            try:
                check.refuses(OPERATION, copy(case))
            finally:
                loaded = (case.drafter.parent / MARKER).exists()
            if loaded:
                raise ClauseViolation("a pickled file was loaded, and what it says was done")

    names = [name for name, one in HOSTILE.items() if one.clause == clause]
    check.for_each([Recipe(LAYOUTS[i % len(LAYOUTS)], name, 41 + i) for i, name in enumerate(names)], body)
