"""Answers of trees in the conventions of the golden cases: where positions begin, and how a mask hides."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance import compare
from conformance.tree.pictures import LEAST_SHARE
from oracle.types import FlatTree


def shown(operation: str, found: Any, arguments: Mapping[str, Any], declaration: Declaration) -> Any:
    """What of an answer is compared."""
    if operation in ("flatten_tree", "draft_tree"):
        bases = [case.base for case in arguments["cases"]]
        return [_flat(tree, base, declaration) for tree, base in zip(compare.members(found, len(bases)), bases)]
    if operation == "tree_mask":
        forms = [case.form for case in arguments["cases"]]
        return [_mask(mask, form) for mask, form in zip(compare.members(found, len(forms)), forms)]
    return found


def _flat(tree: Any, base: int, declaration: Declaration) -> Any:
    """Positions from 0, and the root's before the rows', as the implementation declares to have them."""
    values = {field.name: getattr(tree, field.name, None) for field in dataclasses.fields(FlatTree)}
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
