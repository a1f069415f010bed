"""The golden vectors of rows: every way in which a batch is not one full segment, and batches that are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.roads import rows as road
from conformance.rows.cases import (
    ANSWER,
    HOLE,
    LARGE,
    LEFT,
    PACKED,
    RAGGED,
    REUSED,
    WIDE,
    WORKED,
    batch,
    empty,
    poisoned,
    traced,
    trapped,
)
from conformance.verdicts import HarnessError
from oracle import rows as oracle
from oracle.errors import BadInput
from oracle.types import OWNERS, GatherCase, GatheredRows, RolloutRowsCase, SupervisionCase, TokenBatch

DROP, ANCHOR = "last_row=drop", "rollout_position=anchor_plus_step"
FLAGS: Mapping[str, Flag] = {
    DROP: Flag(
        "convention", "Addresses are poisoned that a row without a target, kept as padding, would be gathered from."
    ),
    ANCHOR: Flag("convention", "A node stands at the position of its anchor plus its step, where positions skip."),
}


@dataclass(frozen=True, eq=False)
class Refused(Golden):
    """A case that names the field it is refused for."""

    names: str = ""


# ---- batches that the suite draws, and does not keep by name

FULL = batch([[11, 12, 13, 14, 15]])
EIGHT = batch([[1, 2, 3, 4, 5, 6, 7, 8]], supervise=[[1, 0, 0, 1, 1, 0, 1, 0]])
"""The flags of each of six steps are others."""
RETURNING = batch(
    [[3, 1, 4, 2, 5, 9, 6]],
    segment=[[6, 6, 1, 1, 1, 6, 6]],
    position=[[2, 4, 0, 1, 3, 5, 9]],
    supervise=[[1, 0, 1, 0, 1, 0, 1]],
)
"""A segment that another one interrupts."""
SINGLES = batch([[7, 3, 8, 5, 1]], segment=[[2, 0, 0, 4, 4]], position=[[0, 0, 1, 0, 1]], supervise=[[1, 1, 0, 1, 1]])
"""A sequence of one token before others."""
TWO = batch([[3, 1, 2], [6, 4, 5]], supervise=[[1, 0, 1], [0, 1, 0]])
"""Two full batch rows with the same segment id."""
SKIPPING = batch([[3, 1, 4, 2]], position=[[0, 2, 3, 7]], supervise=[[0, 1, 1, 0]])
HALVES: Any = np.array([[0.5, 1.5, 2.5], [0.5, 1.5, 2.5]])


def changed(name: str, value: Any) -> TokenBatch:
    """`TWO` with one array that does not fit."""
    return dataclasses.replace(TWO, **{name: value})


def fine(given: TokenBatch) -> GatherCase:
    """The batch with features that use every bit of a float32, none of them twice."""
    shape = (*given.valid.shape, 3)
    features = (np.arange(np.prod(shape)).reshape(shape) * 9_973 + 17) * 7_919 % 2**24 / 2**21 - 4
    return GatherCase(given, np.where(given.valid[:, :, None], features, 0.0))


# ---- cases


def plans(case: TokenBatch, soft: Sequence[int], hard: Sequence[int], told: str, *flags: str) -> list[Golden]:
    """A batch for both kinds of rows, each with the clauses that it touches."""
    asked = [("soft_rows", soft), ("hard_rows", hard)]
    return [Golden(name, _ids(ids), told, {"batch": case}, flags) for name, ids in asked if ids]


def mask(given: TokenBatch, flags: Sequence[Sequence[int]], owner: str, told: str, *clauses: int) -> Golden:
    case = SupervisionCase(given, np.array(flags, dtype=bool), owner)
    return Golden("supervision_at_source", _ids(clauses), told, {"case": case})


def gather(case: GatherCase, told: str, *clauses: int, flags: tuple[str, ...] = ()) -> Golden:
    return Golden("gather_rows", _ids(clauses), told, {"case": case}, flags)


def rollout(given: TokenBatch, steps: int, told: str, *clauses: int, flags: tuple[str, ...] = ()) -> Golden:
    return Golden("rollout_rows", _ids(clauses), told, {"case": RolloutRowsCase(given, steps)}, flags)


def refused(operation: str, case: Any, clause: int, names: str, told: str) -> Golden:
    parameter = "batch" if isinstance(case, TokenBatch) else "case"
    return Refused(operation, _ids([clause]), told, {parameter: case}, ("hostile",), names)


def _ids(clauses: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"ROWS-{clause}" for clause in clauses)


GOLDEN: tuple[Golden, ...] = (
    *plans(FULL, (201, 205, 303, 502), (304, 305, 306), "Five tokens that fill their batch row have four rows"),
    *plans(WORKED, (101, 202, 303), (304, 305, 306), "Padding on the right ends a sample one token sooner"),
    *plans(RAGGED, (102, 202, 204), (102, 304, 306), "A short sample beside a long one", "batch"),
    *plans(LEFT, (202, 301, 501), (304, 305), "A short sample padded on the left keeps its positions", "batch"),
    *plans(HOLE, (202, 302, 505), (305, 306), "Rows on both sides of a hole are of one segment"),
    *plans(PACKED, (203, 302, 501, 503), (203, 305, 306), "No row leads from one packed sequence into the next"),
    *plans(REUSED, (102, 204, 503), (306,), "Two packs whose segments have the same ids, cut at other places", "batch"),
    *plans(ANSWER, (104, 301, 302, 504), (104, 305), "An answer after its prompt; the last flag has no row", UNCHANGED),
    *plans(RETURNING, (203, 502, 505), (305, 306), "A segment that another one interrupts sees what it had before"),
    *plans(SINGLES, (203, 301, 504), (306,), "A sequence of one token has no row"),
    *plans(WIDE, (203, 501), (306,), "Ids and positions beyond 16 and 32 bits", "large"),
    *plans(poisoned(LEFT), (401,), (401,), "Wild ids and positions before a sample change nothing", "poison", "batch"),
    *plans(poisoned(HOLE), (401, 505), (401,), "Wild ids and positions in a hole change nothing", "poison"),
    *plans(empty(2, 3), (103,), (103,), "Batch rows without a valid token have no row", "empty"),
    *plans(batch([[4]]), (103,), (103,), "One token has no next one, and no row", "empty"),
    *(
        refused(operation, case, clause, names, told)
        for operation in ("soft_rows", "hard_rows")
        for case, clause, names, told in (
            (
                batch([[3, 1, 2]], position=[[0, 0, 1]]),
                701,
                "batch.position",
                "A position that stands still is refused",
            ),
            (
                batch([[3, 1, 2, 4]], segment=[[5, 1, 1, 5]], position=[[4, 0, 1, 4]]),
                *(701, "batch.position", "A segment that comes back at its own last position is refused"),
            ),
            (changed("supervise", TWO.supervise[:1]), 702, "batch.supervise", "Flags of fewer batch rows are refused"),
            (changed("valid", TWO.valid.astype(np.int64)), 702, "batch.valid", "Numbers are no flags, and are refused"),
            (changed("position", HALVES), 702, "batch.position", "Positions that are no integers are refused"),
        )
    ),
    mask(FULL, [[1, 0, 1, 1, 0]], "source", "A token's flag supervises the row that it is the source of", 307, 309),
    mask(
        FULL, [[0, 1, 0, 0, 1]], "advanced", "A token's flag supervises the row that it is the next token of", 307, 309
    ),
    mask(FULL, [[1, 0, 0, 1, 1]], "label", "A token's flag supervises the row that it is the label of", 307, 309),
    mask(PACKED, [[1, 0, 0, 1, 1, 0, 1]], "advanced", "The first token of a packed sequence supervises nothing", 308),
    mask(PACKED, [[0, 1, 0, 1, 1, 1, 1]], "label", "The first two tokens of a packed sequence supervise nothing", 308),
    mask(RAGGED, [[1, 0, 1, 0, 0], [0, 1, 0, 1, 1]], "source", "A flag at an invalid source supervises nothing", 308),
    mask(
        RAGGED,
        [[0, 1, 1, 0, 1], [1, 0, 1, 1, 1]],
        "advanced",
        "A flag at an invalid next token supervises nothing",
        308,
    ),
    mask(HOLE, [[1, 0, 1, 1, 0, 1]], "label", "A label across a hole supervises nothing beside it", 308),
    mask(REUSED, [[1, 1, 0, 1, 0], [0, 1, 1, 1, 1]], "advanced", "Masks stay within their batch row", 307, 308),
    *(
        refused(
            "supervision_at_source",
            SupervisionCase(FULL, np.ones((1, 5), dtype=bool), owner),
            *(703, "owner", f"An owner of the name {owner!r} is refused"),
        )
        for owner in ("target", "Source")
    ),
    gather(traced(FULL), "Features and tokens that spell their address are gathered from it", 101, 205, 310, 402, 501),
    gather(traced(RAGGED), "A short sample beside a long one is gathered from its own batch row", 202, 204, 310),
    gather(traced(LEFT), "A sample padded on the left is gathered behind its padding", 202, 310, 404, 501),
    gather(traced(PACKED), "Packed sequences are gathered side by side, with their flags", 203, 302, 404, 501),
    gather(traced(ANSWER), "The last token has no row, although its flag is set", 104, 301, 310, flags=(UNCHANGED,)),
    gather(traced(empty(1, 2)), "A batch without a row gathers nothing", 103, flags=("empty",)),
    gather(fine(LARGE), "Features keep every bit of their float32, and ids theirs", 310, 402, flags=("large",)),
    gather(fine(REUSED), "Two packs with the same segment ids keep every bit", 204, 402, flags=("batch",)),
    gather(trapped(RAGGED, True), "NaN behind a sample does not reach its last row", 310, 401, 403, flags=("poison",)),
    gather(trapped(HOLE, False), "NaN in a hole and behind the end reaches no row", 401, 403, flags=("poison", DROP)),
    rollout(FULL, 3, "Each step of a rollout has one node less", 601, 602, 604, 605, 608, 609, flags=(UNCHANGED,)),
    rollout(FULL, 1, "One step is the rows themselves", 602, 604, 608, 609),
    rollout(batch([[6, 2, 9]]), 9, "More steps than tokens have no further nodes", 602, 608, 609),
    rollout(EIGHT, 6, "Each of six steps is supervised by flags of its own", 602, 606, 607, 608),
    rollout(PACKED, 2, "No node reaches into the next packed sequence", 601, 603, 606, 607),
    rollout(RETURNING, 3, "A segment that comes back starts anew", 603, 604, flags=(ANCHOR,)),
    rollout(
        poisoned(RAGGED), 3, "A short sample runs out before a long one", 401, 601, 603, 609, flags=("poison", "batch")
    ),
    rollout(poisoned(HOLE), 3, "No node reaches across a hole", 401, 603, 608, flags=("poison",)),
    rollout(
        poisoned(LEFT), 3, "Positions of a sample padded on the left are its own", 603, 606, 607, 609, flags=("poison",)
    ),
    rollout(REUSED, 3, "Two packs with the same ids have nodes of their own", 601, 603, 605, flags=("batch",)),
    rollout(SKIPPING, 3, "Where positions skip, a node stands at its anchor's plus its step", 607, flags=(ANCHOR,)),
    rollout(empty(2, 2), 2, "A batch without a row has no node", 103, 602, flags=("empty",)),
    refused("rollout_rows", RolloutRowsCase(PACKED, 0), 703, "steps", "A rollout of no step is refused"),
    refused("rollout_rows", RolloutRowsCase(PACKED, -1), 703, "steps", "A rollout of less than no step is refused"),
    refused(
        "rollout_rows",
        RolloutRowsCase(batch([[3, 1, 2]], position=[[2, 1, 3]]), 2),
        *(701, "batch.position", "Positions that turn back are refused"),
    ),
    refused(
        "rollout_rows",
        RolloutRowsCase(changed("segment", TWO.segment[:, :2]), 2),
        *(702, "batch.segment", "Segments of fewer tokens are refused"),
    ),
)

UNTOUCHED: Mapping[str, str] = {}
UNSHOWN: Mapping[str, str] = {}

ROADS: Mapping[str, Callable[[Any], Any]] = {
    "soft_rows": road.plan,
    "hard_rows": lambda case: road.plan(case, hard=True),
    "supervision_at_source": lambda case: road.supervised_sources(
        case.batch, case.token_mask, OWNERS.index(case.owner)
    ),
    "rollout_rows": lambda case: road.rollout(case.batch, case.steps),
    "gather_rows": lambda case: _gathered(case),
}


def answer(golden: Golden) -> Answer:
    """What the sets of addresses say and the oracle confirms. Raises `HarnessError` where they disagree."""
    (case,) = golden.arguments.values()
    operation = getattr(oracle, golden.operation)
    if isinstance(golden, Refused):
        try:
            operation(case)
        except BadInput as error:
            if error.field == golden.names:
                return Answer(golden.names, ("oracle", "by hand"), "refusal")
            raise HarnessError(f"{golden.description}: the oracle names the field {error.field}") from None
        raise HarnessError(f"{golden.description}: the oracle answers")
    found, right = operation(case), ROADS[golden.operation](case)
    pairs = [(found, right)] if isinstance(right, np.ndarray) else list(zip(vars(found).values(), vars(right).values()))
    if not all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs):
        raise HarnessError(f"{golden.description}: the oracle and the second road disagree")
    if golden.operation == "gather_rows":  # features are cast to the implementation's dtype, and nothing else
        return Answer(right, ("oracle", "sets of addresses"), "relative", {"roundings": 1})
    return Answer(right, ("oracle", "sets of addresses"))


def _gathered(case: GatherCase) -> GatheredRows:
    """The plan's rows, picked out of the arrays."""
    plan = road.plan(case.batch)
    rows = list(zip(plan.batch.tolist(), plan.source.tolist()))
    width = case.features.shape[2]

    def picked(ahead: int) -> Any:
        return np.array([case.features[b, t + ahead] for b, t in rows], dtype=np.float64).reshape(-1, width)

    return GatheredRows(
        batch=plan.batch,
        feature=picked(0),
        token=np.array([case.batch.tokens[b, t + 1] for b, t in rows], dtype=np.int64),
        target=picked(1),
        supervise=plan.supervise,
        position=plan.position,
    )
