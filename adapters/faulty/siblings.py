"""Verifiers of trees with one fault each, of the kind that shows among siblings, at leaves and in batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from adapters.faulty.chain import Row, normalised, owed
from adapters.faulty.trees import Tree, is_chain
from oracle.types import Coins, Decision, VerifyCase


class _Unseen(Tree):
    """Offers `verify_random` alone, so that no coin tells on it."""

    verify_greedy: ClassVar[None] = None  # type: ignore[assignment]
    verify_sampled: ClassVar[None] = None  # type: ignore[assignment]

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        generator = np.random.default_rng(seed)
        coins = [Coins(generator.random(len(case.token)), float(generator.random())) for case in cases]
        return [cls.sampled(case, spent) for case, spent in zip(cls.members(cases), coins)]


# ---- batches


class DepthOfTheFirstTree(Tree):
    """Cuts every tree of a batch to the depth of the first one."""

    refutes = "ACCEPTANCE-111"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase]) -> Sequence[VerifyCase]:
        if len(cases) < 2 or all(is_chain(case) for case in cases):
            return cases
        deepest = max(_depths(cases[0]), default=0)
        return [case if is_chain(case) else _cut(case, deepest) for case in cases]


class FirstTreesShape(Tree):
    """Reads the parents of a tree from the first member of its size."""

    refutes = "ACCEPTANCE-111"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase]) -> Sequence[VerifyCase]:
        shapes: dict[int, np.ndarray] = {}
        members = []
        for case in cases:
            parent = case.parent if is_chain(case) else shapes.setdefault(len(case.parent), case.parent)
            members.append(VerifyCase(parent, case.token, case.target_probs, case.proposal, case.draft_probs))
        return members


def _depths(case: VerifyCase) -> list[int]:
    depths: list[int] = []
    for above in case.parent.tolist():
        depths.append(1 if above == -1 else depths[above] + 1)
    return depths


def _cut(case: VerifyCase, deepest: int) -> VerifyCase:
    """The case without the nodes below `deepest`; nodes before them keep their ids only if these come last."""
    kept = [i for i, depth in enumerate(_depths(case)) if depth <= deepest]
    if kept != list(range(len(kept))):
        return case
    rows = len(kept) + 1
    draft = None if case.draft_probs is None else case.draft_probs[:rows]
    return VerifyCase(case.parent[: rows - 1], case.token[: rows - 1], case.target_probs[:rows], case.proposal, draft)


# ---- greedy


class LastOfTwins(Tree):
    """Greedy verification steps into the last of the children that carry the argmax."""

    refutes = "ACCEPTANCE-205"

    @classmethod
    def candidates(cls, case: VerifyCase, node: int) -> list[int]:
        return cls.children(case, node)[::-1]


class GreedyFrontierOfTheParent(Tree):
    """Below the root, greedy verification of a tree publishes the argmax of the row before the last."""

    refutes = "ACCEPTANCE-206"

    @classmethod
    def greedy_frontier(cls, case: VerifyCase, node: int, best: int) -> int:
        if is_chain(case) or node == -1:
            return best
        return int(np.argmax(case.target_probs[case.parent[node] + 1]))


# ---- leaves


class LeafDrawsFromItsParentsRow(Tree):
    """At a leaf of a tree it draws from the row that judged the leaf."""

    refutes = "ACCEPTANCE-305"

    @classmethod
    def frontier_law(cls, case: VerifyCase, node: int, left: Row, rejected: int) -> Row:
        at_leaf = not rejected and node >= 0 and not is_chain(case)
        return cls.row(case.target_probs, int(case.parent[node])) if at_leaf else left


class FrontierOfTheLastRow(Tree):
    """Wherever a tree is left it draws from the row after its last node."""

    refutes = "ACCEPTANCE-305"

    @classmethod
    def frontier_law(cls, case: VerifyCase, node: int, left: Row, rejected: int) -> Row:
        at_leaf = not rejected and not is_chain(case)
        return cls.row(case.target_probs, len(case.token) - 1) if at_leaf else left


# ---- siblings


class WholeRowAfterTheSecondRejection(Tree):
    """After the second rejected sibling the frontier comes from the whole target row."""

    refutes = "ACCEPTANCE-404"

    @classmethod
    def frontier_law(cls, case: VerifyCase, node: int, left: Row, rejected: int) -> Row:
        return cls.row(case.target_probs, node) if rejected >= 2 else left


class OneResidualForAllSiblings(Tree):
    """Subtracts the draft row once, after all siblings were rejected, however many there were."""

    refutes = "ACCEPTANCE-404"

    @classmethod
    def frontier_law(cls, case: VerifyCase, node: int, left: Row, rejected: int) -> Row:
        if not rejected or case.draft_probs is None:
            return left
        return owed(cls.row(case.target_probs, node), cls.row(case.draft_probs, node))


class PointSiblingsShareACoin(_Unseen):
    """Spends the coin of the first sibling on all of a point proposal, each against what is left."""

    refutes = "ACCEPTANCE-405"

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        if case.proposal != "point":
            return super().sampled(case, coins)
        accept = coins.accept.copy()
        for above in set(case.parent.tolist()):
            siblings = cls.children(case, above)
            accept[siblings] = accept[siblings[0]]
        return super().sampled(case, Coins(accept, coins.frontier))


class MostProbableSiblingFirst(_Unseen):
    """Re-sorts drawn siblings by their draft probability."""

    refutes = "ACCEPTANCE-404"

    @classmethod
    def order(cls, case: VerifyCase, children: list[int]) -> list[int]:
        if case.draft_probs is None or not children:
            return children
        row = case.draft_probs[case.parent[children[0]] + 1]
        return sorted(children, key=lambda child: -float(row[case.token[child]]))


class PrunesTheLessProbableSibling(_Unseen):
    """Keeps the most probable of the drawn siblings and drops the others unseen."""

    refutes = "ACCEPTANCE-404"

    @classmethod
    def order(cls, case: VerifyCase, children: list[int]) -> list[int]:
        if case.draft_probs is None or not children:
            return children
        row = case.draft_probs[case.parent[children[0]] + 1]
        return [max(children, key=lambda child: (float(row[case.token[child]]), -child))]


class TwinsCountTwice(_Unseen):
    """One coin a parent, whose cuts count the mass of a twin again."""

    refutes = "ACCEPTANCE-404"

    @classmethod
    def among_children(cls, case: VerifyCase, coins: Coins, node: int) -> tuple[int | None, Row, int]:
        left = cls.row(case.target_probs, node)
        children, reached, whole = cls.children(case, node), 0.0, left
        for count, child in enumerate(children):
            reached += whole[int(case.token[child])]
            if coins.accept[children[0]] < reached:
                return child, left, count
            left = [0.0 if v == case.token[child] else p for v, p in enumerate(left)]
        return None, normalised(left) if any(left) else whole, len(children)


TwinsCountTwice.DECLARATION = dataclasses.replace(
    TwinsCountTwice.DECLARATION, conventions={"coin_scheme": "per_parent", "frontier_coin": "inverse_cdf"}
)


class RejectedPointStaysIn(Tree):
    """A rejected second sibling of a point proposal keeps its mass in the frontier's law."""

    refutes = "ACCEPTANCE-405"

    @classmethod
    def frontier_law(cls, case: VerifyCase, node: int, left: Row, rejected: int) -> Row:
        if rejected < 2 or case.proposal != "point":
            return left
        whole = cls.row(case.target_probs, node)
        first = int(case.token[cls.children(case, node)[0]])
        return normalised([0.0 if v == first else p for v, p in enumerate(whole)])


class ForgetsToRenormaliseTheDraft(Tree):
    """Takes the tokens of rejected siblings out of the draft row and leaves the rest as it was."""

    refutes = "ACCEPTANCE-406"

    @classmethod
    def next_draft(cls, case: VerifyCase, node: int, draft: Row, token: int) -> Row:
        return [0.0 if v == token else p for v, p in enumerate(draft)]


class OneCoinAParentUndeclared(Tree):
    """Spends one coin a parent on point proposals, and declares a coin a node."""

    refutes = "ACCEPTANCE-608"

    @classmethod
    def among_children(cls, case: VerifyCase, coins: Coins, node: int) -> tuple[int | None, Row, int]:
        children = cls.children(case, node)
        if case.proposal != "point" or len(children) < 2:
            return super().among_children(case, coins, node)
        left, reached = cls.row(case.target_probs, node), 0.0
        for count, child in enumerate(children):
            reached += left[int(case.token[child])]
            if coins.accept[children[0]] < reached:
                return child, left, count
        rest = [0.0 if v in case.token[children] else p for v, p in enumerate(left)]
        return None, normalised(rest) if any(rest) else left, len(children)


class SecondSiblingsTooRarely(_Unseen):
    """Accepts 0.8 of the point proposals that are no first siblings and should be, without loss of the law."""

    refutes = "ACCEPTANCE-702"

    @classmethod
    def among_children(cls, case: VerifyCase, coins: Coins, node: int) -> tuple[int | None, Row, int]:
        children = cls.children(case, node)
        if case.proposal != "point" or len(children) < 2:
            return super().among_children(case, coins, node)
        left = cls.row(case.target_probs, node)
        for count, child in enumerate(children):
            token, share = int(case.token[child]), 0.8 if count else 1.0
            if coins.accept[child] < share * left[token]:
                return child, left, count
            rest = [p * (1 - share) if v == token else p for v, p in enumerate(left)]
            left = normalised(rest) if any(rest) else left
        return None, left, len(children)


class ForgetsLaterSiblingsUnseen(_Unseen):
    """Stops after the first rejected sibling, losing nothing but speed."""

    refutes = "ACCEPTANCE-702"

    @classmethod
    def order(cls, case: VerifyCase, children: list[int]) -> list[int]:
        return children[:1]
