"""A right rollout, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full beside it. A node is a pair (step, anchor).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.declared import Declared
from oracle.types import Attended, AttentionCase, Flags, RolloutCase, RolloutMaskCase, VisibilityGraph

Node = tuple[int, int]
Array = Any


class Rollout(Declared, cost=dict.fromkeys(("rollout_visibility", "rollout_mask", "rollout_attention"), 1e-3)):
    """A right rollout; every step is a method that a fault may override."""

    # ---- operations

    @classmethod
    def rollout_visibility(cls, case: RolloutCase) -> VisibilityGraph:
        nodes, visible = cls.graph(case)
        return VisibilityGraph(
            ids([s for s, _ in nodes]), ids([a for _, a in nodes]), ids([cls.position(case, n) for n in nodes]), visible
        )

    @classmethod
    def rollout_mask(cls, case: RolloutMaskCase) -> Flags:
        cls.check_anchor(case.row_anchor)
        return cls.masked(case.rollout, case.row_anchor)

    @classmethod
    def rollout_attention(cls, cases: Sequence[AttentionCase]) -> list[Attended]:
        return [cls.attended(case) for case in cases]

    # ---- the case

    @classmethod
    def validate(cls, case: RolloutCase) -> None:
        cls.check_steps(case)
        given = [(case.segment, "iu"), (case.valid, "b"), (cls.places(case), "iu")]
        if any(np.shape(array) != (case.length,) or np.asarray(array).dtype.kind not in kind for array, kind in given):
            raise ValueError(f"arrays of length {case.length}: integers, and booleans")
        cls.check_positions(case)

    @classmethod
    def check_steps(cls, case: RolloutCase) -> None:
        if case.steps < 1:
            raise ValueError(f"steps = {case.steps}")

    @classmethod
    def check_positions(cls, case: RolloutCase) -> None:
        last: dict[int, int] = {}
        for t in np.flatnonzero(case.valid).tolist():
            here, segment = int(cls.places(case)[t]), int(case.segment[t])
            if here <= last.get(segment, here - 1):
                raise ValueError(f"position[{t}]")
            last[segment] = here

    @classmethod
    def places(cls, case: RolloutCase) -> Array:
        return np.arange(case.length) if case.position is None else case.position

    @classmethod
    def holds(cls, case: RolloutCase, t: int) -> bool:
        return bool(0 <= t < case.length and case.valid[t])

    @classmethod
    def same(cls, case: RolloutCase, a: int, b: int) -> bool:
        return bool(case.segment[a] == case.segment[b])

    # ---- the graph

    @classmethod
    def graph(cls, case: RolloutCase) -> tuple[list[Node], Flags]:
        cls.validate(case)
        nodes = cls.nodes(case)
        sees = [[cls.sees(case, q, k) for k in nodes] for q in nodes]
        return nodes, np.array(sees, dtype=bool).reshape(len(nodes), len(nodes))

    @classmethod
    def nodes(cls, case: RolloutCase) -> list[Node]:
        return [(s, a) for s in range(case.steps) for a in range(case.length) if cls.exists(case, s, a)]

    @classmethod
    def exists(cls, case: RolloutCase, s: int, a: int) -> bool:
        return all(cls.holds(case, a + i) and cls.same(case, a, a + i) for i in range(s + 2))

    @classmethod
    def position(cls, case: RolloutCase, node: Node) -> int:
        return int(cls.places(case)[node[1]]) + node[0]

    @classmethod
    def sees(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return cls.sees_first(case, query, key[1]) if key[0] == 0 else cls.sees_later(case, query, key)

    @classmethod
    def sees_first(cls, case: RolloutCase, query: Node, b: int) -> bool:
        return b <= query[1] and cls.same(case, query[1], b)

    @classmethod
    def sees_later(cls, case: RolloutCase, query: Node, key: Node) -> bool:
        return key[1] == query[1] and key[0] <= query[0]

    # ---- the mask

    @classmethod
    def check_anchor(cls, anchor: str) -> None:
        if anchor not in ("start", "absolute"):
            raise ValueError(f"row_anchor = {anchor!r}")

    @classmethod
    def masked(cls, case: RolloutCase, anchor: str) -> Flags:
        nodes, visible = cls.graph(case)
        mask = np.zeros((case.steps, case.length, case.steps, case.length), dtype=bool)
        for i, (s, a) in enumerate(nodes):
            for j, (t, b) in enumerate(nodes):
                mask[s, cls.row(s, a, anchor), t, cls.column(t, b, anchor)] = visible[i, j]
        return mask.reshape(case.steps, case.length, case.steps * case.length)

    @classmethod
    def row(cls, s: int, a: int, anchor: str) -> int:
        return a + s if anchor == "absolute" else a

    @classmethod
    def column(cls, t: int, b: int, anchor: str) -> int:
        return cls.row(t, b, anchor)

    # ---- the attention

    @classmethod
    def attended(cls, case: AttentionCase) -> Attended:
        nodes, visible = cls.graph(case.rollout)
        if case.value.shape[:2] != (case.rollout.steps, case.rollout.length) or case.value.ndim != 3:
            raise ValueError(f"value of shape {case.value.shape}")
        output = np.zeros((len(nodes), case.value.shape[2]))
        if nodes:
            output = cls.mixed(case, nodes, cls.weights(nodes, visible))
        return Attended(ids([s for s, _ in nodes]), ids([a for _, a in nodes]), output)

    @classmethod
    def weights(cls, nodes: list[Node], visible: Flags) -> Array:
        return softmax(cls.scores(nodes, visible))

    @classmethod
    def scores(cls, nodes: list[Node], visible: Flags) -> Array:
        return np.where(visible, 0.0, -np.inf)

    @classmethod
    def mixed(cls, case: AttentionCase, nodes: list[Node], weights: Array) -> Array:
        value = np.stack([case.value[node] for node in nodes])
        return weights @ np.where(np.isnan(value), 0.0, value)


def softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def ids(values: list[Any]) -> Any:
    return np.array(values, dtype=np.int64).reshape(-1)
