"""The golden cases of verification with coins of the implementation's own: the law of what it decides.

A law is that of (path, frontier), given the drafts, and follows the coin scheme. Members of one batch are judged
together, call by call, so that coins that are shared, and rows that are mixed up, show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from conformance.acceptance.golden_making import (
    APART_FORK,
    DRAWN_BELOW,
    DRAWN_FORK,
    NONE,
    ODDS,
    PER_NODE,
    POINT_BELOW,
    POINT_FORK,
    POINTS,
    RISING,
    ZEROS,
    ids,
    line,
    scheme_of,
    tree,
)
from conformance.fixtures import laws
from conformance.fixtures.golden import Answer, Golden
from conformance.roads import schemes as road
from conformance.verdicts import HarnessError
from oracle.discrete import Row
from oracle.enumeration import branches
from oracle.types import VerifyCase
from oracle.walks import walk_of

ALPHA = 1e-9
TRIALS, MORE = 512, 1024
CALLS = 256
"""Of a batch, which is asked call by call."""


@dataclass(frozen=True, eq=False)
class Together(Golden):
    """A batch whose members are judged by their joint law."""


def alone(told: str, case: VerifyCase, seed: int, *clauses: int, flags: tuple[str, ...] = (PER_NODE,)) -> Golden:
    return Golden("verify_random", ids(clauses), told, {"cases": [case], "seed": seed}, flags)


def together(
    told: str, cases: Sequence[VerifyCase], seed: int, *clauses: int, flags: tuple[str, ...] = (PER_NODE, "batch")
) -> Golden:
    return Together("verify_random", ids(clauses), told, {"cases": list(cases), "seed": seed}, flags)


_NEARLY = VerifyCase(
    np.arange(-1, 2, dtype=np.int64),
    np.array([1, 2, 0], dtype=np.int64),
    np.array([[16, 48, 0], [0, 16, 48], [48, 0, 16], [0, 64, 0]]) / 64,
    "iid",
    np.array([[15, 49, 0], [0, 15, 49], [49, 0, 15], [16, 32, 16]]) / 64,
)
"""Three drafts, each accepted with 48/49."""
_CERTAIN_SECOND = line([1, 2], [(4, 6, 6), (3, 5, 8), (0, 9, 7)], [(2, 12, 2), (3, 5, 8), (5, 5, 6)])
"""The second draft is accepted whenever it is tested."""
_FALLS = line([2, 0], [(5, 3, 8), (9, 4, 3), (2, 8, 6)], [(3, 1, 12), (5, 6, 5), (4, 4, 8)])
_COIN = line([], [(8, 8)])
_ONE = line([1], [(7, 9, 0), (0, 4, 12)], [(2, 10, 4), (4, 4, 8)])
_OTHER = line([1], [(9, 3, 4), (10, 6, 0)], [(9, 4, 3), (8, 4, 4)])

RANDOM: tuple[Golden, ...] = (
    alone("Without drafts the frontier follows the row", NONE, 1, 103, 401, flags=("empty",)),
    alone("Two drafts, both accepted half of the time", ODDS, 2, 401, 501, 701),
    alone("A draft with p = q is accepted whenever it is tested", _CERTAIN_SECOND, 3, 401, 501, 701),
    alone("Three drafts that are accepted nearly always", _NEARLY, 4, 301, 303, 501, 701),
    alone("Three point proposals in a row", POINTS, 5, 402, 502, 701),
    alone("Three point proposals side by side", POINT_FORK, 6, 405, 702),
    alone("Twins, and a third sibling, drawn independently", DRAWN_FORK, 7, 404, 702),
    alone("Siblings drawn without replacement", APART_FORK, 8, 406, 702),
    alone("Point proposals below an accepted node", POINT_BELOW, 9, 505, 702),
    alone("Independent siblings below an accepted node", DRAWN_BELOW, 10, 504, 702),
    alone("An impossible sibling is never published", ZEROS, 11, 305, 702),
    *(
        alone(f"{told}, by the scheme {scheme}", case, seed, *clauses, flags=(f"coin_scheme={scheme}",))
        for scheme, told, case, seed, *clauses in (
            ("per_parent", "Twins, and a third sibling", DRAWN_FORK, 12, 404, 702),
            ("per_parent", "A chain", ODDS, 13, 401, 701),
            ("sample_and_match", "Twins, and a third sibling", DRAWN_FORK, 14, 404, 702),
            ("sample_and_match", "A chain", ODDS, 15, 401, 701),
            ("block", "A weight that falls and grows again", RISING, 16, 501, 703),
            ("block", "Two drafts of different ratios", _FALLS, 17, 401, 703),
        )
    ),
    together(
        "Two fair coins fall independently, and otherwise under every seed", [_COIN, _COIN], 18, 110, 503, flags=()
    ),
    together("Two chains of one shape, each with its own rows", [_ONE, _OTHER], 19, 105, 403, 503),
    together(
        "A tree beside a chain",
        [tree((-1, -1), (0, 1), [(5, 7, 4), (0, 16, 0), (0, 0, 16)], [(6, 8, 2), *[(4, 4, 8)] * 2]), _OTHER],
        *(20, 106, 111, 404),
    ),
)


def answer(golden: Golden) -> Answer:
    """The law by walking every branch of the oracle's walk and by the road's quotients."""
    scheme = scheme_of(golden.flags)
    members = []
    for case in golden.arguments["cases"]:
        right = road.decisions(case, scheme)
        if right != _by_branches(case, scheme):
            raise HarnessError(f"{golden.description}: two roads to its law disagree")
        members.append(right)
    roads = ("oracle", "rationals")
    if not isinstance(golden, Together):
        (law,) = members
        # what is certain nearly always takes more trials to be seen to be certain
        return Answer(law, roads, "law", _limits(law, MORE if max(law.values()) > Fraction(3, 4) else TRIALS))
    joint = {
        tuple(outcome for outcome, _ in ways): _product(p for _, p in ways)
        for ways in product(*(member.items() for member in members))
    }
    law_as_pairs = [[[list(one) for one in outcomes], p] for outcomes, p in joint.items()]
    return Answer({"relation": "joint_law", "law": law_as_pairs, **_limits(joint, CALLS)}, roads, "relation")


def _limits(law: dict[Any, Fraction], trials: int) -> dict[str, float]:
    return {"trials": trials, "alpha": ALPHA, "distance": laws.distance(law, trials, ALPHA)}


def _product(factors: Any) -> Fraction:
    total = Fraction(1)
    for factor in factors:
        total *= factor
    return total


def _by_branches(case: VerifyCase, scheme: str) -> dict[road.Share, Fraction]:
    walk = walk_of(scheme)
    found: dict[road.Share, Fraction] = {}
    for weight, decision in branches(lambda run: walk(_Exact(case), run)):
        key = (decision.path, decision.frontier)
        found[key] = found.get(key, Fraction(0)) + weight
    return {key: weight for key, weight in found.items() if weight}


class _Exact:
    """A case as a walk of the oracle reads it, in rationals."""

    parent_field = "parent"

    def __init__(self, case: VerifyCase) -> None:
        self.proposal = case.proposal
        self._case = case

    def children(self, node: int) -> list[int]:
        return [i for i, above in enumerate(self._case.parent.tolist()) if above == node]

    def token(self, child: int, law: Row | None) -> int:
        return int(self._case.token[child])

    def tokens(self, node: int) -> list[int]:
        return [self.token(child, None) for child in self.children(node)]

    def target(self, node: int) -> Row:
        return [Fraction(v) for v in self._case.target_probs[node + 1].tolist()]

    def draft(self, node: int) -> Row:
        rows = self._case.draft_probs
        if rows is None:
            raise HarnessError("a point proposal has no draft rows")
        return [Fraction(v) for v in rows[node + 1].tolist()]
