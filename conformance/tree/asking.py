"""Asking an implementation for trees, and reading its answers: their form is judged here, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance import compare
from conformance.check import Check
from conformance.handout import copy
from conformance.roads import tree as road
from conformance.tree.cases import Draftings, Flattenings, Masks, Parents
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle import masks as masks_oracle
from oracle import tree as oracle
from oracle.types import CandidateTree, Flags, FlatTree, GrowthCase, Ids, MaskCase, SelectionCase

INTEGERS, FLOATS = "iu", "f"


def grown(check: Check, case: GrowthCase) -> CandidateTree:
    """The implementation's candidates, their form judged."""
    found = check.call("grow_tree", copy(case))
    parent = compare.vector(getattr(found, "parent", None), "parent", INTEGERS)
    values = {"parent": parent}
    for name, kinds in (("token", INTEGERS), ("confidence", FLOATS), ("log_value", FLOATS), ("depth", INTEGERS)):
        values[name] = compare.vector(getattr(found, name, None), name, kinds, len(parent), "node")
    return CandidateTree(**values)


def selected(check: Check, case: SelectionCase) -> list[int]:
    """The implementation's selection, its form judged."""
    found = compare.vector(check.call("select_nodes", copy(case)), "the answer", INTEGERS).tolist()
    for node in found:
        if not 0 <= node < len(case.tree.parent):
            raise ClauseViolation(f"the selection {found} names {node}, which is no node of {len(case.tree.parent)}")
    return [int(node) for node in found]


def flattened(check: Check, call: Flattenings) -> list[FlatTree]:
    """The implementation's rows, one flat tree a case, their form judged."""
    found = check.call("flatten_tree", [copy(case) for case in call.cases])
    return [flat(tree) for tree in compare.members(found, len(call.cases))]


def drafted(check: Check, call: Draftings) -> list[FlatTree]:
    """The implementation's drafted trees, one a case, their form judged."""
    found = check.call("draft_tree", [copy(case) for case in call.cases])
    return [flat(tree) for tree in compare.members(found, len(call.cases))]


def masked(check: Check, call: Masks) -> list[np.ndarray]:
    """The implementation's raw masks, one a case."""
    found = compare.members(check.call("tree_mask", [copy(case) for case in call.cases]), len(call.cases))
    return [compare.plain(mask, "a mask") for mask in found]


def visible(check: Check, case: Parents) -> Flags:
    """The visibility of a parent vector, its form judged."""
    return boolean(check.call("tree_visibility", case.parent.copy()), "the answer", len(case.parent))


def flat(found: Any) -> FlatTree:
    """A flat tree whose vectors fit each other; what is not shown is None."""
    parent = compare.vector(getattr(found, "parent", None), "parent", INTEGERS)
    rows = len(parent)
    values: dict[str, Any] = {"parent": parent}
    values["token"] = compare.vector(getattr(found, "token", None), "token", INTEGERS, rows, "row")
    for name in ("node", "depth", "first_child", "next_sibling"):
        value = getattr(found, name, None)
        values[name] = None if value is None else compare.vector(value, name, INTEGERS, rows, "row")
    value = getattr(found, "visible", None)
    values["visible"] = None if value is None else boolean(value, "visible", rows)
    value = getattr(found, "paths", None)
    values["paths"] = None if value is None else matrix(value)
    value = getattr(found, "position", None)
    if value is not None:
        position = values["position"] = compare.vector(value, "position", INTEGERS)
        if len(position) not in (rows, rows + 1):
            raise ClauseViolation(f"position has {len(position)} entries; there is the root, and there are {rows} rows")
    return FlatTree(**values)


def boolean(value: Any, name: str, rows: int) -> Flags:
    array = compare.plain(value, name)
    if array.shape != (rows, rows) or (rows and array.dtype != np.bool_):
        raise ClauseViolation(f"{name} is {array.dtype} of shape {array.shape}; it is boolean, {rows} rows by {rows}")
    return array.astype(bool)


def matrix(value: Any) -> Ids:
    array = compare.plain(value, "paths")
    if array.ndim != 2 or (array.size and array.dtype.kind not in INTEGERS):
        raise ClauseViolation(f"paths is {array.dtype} of shape {array.shape}; it is a matrix of rows, one leaf a line")
    return array.astype(np.int64)


def shown(trees: Sequence[FlatTree], *names: str) -> None:
    """End as "not applicable" where the implementation has no such thing."""
    for tree in trees:
        for name in names:
            if getattr(tree, name) is None:
                raise Inapplicable(f"the implementation shows no {name}")


# ---- the right answers, by the second road; the oracle has to agree


def expected_growth(check: Check, case: GrowthCase) -> list[road.Candidate]:
    right = road.grown(case)
    if not check.is_oracle:
        ours = oracle.grow_tree(case)
        known = {one.path: one for one in right}
        for path, c in zip(road.paths(ours.parent.tolist(), ours.token.tolist()), ours.confidence.tolist()):
            if path in known and known[path].confidence != c:
                raise HarnessError(f"the oracle and the second road disagree about the confidence of {path}")
        if len(ours.parent) != len(right):
            raise HarnessError("the oracle and the second road disagree about the number of candidates")
    return right


def expected_rows(check: Check, case: Any) -> list[int]:
    """The selected nodes by (depth, id)."""
    depth = road.depths(case.tree.parent.tolist())
    right = sorted(case.selected.tolist(), key=lambda node: (depth[node], node))
    if not check.is_oracle and oracle.flatten_tree([case])[0].node.tolist() != right:  # type: ignore[union-attr]
        raise HarnessError("the oracle and the second road disagree about the rows")
    return right


def expected_visible(check: Check, parent: Ids) -> Flags:
    right = road.visible(parent.tolist())
    if not check.is_oracle and not np.array_equal(oracle.tree_visibility(parent), right):
        raise HarnessError("the oracle and the second road disagree about visibility")
    return right


def expected_mask(check: Check, parent: Ids, prefix: int) -> Flags:
    right = road.verified(parent.tolist(), prefix)
    ours = masks_oracle.tree_mask([MaskCase(parent, prefix)])[0]
    if not check.is_oracle and not np.array_equal(ours, right):
        raise HarnessError("the oracle and the second road disagree about a mask")
    return right
