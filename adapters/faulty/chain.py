"""A right verifier of chains, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full here. Node i of a chain hangs below node
i − 1; row i of a case judges node i, and the last row is the law after all drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from adapters.interface import Arithmetic, Declaration, NotApplicable
from oracle.types import Coins, Decision, VerifyCase

Row = list[float]
Member = tuple[VerifyCase, Coins]

_CONVENTIONS = {"coin_scheme": "per_node", "frontier_coin": "inverse_cdf", "accept_operator": "<"}
_COST = {"verify_greedy": 2e-5, "verify_sampled": 2e-5, "verify_random": 2e-5}


@dataclass(frozen=True, slots=True)
class Trial:
    """One draft on trial: its node, the coin spent on it, and the two rows it is judged by."""

    case: VerifyCase
    coins: Coins
    node: int
    token: int
    u: float
    target: Row
    draft: Row

    @property
    def p(self) -> float:
        return self.target[self.token]

    @property
    def q(self) -> float:
        return self.draft[self.token]


class BlackBox:
    """Offers `verify_random` alone; every step of the walk is a method that a fault may override."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    """In a fault: the clause that it breaks, the lowest one that the suite refutes."""
    seen_in: ClassVar[str] = "quick"
    """The shortest profile that must see it."""

    def __init_subclass__(
        cls,
        conventions: dict[str, str] | None = None,
        promises: tuple[str, ...] = ("seed",),
        arithmetic: Arithmetic | None = None,
    ) -> None:
        super().__init_subclass__()
        declared = _CONVENTIONS | (conventions or {})
        cls.DECLARATION = Declaration(
            cls.__name__,
            "1",
            conventions=declared,
            arithmetic=arithmetic or Arithmetic(),
            cost=_COST,
            promises=promises,
        )

    # ---- a call

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        return cls.decide(cases, cls.own_coins(cases, seed))

    @classmethod
    def decide(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        refuse_trees(cases)
        return [cls.sampled(case, spent) for case, spent in cls.members(cases, coins)]

    @classmethod
    def own_coins(cls, cases: Sequence[VerifyCase], seed: int) -> list[Coins]:
        generator = np.random.default_rng(seed)
        return [Coins(generator.random(len(case.token)), float(generator.random())) for case in cases]

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        """Who is decided in this call, with which coins."""
        return list(zip(cases, coins))

    # ---- the walk

    @classmethod
    def walk(
        cls, case: VerifyCase, accepts: Callable[[int, Row], bool], frontier: Callable[[int, Row, bool], int]
    ) -> Decision:
        """Test the drafts in turn; `frontier` gets the node rejected, or the number of nodes, and its row."""
        tokens = cls.tokens(case)
        for node in range(len(tokens)):
            row = cls.row(case.target_probs, node)
            if not accepts(node, row):
                return Decision(tuple(range(node)), frontier(node, row, True))
        row = cls.row(case.target_probs, len(tokens))
        return Decision(tuple(range(len(tokens))), frontier(len(tokens), row, False))

    @classmethod
    def tokens(cls, case: VerifyCase) -> list[int]:
        """The drafts of a chain, each of them an id of the vocabulary."""
        tokens: list[int] = case.token.tolist()
        for node, token in enumerate(tokens):
            if not 0 <= token < case.target_probs.shape[1]:
                raise ValueError(f"token[{node}] is no id of the vocabulary: {token}")
        return tokens

    @classmethod
    def row(cls, rows: Any, index: int) -> Row:
        """One row, read when it is needed."""
        values: Row = rows[index].tolist()
        if any(value != value for value in values):
            raise ValueError(f"row {index} holds NaN")
        return values

    # ---- sampled: accept, residual, bonus

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        def trial(node: int, row: Row) -> Trial:
            draft = cls.draft_row(case, node)
            return Trial(case, coins, node, int(case.token[node]), float(coins.accept[node]), row, draft)

        def frontier(node: int, row: Row, rejected: bool) -> int:
            if rejected:
                return cls.recovered(trial(node, row))
            return cls.bonus(case, coins, row)

        return cls.walk(case, lambda node, row: cls.accepts(trial(node, row)), frontier)

    @classmethod
    def draft_row(cls, case: VerifyCase, node: int) -> Row:
        """The law that the node was drawn from; a point proposal's is one-hot."""
        if case.proposal == "point" or case.draft_probs is None:
            return [float(v == case.token[node]) for v in range(case.target_probs.shape[1])]
        return cls.row(case.draft_probs, node)

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < trial.p

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        """The frontier after a rejection."""
        return cls.pick(cls.residual(trial), trial.coins.frontier)

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        return owed(trial.target, trial.draft)

    @classmethod
    def bonus(cls, case: VerifyCase, coins: Coins, row: Row) -> int:
        """The frontier after full acceptance."""
        return cls.pick(row, coins.frontier)

    @classmethod
    def pick(cls, law: Row, coin: float) -> int:
        """The first token v with coin < CDF(v); where rounding leaves none, the last one with mass."""
        cumulative = 0.0
        for v, probability in enumerate(law):
            cumulative += probability
            if coin < cumulative:
                return v
        return max(v for v, probability in enumerate(law) if probability > 0)


class Chain(BlackBox):
    """Offers all three verifiers."""

    @classmethod
    def verify_sampled(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return cls.decide(cases, coins)

    @classmethod
    def verify_greedy(cls, cases: Sequence[VerifyCase]) -> list[Decision]:
        refuse_trees(cases)
        unspent = [Coins(np.zeros(len(case.token)), 0.0) for case in cases]
        return [cls.greedy(case) for case, _ in cls.members(cases, unspent)]

    @classmethod
    def greedy(cls, case: VerifyCase) -> Decision:
        return cls.walk(
            case,
            lambda node, row: cls.matches(case, node, row),
            lambda node, row, rejected: cls.greedy_frontier(case, row, rejected),
        )

    @classmethod
    def matches(cls, case: VerifyCase, node: int, row: Row) -> bool:
        return bool(case.token[node] == cls.argmax(row))

    @classmethod
    def greedy_frontier(cls, case: VerifyCase, row: Row, rejected: bool) -> int:
        return cls.argmax(row)

    @classmethod
    def argmax(cls, row: Row) -> int:
        """The lowest id among the most probable ones."""
        return row.index(max(row))


def refuse_trees(cases: Sequence[VerifyCase]) -> None:
    """The verifiers built on this one know chains alone, whatever else is wrong with them."""
    for case in cases:
        if case.parent.tolist() != list(range(-1, len(case.parent) - 1)):
            raise NotApplicable("this verifier knows chains alone")


def owed(target: Row, draft: Row) -> Row:
    """(p − q)+ renormalised, or p where nothing is left."""
    left = [max(p - q, 0.0) for p, q in zip(target, draft)]
    return normalised(left) if sum(left) > 0 else target


def normalised(row: Row) -> Row:
    total = sum(row)
    return [value / total for value in row]
