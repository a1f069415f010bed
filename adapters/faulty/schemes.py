"""Verifiers of other coin schemes with one fault each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from adapters.faulty.chain import BlackBox, Row, normalised
from adapters.faulty.trees import Tree
from oracle.types import Coins, Decision, VerifyCase


class _Matches(Tree):
    """Draws the next token from the target, by inverse CDF, and steps into the first child that carries it."""

    scheme: ClassVar[str] = "sample_and_match"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        conventions = {"coin_scheme": cls.scheme, "frontier_coin": "inverse_cdf"}
        cls.DECLARATION = dataclasses.replace(cls.DECLARATION, conventions=conventions)

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        path: list[int] = []
        node = -1
        while True:
            children = cls.children(case, node)
            law = cls.row(case.target_probs, node)
            drawn = cls.pick(law, float(coins.accept[children[0]] if children else coins.frontier))
            carriers = [child for child in children if case.token[child] == drawn]
            if not carriers:
                return Decision(tuple(path), drawn)
            node = cls.step(carriers)
            path.append(node)

    @classmethod
    def step(cls, carriers: list[int]) -> int:
        return carriers[0]


class MatchesDeclaredAsCuts(_Matches):
    """Samples and matches, and declares one coin a parent."""

    refutes = "ACCEPTANCE-610"
    scheme = "per_parent"


class StepsIntoTheLastTwin(_Matches):
    """Steps into the last of the twins that carry the token drawn."""

    refutes = "ACCEPTANCE-611"

    @classmethod
    def step(cls, carriers: list[int]) -> int:
        return carriers[-1]


class CutsFromTheLastSibling(Tree):
    """One coin a parent, cut from the last child to the first."""

    refutes = "ACCEPTANCE-611"

    @classmethod
    def among_children(cls, case: VerifyCase, coins: Coins, node: int) -> tuple[int | None, Row, int]:
        left, reached = cls.row(case.target_probs, node), 0.0
        children = cls.children(case, node)
        whole = left
        for child in children[::-1]:
            reached += left[int(case.token[child])]
            left = [0.0 if v == case.token[child] else p for v, p in enumerate(left)]
            if coins.accept[children[0]] < reached:
                return child, left, 0
        return None, normalised(left) if any(left) else whole, len(children)


CutsFromTheLastSibling.DECLARATION = dataclasses.replace(
    CutsFromTheLastSibling.DECLARATION, conventions={"coin_scheme": "per_parent", "frontier_coin": "inverse_cdf"}
)


class _Block(BlackBox, conventions={"coin_scheme": "block"}):
    """Block verification of chains; `w` is the weight of a prefix."""

    @classmethod
    def verify_sampled(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return cls.decide(cases, coins)

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        tokens = cls.tokens(case)
        rows = [cls.row(case.target_probs, i) for i in range(len(tokens) + 1)]
        drafts = [cls.draft_row(case, i) for i in range(len(tokens))]
        weights = [1.0]
        for token, p, q in zip(tokens, rows, drafts):
            weights.append(cls.weight(weights[-1], p[token], q[token]))
        for count in range(len(tokens), -1, -1):
            if count == len(tokens):
                share, law = weights[-1], rows[-1]
            else:
                left = [max(weights[count] * p - q, 0.0) for p, q in zip(rows[count], drafts[count])]
                total = sum(left)
                of = total + 1 - weights[count]
                share = cls.share(total / of if of > 0 else 1.0, weights[count])
                law = cls.owed(left, rows[count], drafts[count])
            if count == 0 or cls.coin(coins, count, len(tokens)) < share:
                return Decision(tuple(range(count)), cls.pick(law, coins.frontier))
        raise AssertionError("no prefix is shorter than the empty one")

    @classmethod
    def weight(cls, before: float, p: float, q: float) -> float:
        return min(1.0, before * p / q) if q > 0 else float(p > 0 and before > 0)

    @classmethod
    def share(cls, share: float, weight: float) -> float:
        return share

    @classmethod
    def owed(cls, left: Row, p: Row, q: Row) -> Row:
        return normalised(left) if any(left) else p

    @classmethod
    def coin(cls, coins: Coins, count: int, nodes: int) -> float:
        """The coin that decides whether `count` drafts are accepted."""
        return float(coins.accept[count - 1])


class BlockWeightsOnlyFall(_Block, conventions={"coin_scheme": "block"}):
    """Block verification whose weight never grows again behind an unlikely draft."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def weight(cls, before: float, p: float, q: float) -> float:
        return min(before, super().weight(before, p, q))


class BlockStopsAtItsWeight(_Block, conventions={"coin_scheme": "block"}):
    """Block verification that accepts every prefix by its weight, as if it were the longest."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def share(cls, share: float, weight: float) -> float:
        return weight


class BlockCoinsFromTheEnd(_Block, conventions={"coin_scheme": "block"}):
    """Block verification that spends the coins of a chain from its last node to its first."""

    refutes = "ACCEPTANCE-611"

    @classmethod
    def coin(cls, coins: Coins, count: int, nodes: int) -> float:
        return float(coins.accept[nodes - count])


class TokenByTokenDeclaredAsBlock(BlackBox, conventions={"coin_scheme": "block"}):
    """Tests each draft on its own, which loses no law, and declares block verification."""

    refutes = "ACCEPTANCE-703"
