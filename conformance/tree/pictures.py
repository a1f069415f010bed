"""Masks of every form read as one picture: which columns each row of the verification input sees."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from conformance.check import Check
from conformance.tree import asking, drawing
from conformance.tree.cases import Masks
from conformance.verdicts import ClauseViolation
from oracle.types import Flags, MaskCase

LEAST_SHARE = 0.5
"""A hidden entry of an additive mask is −inf, or this share of the least number of its dtype or less."""


def rows(parent: Any) -> list[str]:
    return [f"row {i}" + (f" (below {p})" if p >= 0 else "") for i, p in enumerate(np.asarray(parent).tolist())]


def picture(check: Check, case: MaskCase, mask: np.ndarray) -> Flags:
    """bool [m, prefix + m], m = n + 1, or n where the root is no part of it.

    The first row sees itself: what its entry holds counts as visible, so that polarity is a matter of its own clause.
    """
    n = len(case.parent)
    form = case.form
    if mask.ndim != 2 or mask.shape[0] not in (n, n + 1):
        raise ClauseViolation(f"the mask has the shape {mask.shape}; it has a line for the root and each of {n} rows")
    columns = case.prefix + mask.shape[0]
    if mask.shape[0] == 0:
        return np.zeros((0, columns), dtype=bool)
    if form.startswith("packed"):
        width = int(form.removeprefix("packed"))
        if mask.dtype.kind not in "ui" or mask.dtype.itemsize * 8 != width:
            raise ClauseViolation(f"the mask is {mask.dtype}; it holds words of {width} bits")
        words = -(-columns // width)
        if mask.shape[1] != words:
            raise ClauseViolation(f"{columns} columns take {words} words of {width} bits, found {mask.shape[1]}")
        return np.array([[bits(row, c, width) for c in range(columns)] for row in mask.tolist()], dtype=bool)
    if mask.shape[1] != columns:
        raise ClauseViolation(f"the mask has {mask.shape[1]} columns, of {columns}")
    if form == "additive":
        if mask.dtype.kind != "f" or np.isnan(mask).any():
            raise ClauseViolation(f"the mask is {mask.dtype}; an additive one holds floats, and no NaN")
        return np.asarray(mask >= mask[0, case.prefix], dtype=bool)
    if mask.dtype != np.bool_ and not np.isin(mask, (0, 1)).all():
        raise ClauseViolation(f"the mask is {mask.dtype} and holds {np.unique(mask)[:4].tolist()}; it is true or false")
    seen = mask.astype(bool)
    return np.asarray(seen == seen[0, case.prefix], dtype=bool)


def bits(row: list[int], column: int, width: int) -> bool:
    return bool((row[column // width] >> (column % width)) & 1)


def expected(check: Check, case: MaskCase, size: int) -> tuple[Flags, list[str], list[str]]:
    """The right picture of `size` rows, its rows and its columns named."""
    right = asking.expected_mask(check, case.parent, case.prefix)
    names = ["the root", *rows(case.parent)]
    if size < len(right):
        right, names = np.delete(right[1:], case.prefix, axis=1), names[1:]
    return right, names, [*(f"decided token {i}" for i in range(case.prefix)), *names]


def judge(check: Check, call: Masks, prefix_alone: bool = False) -> None:
    """`ClauseViolation` at the first wrong edge of a member, among the columns of decided tokens or in all of them."""
    for member, (case, mask) in enumerate(zip(call.cases, asking.masked(check, call))):
        found = picture(check, case, mask)
        right, names, columns = expected(check, case, len(found))
        check.observe("root_in_verification", "yes" if len(found) > len(case.parent) else "no")
        kind = f"member {member}, {case.form} mask" if len(call.cases) > 1 else f"the {case.form} mask"
        ours, wanted = found.copy(), right.copy()
        if prefix_alone:
            ours[:, case.prefix :] = wanted[:, case.prefix :]
        if not np.array_equal(ours, wanted):
            first = case.prefix + len(found) - len(case.parent)  # the column of row 0
            kin = functools.partial(_kin, case.parent.tolist(), len(found) - len(case.parent), first)
            raise ClauseViolation(drawing.edge(kind, wanted, ours, names, columns, kin))


def _kin(parent: list[int], roots: int, first: int, line: int, column: int) -> str:
    """What a column is to a line of a mask; that of a decided token says it by its name."""
    return drawing.kinship(parent, line - roots, column - first) if column - first >= -roots else ""


def polarity(check: Check, call: Masks) -> None:
    """`ClauseViolation` unless the mask, read as its form says, has every row see itself."""
    for case, mask in zip(call.cases, asking.masked(check, call)):
        own = np.diagonal(mask.astype(bool)[:, case.prefix :]) == (case.form == "allowed")
        if not own.all():
            i = int(np.argmin(own))
            names = expected(check, case, len(picture(check, case, mask)))[1]
            raise ClauseViolation(f"{names[i]} does not see itself: the mask is no {case.form!r} one, but its opposite")


def additive(check: Check, call: Masks) -> None:
    for case, mask in zip(call.cases, asking.masked(check, call)):
        right, names, columns = expected(check, case, len(picture(check, case, mask)))
        for i, j in np.argwhere(right & (mask != 0)).tolist():
            raise ClauseViolation(f"{names[i]} sees {columns[j]}, and the mask adds {mask[i, j]} there")
        for i, j in np.argwhere(~right & (mask > np.finfo(mask.dtype).min * LEAST_SHARE)).tolist():
            raise ClauseViolation(f"{names[i]} does not see {columns[j]}, and the mask adds but {mask[i, j]} there")


def packed(check: Check, call: Masks) -> None:
    judge(check, call)
    for case, mask in zip(call.cases, asking.masked(check, call)):
        width = int(case.form.removeprefix("packed"))
        columns = case.prefix + len(mask)
        for r, row in enumerate(mask.tolist()):
            if beyond := [c for c in range(columns, len(row) * width) if bits(row, c, width)]:
                raise ClauseViolation(f"line {r} of the mask has bit {beyond[0]} set, beyond its {columns} columns")
