"""Tree builders with one fault each: who sees whom, and the masks that they export."""

from __future__ import annotations

import numpy as np

from adapters.faulty.growing import Trees


class SiblingsVisible(Trees):
    """Lets a row see the rows of its parent's other children (PaddlePaddle/FastDeploy#3514)."""

    refutes = "TREE-501"

    @classmethod
    def flat_visible(cls, parent: list[int]) -> np.ndarray:
        above = np.array(parent)
        siblings = (above[:, None] == above[None, :]) & np.tri(len(parent), dtype=bool)
        return np.asarray(cls.visible(parent) | siblings)

    draft_tree = None  # type: ignore[assignment]


class NotItself(Trees):
    """Hides a row from itself."""

    refutes = "TREE-501"

    @classmethod
    def flat_visible(cls, parent: list[int]) -> np.ndarray:
        return np.asarray(cls.visible(parent) & ~np.eye(len(parent), dtype=bool))

    draft_tree = None  # type: ignore[assignment]


class CausalIsAllowed(Trees):
    """Takes every earlier node for an ancestor."""

    refutes = "TREE-502"

    @classmethod
    def tree_visibility(cls, parent: np.ndarray) -> np.ndarray:
        cls.check_parents(parent.tolist())
        return np.tri(len(parent), dtype=bool)


class ParentsAlone(Trees):
    """Lets a node see its parent and not what is above it."""

    refutes = "TREE-502"

    @classmethod
    def tree_visibility(cls, parent: np.ndarray) -> np.ndarray:
        cls.check_parents(parent.tolist())
        found = np.eye(len(parent), dtype=bool)
        for row, above in enumerate(parent.tolist()):
            if above >= 0:
                found[row, above] = True
        return found


class RootColumnMissing(Trees):
    """Leaves the column of the root empty in the mask that it exports."""

    refutes = "TREE-503"

    @classmethod
    def verified(cls, parent: list[int], prefix: int) -> np.ndarray:
        found = super().verified(parent, prefix)
        found[1:, prefix] = False
        return found


class TheRootSeesItsChildren(Trees):
    """Lets the root see every drafted row."""

    refutes = "TREE-503"

    @classmethod
    def verified(cls, parent: list[int], prefix: int) -> np.ndarray:
        found = super().verified(parent, prefix)
        found[0] = True
        return found


class MaskIsCausal(Trees):
    """Exports a causal mask for the drafted rows of every tree with families in it."""

    refutes = "TREE-504"

    @classmethod
    def verified(cls, parent: list[int], prefix: int) -> np.ndarray:
        found = super().verified(parent, prefix)
        if max(parent, default=-1) >= 0:
            found[1:, prefix + 1 :] = np.tri(len(parent), dtype=bool)
        return found


class PrefixBehindTheTree(Trees):
    """Puts the columns of decided tokens behind those of the tree."""

    refutes = "TREE-505"

    @classmethod
    def verified(cls, parent: list[int], prefix: int) -> np.ndarray:
        return np.roll(super().verified(parent, prefix), -prefix, axis=1)


class OneColumnOfThePrefixLost(Trees):
    """Hides the first decided token, as a length without it does."""

    refutes = "TREE-505"

    @classmethod
    def verified(cls, parent: list[int], prefix: int) -> np.ndarray:
        found = super().verified(parent, prefix)
        found[1:, :1] &= prefix == 0
        return found


class PolarityExchanged(Trees):
    """Exports what is blocked as allowed, and what is allowed as blocked."""

    refutes = "TREE-506"

    @classmethod
    def form(cls, seen: np.ndarray, form: str) -> np.ndarray:
        return super().form(seen, {"allowed": "blocked", "blocked": "allowed"}.get(form, form))


class AddsOne(Trees):
    """Adds one where a row sees and nothing where it does not (vllm-project/speculators#897)."""

    refutes = "TREE-507"

    @classmethod
    def form(cls, seen: np.ndarray, form: str) -> np.ndarray:
        return seen.astype(float) if form == "additive" else super().form(seen, form)


class HidesALittle(Trees):
    """Adds −1 to what is hidden."""

    refutes = "TREE-507"

    @classmethod
    def hidden(cls) -> float:
        return -1.0


class OneWordShort(Trees):
    """Takes words for as many columns as there are drafted rows (NVIDIA/TensorRT-LLM#8421)."""

    refutes = "TREE-508"

    @classmethod
    def words(cls, columns: int, width: int) -> int:
        return max(1, super().words(columns - 1, width))


class WordsBackwards(Trees):
    """Stores the last word of a row first."""

    refutes = "TREE-508"

    @classmethod
    def pack(cls, seen: np.ndarray, width: int) -> np.ndarray:
        return np.ascontiguousarray(super().pack(seen, width)[:, ::-1])


class MasksOfTheBatchReversed(Trees):
    """Hands the masks of a batch out from its other end (sgl-project/sgl-kernel-npu#146)."""

    refutes = "TREE-509"

    @classmethod
    def batch_masks(cls, masks: list[np.ndarray]) -> list[np.ndarray]:
        return masks[::-1]
