"""A right publication, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full beside it. A round is a `Round`: the case with its rows
looked up once. What is refused stands in the second half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from adapters.interface import Declaration
from oracle.types import CommittedState, PublishCase

ROOT, PAD = -1, -2


class Round:
    """A case in plain lists, and where its nodes stand."""

    def __init__(self, case: PublishCase) -> None:
        self.case = case
        self.prompt: list[int] = case.state.prompt.tolist()
        self.output: list[int] = case.state.output.tolist()
        self.nodes: list[int] = case.verified.row_node.tolist()
        self.tokens: list[int] = case.verified.row_token.tolist()
        self.kv: list[float] = case.verified.kv.tolist()
        self.features: list[float] = case.verified.features.tolist()
        self.path: list[int] = list(case.decision.path)
        self.stops = set(case.limits.stop_tokens)

    @property
    def rooted(self) -> bool:
        return ROOT in self.nodes

    @property
    def room(self) -> int | None:
        """How many more tokens there may be."""
        most = self.case.limits.max_new_tokens
        return None if most is None else most - len(self.output)


class Checks:
    """What is refused; every rule is a method that a fault may override."""

    @classmethod
    def check(cls, case: PublishCase) -> None:
        found = Round(case)
        cls.check_finished(found)
        cls.check_limit(found)
        cls.check_nodes(found)
        cls.check_root(found)
        cls.check_twice(found)
        cls.check_path(found)
        cls.check_sizes(found)

    @classmethod
    def check_finished(cls, found: Round) -> None:
        if found.case.state.finished:
            raise ValueError("the request is finished")

    @classmethod
    def check_limit(cls, found: Round) -> None:
        if found.room is not None and found.room < 1:
            raise ValueError("the request is at its limit")

    @classmethod
    def check_nodes(cls, found: Round) -> None:
        held = [node for node in found.nodes if node != PAD]
        if len(set(held)) < len(held):
            raise ValueError("a node has two rows")

    @classmethod
    def check_root(cls, found: Round) -> None:
        if found.rooted != (found.case.state.pending is not None):
            raise ValueError("the root row is that of the pending token")

    @classmethod
    def check_twice(cls, found: Round) -> None:
        pending = found.case.state.pending
        if found.rooted and pending is not None and found.tokens[found.nodes.index(ROOT)] != pending:
            raise ValueError("the root row does not hold the pending token")

    @classmethod
    def check_path(cls, found: Round) -> None:
        if len(set(found.path)) < len(found.path) or any(n < 0 or n not in found.nodes for n in found.path):
            raise ValueError("the path is no path")

    @classmethod
    def check_sizes(cls, found: Round) -> None:
        state = found.case.state
        held = len(found.prompt) + len(found.output) - (state.pending is not None)
        if len(state.kv) != held or len(state.features) != held:
            raise ValueError("KV and features are not as many as the tokens")


class Publisher(Checks):
    """A right publication; every step is a method that a fault may override."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    """In a fault: the clause that it breaks, the lowest one that the suite refutes."""

    def __init_subclass__(cls, draft_kv: str = "recomputed") -> None:
        cls.DECLARATION = Declaration(cls.__name__, "1.0", conventions={"draft_kv": draft_kv}, cost={"publish": 1e-4})

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        for case in cases:
            cls.check(case)
        return cls.batch(cases, [cls.member(Round(case)) for case in cases])

    @classmethod
    def batch(cls, cases: Sequence[PublishCase], states: list[CommittedState]) -> list[CommittedState]:
        return states

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        tokens = cls.path_tokens(found)
        size, reason = cls.cut(found, [*tokens, found.case.decision.frontier])
        survives = size > len(tokens)  # the frontier
        nodes = found.path[:size]
        features = cls.features(found, cls.nodes_with_rows(found, nodes, reason))
        return CommittedState(
            prompt=ids(cls.prompt(found)),
            output=ids(cls.output(found, tokens[:size], survives)),
            kv=floats(cls.kv(found, cls.nodes_with_rows(found, nodes, reason))),
            features=floats(features),
            pending=cls.pending(found, survives, reason),
            finished=cls.finished(found, size, reason),
            seed=cls.seed(found, features, survives),
            freed=floats(cls.freed(found, nodes)),
            finish_reason=cls.reason(found, size, reason),
            draft_kv=cls.draft_kv(found, nodes, features, survives),
        )

    # ---- outputs

    @classmethod
    def prompt(cls, found: Round) -> list[int]:
        return list(found.prompt)

    @classmethod
    def path_tokens(cls, found: Round) -> list[int]:
        return [found.tokens[row] for row in cls.token_rows(found)]

    @classmethod
    def token_rows(cls, found: Round) -> list[int]:
        return [found.nodes.index(node) for node in found.path]

    @classmethod
    def output(cls, found: Round, tokens: list[int], survives: bool) -> list[int]:
        return [*found.output, *tokens, *([found.case.decision.frontier] if survives else [])]

    # ---- where it ends

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        """How many new tokens survive, and why the request ends."""
        for i, token in enumerate(new):
            if token in found.stops:
                return i + 1, "stop"
            if i + 1 == found.room:
                return i + 1, "length"
        return len(new), None

    @classmethod
    def pending(cls, found: Round, survives: bool, reason: str | None) -> int | None:
        return found.case.decision.frontier if survives else None

    @classmethod
    def finished(cls, found: Round, size: int, reason: str | None) -> bool:
        return reason is not None

    @classmethod
    def reason(cls, found: Round, size: int, reason: str | None) -> str | None:
        return reason

    # ---- rows

    @classmethod
    def nodes_with_rows(cls, found: Round, nodes: list[int], reason: str | None) -> list[int]:
        """The nodes that KV and features take in, of those that are output."""
        return nodes

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        return [*found.case.state.kv.tolist(), *(found.kv[row] for row in cls.kv_rows(found, nodes))]

    @classmethod
    def kv_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        return cls.rows(found, nodes)

    @classmethod
    def features(cls, found: Round, nodes: list[int]) -> list[float]:
        rows = cls.feature_rows(found, nodes)
        return [*found.case.state.features.tolist(), *(found.features[row] for row in rows)]

    @classmethod
    def feature_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        return cls.rows(found, nodes)

    @classmethod
    def rows(cls, found: Round, nodes: list[int]) -> list[int]:
        """The root's row, where there is one, and those of the nodes."""
        return [found.nodes.index(node) for node in ([ROOT] if found.rooted else []) + nodes]

    @classmethod
    def seed(cls, found: Round, features: list[float], survives: bool) -> float | None:
        return features[-1] if survives else None

    @classmethod
    def freed(cls, found: Round, nodes: list[int]) -> list[float]:
        return [found.kv[row] for row, node in enumerate(found.nodes) if node not in (ROOT, PAD, *nodes)]

    # ---- the drafter

    @classmethod
    def draft_kv(cls, found: Round, nodes: list[int], features: list[float], survives: bool) -> np.ndarray | None:
        held = found.case.state.draft_kv
        if held is None:
            return cls.no_drafter(found)
        before = features[len(found.prompt) + len(found.output) - 1 :]  # the feature before each new token
        rows = [cls.draft_row(found, node, before[i]) for i, node in enumerate(nodes)]
        return floats([*held.tolist(), *rows, *([cls.frontier_row(found, before)] if survives else [])])

    @classmethod
    def no_drafter(cls, found: Round) -> np.ndarray | None:
        return None

    @classmethod
    def draft_row(cls, found: Round, node: int, feature: float) -> float:
        """The drafter's row of an accepted node, whose token stands behind `feature`."""
        if cls.DECLARATION.conventions["draft_kv"] == "recomputed":
            return feature
        drafted = float(found.case.verified.draft_kv[cls.drafted_row(found, node)])  # type: ignore[index]
        return cls.not_drafted(feature) if math.isnan(drafted) else drafted

    @classmethod
    def drafted_row(cls, found: Round, node: int) -> int:
        return found.nodes.index(node)

    @classmethod
    def not_drafted(cls, feature: float) -> float:
        return feature

    @classmethod
    def frontier_row(cls, found: Round, before: list[float]) -> float:
        """The drafter's row of the frontier; `before` holds the feature before each new token."""
        return before[-1]


def ids(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64).reshape(-1)


def floats(values: Sequence[float]) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(-1)
