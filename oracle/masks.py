"""Verification masks: which columns a row of the verification input sees, in the forms that engines hand out.

The input is the root, then the rows of the tree; before their columns stand those of decided tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import listed, one_of, whole
from oracle.tree import tree_visibility
from oracle.types import MASK_FORMS, Flags, MaskCase


def tree_mask(cases: Sequence[MaskCase]) -> list[np.ndarray]:
    """Each case's mask, root row and column first: [n + 1, prefix + n + 1] in its form (TREE 51x). Raises `BadInput`.

    "allowed": bool, true = visible. "blocked": bool, true = hidden. "additive": float64, 0 = visible, −inf = hidden.
    "packed8", "packed16", "packed32": unsigned words [n + 1, ceil(columns / width)], a set bit = visible.
    """
    listed(cases, "cases", MaskCase)
    return [_mask(case, f"cases[{i}]") for i, case in enumerate(cases)]


def _mask(case: MaskCase, field: str) -> np.ndarray:
    if not isinstance(case, MaskCase):
        raise BadInput(field, (), "a case is an oracle.types.MaskCase", type(case).__name__)
    prefix = whole(case.prefix, f"{field}.prefix", 0)
    form = one_of(case.form, f"{field}.form", MASK_FORMS)
    inside = tree_visibility(case.parent)
    rows = len(inside) + 1
    visible = np.zeros((rows, prefix + rows), dtype=bool)
    visible[:, : prefix + 1] = True  # decided tokens, and the root
    visible[1:, prefix + 1 :] = inside
    if form == "allowed":
        return visible
    if form == "blocked":
        return ~visible
    if form == "additive":
        return np.where(visible, 0.0, -np.inf)
    return _packed(visible, int(form.removeprefix("packed")))


def _packed(visible: Flags, width: int) -> np.ndarray:
    rows, columns = visible.shape
    words = np.zeros((rows, -(-columns // width)), dtype=f"uint{width}")
    for r in range(rows):
        for c in range(columns):
            if visible[r, c]:
                words[r, c // width] |= words.dtype.type(1 << (c % width))
    return words
