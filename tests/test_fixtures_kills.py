"""The fixtures tell every faulty and every degenerate implementation from a right one, as docs/kills.md says."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.interface import CONTRACTS
from conformance.fixtures import build, killing, publishing, reading
from conformance.fixtures.documents import Vector
from tests.running import ROOT
from tests.test_fixtures_build import OF_DESIGN

VECTORS = reading.read(ROOT / "fixtures" / "v1").vectors


def cases(contract: str) -> list[Vector]:
    return [vector for vector in VECTORS if vector.contract == contract]


@pytest.mark.parametrize("contract", build.contracts())
def test_a_contract_is_publishable_and_the_page_says_so(contract: str) -> None:
    """Redundant cases are listed on the page."""
    found = killing.table(contract, cases(contract))
    assert found.problems == ()
    page = publishing.PAGE.read_text(encoding="utf-8")
    written = "python -m conformance.fixtures.publishing writes it"
    assert publishing.of(page, contract) == publishing.told(found), written


def test_the_page_has_every_contract() -> None:
    page = publishing.PAGE.read_text(encoding="utf-8")
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == list(build.contracts())


def test_every_operation_of_the_design_has_a_degenerate_implementation() -> None:
    tried = {operation for one in killing.degenerate().values() for operation in one.operations}
    assert {name for names in OF_DESIGN.values() for name in names} <= tried
    names = {
        *("AcceptAll", "RejectAll", "Echo", "FirstChild", "AlwaysArgmax", "RowShifted", "PositionShifted"),
        *("OffsetsAreIds", "CoinsReversed", "BlindToQ", "IdentityMask"),
    }
    assert set(killing.degenerate()) == names
    assert tried <= {operation for names in CONTRACTS.values() for operation in names}


# ---- how the table is made


def found(**fields: Any) -> killing.Kills:
    right: dict[str, Any] = {
        "contract": "tree",
        "cases": {"tree_visibility": 8},
        "faults": {"One": ("a",)},
        "degenerate": {"Echo tree_visibility": ("a", "b")},
        "touched": {"TREE-502": ("a",)},
        **{"untouched": {}, "unshown": {}, "redundant": (), "problems": ()},
    }
    return killing.Kills(**{**right, **fields})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"cases": {"tree_visibility": 7}}, "tree_visibility has 7 cases; an operation has at least 8"),
        ({"faults": {"One": ()}}, "One, a faulty implementation, fails no case"),
        ({"faults": {"One": ()}, "unshown": {"One": "it takes time"}}, ""),
        ({"unshown": {"One": "it takes time"}}, "One is said to be shown by no data, and fails a"),
        ({"unshown": {"Two": "it takes time"}}, "UNSHOWN names Two, which is no faulty implementation"),
        (
            {"degenerate": {"Echo tree_visibility": ("a",)}},
            "Echo tree_visibility, degenerate, fails 1 cases; it fails at least 2",
        ),
        ({"degenerate": {"Echo grow_tree": ()}}, ""),
        ({"touched": {"TREE-502": ()}}, "TREE-502 is touched by no case"),
        ({"touched": {"TREE-502": ()}, "untouched": {"TREE-502": "it takes time"}}, ""),
        ({"untouched": {"TREE-502": "time"}}, "TREE-502 is said to be touched by no data, and a touches it"),
        ({"untouched": {"TREE-599": "time"}}, "UNTOUCHED names TREE-599, which is no clause that is judged"),
    ],
)
def test_what_keeps_a_set_from_being_published(fields: Any, problem: str) -> None:
    assert list(killing.problems(found(**fields))) == ([problem] if problem else [])


def test_a_case_that_alone_shows_something_is_needed() -> None:
    assert killing.needed("a", [("a",), ("a", "b")])
    assert not killing.needed("b", [("a",), ("a", "b"), ()])
