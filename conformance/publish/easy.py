"""Easy cases of publication: what the smoke step asks of an adapter; an interrupted one fails at its first change."""

from __future__ import annotations

from typing import Any

from adapters.interface import Declaration
from conformance.publish.asking import FIELDS
from conformance.publish.cases import CHAIN, NO_DRAFTS, PART, PREFILLED, RAGGED, a_round


def easy(operation: str, _: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Arguments of `operation`, and the fields of its answer, or of each member of it."""
    rounds = [[PART], [NO_DRAFTS], [a_round(CHAIN, 3)], [PREFILLED], list(RAGGED.rounds)]
    return [(cases, 0) for cases in rounds] if operation == "interrupted_publish" else list(rounds), FIELDS
