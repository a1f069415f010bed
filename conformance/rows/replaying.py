"""Answers of rows in the conventions of the golden cases: positions from zero, and no row kept as padding.

Who declares that a last row is padded has rows without a next token or a target: zeros stand for them, −1 in a
rollout. They are taken out, and may not be supervised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance import compare
from conformance.rows.asking import FILLER, NODES, POISON, VECTORS
from conformance.verdicts import ClauseViolation
from oracle.types import GatheredRows, RolloutRows, RowPlan

GATHERED = ("batch", "feature", "token", "target", "supervise", "position")


def shown(operation: str, found: Any, arguments: Mapping[str, Any], declaration: Declaration) -> Any:
    """What of an answer is compared."""
    if operation in ("soft_rows", "hard_rows"):
        plan = _arrays(found, (*VECTORS, "visible"))
        return RowPlan(**{**plan, "position": plan["position"] - _base(declaration)})
    if operation == "gather_rows":
        held = _arrays(found, GATHERED)
        padding = (held["token"] == 0) | ~np.any(held["feature"], axis=1) | ~np.any(held["target"], axis=1)
        return GatheredRows(**_without(held, padding, declaration))
    if operation == "rollout_rows":
        held = _arrays(found, NODES)
        padding = (held["consumed"] == FILLER) | (held["target"] == FILLER)
        kept = _without(held, padding, declaration)
        if len(kept["step"]) < len(padding):
            fed, place = kept["state_from"], np.cumsum(~padding) - 1
            kept["state_from"] = np.where(fed >= 0, np.where(padding[fed], POISON, place[fed]), fed)
        return RolloutRows(**kept)
    return found


def _arrays(found: Any, names: tuple[str, ...]) -> dict[str, Any]:
    held = {name: compare.plain(getattr(found, name, None), name) for name in names}
    rows = {name: array.shape[:1] for name, array in held.items()}
    if len(set(rows.values())) > 1:
        raise ClauseViolation(f"an answer has one entry a row, and has {rows}")
    return held


def _without(held: dict[str, Any], padding: Any, declaration: Declaration) -> dict[str, Any]:
    """The rows that are no padding, positions from zero."""
    held = {**held, "position": held["position"] - _base(declaration)}
    if declaration.conventions.get("last_row", "drop") != "pad":
        return held
    if np.any(held["supervise"][padding]):
        raise ClauseViolation("a row that is kept as padding is supervised")
    return {name: array[~padding] for name, array in held.items()}


def _base(declaration: Declaration) -> int:
    return int(float(declaration.conventions.get("position_base", "0")))
