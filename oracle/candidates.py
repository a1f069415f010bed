"""Reading a candidate tree: every rule that makes it one, checked before anything is built from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oracle.errors import BadInput
from oracle.tensors import tensor
from oracle.types import CandidateTree
from oracle.validation import integers, parents

MASS_TOLERANCE = 1e-9
"""How far above one the confidences of siblings may sum: what float64 rows are given."""


@dataclass(frozen=True)
class Nodes:
    """A validated tree, in lists."""

    parent: list[int]
    token: list[int]
    confidence: list[float]
    log_value: list[float]
    depth: list[int]


def check_candidates(tree: CandidateTree, field: str) -> Nodes:
    """The nodes of `tree`. Raises `BadInput`: shapes, parents, depths, confidences, twins, sibling mass, values.

    A stored log value is what nodes are ordered by: it is at most that of its parent, and never NaN.
    """
    if not isinstance(tree, CandidateTree):
        raise BadInput(field, (), "a tree is an oracle.types.CandidateTree", type(tree).__name__)
    parent = parents(tree.parent, f"{field}.parent")
    token = integers(tree.token, f"{field}.token")
    depth = integers(tree.depth, f"{field}.depth")
    for name, values in (("token", token), ("depth", depth)):
        if len(values) != len(parent):
            raise BadInput(f"{field}.{name}", (), f"has one entry for each of {len(parent)} nodes", len(values))
    confidence = [float(v) for v in tensor(tree.confidence, f"{field}.confidence", "f", (len(parent),))]
    log_value = [float(v) for v in tensor(tree.log_value, f"{field}.log_value", "f", (len(parent),))]
    siblings: dict[int, dict[int, float]] = {}
    for i, above in enumerate(parent):
        if depth[i] != (1 if above == -1 else depth[above] + 1):
            raise BadInput(f"{field}.depth", (i,), "is one more than that of the parent, 1 below the root", depth[i])
        if token[i] < 0:
            raise BadInput(f"{field}.token", (i,), "a token id is at least 0", token[i])
        if not 0 <= confidence[i] <= 1:  # false for NaN, too
            raise BadInput(f"{field}.confidence", (i,), "a confidence lies in [0, 1]", _shown(confidence[i]))
        if not log_value[i] <= (0.0 if above == -1 else log_value[above]):
            rule = "a log value is a number, and at most that of the parent (0 at the root)"
            raise BadInput(f"{field}.log_value", (i,), rule, _shown(log_value[i]))
        family = siblings.setdefault(above, {})
        if token[i] in family:
            raise BadInput(f"{field}.token", (i,), "the children of one parent have different tokens", token[i])
        family[token[i]] = confidence[i]
        if math.fsum(family.values()) > 1 + MASS_TOLERANCE:
            rule = "the confidences of one parent's children sum to at most one"
            raise BadInput(f"{field}.confidence", (i,), rule, math.fsum(family.values()))
    return Nodes(parent, token, confidence, log_value, depth)


def _shown(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
