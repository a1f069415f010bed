"""What trees come out of golden cases, by both roads: exact products and graphs, checked against the oracle.

Values are logarithms of exact products at fifty digits, rounded once. An implementation that sums d logarithms rounds
each of them, each confidence that it casts, and each addition, at most max(1, |value|) apiece: (d + 2)·|value| + 2d
roundings for a logarithm that is right to a unit in the last place, 3d + 2 of the scale of the deepest value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from conformance.fixtures import digits
from conformance.fixtures.golden import Answer, Golden
from conformance.roads import tree as road
from conformance.tree import tables
from conformance.verdicts import HarnessError
from oracle import masks as masks_oracle
from oracle import tree as oracle
from oracle.errors import BadInput
from oracle.types import (
    CandidateTree,
    DraftTreeCase,
    Flags,
    FlatTree,
    GrowthCase,
    MaskCase,
    SelectionCase,
)


def answer(golden: Golden) -> Answer:
    """What every road says. Raises `HarnessError` where they disagree."""
    given = next(iter(golden.arguments.values()))
    if "hostile" in golden.flags:
        return refusal(golden.operation, given)
    if golden.operation == "grow_tree":
        return growth(given)
    if golden.operation == "select_nodes":
        return selection(given)
    if golden.operation == "flatten_tree":
        right = [flat(case.tree, case.selected, case.base) for case in given]
        return agreed(right, oracle.flatten_tree(given), "oracle", "networkx")
    if golden.operation == "draft_tree":
        return agreed([drafted(case) for case in given], oracle.draft_tree(given), "oracle", "rationals", "networkx")
    if golden.operation == "tree_mask":
        return agreed([mask(case) for case in given], masks_oracle.tree_mask(given), "oracle", "networkx")
    return agreed(road.visible(given.tolist()), oracle.tree_visibility(given), "oracle", "networkx")


def refusal(operation: str, given: Any) -> Answer:
    """The field that the oracle refuses; that it breaks a rule stands in the design."""
    try:
        {**vars(oracle), **vars(masks_oracle)}[operation](given)
    except BadInput as error:
        return Answer(error.field, ("oracle", "by hand"), "refusal")
    raise HarnessError(f"the oracle answers a case that {operation} refuses")


def growth(case: GrowthCase) -> Answer:
    grown = road.grown(case)
    node = {one.path: i for i, one in enumerate(grown)}
    value = np.array([logarithm(one.mass) for one in grown], dtype=np.float64)
    right = CandidateTree(
        parent=ids(node.get(one.path[:-1], -1) for one in grown),
        token=ids(one.path[-1] for one in grown),
        confidence=np.array([one.confidence for one in grown], dtype=np.float64),
        log_value=value,
        depth=ids(one.depth for one in grown),
    )
    ours = oracle.grow_tree(case)
    for name in ("parent", "token", "confidence", "depth"):
        same(name, getattr(right, name), getattr(ours, name))
    bound = 3 * case.max_depth + 2
    scale = max([1.0, *np.abs(value).tolist()])
    if (np.abs(ours.log_value - value) > bound * 2.0**-53 * scale).any():
        raise HarnessError("the oracle and the second road disagree about values")
    return Answer(right, ("oracle", "rationals", "mpmath"), "rounding", digits.limits(bound * scale, [value]))


def logarithm(mass: Fraction) -> float:
    """The logarithm of a rational at fifty digits, rounded once."""
    import mpmath

    def rounded(places: int) -> list[np.ndarray]:
        with mpmath.workdps(places):
            return [digits.floats([mpmath.log(mpmath.mpf(mass.numerator) / mass.denominator)])]

    return float(digits.settled(rounded)[0][0])


def selection(case: SelectionCase) -> Answer:
    return agreed(ids(road.rank(case.tree)[: case.budget]), oracle.select_nodes(case), "oracle", "sorting")


def flat(tree: CandidateTree, selected: Sequence[int] | np.ndarray, base: int) -> FlatTree:
    """The rows of these nodes, from the graph."""
    depth = road.depths(tree.parent.tolist())
    rows = sorted((int(node) for node in selected), key=lambda node: (depth[node], node))
    above = [-1 if tree.parent[node] == -1 else rows.index(int(tree.parent[node])) for node in rows]
    first, following = road.links(above)
    return FlatTree(
        node=ids(rows),
        parent=ids(above),
        token=ids(tree.token[node] for node in rows),
        depth=ids(depth[node] for node in rows),
        visible=road.visible(above),
        paths=tables.right(above),
        first_child=ids(first),
        next_sibling=ids(following),
        position=ids([base, *(base + depth[node] for node in rows)]),
    )


def drafted(case: DraftTreeCase) -> FlatTree:
    """The best candidates by their exact products, laid out."""
    grown = road.grown(case.growth)
    node = {one.path: i for i, one in enumerate(grown)}
    tree = CandidateTree(
        parent=ids(node.get(one.path[:-1], -1) for one in grown),
        token=ids(one.path[-1] for one in grown),
        confidence=np.array([one.confidence for one in grown]),
        log_value=np.zeros(len(grown)),
        depth=ids(one.depth for one in grown),
    )
    return flat(tree, [node[one.path] for one in road.kept(grown, case.budget)], case.base)


def mask(case: MaskCase) -> np.ndarray:
    """The mask in its form, its words made of the columns that are seen."""
    seen = road.verified(case.parent.tolist(), case.prefix)
    if not case.form.startswith("packed"):
        made: Mapping[str, np.ndarray] = {"allowed": seen, "blocked": ~seen, "additive": np.where(seen, 0.0, -np.inf)}
        return made[case.form]
    width = int(case.form.removeprefix("packed"))
    words = -(-seen.shape[1] // width)
    return np.array([[word(row, k * width, width) for k in range(words)] for row in seen], dtype=f"uint{width}")


def word(row: Flags, first: int, width: int) -> int:
    return sum(1 << i for i, seen in enumerate(row[first : first + width].tolist()) if seen)


def agreed(right: Any, ours: Any, *roads: str) -> Answer:
    """The answer of the second road, where the oracle's is the same."""
    members = (right, ours) if isinstance(right, list) else ([right], [ours])
    if len(members[0]) != len(members[1]):
        raise HarnessError("the oracle and the second road disagree about the number of members")
    for one, other in zip(*members):
        for name in vars(one) if isinstance(one, FlatTree) else ("",):
            same(name, *(getattr(v, name) if name else v for v in (one, other)))
    return Answer(right, roads)


def same(name: str, right: np.ndarray, ours: np.ndarray) -> None:
    if right.dtype != ours.dtype or not np.array_equal(right, ours):
        raise HarnessError(f"the oracle and the second road disagree about {name or 'the answer'}: {ours}, {right}")


def ids(values: Any) -> np.ndarray:
    return np.array(list(values), dtype=np.int64)
