"""Right tree builders that do it in another way: in float32, by products, by a heap, with masks of another kind."""

from __future__ import annotations

import dataclasses
import heapq
from typing import Any

import numpy as np

from adapters.faulty.growing import OPERATIONS, Trees
from adapters.interface import Declaration, NotApplicable
from oracle import masks, tree
from oracle.types import CandidateTree, DraftTreeCase, FlattenCase, FlatTree, GrowthCase, MaskCase, SelectionCase

COST = dict.fromkeys(OPERATIONS, 3e-4)


class OtherCode(Trees):
    """Written apart from the oracle, step by step."""


class SinglePrecision(Trees, dtype="float32"):
    """Ranks by logarithms in float32, and of equals takes the shallower and the earlier."""

    @classmethod
    def value(cls, above: float, probability: float) -> float:
        return float(np.float32(above) + np.log(np.float32(max(probability, 1e-12))))

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (-float(np.float32(tree.log_value[node])), float(tree.depth[node]), node)


class HalfPrecision(Trees, dtype="bfloat16"):
    """Ranks in eight bits, where many values are equal, and stays closed by taking the shallower of equals."""

    @classmethod
    def value(cls, above: float, probability: float) -> float:
        return rounded(above + rounded(np.log(rounded(max(probability, 1e-12)))))

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (-rounded(float(tree.log_value[node])), float(tree.depth[node]), node)


class ByHeap(Trees):
    """Takes the best node whose parent is taken, again and again."""

    @classmethod
    def chosen(cls, tree: CandidateTree, budget: int) -> list[int]:
        above = tree.parent.tolist()
        open_nodes = [cls.key(tree, node) for node, parent in enumerate(above) if parent == -1]
        heapq.heapify(open_nodes)
        taken: list[int] = []
        while open_nodes and len(taken) < budget:
            node = int(heapq.heappop(open_nodes)[-1])
            taken.append(node)
            for child in (i for i, parent in enumerate(above) if parent == node):
                heapq.heappush(open_nodes, cls.key(tree, child))
        return taken


class Engine:
    """The oracle behind an engine's habits: no root row, a set of nodes, positions from 1, no links, float masks."""

    DECLARATION = Declaration(
        "Engine",
        "1.0",
        conventions={
            "root_in_verification": "no",
            "selection_order": "node",
            "position_base": "1",
            "draft_map": "offset",
        },
        cost=COST,
    )

    @staticmethod
    def grow_tree(case: GrowthCase) -> CandidateTree:
        if case.draft_map is not None and case.draft_map.convention != "offset":
            raise NotApplicable("its maps are offsets")
        return tree.grow_tree(case)

    @staticmethod
    def select_nodes(case: SelectionCase) -> np.ndarray:
        return np.sort(tree.select_nodes(case))

    @staticmethod
    def flatten_tree(cases: list[FlattenCase]) -> list[FlatTree]:
        return [bare(found) for found in tree.flatten_tree(cases)]

    @staticmethod
    def draft_tree(cases: list[DraftTreeCase]) -> list[FlatTree]:
        if any(c.growth.expand_width != c.growth.branch_width or c.growth.draft_map for c in cases):
            raise NotApplicable("it has one width, and no draft vocabulary")
        return [bare(found) for found in tree.draft_tree(cases)]

    @staticmethod
    def tree_mask(cases: list[MaskCase]) -> list[np.ndarray]:
        if any(case.form != "allowed" for case in cases):
            raise NotApplicable("its masks are 1 where a row sees")
        found = masks.tree_mask(cases)
        return [np.delete(m, case.prefix, axis=1)[1:].astype(np.float32) for m, case in zip(found, cases)]


class LeastNumbers:
    """The oracle with additive masks in float32 that hold its least number, and tables in layers of int32."""

    DECLARATION = Declaration("LeastNumbers", "1.0", cost=COST)

    @staticmethod
    def tree_mask(cases: list[MaskCase]) -> list[np.ndarray]:
        least = float(np.finfo(np.float32).min)
        return [np.maximum(m, least).astype(np.float32) if m.dtype.kind == "f" else m for m in masks.tree_mask(cases)]

    @staticmethod
    def flatten_tree(cases: list[FlattenCase]) -> list[FlatTree]:
        return [narrow(found) for found in tree.flatten_tree(cases)]

    @staticmethod
    def tree_visibility(parent: np.ndarray) -> np.ndarray:
        return tree.tree_visibility(parent)


def bare(found: FlatTree) -> FlatTree:
    """A flat tree without what such an engine lacks."""
    position = None if found.position is None else found.position[1:] + 1
    return dataclasses.replace(found, first_child=None, next_sibling=None, node=None, position=position)


def narrow(found: FlatTree) -> FlatTree:
    values: dict[str, Any] = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    return FlatTree(**{name: v if v.dtype == bool else v.astype(np.int32) for name, v in values.items()})


def rounded(value: float) -> float:
    """The nearest number of eight bits of precision."""
    mantissa, exponent = np.frexp(value)
    return float(np.ldexp(np.round(mantissa * 256) / 256, exponent))
