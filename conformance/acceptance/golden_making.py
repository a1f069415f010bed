"""What the golden cases of verification are made of: rows, chains, trees, and the coins that they are asked at.

Rows are sixteenths, so that every law, threshold and cut of a coin is a ratio of small integers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.interface import Arithmetic
from conformance import compare
from conformance.acceptance.cases import Batch, coins
from conformance.fixtures.flags import FLOAT64
from conformance.fixtures.golden import Golden
from conformance.roads import acceptance as road
from conformance.roads import schemes
from oracle.types import Coins, VerifyCase

PER_NODE, FRONTIER, OPERATOR, INCLUSIVE = (
    "coin_scheme=per_node",
    "frontier_coin=inverse_cdf",
    "accept_operator=<",
    "accept_operator=<=",
)
Row = tuple[int, ...]
Coined = tuple[VerifyCase, Coins]


@dataclass(frozen=True, eq=False)
class Refused(Golden):
    """A case that names the field it is refused for."""

    names: str = ""


@dataclass(frozen=True, eq=False)
class Padded(Golden):
    """Drafts that are padding: refused, or the walk stops before them."""


@dataclass(frozen=True, eq=False)
class Inclusive(Golden):
    """A case of those who accept where u·q equals p."""


@dataclass(frozen=True, eq=False)
class Rounded(Golden):
    """A case that rounding decides: each decision within reach of float64 is right."""


def sixteenths(rows: Sequence[Row]) -> np.ndarray:
    return np.array(rows, dtype=np.float64) / 16


def tree(
    parent: Sequence[int], token: Sequence[int], target: Sequence[Row], draft: Sequence[Row] = (), proposal: str = ""
) -> VerifyCase:
    """A tree of drafts; without draft rows they are point proposals, and with them independent."""
    return VerifyCase(
        np.array(parent, dtype=np.int64),
        np.array(token, dtype=np.int64),
        sixteenths(target),
        proposal or ("iid" if draft else "point"),
        sixteenths(draft) if draft else None,
    )


def line(token: Sequence[int], target: Sequence[Row], draft: Sequence[Row] = ()) -> VerifyCase:
    """A chain of drafts."""
    return tree(range(-1, len(token) - 1), token, target, draft)


def poisoned(case: VerifyCase, rows: Sequence[int], draft_rows: Sequence[int] = ()) -> VerifyCase:
    """The case with NaN in these rows."""
    target = case.target_probs.copy()
    target[list(rows)] = np.nan
    draft = None if case.draft_probs is None else case.draft_probs.copy()
    if draft is not None:
        draft[list(draft_rows)] = np.nan
    return dataclasses.replace(case, target_probs=target, draft_probs=draft)


def asked(case: VerifyCase, *spent: tuple[Sequence[float], float]) -> list[Coined]:
    """One case at several coins, as members of one batch."""
    return [(case, coins(accept, frontier)) for accept, frontier in spent]


def greedy(told: str, cases: Sequence[VerifyCase], *clauses: int, flags: tuple[str, ...] = ()) -> Golden:
    return Golden("verify_greedy", ids(clauses), told, {"cases": list(cases)}, flags)


def sampled(
    told: str,
    members: Sequence[Coined],
    *clauses: int,
    flags: tuple[str, ...] = (PER_NODE, FRONTIER),
    kind: Any = Golden,
) -> Golden:
    arguments = {"cases": [case for case, _ in members], "coins": [spent for _, spent in members]}
    precise = () if kind is not Golden or all(_settled(case, spent, flags) for case, spent in members) else (FLOAT64,)
    made: Golden = kind("verify_sampled", ids(clauses), told, arguments, (*flags, *precise))
    return made


def _settled(case: VerifyCase, spent: Coins, flags: Sequence[str]) -> bool:
    """Whether float32, behind logarithms and a softmax, reaches one decision alone."""
    slack = compare.slack(Arithmetic("float32", "float32", True, True), case.target_probs.shape[1])
    scheme = scheme_of(flags)
    if scheme == "per_node":
        return len(road.admissible(case, spent, slack)) == 1
    return len(schemes.admissible(case, spent, scheme, slack)) == 1


def scheme_of(flags: Sequence[str]) -> str:
    """The coin scheme that a case's answer follows."""
    return next((flag.partition("=")[2] for flag in flags if flag.startswith("coin_scheme=")), "per_node")


def of(batch: Batch) -> list[Coined]:
    """The members of a batch that the suite keeps by name."""
    return list(zip(batch.cases, batch.coins or ()))


def ids(clauses: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"ACCEPTANCE-{clause}" for clause in clauses)


# ---- chains and trees that several lists ask about

NONE = line([], [(2, 5, 9)])
SURE = line([1, 0], [(2, 10, 4), (8, 2, 6), (4, 0, 12)], [(4, 8, 4), (10, 2, 4), (4, 4, 8)])
"""The first draft is accepted for certain, the second one below 4/5."""
ODDS = line([1, 2], [(4, 6, 6), (7, 4, 5), (3, 5, 8)], [(2, 12, 2), (2, 4, 10), (12, 2, 2)])
"""Both drafts are accepted below one half."""
POINTS = line([2, 0, 1], [(2, 5, 9), (11, 3, 2), (3, 6, 7), (9, 1, 6)])
GAPS = line([1, 0], [(0, 6, 0, 10), (9, 0, 7, 0), (0, 5, 0, 11)], [(3, 9, 2, 2), (12, 1, 2, 1), (4, 4, 4, 4)])
"""Rows without mass at the first or the last token; both drafts may be rejected."""
IMPOSSIBLE = line([1, 0], [(4, 12, 0), (0, 9, 7), (3, 5, 8)], [(4, 8, 4), (6, 6, 4), (4, 8, 4)])
"""The second draft cannot come from the target."""
IMPOSSIBLE_POINT = line([1, 0], [(4, 12, 0), (0, 9, 7), (3, 5, 8)])
LONG = line(
    [0, 1, 2, 0, 1, 2],
    [(12, 2, 2), (3, 11, 2), (1, 2, 13), (14, 1, 1), (2, 12, 2), (3, 3, 10), (2, 9, 5)],
    [(8, 4, 4), (4, 8, 4), (2, 4, 10), (10, 4, 2), (4, 9, 3), (5, 3, 8), (5, 6, 5)],
)
"""Six drafts, all of them likelier for the target than for the drafter."""
EQUAL = line([2, 1], [(3, 6, 7), (9, 4, 3), (2, 13, 1)], [(3, 6, 7), (9, 4, 3), (5, 5, 6)])
EIGHTH = line([1], [(2, 6, 8), (10, 5, 1)], [(1, 14, 1), (4, 8, 4)])

SIBLINGS = [(3, 4, 4, 5), (2, 6, 5, 3), (8, 3, 3, 2), (1, 5, 4, 6), (6, 3, 6, 1)]
PAIR = tree(
    (-1, -1, 1), (0, 1, 3), [(4, 6, 1, 5), (2, 6, 5, 3), (8, 3, 3, 2), (1, 5, 4, 6)], [(8, 4, 2, 2), *SIBLINGS[1:4]]
)
POINT_FORK = tree((-1, -1, -1, 1), (3, 0, 2, 1), SIBLINGS)
"""Three point proposals, none of them the most probable, and one below the second."""
DRAWN_FORK = tree((-1, -1, -1, 1), (3, 3, 0, 1), SIBLINGS, [(5, 1, 1, 9), *SIBLINGS[1:]])
"""Twins, then another token, drawn independently."""
APART_FORK = tree(
    (-1, -1, -1, 2),
    (1, 3, 0, 2),
    [(5, 4, 2, 5), *SIBLINGS[1:]],
    [(3, 8, 1, 4), *SIBLINGS[1:]],
    "without_replacement",
)
"""The siblings are accepted below 1/2, 1/2 and 2/3."""
BELOW = [(0, 0, 16, 0), (2, 4, 7, 3), (5, 3, 6, 2), (1, 8, 4, 3), (7, 2, 1, 6)]
POINT_BELOW = tree((-1, 0, 0, 2), (2, 3, 0, 1), BELOW)
DRAWN_BELOW = tree(
    (-1, 0, 0, 2), (2, 3, 3, 1), BELOW, [(1, 1, 12, 2), (3, 2, 2, 9), (4, 4, 4, 4), (3, 8, 3, 2), (4, 4, 4, 4)]
)
APART_BELOW = tree(
    (-1, 0, 0, 2),
    (2, 1, 3, 0),
    [BELOW[0], (4, 3, 5, 4), *BELOW[2:]],
    [(1, 1, 12, 2), (2, 8, 3, 3), (4, 4, 4, 4), (9, 3, 2, 2), (4, 4, 4, 4)],
    "without_replacement",
)
"""The siblings are accepted below 3/8 and 8/15."""
SIX = tree(
    (-1, -1, 0, 1, 3, 3, 5), (1, 2, 0, 0, 1, 2, 1),
    [(2, 5, 9), (7, 5, 4), (11, 3, 2), (6, 6, 4), (3, 4, 9), (9, 4, 3), (2, 10, 4), (4, 7, 5)],
)  # fmt: skip
"""The sixth and the seventh node are reached through the second and the fourth."""
ZEROS = tree(
    (-1, -1, -1), (0, 2, 3), [(1, 9, 6, 0), (4, 4, 4, 4), (3, 5, 6, 2), (5, 5, 3, 3)], [(7, 1, 4, 4), *SIBLINGS[1:4]]
)
"""The last sibling is impossible, and so is the last token."""
RISING = line(
    [2, 0, 1],
    [(3, 9, 4), (12, 1, 3), (2, 12, 2), (6, 3, 7)],
    [(2, 4, 10), (5, 7, 4), (5, 6, 5), (4, 8, 4)],
)
"""The first draft is unlikely, those behind it are likelier for the target than for the drafter."""
