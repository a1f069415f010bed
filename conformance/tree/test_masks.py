"""Visibility of flat trees and parent vectors, and masks in every form, all read as one picture."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from conformance.check import Check
from conformance.tree import asking, drawing, pictures, strategies
from conformance.tree.cases import EDGE_SIZES, WIDE_PARENTS, Flattenings, Masks, Parents
from conformance.tree.named import FAMILIES, SIBLINGS
from conformance.tree.test_flattening import PLAIN, expected_parents
from conformance.verdicts import ClauseViolation
from oracle.types import MASK_FORMS, MaskCase

CHAIN = np.arange(-1, 4)
SMALL = np.array([-1, -1, 0, 1])
TREES = (SIBLINGS, FAMILIES, CHAIN)
BOOLEAN = ("allowed", "blocked")
PACKED = ("packed8", "packed16", "packed32")


def wanted(form: str, *prefixes: int) -> list[Masks]:
    """Packed masks are of one word here, so that words are a matter of their own clause."""
    trees = (SIBLINGS, SMALL) if form in PACKED else TREES
    return [Masks((MaskCase(parent, prefix, form),)) for parent in trees for prefix in prefixes]


@pytest.mark.clauses("TREE-501")
def test_a_row_sees_its_ancestors_and_itself(check: Check) -> None:
    check.require("flatten_tree")

    def body(call: Flattenings) -> None:
        (found,), (case,) = asking.flattened(check, call), call.cases
        asking.shown([found], "visible")
        above = np.array(expected_parents(case, asking.expected_rows(check, case)), dtype=np.int64)
        compare(check, above, found.visible)  # type: ignore[arg-type]

    check.for_all(strategies.flattenings(), body, first=[Flattenings((case,)) for case in PLAIN])


@pytest.mark.clauses("TREE-502")
def test_the_visibility_of_a_parent_vector(check: Check) -> None:
    check.require("tree_visibility")

    def body(case: Parents) -> None:
        compare(check, case.parent, asking.visible(check, case))

    first = [Parents(p.astype(np.int64)) for p in (*TREES, *WIDE_PARENTS)]
    check.for_all(strategies.parents(), body, first=first)


def compare(check: Check, parent: np.ndarray, found: np.ndarray) -> None:
    right = asking.expected_visible(check, parent)
    if found.shape != right.shape:
        raise ClauseViolation(f"visible has the shape {found.shape}, of {len(right)} rows")
    if not np.array_equal(found, right):
        rows = pictures.rows(parent)
        kin = functools.partial(drawing.kinship, parent.tolist())
        raise ClauseViolation(drawing.edge("ancestors and self", right, found, rows, rows, kin))


@pytest.mark.clauses("TREE-503")
def test_every_row_of_a_mask_sees_the_root(check: Check) -> None:
    """Asked without a prefix, of a tree whose rows see nothing but the root and themselves; forms are observed."""
    check.require("tree_mask")
    met: list[str] = []

    def body(call: Masks) -> None:
        pictures.judge(check, call)
        met.append(call.cases[0].form)

    check.for_each([Masks((MaskCase(np.full(n, -1), 0, form),)) for form in MASK_FORMS for n in (1, 2, 4)], body)
    check.observe("mask_form", ", ".join(dict.fromkeys(met)))


@pytest.mark.clauses("TREE-504")
@pytest.mark.parametrize("form", MASK_FORMS)
def test_a_drafted_row_of_a_mask_sees_its_ancestors(check: Check, form: str) -> None:
    check.require("tree_mask")
    check.for_all(strategies.masks(form), lambda call: pictures.judge(check, call), first=wanted(form, 0))


@pytest.mark.clauses("TREE-505")
@pytest.mark.parametrize("form", MASK_FORMS)
def test_every_row_of_a_mask_sees_the_prefix(check: Check, form: str) -> None:
    check.require("tree_mask")
    first = wanted(form, 1, 3)
    check.for_all(
        strategies.masks(form, prefix=True), lambda call: pictures.judge(check, call, prefix_alone=True), first=first
    )


@pytest.mark.clauses("TREE-506")
@pytest.mark.parametrize("form", BOOLEAN)
def test_the_polarity_of_a_boolean_mask(check: Check, form: str) -> None:
    check.require("tree_mask")
    check.for_each(wanted(form, 0, 2), lambda call: pictures.polarity(check, call))


@pytest.mark.clauses("TREE-507")
def test_an_additive_mask_is_zero_or_the_least_number(check: Check) -> None:
    check.require("tree_mask")
    check.for_each(wanted("additive", 0, 2), lambda call: pictures.additive(check, call))


@pytest.mark.clauses("TREE-508")
@pytest.mark.parametrize("form", PACKED)
def test_a_packed_mask_holds_its_columns_in_order(check: Check, form: str) -> None:
    """Sizes at the edges of words, with and without a prefix that moves the tree across them."""
    check.require("tree_mask")
    zigzag = [np.array([-1, *(i // 2 for i in range(n - 1))]) for n in EDGE_SIZES]
    cases = [Masks((MaskCase(parent, 0, form),)) for parent in zigzag]
    cases += [Masks((MaskCase(FAMILIES, prefix, form),)) for prefix in (7, 23, 24, 31, 55)]
    check.for_each(cases, lambda call: pictures.packed(check, call))


@pytest.mark.clauses("TREE-509")
@pytest.mark.parametrize("form", MASK_FORMS)
def test_each_mask_of_a_batch_is_its_own(check: Check, form: str) -> None:
    check.require("tree_mask")
    sizes = Masks(tuple(MaskCase(parent, 0, form) for parent in (FAMILIES, SIBLINGS, CHAIN)))
    alike = Masks(tuple(MaskCase(parent, 0, form) for parent in (np.array([-1, 0, 1]), np.array([-1, -1, 0]), CHAIN)))
    prefixes = Masks((MaskCase(CHAIN, 2, form), MaskCase(SIBLINGS, 5, form), MaskCase(FAMILIES, 1, form)))
    check.for_all(
        strategies.masks(form, members=3),
        lambda call: pictures.judge(check, call),
        first=[sizes, alike, prefixes],
    )
