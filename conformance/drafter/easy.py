"""Easy cases of the drafter contract: what the smoke step asks of an adapter."""

from __future__ import annotations

from typing import Any

from adapters.interface import CONVENTIONS, Declaration
from conformance.drafter.cases import EAGLE1, EVERY
from conformance.drafter.making import PLAIN, SERVED, configured, make
from conformance.drafter.shapes import without_bias
from oracle.types import DRAFTERS


def easy(operation: str, declaration: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Arguments of `operation`, and the fields of its answer; a variant that an adapter has not is passed over."""
    order = declaration.conventions.get("fusion_order", CONVENTIONS["fusion_order"][0])
    alone = [make(v, PLAIN, 8, 2) for v in DRAFTERS]  # for a trainer that rolls nothing out
    cases = [*(make(v, SERVED, 7, 2, 1) for v in DRAFTERS), *alone, *map(without_bias, EVERY)]
    return [configured(c, fusion_order=order) if c.variant == EAGLE1 else c for c in cases], ("logits", "states")
