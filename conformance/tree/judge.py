"""How close two values may lie for a dtype to exchange them, and what follows for a selection.

With unit roundoff ε, a confidence carries one rounding when it is cast, and with a softmax of V entries before it
2|log c| + V + 6 more (as in `conformance.compare`). Over d levels a sum of logarithms carries a rounding of each
logarithm and of each addition, at most |value| apiece: ε·((d + 1)·|value| + d).
A product carries two roundings a level,
2dε, whose logarithm is no larger. The bound is the sum of these, taken for both nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adapters.interface import DTYPES, Arithmetic
from conformance import draw
from conformance.verdicts import ClauseViolation
from oracle.types import CandidateTree


def bound(arithmetic: Arithmetic, value: float, depth: int, vocabulary: int = 0) -> float:
    """How far a computed value of a node at `depth` may lie from the exact one."""
    unit = DTYPES[arithmetic.dtype]
    softmax = 2 * abs(value) + depth * (vocabulary + 6) if arithmetic.via_logits else 0.0
    return unit * ((depth + 2) * abs(value) + 4 * depth + softmax) + 2.0**-50 * (1 + abs(value))


def stored_bound(arithmetic: Arithmetic, value: float) -> float:
    """How far a stored value that is cast, or exponentiated and compared as a product, may move: nothing in float64."""
    return 0.0 if arithmetic.dtype == "float64" else 4 * DTYPES[arithmetic.dtype] * (1 + abs(value))


def not_closed(tree: CandidateTree, chosen: Sequence[int]) -> str:
    """In words: the first chosen node whose parent is not chosen, or nothing."""
    for node in chosen:
        above = int(tree.parent[node])
        if above != -1 and above not in chosen:
            return (
                f"node {node} (value {draw.number(tree.log_value[node])}) is selected and its parent, node {above} "
                f"(value {draw.number(tree.log_value[above])}), is not: the edge {above} → {node} leads from nowhere"
            )
    return ""


def better_left_out(tree: CandidateTree, chosen: Sequence[int], arithmetic: Arithmetic) -> None:
    """`ClauseViolation` where a node of greater value, beyond rounding, is left out."""
    values = np.asarray(tree.log_value)
    rest = [i for i in range(len(values)) if i not in chosen]
    if not rest or not chosen:
        return
    best, worst = max(rest, key=lambda i: values[i]), min(chosen, key=lambda i: values[i])
    slack = stored_bound(arithmetic, values[best]) + stored_bound(arithmetic, values[worst])
    if values[best] > values[worst] + slack:
        raise ClauseViolation(
            f"node {best} (value {draw.number(values[best])}) is left out, and node {worst} (value "
            f"{draw.number(values[worst])}) is selected"
        )


def decided(tree: CandidateTree, budget: int, arithmetic: Arithmetic) -> bool:
    """Whether this precision can tell the last selected node from the first one left out."""
    values = np.sort(np.asarray(tree.log_value))[::-1]
    if not 0 < budget < len(values):
        return True
    slack = sum(stored_bound(arithmetic, float(v)) for v in values[budget - 1 : budget + 1])
    return bool(values[budget - 1] - values[budget] > slack or slack == 0)
