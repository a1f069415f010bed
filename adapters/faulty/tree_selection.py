"""Tree builders with one fault each: which nodes they select, and in which order."""

from __future__ import annotations

import math

import numpy as np

from adapters.faulty.growing import Trees, ids
from oracle.types import CandidateTree, SelectionCase


class CountsTheRoot(Trees):
    """Spends one node of the budget on the root."""

    refutes = "TREE-301"

    @classmethod
    def spent(cls, budget: int) -> int:
        return max(budget - 1, 0)

    draft_tree = None  # type: ignore[assignment]


class AncestorsAddedAfterwards(Trees):
    """Takes the most confident nodes, and adds the ancestors that they lack."""

    refutes = "TREE-301"

    @classmethod
    def chosen(cls, tree: CandidateTree, budget: int) -> list[int]:
        chosen: list[int] = np.argsort(-tree.confidence, kind="stable")[:budget].tolist()
        for node in chosen:
            if tree.parent[node] not in (-1, *chosen):
                chosen.append(int(tree.parent[node]))
        return chosen

    draft_tree = None  # type: ignore[assignment]


class MostConfidentNodes(Trees):
    """Ranks nodes by their own confidence, and not by their path's."""

    refutes = "TREE-302"

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> np.ndarray:
        super().select_nodes(case)
        return ids(np.argsort(-case.tree.confidence, kind="stable")[: case.budget].tolist())


class BreadthFirst(Trees):
    """Fills the budget layer by layer."""

    refutes = "TREE-303"

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> np.ndarray:
        super().select_nodes(case)
        tree = case.tree
        return ids(sorted(range(len(tree.parent)), key=lambda i: (tree.depth[i], -tree.log_value[i]))[: case.budget])


class SelectionInNodeOrder(Trees):
    """Sorts the selection by node, and says that it comes by value."""

    refutes = "TREE-304"

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> np.ndarray:
        return np.sort(super().select_nodes(case))


class DeeperFirstOfEquals(Trees):
    """Takes the deeper one of two equal nodes first."""

    refutes = "TREE-305"

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (-float(tree.log_value[node]), -float(tree.depth[node]), node)

    draft_tree = None  # type: ignore[assignment]


class LaterFirstOfEquals(Trees):
    """Takes the later one of two equal nodes first."""

    refutes = "TREE-305"

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        return (-float(tree.log_value[node]), float(tree.depth[node]), -node)


class CertainChildrenFirst(Trees):
    """Takes a node that adds nothing to its parent's value before that parent."""

    refutes = "TREE-306"

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        sure = tree.confidence[node] == 1
        return (-float(tree.log_value[node]), -float(tree.depth[node]) if sure else 0.0, tree.depth[node], node)

    draft_tree = None  # type: ignore[assignment]


class ProductInsteadOfLog(Trees):
    """Ranks by the product of confidences, which is zero from some depth on."""

    refutes = "TREE-307"

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> np.ndarray:
        super().select_nodes(case)
        tree, product = case.tree, np.exp(case.tree.log_value)
        return ids(sorted(range(len(product)), key=lambda i: (-product[i], tree.depth[i], i))[: case.budget])


class ValuesRecomputed(Trees):
    """Ranks by logarithms of the confidences without their floor, and not by the values it is given."""

    refutes = "TREE-308"

    @classmethod
    def key(cls, tree: CandidateTree, node: int) -> tuple[float, ...]:
        value, here = 0.0, node
        while here >= 0:
            value += math.log(tree.confidence[here]) if tree.confidence[here] > 0 else -math.inf
            here = int(tree.parent[here])
        return (-value, float(tree.depth[node]), node)


class RefusesALargeBudget(Trees):
    """Raises where the budget is larger than the tree."""

    refutes = "TREE-309"

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> np.ndarray:
        if case.budget > len(case.tree.parent) > 0:
            raise RuntimeError("selected index k out of range")
        return super().select_nodes(case)
