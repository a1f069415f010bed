"""Easy cases of the metrics contract: what the smoke step asks of an adapter."""

from __future__ import annotations

from typing import Any

from adapters.interface import Declaration
from conformance.metrics.asking import COUNTS, RATIOS
from conformance.metrics.cases import STEADY, TWO_FLAGS


def easy(operation: str, _: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Arguments of `operation`, and the fields of its answer."""
    return [STEADY, TWO_FLAGS], (*COUNTS, *RATIOS, "by_depth")
