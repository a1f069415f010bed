"""A right row compiler, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full beside it. Addresses are pairs (batch row, address).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from adapters.interface import Declaration
from oracle.types import (
    OWNERS,
    Flags,
    GatherCase,
    GatheredRows,
    RolloutRows,
    RolloutRowsCase,
    RowPlan,
    SupervisionCase,
    TokenBatch,
)

Address = tuple[int, int]
Node = tuple[int, int, int]


class Rows:
    """A right compiler; every step is a method that a fault may override."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    """In a fault: the clause that it breaks, the lowest one that the suite refutes."""

    def __init_subclass__(cls, conventions: dict[str, str] | None = None) -> None:
        cost = dict.fromkeys(("soft_rows", "hard_rows", "supervision_at_source", "gather_rows", "rollout_rows"), 1e-4)
        cls.DECLARATION = Declaration(cls.__name__, "1.0", conventions=conventions or {}, cost=cost)

    # ---- operations

    @classmethod
    def soft_rows(cls, batch: TokenBatch) -> RowPlan:
        cls.validate(batch)
        return cls.planned(batch, cls.sources(batch), hard=False)

    @classmethod
    def hard_rows(cls, batch: TokenBatch) -> RowPlan:
        cls.validate(batch)
        return cls.planned(batch, cls.hard_sources(batch), hard=True)

    @classmethod
    def supervision_at_source(cls, case: SupervisionCase) -> Flags:
        if case.owner not in OWNERS:
            raise ValueError(f"owner = {case.owner!r}")
        found = np.zeros(case.token_mask.shape, dtype=bool)
        for b, t in np.ndindex(*found.shape):
            owner = t + cls.ahead(case)
            found[b, t] = cls.owned(case.batch, (b, t), owner) and case.token_mask[b, owner]
        return found

    @classmethod
    def gather_rows(cls, case: GatherCase) -> GatheredRows:
        plan = cls.planned(case.batch, cls.sources(case.batch), hard=False)
        rows = list(zip(plan.batch.tolist(), plan.source.tolist()))
        width = case.features.shape[2]
        return GatheredRows(
            batch=plan.batch,
            feature=np.array([cls.feature(case, b, t) for b, t in rows], dtype=float).reshape(-1, width),
            token=ids([case.batch.tokens[b, a] for (b, _), a in zip(rows, plan.advanced)]),
            target=np.array([cls.wanted(case, b, int(a)) for (b, _), a in zip(rows, plan.target)]).reshape(-1, width),
            supervise=cls.gathered_flags(plan),
            position=cls.gathered_positions(plan),
        )

    @classmethod
    def rollout_rows(cls, case: RolloutRowsCase) -> RolloutRows:
        cls.validate(case.batch)
        nodes = cls.ordered(cls.nodes(case.batch, cls.steps(case)))
        place = {node: i for i, node in enumerate(nodes)}
        return RolloutRows(
            step=ids([s for s, _, _ in nodes]),
            batch=ids([b for _, b, _ in nodes]),
            anchor=ids([a for _, _, a in nodes]),
            consumed=ids([cls.consumed(node) for node in nodes]),
            target=ids([cls.towards(node) for node in nodes]),
            supervise=np.array([cls.node_flag(case.batch, node) for node in nodes], dtype=bool),
            position=ids([cls.stands(case.batch, node) for node in nodes]),
            state_from=ids([place.get(cls.fed(node), -1) for node in nodes]),
        )

    # ---- steps of a plan

    @classmethod
    def validate(cls, batch: TokenBatch) -> None:
        shapes = {np.shape(getattr(batch, f.name)) for f in dataclasses.fields(batch)}
        if len(shapes) != 1 or batch.valid.ndim != 2:
            raise ValueError(f"shapes {shapes}")
        if batch.valid.dtype != bool or batch.supervise.dtype != bool or batch.position.dtype.kind != "i":
            raise TypeError("valid and supervise are booleans, positions integers")
        cls.check_positions(batch)

    @classmethod
    def check_positions(cls, batch: TokenBatch) -> None:
        last: dict[Address, int] = {}
        for b, t in np.argwhere(batch.valid).tolist():
            key, here = (b, int(batch.segment[b, t])), int(batch.position[b, t])
            if here <= last.get(key, here - 1):
                raise ValueError(f"position[{b}, {t}]")
            last[key] = here

    @classmethod
    def sources(cls, batch: TokenBatch) -> list[Address]:
        return [(b, t) for b, t in np.ndindex(*batch.valid.shape) if cls.exists(batch, b, t)]

    @classmethod
    def hard_sources(cls, batch: TokenBatch) -> list[Address]:
        return cls.sources(batch)

    @classmethod
    def exists(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return cls.holds(batch, b, t) and cls.holds(batch, b, t + 1) and cls.same(batch, b, t, t + 1)

    @classmethod
    def holds(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return bool(0 <= t < batch.valid.shape[1] and batch.valid[b, t])

    @classmethod
    def same(cls, batch: TokenBatch, b: int, t: int, u: int) -> bool:
        return bool(batch.segment[b, t] == batch.segment[b, u])

    @classmethod
    def planned(cls, batch: TokenBatch, rows: list[Address], hard: bool) -> RowPlan:
        sees = [[cls.sees(batch, q, k) for k in rows] for q in rows]
        return RowPlan(
            batch=ids([b for b, _ in rows]),
            source=ids([t for _, t in rows]),
            advanced=ids([t + cls.advance() for _, t in rows]),
            target=ids([t + cls.target() for _, t in rows]),
            label=ids([cls.label(batch, b, t, hard) for b, t in rows]),
            supervise=np.array([cls.counts(batch, b, t, hard) for b, t in rows], dtype=bool),
            position=cls.positions(batch, rows),
            visible=np.array(sees, dtype=bool).reshape(len(rows), len(rows)),
        )

    @classmethod
    def advance(cls) -> int:
        return 1

    @classmethod
    def target(cls) -> int:
        return 1

    @classmethod
    def flag(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return bool(batch.supervise[b, t])

    @classmethod
    def counts(cls, batch: TokenBatch, b: int, t: int, hard: bool) -> bool:
        return cls.flag(batch, b, t) and (not hard or cls.observed(batch, b, t))

    @classmethod
    def observed(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return cls.holds(batch, b, t + 2) and cls.same(batch, b, t, t + 2)

    @classmethod
    def label(cls, batch: TokenBatch, b: int, t: int, hard: bool) -> int:
        return int(batch.tokens[b, t + 2]) if hard and cls.observed(batch, b, t) else -1

    @classmethod
    def positions(cls, batch: TokenBatch, rows: list[Address]) -> Any:
        return ids([batch.position[b, t] for b, t in rows])

    @classmethod
    def sees(cls, batch: TokenBatch, query: Address, key: Address) -> bool:
        near = query[0] == key[0] and cls.same(batch, query[0], query[1], key[1])
        return bool(near and batch.position[key] <= batch.position[query])

    # ---- steps of a mask

    @classmethod
    def ahead(cls, case: SupervisionCase) -> int:
        return OWNERS.index(case.owner)

    @classmethod
    def owned(cls, batch: TokenBatch, source: Address, owner: int) -> bool:
        b, t = source
        return cls.holds(batch, b, t) and cls.holds(batch, b, owner) and cls.same(batch, b, t, owner)

    # ---- steps of gathering

    @classmethod
    def feature(cls, case: GatherCase, b: int, t: int) -> Any:
        return case.features[b, t]

    @classmethod
    def wanted(cls, case: GatherCase, b: int, t: int) -> Any:
        return case.features[b, t]

    @classmethod
    def gathered_flags(cls, plan: RowPlan) -> Flags:
        return plan.supervise

    @classmethod
    def gathered_positions(cls, plan: RowPlan) -> Any:
        return plan.position

    # ---- steps of a rollout

    @classmethod
    def steps(cls, case: RolloutRowsCase) -> int:
        if case.steps < 1:
            raise ValueError(f"steps = {case.steps}")
        return case.steps

    @classmethod
    def nodes(cls, batch: TokenBatch, steps: int) -> list[Node]:
        rows = [(s, b, a) for s in range(steps) for b, a in np.ndindex(*batch.valid.shape)]
        return [node for node in rows if cls.node_exists(batch, node)]

    @classmethod
    def node_exists(cls, batch: TokenBatch, node: Node) -> bool:
        s, b, a = node
        return all(cls.holds(batch, b, a + i) and cls.same(batch, b, a, a + i) for i in range(s + 2))

    @classmethod
    def ordered(cls, nodes: list[Node]) -> list[Node]:
        return nodes

    @classmethod
    def consumed(cls, node: Node) -> int:
        return node[2] + node[0] + 1

    @classmethod
    def towards(cls, node: Node) -> int:
        return node[2] + node[0] + 1

    @classmethod
    def node_flag(cls, batch: TokenBatch, node: Node) -> bool:
        return bool(batch.supervise[node[1], node[2] + node[0]])

    @classmethod
    def stands(cls, batch: TokenBatch, node: Node) -> int:
        return int(batch.position[node[1], node[2]]) + node[0]

    @classmethod
    def fed(cls, node: Node) -> Node:
        return node[0] - 1, node[1], node[2]


def ids(values: list[Any]) -> Any:
    return np.array(values, dtype=np.int64).reshape(-1)
