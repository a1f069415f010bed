"""Tree builders with one fault each: what they grow."""

from __future__ import annotations

import math

import numpy as np

from adapters.faulty.growing import Path, Trees
from oracle.types import GrowthCase


class TheRootIsNodeZero(Trees):
    """Counts parents from the root, which is 0, and nodes from 0 as well (SafeAILab/EAGLE's codes)."""

    refutes = "TREE-201"

    @classmethod
    def told_parents(cls, parent: list[int]) -> list[int]:
        return [above + 1 for above in parent]

    draft_tree = None  # type: ignore[assignment]


class DepthFromZero(Trees):
    """Says that the root's children are 0 deep."""

    refutes = "TREE-201"

    @classmethod
    def depth(cls, path: Path) -> int:
        return len(path) - 1

    draft_tree = None  # type: ignore[assignment]


class LayersAreExpansions(Trees):
    """Takes max_depth for the levels of the whole tree, that of the root counted."""

    refutes = "TREE-202"

    @classmethod
    def layers(cls, case: GrowthCase) -> int:
        return case.max_depth - 1


class OneWidthForBoth(Trees):
    """Gives a node as many children as nodes are expanded."""

    refutes = "TREE-203"

    @classmethod
    def branch(cls, case: GrowthCase) -> int:
        return case.expand_width


class FirstTokens(Trees):
    """Takes the tokens of the lowest ids, whatever their probability."""

    refutes = "TREE-204"

    @classmethod
    def children(cls, case: GrowthCase, above: Path) -> list[tuple[int, float]]:
        return list(enumerate(cls.row(case, above).tolist()))[: case.branch_width]


class LastTokenAlone(Trees):
    """Reads the row after the last token, as if the path before it did not matter."""

    refutes = "TREE-205"

    @classmethod
    def row(cls, case: GrowthCase, above: Path) -> np.ndarray:
        try:
            return super().row(case, above[-1:])
        except KeyError:  # a table of what is within reach
            return super().row(case, above)


class RowOfTheFirstBranch(Trees):
    """Reads the rows of every branch after the tokens of the first one (sgl-project/sglang#7523)."""

    refutes = "TREE-205"

    @classmethod
    def row(cls, case: GrowthCase, above: Path) -> np.ndarray:
        if len(above) < 2:
            return super().row(case, above)
        best = cls.published(case, cls.children(case, ())[0][0])
        try:
            return super().row(case, (best, *above[1:]))
        except KeyError:  # a table of what is within reach
            return super().row(case, above)


class RenormalisedConfidence(Trees):
    """Renormalises confidences over the children that are kept."""

    refutes = "TREE-206"

    @classmethod
    def stored(cls, case: GrowthCase, above: Path, probability: float) -> float:
        return probability / (sum(p for _, p in cls.children(case, above)) or 1.0)


class EpsilonAsConfidence(Trees):
    """Stores the floor of the logarithm as the confidence."""

    refutes = "TREE-207"

    @classmethod
    def stored(cls, case: GrowthCase, above: Path, probability: float) -> float:
        return max(probability, 1e-12)


class ImpossibleChildrenDropped(Trees):
    """Leaves out children of probability zero."""

    refutes = "TREE-207"

    @classmethod
    def children(cls, case: GrowthCase, above: Path) -> list[tuple[int, float]]:
        found = super().children(case, above)
        return [child for child in found if child[1] > 0] or found[:1]


class ProductAsValue(Trees):
    """Stores the product of the confidences, and calls it a value."""

    refutes = "TREE-208"

    @classmethod
    def value(cls, above: float, probability: float) -> float:
        return (above or 1.0) * probability


class ValueOfTheLastToken(Trees):
    """Forgets what the path above was worth."""

    refutes = "TREE-208"

    @classmethod
    def value(cls, above: float, probability: float) -> float:
        return math.log(max(probability, 1e-12))

    draft_tree = None  # type: ignore[assignment]


class LowerFloor(Trees):
    """Floors confidences at 1e-30."""

    refutes = "TREE-209"

    @classmethod
    def value(cls, above: float, probability: float) -> float:
        return above + math.log(max(probability, 1e-30))


class ExpandsTheFirstNodes(Trees):
    """Expands the nodes that were made first, whatever their values."""

    refutes = "TREE-210"

    @classmethod
    def frontier(cls, case: GrowthCase, latest: list[int], value: list[float]) -> list[int]:
        return latest[: case.expand_width]


class ExpandsLaterOfEquals(Trees):
    """Expands the later one of two equal nodes first."""

    refutes = "TREE-211"

    @classmethod
    def frontier(cls, case: GrowthCase, latest: list[int], value: list[float]) -> list[int]:
        return sorted(latest, key=lambda node: (-value[node], -node))[: case.expand_width]


class FrontierInIdOrder(Trees):
    """Puts the chosen frontier back into the order of ids before it expands it."""

    refutes = "TREE-212"

    @classmethod
    def frontier(cls, case: GrowthCase, latest: list[int], value: list[float]) -> list[int]:
        return sorted(super().frontier(case, latest, value))


class ChildrenInTokenOrder(Trees):
    """Sorts the children that it keeps by token."""

    refutes = "TREE-212"

    @classmethod
    def children(cls, case: GrowthCase, above: Path) -> list[tuple[int, float]]:
        return sorted(super().children(case, above))


class HigherTokenOfEquals(Trees):
    """Takes the higher token of two that are equally probable."""

    refutes = "TREE-213"

    @classmethod
    def children(cls, case: GrowthCase, above: Path) -> list[tuple[int, float]]:
        row = cls.row(case, above)
        order = sorted(range(len(row)), key=lambda v: (-row[v], -v))
        return [(v, float(row[v])) for v in order[: case.branch_width]]


class OffsetsAsIds(Trees):
    """Reads offsets as target ids (SafeAILab/EAGLE#222)."""

    refutes = "TREE-214"

    @classmethod
    def published(cls, case: GrowthCase, draft: int) -> int:
        return draft if case.draft_map is None else int(case.draft_map.d2t[draft]) % 64


class EqualWidthNeedsNoMap(Trees):
    """Takes a map between vocabularies of equal width for the identity."""

    refutes = "TREE-214"

    @classmethod
    def published(cls, case: GrowthCase, draft: int) -> int:
        given = case.draft_map
        if given is not None and given.t2d is not None and len(given.t2d) == len(given.d2t):
            return draft
        return super().published(case, draft)


class RowsByDraftIds(Trees):
    """Looks rows up by draft ids."""

    refutes = "TREE-215"

    @classmethod
    def row(cls, case: GrowthCase, above: Path) -> np.ndarray:
        if case.draft_map is None:
            return super().row(case, above)
        draft = {cls.published(case, v): v for v in range(len(case.draft_map.d2t))}
        return super().row(case, tuple(draft[token] for token in above))
