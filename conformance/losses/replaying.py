"""Answers of losses to golden cases: what of them is compared, and what has to hold where several are right.

"refused_or_not_finite": the case is refused, or the loss is NaN or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from adapters.interface import Declaration
from conformance.check import Raised
from conformance.handout import copy
from conformance.losses.judge import TRAINED, read, real
from oracle.types import LossResult

REFUSED_OR_NOT_FINITE: Mapping[str, Any] = {"relation": "refused_or_not_finite"}

WITH_PARTS = ("eagle1_loss", "hass_loss", "rollout_loss")


def shown(operation: str, found: Any, arguments: Mapping[str, Any], declaration: Declaration) -> Any:
    """What of an answer is compared: real numbers as such, and the parts of losses that have any."""
    if operation not in TRAINED:
        return found
    answer = read(found)
    given = list(getattr(found, "parts", ())) if operation in WITH_PARTS else []
    parts = tuple(real(part, f"parts[{i}]") for i, part in enumerate(given))
    return LossResult(answer.value, getattr(found, "grad", {}), parts)


def broken(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    """Why the relation does not hold, or None."""
    try:
        found = read(call(operation, copy(arguments["case"]))).value
    except Raised:
        return None
    if found is not None and not math.isfinite(found):
        return None
    return f"a row that counts holds what is no number, and the loss is {found}"
