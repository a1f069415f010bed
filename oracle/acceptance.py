"""Exact verification of drafted chains and trees; the warping of target rows and the drafter's proposals beside it.

`verify_sampled` is decided by coins and `verify_random` by a generator, both along the walk of one coin
scheme (`oracle.walks`); `oracle.law` follows every branch of the very same walk with its probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from oracle.discrete import Row, argmax, inverse_cdf
from oracle.errors import BadInput
from oracle.proposing import propose as propose
from oracle.tensors import listed
from oracle.types import Coins, Decision, VerifyCase
from oracle.validation import CaseView as CaseView
from oracle.validation import coin_reader, seed_of
from oracle.walks import ROOT, Walk, walk_of
from oracle.warping import warp as warp


def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
    """Follow the target's argmax (lowest id on ties) as far as the drafts go; it is also the frontier.

    Among twins the first is taken. Raises `BadInput`. Source: design of `acceptance`, rung greedy.
    """
    listed(cases, "cases", VerifyCase)
    return [_greedy(CaseView(case, f"cases[{i}]")) for i, case in enumerate(cases)]


def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins], scheme: str = "per_node") -> list[Decision]:
    """Decide each case with the coins given, as the walk of `scheme` spends them.

    "per_node": node i is accepted iff u·q < p with u = accept[i], else its next sibling is tried.
    "per_parent" and "sample_and_match": the children of a node share the coin of the first of them.
    "block": node i of a chain is tested with accept[i]. Raises `BadInput`, also for a coin outside [0, 1)
    where it is spent.
    """
    walk = walk_of(scheme)
    listed(cases, "cases", VerifyCase)
    listed(coins, "coins", Coins)
    if len(coins) != len(cases):
        raise BadInput("coins", (), f"there is one Coins for each of the {len(cases)} cases", len(coins))
    return [
        _decide(CaseView(case, f"cases[{i}]"), coin, f"coins[{i}]", walk)
        for i, (case, coin) in enumerate(zip(cases, coins))
    ]


def verify_random(cases: Sequence[VerifyCase], seed: int, scheme: str = "per_node") -> list[Decision]:
    """Decide each case with coins from `numpy.random.default_rng(seed)`; members draw independently.

    Raises `BadInput`, also for a seed that is not a non-negative integer.
    """
    walk = walk_of(scheme)
    listed(cases, "cases", VerifyCase)
    generator = np.random.default_rng(seed_of(seed))
    decisions = []
    for i, case in enumerate(cases):
        view = CaseView(case, f"cases[{i}]")
        coins = Coins(generator.random(view.size), generator.random())
        decisions.append(_decide(view, coins, f"coins[{i}]", walk))
    return decisions


def _decide(view: CaseView, coins: Coins, field: str, walk: Walk) -> Decision:
    return walk(view, _Spending(coin_reader(coins, view.size, field)))


class _Spending:
    """The chance of a request whose coins are given."""

    def __init__(self, spend: Callable[[int | None], float]) -> None:
        self._spend = spend

    def accepts(self, node: int, p: float, q: float) -> bool:
        return self._spend(node) * q < p

    def draw(self, law: Row, node: int | None = None) -> int:
        return inverse_cdf(law, self._spend(node))


def _greedy(view: CaseView) -> Decision:
    path: list[int] = []
    node = ROOT
    while True:
        best = argmax(view.target(node))
        match = next((c for c in view.children(node) if view.token(c, None) == best), None)
        if match is None:
            return Decision(tuple(path), best)
        path.append(match)
        node = match
