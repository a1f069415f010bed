"""Whole draftings: cases by name, and an answer judged by the paths of its rows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

from adapters.interface import DTYPES
from conformance import draw
from conformance.check import Check
from conformance.roads import tree as road
from conformance.tree import asking, drawing, judge, offered
from conformance.tree.cases import DEEP_FIRST, ONE_BRANCH, WORKED, Table, growth, table, weights
from conformance.verdicts import ClauseViolation
from oracle.types import DraftTreeCase, FlatTree, GrowthCase

WIDE = growth(table("generic", 21, 3, 4), 3, 3, 3)
NARROW = growth(table("generic", 8, 6, 2), 2, 2, 6)
BRANCHES = growth(table("generic", 33, 3, 4), 2, 2, 3)
CHAIN = growth(table("generic", 3, 6, 3), 1, 1, 6)


def unfolded(row: Callable[[road.Path], Sequence[float]], width: int, depth: int) -> GrowthCase:
    """A growth over a table that holds the rows within reach, and no other."""
    rows: Table = {(): tuple(row(()))}
    for layer in range(1, depth):
        for one in road.grown(GrowthCase(rows, width, width, layer)):
            if one.depth == layer:
                rows[one.path] = tuple(row(one.path))
    return GrowthCase(rows, width, width, depth)


LARGE = DraftTreeCase(unfolded(lambda path: weights("generic", 17, path, 11), 10, 4), 59, 1000)
"""The size that engines draft by default: ten children of ten nodes a layer, sixty rows with the root."""
PLAIN = [
    DraftTreeCase(WORKED, 4, 3),
    DraftTreeCase(DEEP_FIRST, 3, 1),
    DraftTreeCase(ONE_BRANCH, 6, 2),
    DraftTreeCase(WIDE, 9, 4),
    DraftTreeCase(NARROW, 7, 1),
    DraftTreeCase(BRANCHES, 5, 6),
    DraftTreeCase(CHAIN, 6, 2),
    DraftTreeCase(growth({(): (0.2, 0.5, 0.3)}, 3, 3, 1), 2, 5),
    LARGE,
]


def certain(unit: float, rounded: bool) -> list[DraftTreeCase]:
    """Three chains below the root whose every further draft is certain, or rounds to it at unit roundoff `unit`."""
    sure = 1.0 - unit / 4 if rounded else 1.0

    def row(path: road.Path) -> tuple[float, ...]:
        if not path:
            return (0.3, 0.5, 0.2)
        likely = (sum(path) + len(path)) % 3
        return tuple(sure if v == likely else (1.0 - sure) / 2 for v in range(3))

    case = unfolded(row, 3, 4)
    return [DraftTreeCase(case, budget, 1) for budget in range(1, 13)]


@functools.cache
def deep(depth: int = 40, vocabulary: int = 64) -> DraftTreeCase:
    """Two chains of unlikely drafts, nearly all candidates kept: after 28 levels no float32 holds their products.

    What hangs beside the better chain is worse than the other one; whoever takes all products for equal expands it.
    """

    def level(path: road.Path) -> tuple[float, ...]:
        best = (len(path) * 5 + 1) % vocabulary
        lifted = {best: 1.5, (best + 7) % vocabulary: 1.4 if not path else 1.0}
        parts = [lifted.get(v, 0.98) for v in range(vocabulary)]
        return tuple(part / sum(parts) for part in parts)

    return DraftTreeCase(unfolded(level, 2, depth), 4 * depth - 10, 0)


@functools.cache
def vanishing(depth: int = 40) -> DraftTreeCase:
    """The same with products down to 1e-360, which no float64 holds; the rows omit nearly all mass."""

    def level(path: road.Path) -> tuple[float, ...]:
        best = len(path) % 3
        second = 0.5 if not path else 0.01
        return tuple(1e-9 * (1 if v == best else second if v == (best + 1) % 3 else 0) for v in range(3))

    return DraftTreeCase(unfolded(level, 2, depth), 4 * depth - 10, 0)


def edges(check: Check, case: DraftTreeCase, found: FlatTree) -> list[road.Path]:
    """The paths of the rows; `ClauseViolation` at the first edge that the drafter never offered, drawn."""
    grown = asking.expected_growth(check, case.growth)
    known = {one.path: one for one in grown}
    whole = offered.paths(found.parent, found.token)
    for row, path in enumerate(whole):
        if path in known or near(check, case.growth, known, path):
            continue
        labels = [f"row {i} = token {int(token)}" for i, token in enumerate(found.token)]
        above = offered.named(path[:-1])
        lines = [f"row {row}: the drafter offers no token {path[-1]} after {above}", "the drafted tree:"]
        lines += ["  " + line for line in drawing.outline(found.parent.tolist(), labels, [row])]
        elsewhere = [offered.named(one[:-1]) for one in known if one[-1] == path[-1]]
        lines += [f"token {path[-1]} is offered after {', '.join(elsewhere)}"] if elsewhere else []
        raise ClauseViolation("\n".join(lines))
    return whole


def near(check: Check, case: GrowthCase, known: dict[road.Path, road.Candidate], path: road.Path) -> bool:
    """Whether rounding can have made this path a candidate: each node on it nearly one of those that are expanded."""
    rows, size = road.reader(case), offered.vocabulary(case)
    value = 0.0
    for depth in range(1, len(path) + 1):
        above, token = path[: depth - 1], path[depth - 1]
        if depth > 1:
            layer = sorted((one.value for one in known.values() if one.depth == depth - 1), reverse=True)
            last = layer[min(case.expand_width, len(layer)) - 1]
            slack = sum(judge.bound(check.arithmetic, v, depth - 1, size) for v in (value, last))
            if value < last - slack:
                return False
        try:
            row = rows(above)
        except (KeyError, IndexError):
            return False
        least = road.children(case, above)[-1][1]
        if row.get(token, -1.0) < least * (1 - 2 * offered.relative(check, case, least)):
            return False
        value += road.logarithm(max(Fraction(row[token]), road.FLOOR))
    return True


def best(check: Check, case: DraftTreeCase, whole: Sequence[road.Path]) -> None:
    """`ClauseViolation` where a better candidate, beyond rounding, is left out; closeness is counted.

    Of what is left out those count that are candidates however values are rounded.
    """
    known = {one.path: one for one in asking.expected_growth(check, case.growth)}
    value = {path: one.value for path, one in known.items()}
    value |= {path: offered.value_of(case.growth, path) for path in whole if path not in known}
    rest = [path for path in known if path not in whole and certainly(check, case.growth, known, path)]
    if not rest or not whole:
        return
    kept, size = list(whole), offered.vocabulary(case.growth)
    left, taken = max(rest, key=lambda p: value[p]), min(kept, key=lambda p: value[p])
    slack = sum(judge.bound(check.arithmetic, value[p], len(p), size) for p in (left, taken))
    check.decided(abs(value[left] - value[taken]) > slack)
    if value[left] > value[taken] + slack:
        raise ClauseViolation(
            f"{offered.named(left)} (value {draw.number(value[left])}) is left out, and {offered.named(taken)} "
            f"(value {draw.number(value[taken])}) is kept"
        )


def certainly(check: Check, case: GrowthCase, known: dict[road.Path, road.Candidate], path: road.Path) -> bool:
    """Whether a candidate is one under every rounding: each node above it expanded, each step of it among the best."""
    size = offered.vocabulary(case)
    for depth in range(1, len(path) + 1):
        above = path[: depth - 1]
        if above:
            others = [one for one in known.values() if one.depth == depth - 1 and one.path != above]
            slack = judge.bound(check.arithmetic, known[above].value, depth - 1, size)
            rivals = [one for one in others if one.value + slack + _bound(check, one, size) >= known[above].value]
            if len(rivals) >= case.expand_width:
                return False
        row = road.reader(case)(above)
        own = row[path[depth - 1]]
        margin = 1 - 2 * offered.relative(check, case, own)
        if sum(p >= own * margin for p in row.values()) > case.branch_width and margin < 1:
            return False
    return True


def _bound(check: Check, one: road.Candidate, size: int) -> float:
    return judge.bound(check.arithmetic, one.value, one.depth, size)


def ordered(check: Check, case: DraftTreeCase, found: FlatTree, whole: Sequence[road.Path]) -> None:
    """`ClauseViolation` where rows do not come as they grow: layers, parents by value, children by probability."""
    rows, size = road.reader(case.growth), offered.vocabulary(case.growth)
    above = found.parent.tolist()
    for row in range(1, len(whole)):
        one, other = whole[row - 1], whole[row]
        if len(one) > len(other):
            raise ClauseViolation(f"row {row} is {len(other)} deep, and row {row - 1} before it {len(one)}")
        if len(one) < len(other):
            continue
        if above[row] == above[row - 1]:
            before, after = (rows(path[:-1])[path[-1]] for path in (one, other))
            if after > before * (1 + 2 * offered.relative(check, case.growth, before)):
                raise ClauseViolation(
                    f"row {row} has the probability {draw.number(after)}, and row {row - 1} before it, of the same "
                    f"parent, {draw.number(before)}"
                )
            continue
        first, second = (offered.value_of(case.growth, path[:-1]) for path in (one, other))
        slack = sum(judge.bound(check.arithmetic, v, len(one), size) for v in (first, second))
        if second > first + slack or above[row] in above[: row - 1]:
            raise ClauseViolation(
                f"row {row} hangs below {offered.named(other[:-1])} (value {draw.number(second)}), which growth "
                f"expands before {offered.named(one[:-1])} (value {draw.number(first)}) of row {row - 1}"
            )


def told_apart(check: Check, case: DraftTreeCase) -> bool:
    """Whether this precision tells the nodes of each layer that are expanded from those that are not."""
    size = offered.vocabulary(case.growth)
    layers: dict[int, list[float]] = {}
    for one in road.grown(case.growth):
        layers.setdefault(one.depth, []).append(one.value)
    for depth, values in layers.items():
        ranked = sorted(values, reverse=True)[: case.growth.expand_width + 1]
        slack = 2 * max(judge.bound(check.arithmetic, value, depth, size) for value in ranked)
        if any(one - other <= slack for one, other in itertools.pairwise(ranked)):
            return False
    return True


def unit(check: Check) -> float:
    """Half the distance from 1 to the next number of the declared dtype."""
    return DTYPES[check.arithmetic.dtype]
