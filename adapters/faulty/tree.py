"""Tree builders with one fault each: structure; the modules beside it, `tree_…`, hold the others.

`--impl=adapters.faulty.tree:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from adapters.faulty.growing import Path, Trees
from adapters.faulty.tree_drafts import *  # noqa: F403 - one address for every fault
from adapters.faulty.tree_growth import *  # noqa: F403
from adapters.faulty.tree_masks import *  # noqa: F403
from adapters.faulty.tree_refusals import *  # noqa: F403
from adapters.faulty.tree_rows import *  # noqa: F403
from adapters.faulty.tree_selection import *  # noqa: F403
from oracle.types import CandidateTree, FlattenCase, FlatTree


class DepthsAsFloats(Trees):
    """Returns depths in floating point."""

    refutes = "TREE-101"

    @classmethod
    def candidates(
        cls, paths: list[Path], parent: list[int], confidence: list[float], value: list[float]
    ) -> CandidateTree:
        tree = super().candidates(paths, parent, confidence, value)
        return dataclasses.replace(tree, depth=tree.depth.astype(float))

    draft_tree = None  # type: ignore[assignment]  # it grows alone


class VisibilityWithTheRoot(Trees):
    """Returns the visibility of the root and the rows, where that of the rows is asked for."""

    refutes = "TREE-101"

    @classmethod
    def tree_visibility(cls, parent: np.ndarray) -> np.ndarray:
        cls.check_parents(parent.tolist())
        return cls.verified(parent.tolist(), 0)


class NeverEmpty(Trees):
    """Selects one node at least, so that no tensor is empty (NVIDIA/TensorRT-LLM#10323)."""

    refutes = "TREE-102"

    @classmethod
    def spent(cls, budget: int) -> int:
        return max(budget, 1)


class SortsTheSelectionInPlace(Trees):
    """Sorts the selected nodes in the array that it was handed."""

    refutes = "TREE-103"

    @classmethod
    def flat(cls, case: FlattenCase) -> FlatTree:
        case.selected.sort()
        return super().flat(case)
