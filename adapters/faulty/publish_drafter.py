"""Publications with one fault each: rows that are given back, and the drafter's rows."""

from __future__ import annotations

import math

import numpy as np

from adapters.faulty.publishing import PAD, Publisher, Round, floats

# ---- rows given back


class GivesNothingBack(Publisher):
    """Keeps the rows of rejected nodes (sgl-project/sglang#2711)."""

    refutes = "PUBLISH-701"

    @classmethod
    def freed(cls, found: Round, nodes: list[int]) -> list[float]:
        return []


class GivesBackByNode(Publisher):
    """Gives rows back in the order of their nodes."""

    refutes = "PUBLISH-701"

    @classmethod
    def freed(cls, found: Round, nodes: list[int]) -> list[float]:
        rest = sorted(node for node in found.nodes if node >= 0 and node not in nodes)
        return [found.kv[found.nodes.index(node)] for node in rest]


class GivesTheTailBack(Publisher):
    """Gives back as many rows at the end as were rejected (NVIDIA/TensorRT-LLM#10343)."""

    refutes = "PUBLISH-701"

    @classmethod
    def freed(cls, found: Round, nodes: list[int]) -> list[float]:
        drafted = [row for row, node in enumerate(found.nodes) if node >= 0]
        return [found.kv[row] for row in drafted[len(nodes) :]]


class GivesTheRootBack(Publisher):
    """Gives back every row that no accepted node has, the root's with them."""

    refutes = "PUBLISH-702"

    @classmethod
    def freed(cls, found: Round, nodes: list[int]) -> list[float]:
        return [found.kv[row] for row, node in enumerate(found.nodes) if node != PAD and node not in nodes]


class GivesPaddingBack(Publisher):
    """Gives padding back as rejected rows (HabanaAI/vllm-fork#1780)."""

    refutes = "PUBLISH-703"

    @classmethod
    def freed(cls, found: Round, nodes: list[int]) -> list[float]:
        return [found.kv[row] for row, node in enumerate(found.nodes) if node != -1 and node not in nodes]


class KeepsRowsBehindTheEnd(Publisher):
    """Gives back the rejected nodes, and not the accepted ones that the end cut away (vllm-project/vllm#35978)."""

    refutes = "PUBLISH-704"

    @classmethod
    def freed(cls, found: Round, nodes: list[int]) -> list[float]:
        return super().freed(found, found.path)


# ---- the drafter's rows


class TrimsTwoTooMany(Publisher):
    """Cuts the drafter's rows by rejected + 1, and not by rejected − 1 (lablup/mlxcel#994)."""

    refutes = "PUBLISH-801"

    @classmethod
    def draft_kv(cls, found: Round, nodes: list[int], features: list[float], survives: bool) -> np.ndarray | None:
        rows = super().draft_kv(found, nodes, features, survives)
        return rows if rows is None else rows[:-2]


class RowsOfNoDrafter(Publisher):
    """Returns an empty row of rows for a drafter that keeps none."""

    refutes = "PUBLISH-801"

    @classmethod
    def no_drafter(cls, found: Round) -> np.ndarray | None:
        return floats([])


class RowsOfDraftingStay(Publisher):
    """Keeps the rows made from drafted features, where it says that they are recomputed (vllm-project/vllm#14649)."""

    refutes = "PUBLISH-802"

    @classmethod
    def draft_row(cls, found: Round, node: int, feature: float) -> float:
        drafted = float(found.case.verified.draft_kv[found.nodes.index(node)])  # type: ignore[index]
        return feature if math.isnan(drafted) else drafted


class OwnFeature(Publisher):
    """Makes the row of a token from the feature that the target made of this very token."""

    refutes = "PUBLISH-802"

    @classmethod
    def draft_row(cls, found: Round, node: int, feature: float) -> float:
        return found.features[found.nodes.index(node)]


class KeptByCount(Publisher, draft_kv="kept"):
    """Keeps as many rows of drafting behind the root's as were accepted."""

    refutes = "PUBLISH-803"

    @classmethod
    def drafted_row(cls, found: Round, node: int) -> int:
        drafted = [row for row, held in enumerate(found.nodes) if held >= 0]
        return drafted[found.path.index(node)]


class RecomputesWhatIsKept(Publisher, draft_kv="kept"):
    """Makes all rows anew, where it says that they are kept."""

    refutes = "PUBLISH-803"

    @classmethod
    def draft_row(cls, found: Round, node: int, feature: float) -> float:
        return feature


class EmptyRowStays(Publisher, draft_kv="kept"):
    """Keeps the row of a token that the drafter never consumed, empty as it is (vllm-project/vllm#9730)."""

    refutes = "PUBLISH-804"

    @classmethod
    def not_drafted(cls, feature: float) -> float:
        return math.nan


class FrontierRowFromBefore(Publisher):
    """Makes the frontier's row from the feature that its predecessor was made from."""

    refutes = "PUBLISH-804"

    @classmethod
    def frontier_row(cls, found: Round, before: list[float]) -> float:
        return before[-2] if len(before) > 1 else 0.0


class DraftRowsOfTheWholePath(Publisher):
    """Has a drafter's row for each accepted token, also behind the end of the output."""

    refutes = "PUBLISH-805"

    @classmethod
    def draft_kv(cls, found: Round, nodes: list[int], features: list[float], survives: bool) -> np.ndarray | None:
        whole = super().features(found, found.path)
        return super().draft_kv(found, found.path, whole, survives)
