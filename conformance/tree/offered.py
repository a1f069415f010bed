"""What a drafter offers after a path, and whether an answer keeps to it: shared by growth and drafting."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.interface import DTYPES
from conformance import draw
from conformance.check import Check
from conformance.roads import tree as road
from conformance.tree import judge
from conformance.verdicts import ClauseViolation
from oracle.types import CandidateTree, GrowthCase


def paths(parent: Any, token: Any) -> list[road.Path]:
    """The token path of every node; `ClauseViolation` where a parent is no earlier node."""
    above = np.asarray(parent).tolist()
    for node, one in enumerate(above):
        if not -1 <= one < node:
            raise ClauseViolation(f"node {node} has the parent {one}, which is no earlier node")
    return road.paths(above, np.asarray(token).tolist())


def named(path: Sequence[int]) -> str:
    return f"the path {' '.join(map(str, path))}" if path else "the root"


def vocabulary(case: GrowthCase) -> int:
    """How many entries a row of the drafter has."""
    return len(road.reader(case)(()))


def relative(check: Check, case: GrowthCase, probability: float) -> float:
    """How far a probability of this precision may lie from the exact one, relative to it."""
    unit = DTYPES[check.arithmetic.dtype]
    if unit == 2.0**-53 and not check.arithmetic.via_logits:
        return 0.0
    logits = 2 * abs(float(np.log(max(probability, 1e-300)))) + vocabulary(case) + 6
    return 2 * unit * (1 + (logits if check.arithmetic.via_logits else 0))


def judge_family(check: Check, case: GrowthCase, path: road.Path, family: Sequence[int]) -> None:
    """`ClauseViolation` unless the tokens after `path` are among the best of its row, beyond rounding."""
    row = road.reader(case)(path)
    for token in family:
        if token not in row:
            raise ClauseViolation(f"{named(path)} has the child {token}, which the drafter's row has no entry for")
    worst = min(family, key=lambda token: row[token])
    for token, probability in road.children(case, path):
        slack = probability * relative(check, case, probability) + row[worst] * relative(check, case, row[worst])
        if token not in family and probability > row[worst] + slack:
            raise ClauseViolation(
                f"after {named(path)} q = {draw.row([*row.values()])}: token {token} has {draw.number(probability)} "
                f"and is no child, and token {worst} has {draw.number(row[worst])} and is one"
            )


def judge_children(check: Check, case: GrowthCase, found: CandidateTree, roots: bool) -> None:
    """The children of the root, or of every other node, are the best of the row after its path."""
    whole = paths(found.parent, found.token)
    rows = road.reader(case)
    for above in sorted(set(found.parent.tolist())):
        if (above == -1) != roots:
            continue
        path = () if above == -1 else whole[above]
        try:
            rows(path)
        except (KeyError, IndexError):
            raise ClauseViolation(f"{named(path)} is expanded, and no path of this drafter leads there") from None
        judge_family(check, case, path, [whole[i][-1] for i, p in enumerate(found.parent.tolist()) if p == above])


def frontier(
    check: Check, case: GrowthCase, found: CandidateTree, nodes: Sequence[int], expanded: Sequence[int]
) -> bool:
    """Whether this precision decides which nodes are expanded; `ClauseViolation` where a better one is not."""
    whole = paths(found.parent, found.token)
    value = {i: value_of(case, whole[i]) for i in nodes}
    rest = [i for i in nodes if i not in expanded]
    if not rest or not expanded:
        return True
    best, worst = max(rest, key=lambda i: value[i]), min(expanded, key=lambda i: value[i])
    slack = sum(judge.bound(check.arithmetic, value[i], len(whole[i]), vocabulary(case)) for i in (best, worst))
    if value[best] > value[worst] + slack:
        raise ClauseViolation(
            f"node {worst}, {named(whole[worst])} (value {draw.number(value[worst])}), is expanded, and node {best}, "
            f"{named(whole[best])} (value {draw.number(value[best])}), is not"
        )
    return value[worst] - value[best] > slack


def in_order(check: Check, case: GrowthCase, found: CandidateTree, one: int, other: int) -> None:
    """`ClauseViolation` where the parent `other`, whose children come later, is better than `one` beyond rounding."""
    whole = paths(found.parent, found.token)
    first, second = value_of(case, whole[one]), value_of(case, whole[other])
    slack = sum(
        judge.bound(check.arithmetic, v, len(whole[i]), vocabulary(case)) for i, v in ((one, first), (other, second))
    )
    if second > first + slack:
        raise ClauseViolation(
            f"the children of node {other} (value {draw.number(second)}) come after those of node {one} (value "
            f"{draw.number(first)})"
        )


def observe_map(check: Check, read: Sequence[str]) -> None:
    """Report the draft maps that were read; who reads both takes the convention as an argument."""
    check.observe("draft_map", "argument" if len(set(read)) > 1 else read[0])


def value_of(case: GrowthCase, path: road.Path) -> float:
    """The exact value of a path that the drafter's table has rows for."""
    rows = road.reader(case)
    mass = Fraction(1)
    for i, token in enumerate(path):
        mass *= max(Fraction(rows(path[:i]).get(token, 0.0)), road.FLOOR)
    return road.logarithm(mass)
