"""What has to hold of a drafter's answer to a golden case where there is more than one right one.

"refused_or_not_finite": the case is refused, or some logit is NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance import compare
from conformance.check import Raised
from conformance.handout import copy

REFUSED_OR_NOT_FINITE: Mapping[str, Any] = {"relation": "refused_or_not_finite"}


def broken(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    """Why the relation does not hold, or None."""
    try:
        found = call(operation, copy(arguments["case"]))
    except Raised:
        return None
    logits = compare.plain(getattr(found, "logits", None), "logits")
    if logits.dtype.kind == "f" and not np.isfinite(logits).all():
        return None
    return "NaN is read, and every logit is a finite number"
