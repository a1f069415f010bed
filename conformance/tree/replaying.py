"""Answers of trees in the conventions of the golden cases: where positions begin, and how a mask hides."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance import compare
from conformance.roads import tree as road
from conformance.tree.pictures import LEAST_SHARE
from oracle.types import FlatTree, SelectionCase


def shown(operation: str, found: Any, arguments: Mapping[str, Any], declaration: Declaration) -> Any:
    """What of an answer is compared."""
    if operation in ("flatten_tree", "draft_tree"):
        bases = [case.base for case in arguments["cases"]]
        return [_flat(tree, base, declaration) for tree, base in zip(compare.members(found, len(bases)), bases)]
    if operation == "tree_mask":
        forms = [case.form for case in arguments["cases"]]
        return [_mask(mask, form) for mask, form in zip(compare.members(found, len(forms)), forms)]
    if operation == "select_nodes" and declaration.conventions.get("selection_order") == "node":
        return _ranked(compare.plain(found, "the answer"), arguments["case"])
    return found


def _ranked(found: np.ndarray, case: SelectionCase) -> np.ndarray:
    """A set of nodes, which comes in node order, in the order of selection."""
    nodes = found.tolist()
    if found.ndim != 1 or nodes != sorted(set(nodes)):
        return found
    place = {node: i for i, node in enumerate(road.rank(case.tree))}
    return np.array(sorted(nodes, key=lambda node: place.get(node, len(place))), dtype=found.dtype)


def _flat(tree: Any, base: int, declaration: Declaration) -> Any:
    """Positions from 0, and the root's before the rows', as the implementation declares to have them."""
    values: dict[str, Any] = {field.name: getattr(tree, field.name, None) for field in dataclasses.fields(FlatTree)}
    if values["position"] is None:
        return FlatTree(**values)
    position = compare.plain(values["position"], "position")
    if position.dtype.kind in "iu" and position.ndim == 1:
        position = position.astype(np.int64) - int(float(declaration.conventions.get("position_base", "0")))
        if declaration.conventions.get("root_in_verification") == "no":
            position = np.concatenate([[base], position])
    return FlatTree(**{**values, "position": position})


def _mask(mask: Any, form: str) -> np.ndarray:
    """An additive mask that hides by the least number of its dtype hides as −inf does."""
    held = compare.plain(mask, "a mask")
    if form == "additive" and held.dtype.kind == "f":
        return np.where(held <= np.finfo(held.dtype).min * LEAST_SHARE, -np.inf, held)
    return held
