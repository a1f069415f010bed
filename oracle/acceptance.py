"""Exact verification of drafted chains and trees (Leviathan et al. 2023, algorithm 1; EAGLE-2, §4).

One walk serves every reading of the contract: coins decide it in `verify_sampled`, a generator in
`verify_random`, and `oracle.law` follows every branch of it with its probability. Rows are plain lists
of numbers, so the very same lines run on float64 and on `fractions.Fraction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Rational
from typing import Any, Protocol

import numpy as np

from oracle.errors import BadInput
from oracle.types import PROPOSALS, Coins, Decision, VerifyCase

Number = Any  # float or Fraction: the walk only adds, subtracts, multiplies, divides and compares
Row = list[Number]

ROOT = -1


class View(Protocol):
    """What the walk reads of a request, and when: nothing is read before it is needed."""

    proposal: str

    def children(self, node: int) -> Sequence[int]: ...
    def token(self, child: int, law: Row | None) -> int: ...
    def target(self, node: int) -> Row: ...
    def draft(self, node: int) -> Row: ...


def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
    """Follow the target's argmax (lowest id on ties) as far as the drafts go; it is also the frontier.

    Among twins the first is taken. Raises `BadInput`. Source: design of `acceptance`, rung greedy.
    """
    return [_greedy(CaseView(case, f"cases[{i}]")) for i, case in enumerate(cases)]


def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    """Decide each case with the coins given: accept iff u·q(x) < p(x), else try the next sibling.

    Raises `BadInput`, also for a coin outside [0, 1) where it is spent.
    """
    if len(coins) != len(cases):
        raise BadInput("coins", (), f"there is one Coins for each of the {len(cases)} cases", len(coins))
    return [
        _decide(CaseView(case, f"cases[{i}]"), coin, f"coins[{i}]") for i, (case, coin) in enumerate(zip(cases, coins))
    ]


def verify_random(cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    """Decide each case with coins from `numpy.random.default_rng(seed)`; members draw independently.

    Raises `BadInput`, also for a seed that is not a non-negative integer.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadInput("seed", (), "a seed is a non-negative integer", seed)
    generator = np.random.default_rng(int(seed))
    decisions = []
    for i, case in enumerate(cases):
        view = CaseView(case, f"cases[{i}]")
        coins = Coins(generator.random(view.size), generator.random())
        decisions.append(_decide(view, coins, f"coins[{i}]"))
    return decisions


def _decide(view: CaseView, coins: Coins, field: str) -> Decision:
    spend = _coin_reader(coins, view.size, field)
    return walk(
        view,
        accepts=lambda node, p, q: spend(node) * q < p,
        draw=lambda law: inverse_cdf(law, spend(None)),
    )


def walk(
    view: View,
    accepts: Callable[[int, Number, Number], bool],
    draw: Callable[[Row], int],
) -> Decision:
    """From the root: test the children in order, step into the first accepted one, else draw and stop.

    `accepts(node, p, q)` tests a node whose token has probability p under the law that is left and q
    under the draft's; `draw(law)` picks the frontier. Both are asked exactly when a coin is spent.
    """
    path: list[int] = []
    node = ROOT
    while True:
        p = view.target(node)
        children = view.children(node)
        q = view.draft(node) if children and view.proposal != "point" else None
        accepted = None
        for child in children:
            token = view.token(child, q)
            draft_mass = 1 if q is None else q[token]
            if accepts(child, p[token], draft_mass):
                accepted = child
                break
            p = residual(p, one_hot(token, len(p)) if q is None else q)
            if view.proposal == "without_replacement" and q is not None:
                q = without(q, token)
        if accepted is None:
            return Decision(tuple(path), draw(p))
        path.append(accepted)
        node = accepted


def residual(p: Row, q: Row) -> Row:
    """(p − q)+ renormalised: what the target still owes after a draft from q was rejected.

    Where rounding leaves nothing, p and q are equal up to rounding and the law is p itself.
    """
    left = [max(a - b, a * 0) for a, b in zip(p, q)]
    total = mass(left)
    return [a / total for a in left] if total > 0 else p


def without(q: Row, token: int) -> Row:
    """The draft law of the next sibling: q with `token` taken out, renormalised; all zero if none is left."""
    left = [b * 0 if v == token else b for v, b in enumerate(q)]
    total = mass(left)
    return [b / total for b in left] if total > 0 else left


def one_hot(token: int, size: int) -> Row:
    """The draft law of a point proposal: all of its mass on the drafted token."""
    return [1 if v == token else 0 for v in range(size)]


def inverse_cdf(law: Row, coin: Number) -> int:
    """The first token v with coin < CDF(v), or the last token of positive mass where rounding leaves none."""
    cumulative = law[0] * 0
    last = 0
    for v, probability in enumerate(law):
        cumulative = cumulative + probability
        if probability > 0:
            last = v
            if coin < cumulative:
                return v
    return last


def mass(row: Sequence[Number]) -> Number:
    """Sum from left to right: one order of rounding on every Python."""
    total: Number = 0
    for value in row:
        total = total + value
    return total


def argmax(row: Row) -> int:
    """The lowest token id among the most probable ones."""
    best = 0
    for v, probability in enumerate(row):
        if probability > row[best]:
            best = v
    return best


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


class CaseView:
    """A `VerifyCase`, its structure validated whole, its rows validated one by one as they are read."""

    def __init__(self, case: VerifyCase, field: str) -> None:
        self.field = field
        if not isinstance(case, VerifyCase):
            raise BadInput(field, (), "a case is an oracle.types.VerifyCase", type(case).__name__)
        self.proposal = case.proposal
        if self.proposal not in PROPOSALS:
            raise BadInput(f"{field}.proposal", (), f"a proposal is one of {', '.join(PROPOSALS)}", case.proposal)
        parents = integers(case.parent, f"{field}.parent")
        self._token = integers(case.token, f"{field}.token")
        self.size = len(parents)
        if len(self._token) != self.size:
            raise BadInput(
                f"{field}.token", (), f"there is one token for each of the {self.size} nodes", len(self._token)
            )
        self._target = matrix(case.target_probs, f"{field}.target_probs", self.size + 1, None)
        self.vocabulary = self._target.shape[1]
        self._draft = None
        if self.proposal != "point":
            if case.draft_probs is None:
                raise BadInput(f"{field}.draft_probs", (), f"a proposal {self.proposal!r} has draft rows", None)
            self._draft = matrix(case.draft_probs, f"{field}.draft_probs", self.size + 1, self.vocabulary)
        self._children: list[list[int]] = [[] for _ in range(self.size + 1)]
        for i, parent in enumerate(parents):
            if not ROOT <= parent < i:
                raise BadInput(f"{field}.parent", (i,), "a parent is −1 (the root) or an earlier node", parent)
            if not 0 <= self._token[i] < self.vocabulary:
                raise BadInput(f"{field}.token", (i,), f"a token id lies in [0, {self.vocabulary})", self._token[i])
            siblings = self._children[parent + 1]
            if self.proposal != "iid" and any(self._token[s] == self._token[i] for s in siblings):
                raise BadInput(
                    f"{field}.token", (i,), f"siblings of a {self.proposal!r} proposal differ", self._token[i]
                )
            siblings.append(i)

    def children(self, node: int) -> list[int]:
        return self._children[node + 1]

    def token(self, child: int, law: Row | None) -> int:
        if law is not None and self.proposal == "without_replacement" and not mass(law) > 0:
            raise BadInput(
                f"{self.field}.token", (child,), "siblings drawn without replacement stay within the support"
            )
        return self._token[child]

    def target(self, node: int) -> Row:
        return probability_row(self._target, node + 1, f"{self.field}.target_probs")

    def draft(self, node: int) -> Row:
        if self._draft is None:
            raise BadInput(f"{self.field}.draft_probs", (), "a point proposal has no draft rows to read")
        return probability_row(self._draft, node + 1, f"{self.field}.draft_probs")


def _coin_reader(coins: Coins, nodes: int, field: str) -> Callable[[int | None], float]:
    """A function that validates and returns the coin of a node, or of the frontier (None)."""
    if not isinstance(coins, Coins):
        raise BadInput(field, (), "coins are an oracle.types.Coins", type(coins).__name__)
    accept = np.asarray(coins.accept)
    if accept.shape != (nodes,):
        raise BadInput(f"{field}.accept", (), f"there is one accept coin for each of the {nodes} nodes", accept.shape)
    if nodes and accept.dtype.kind not in "fiu":
        raise BadInput(f"{field}.accept", (), "accept coins are real numbers", str(accept.dtype))

    def spend(node: int | None) -> float:
        name, index, value = (
            ("frontier", (), coins.frontier) if node is None else ("accept", (node,), accept[node].item())
        )
        if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)):
            raise BadInput(f"{field}.{name}", index, "a coin is a real number", value)
        if not 0 <= value < 1:
            raise BadInput(f"{field}.{name}", index, "a coin lies in [0, 1)", float(value))
        return float(value)

    return spend


def integers(values: object, field: str) -> list[int]:
    """A vector of integers as a list; `BadInput` for another shape or dtype."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise BadInput(field, (), "is a vector", array.shape)
    if array.size and array.dtype.kind not in "iu":
        raise BadInput(field, (), "holds integers", str(array.dtype))
    return [int(v) for v in array]


def matrix(values: object, field: str, rows: int, columns: int | None) -> np.ndarray:
    """A matrix of float or rational numbers with `rows` rows and, where given, `columns` columns."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] != rows or array.shape[1] == 0 or columns not in (None, array.shape[1]):
        wanted = f"[{rows}, {'V' if columns is None else columns}]"
        raise BadInput(field, (), f"has shape {wanted}: the root's row, then one a node", array.shape)
    if array.dtype.kind != "f" and not (array.dtype.kind == "O" and all(isinstance(v, Rational) for v in array.flat)):
        raise BadInput(field, (), "holds floating-point (or rational) numbers", str(array.dtype))
    return array


def probability_row(matrix: np.ndarray, row: int, field: str) -> Row:
    """One row of `matrix` as a list of numbers; `BadInput` unless it is a law."""
    values: Row = matrix[row].tolist()
    tolerance = _row_tolerance(matrix)
    total: Number = 0
    for v, value in enumerate(values):
        if not (0 <= value <= 1 + tolerance):  # false for NaN, too
            shown = value if isinstance(value, Rational) or math.isfinite(value) else str(value)
            raise BadInput(field, (row, v), "a probability lies in [0, 1]", shown)
        total = total + value
    if abs(total - 1) > tolerance:
        raise BadInput(field, (row,), "a probability row sums to one", float(total))
    return values


def _row_tolerance(matrix: np.ndarray) -> float:
    """1e-9 for float64 rows; one rounding a term for narrower ones, which cannot sum any closer."""
    if matrix.dtype == np.float64:
        return 1e-9
    if matrix.dtype.kind == "O":
        return 0.0
    rounding: float = np.finfo(matrix.dtype).eps * matrix.shape[1]
    return max(1e-9, float(rounding))
