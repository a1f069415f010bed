"""Verifiers of trees with one fault each; on chains all of them are right.

The walk is written apart from the oracle and cut into steps; a fault overrides one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from adapters.faulty.chain import Row, normalised, owed
from adapters.interface import Declaration
from oracle.types import Coins, Decision, VerifyCase

_CONVENTIONS = {"coin_scheme": "per_node", "frontier_coin": "inverse_cdf", "accept_operator": "<"}
_COST = {"verify_greedy": 3e-5, "verify_sampled": 5e-5, "verify_random": 5e-5}


class Tree:
    """A right verifier of trees."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    seen_in: ClassVar[str] = "quick"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.DECLARATION = Declaration(cls.__name__, "1", conventions=_CONVENTIONS, cost=_COST, promises=("seed",))

    @classmethod
    def verify_greedy(cls, cases: Sequence[VerifyCase]) -> list[Decision]:
        return [cls.greedy(case) for case in cls.members(cases)]

    @classmethod
    def verify_sampled(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return [cls.sampled(case, spent) for case, spent in zip(cls.members(cases), coins)]

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        generator = np.random.default_rng(seed)
        coins = [Coins(generator.random(len(case.token)), float(generator.random())) for case in cases]
        return cls.verify_sampled(cases, coins)

    @classmethod
    def members(cls, cases: Sequence[VerifyCase]) -> Sequence[VerifyCase]:
        return cases

    @classmethod
    def children(cls, case: VerifyCase, node: int) -> list[int]:
        found = [i for i, above in enumerate(case.parent.tolist()) if above == node]
        for child in found:
            if not 0 <= case.token[child] < case.target_probs.shape[1]:
                raise ValueError(f"token[{child}] is no id of the vocabulary")
        return found

    @classmethod
    def row(cls, rows: np.ndarray, node: int) -> Row:
        values: Row = rows[node + 1].tolist()
        if any(value != value for value in values):
            raise ValueError(f"row {node + 1} holds NaN")
        return values

    # ---- greedy

    @classmethod
    def greedy(cls, case: VerifyCase) -> Decision:
        path: list[int] = []
        node = -1
        while True:
            row = cls.row(case.target_probs, node)
            best = row.index(max(row))
            match = next((c for c in cls.candidates(case, node) if case.token[c] == best), None)
            if match is None:
                return Decision(tuple(path), cls.greedy_frontier(case, node, best))
            path.append(match)
            node = match

    @classmethod
    def candidates(cls, case: VerifyCase, node: int) -> list[int]:
        """The children whose tokens are compared with the argmax."""
        return cls.children(case, node)

    @classmethod
    def greedy_frontier(cls, case: VerifyCase, node: int, best: int) -> int:
        return best

    # ---- sampled

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        path: list[int] = []
        node = -1
        while True:
            accepted, left, rejected = cls.among_children(case, coins, node)
            if accepted is None:
                return Decision(tuple(path), cls.pick(cls.frontier_law(case, node, left, rejected), coins.frontier))
            path.append(accepted)
            node = accepted

    @classmethod
    def among_children(cls, case: VerifyCase, coins: Coins, node: int) -> tuple[int | None, Row, int]:
        """The accepted child, if any, the law that is left, and how many children were rejected."""
        whole = cls.row(case.target_probs, node)
        children = cls.order(case, cls.children(case, node))
        left = whole
        draft = cls.row(case.draft_probs, node) if children and case.draft_probs is not None else []
        for count, child in enumerate(children):
            token = int(case.token[child])
            q = draft if case.proposal != "point" else [float(v == token) for v in range(len(left))]
            u = float(coins.accept[child])
            if u * q[token] < cls.tested(case, node, whole, left)[token]:
                return child, left, count
            left = owed(left, q)
            if case.proposal == "without_replacement":
                draft = cls.next_draft(case, node, draft, token)
        return None, left, len(children)

    @classmethod
    def order(cls, case: VerifyCase, children: list[int]) -> list[int]:
        return children

    @classmethod
    def tested(cls, case: VerifyCase, node: int, whole: Row, left: Row) -> Row:
        """The row that a child is tested against: what its rejected siblings left."""
        return left

    @classmethod
    def next_draft(cls, case: VerifyCase, node: int, draft: Row, token: int) -> Row:
        """The law that the next sibling was drawn from."""
        rest = [0.0 if v == token else p for v, p in enumerate(draft)]
        return normalised(rest) if sum(rest) > 0 else rest

    @classmethod
    def frontier_law(cls, case: VerifyCase, node: int, left: Row, rejected: int) -> Row:
        """What the frontier is drawn from at `node`, where `rejected` children left the law `left`."""
        return left

    @classmethod
    def pick(cls, law: Row, coin: float) -> int:
        """The first token v with coin < CDF(v); where rounding leaves none, the last one with mass."""
        cumulative = 0.0
        for v, probability in enumerate(law):
            cumulative += probability
            if coin < cumulative:
                return v
        return max(v for v, probability in enumerate(law) if probability > 0)


def is_chain(case: VerifyCase) -> bool:
    chain: list[int] = list(range(-1, len(case.parent) - 1))
    return bool(case.parent.tolist() == chain)


class ChainsTreesBesideChains(Tree):
    """Verifies trees as chains where a chain shares the call."""

    refutes = "ACCEPTANCE-111"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase]) -> Sequence[VerifyCase]:
        if not any(is_chain(case) for case in cases) or len(cases) == 1:
            return cases
        return [
            VerifyCase(np.arange(-1, len(c.token) - 1), c.token, c.target_probs, c.proposal, c.draft_probs)
            for c in cases
        ]


class ComparesTheFirstChildOnly(Tree):
    """Greedy verification looks at the first child of a node and at no other."""

    refutes = "ACCEPTANCE-205"

    @classmethod
    def candidates(cls, case: VerifyCase, node: int) -> list[int]:
        return cls.children(case, node)[:1]


class ForksEndInTheRootRow(Tree):
    """Greedy verification of a tree publishes the argmax of the root's row wherever it stops."""

    refutes = "ACCEPTANCE-206"

    @classmethod
    def greedy_frontier(cls, case: VerifyCase, node: int, best: int) -> int:
        return best if is_chain(case) else int(np.argmax(case.target_probs[0]))


class TwoRejectionsDrawTheLastToken(Tree):
    """After a second rejected sibling the frontier is the last id of the vocabulary."""

    refutes = "ACCEPTANCE-305"

    @classmethod
    def frontier_law(cls, case: VerifyCase, node: int, left: Row, rejected: int) -> Row:
        return left if rejected < 2 else [0.0] * (len(left) - 1) + [1.0]


class _UntouchedRow(Tree):
    """Tests siblings of one proposal against the whole target row, as if none had been rejected."""

    proposal: ClassVar[str]
    below: ClassVar[int] = -1

    @classmethod
    def tested(cls, case: VerifyCase, node: int, whole: Row, left: Row) -> Row:
        return whole if case.proposal == cls.proposal and node >= cls.below else left


class IndependentSiblingsAgainstTheWholeRow(_UntouchedRow):
    """Tests each independent sibling against the whole target row."""

    refutes = "ACCEPTANCE-404"
    proposal = "iid"


class PointSiblingsAgainstTheWholeRow(_UntouchedRow):
    """Tests each point proposal against the whole target row."""

    refutes = "ACCEPTANCE-405"
    proposal = "point"


class DraftRowKeepsItsTokens(Tree):
    """Siblings without replacement are all judged by the draft row that the first one was drawn from."""

    refutes = "ACCEPTANCE-406"

    @classmethod
    def next_draft(cls, case: VerifyCase, node: int, draft: Row, token: int) -> Row:
        return draft


class DeepIndependentSiblingsAgainstTheWholeRow(_UntouchedRow):
    """Tests independent siblings below the first layer against the whole target row."""

    refutes = "ACCEPTANCE-504"
    proposal = "iid"
    below = 0


class DeepPointSiblingsAgainstTheWholeRow(_UntouchedRow):
    """Tests point proposals below the first layer against the whole target row."""

    refutes = "ACCEPTANCE-505"
    proposal = "point"
    below = 0


class DeepDraftRowKeepsItsTokens(Tree):
    """Below the first layer, siblings without replacement are judged by the first one's draft row."""

    refutes = "ACCEPTANCE-506"

    @classmethod
    def next_draft(cls, case: VerifyCase, node: int, draft: Row, token: int) -> Row:
        return draft if node >= 0 else super().next_draft(case, node, draft, token)


class LastSiblingFirst(Tree):
    """Tests siblings from the last to the first, where their order changes no law."""

    refutes = "ACCEPTANCE-608"

    @classmethod
    def order(cls, case: VerifyCase, children: list[int]) -> list[int]:
        return children if case.proposal == "without_replacement" else children[::-1]


class ForgetsTheSixthNode(Tree):
    """Stops at a node whose children come after the first five of a tree."""

    refutes = "ACCEPTANCE-609"

    @classmethod
    def order(cls, case: VerifyCase, children: list[int]) -> list[int]:
        return children if is_chain(case) else [child for child in children if child < 5]


class ForgetsTheSecondSibling(Tree):
    """Tests one child of a node and stops when it is rejected, losing nothing but speed."""

    refutes = "ACCEPTANCE-608"

    @classmethod
    def order(cls, case: VerifyCase, children: list[int]) -> list[int]:
        return children[:1]
