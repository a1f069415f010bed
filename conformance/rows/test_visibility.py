"""Positions and visibility: where a row stands, and whom it sees."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check
from conformance.rows import asking, strategies
from conformance.rows.asking import VIA
from conformance.rows.cases import EDGES, HOLE, LEFT, PACKED, REUSED, WIDE, WORKED
from conformance.rows.drawing import flags
from conformance.verdicts import ClauseViolation
from oracle.types import RowPlan, TokenBatch

SEES = [
    pytest.param("full", marks=pytest.mark.clauses("ROWS-502")),
    pytest.param("apart", marks=pytest.mark.clauses("ROWS-503")),
    pytest.param("interrupted", marks=pytest.mark.clauses("ROWS-505")),
]
BATCHES: dict[str, st.SearchStrategy[TokenBatch]] = {
    "full": strategies.full(flags=False),
    "apart": st.one_of(
        strategies.packed(flags=False), strategies.repeated(flags=False), strategies.padded(flags=False)
    ),
    "interrupted": strategies.interrupted(flags=False),
}


@pytest.mark.clauses("ROWS-501")
@pytest.mark.parametrize("via", VIA)
def test_a_row_stands_where_its_source_stands(check: Check, via: str) -> None:
    check.require(via)

    seen: set[int] = set()

    def body(case: TokenBatch) -> None:
        found = asking.ask(check, via, case)
        bases = {int(place - case.position[key]) for key, place in zip(found.keys, found.position)}
        seen.update(bases)
        if bases - {asking.base(check)}:
            raise ClauseViolation(
                f"the sources stand at {[int(case.position[key]) for key in found.keys]}, their rows at "
                f"{found.position}, and these count from the declared base {asking.base(check)}"
            )

    try:
        wide = [WIDE] if via == "soft_rows" else []  # traced tokens are small, positions as given
        check.for_all(strategies.anything(), body, first=[*EDGES, *wide])
    finally:
        if len(seen) == 1:
            check.observe("position_base", str(*seen))


@pytest.mark.parametrize("kind", SEES)
@pytest.mark.parametrize("operation", ["soft_rows", "hard_rows"])
def test_whom_a_row_sees(check: Check, operation: str, kind: str) -> None:
    check.require(operation)
    edges = {"full": [WORKED], "apart": [PACKED, REUSED, LEFT], "interrupted": [HOLE]}[kind]
    # every flag set: what supervision does to visibility, another clause asks
    first = [dataclasses.replace(case, supervise=np.ones(case.valid.shape, dtype=bool)) for case in edges]
    check.for_all(BATCHES[kind], lambda case: sees(check, operation, case), first=first)


@pytest.mark.clauses("ROWS-504")
@pytest.mark.parametrize("operation", ["soft_rows", "hard_rows"])
def test_supervision_is_no_visibility(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: TokenBatch) -> None:
        every = dataclasses.replace(case, supervise=np.ones(case.valid.shape, dtype=bool))
        found, other = (asking.plan(check, operation, one).visible for one in (case, every))
        if not np.array_equal(found, other):
            raise ClauseViolation(
                f"with these flags the rows see\n{drawn(found)}\nand with every flag set\n{drawn(other)}"
            )

    check.for_all(strategies.anything(), body, first=EDGES)


# ---- what these checks share


def sees(check: Check, operation: str, case: TokenBatch) -> None:
    found, right = asking.plan(check, operation, case), asking.expected(check, case)
    if found.visible.shape != right.visible.shape:
        raise ClauseViolation(f"there are {len(right.source)} rows, and visible is of {found.visible.shape}")
    for q, k in np.argwhere(found.visible != right.visible).tolist():
        relation = "sees" if right.visible[q, k] else "does not see"
        raise ClauseViolation(
            f"the row {named(right, case, q)} {relation} the row {named(right, case, k)}; the answer is the other way "
            f"round: expected {flags(right.visible[q])}, found {flags(found.visible[q])}"
        )


def named(plan: RowPlan, case: TokenBatch, r: int) -> str:
    b, t = int(plan.batch[r]), int(plan.source[r])
    return f"at source {t} (batch row {b}, segment {int(case.segment[b, t])}, position {int(plan.position[r])})"


def drawn(visible: np.ndarray) -> str:
    return "\n".join("  " + flags(row) for row in visible)
