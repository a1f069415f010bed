"""Reading a request: structure is validated whole, numbers where they are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Rational, Real

import numpy as np

from oracle.discrete import Number, Row, mass
from oracle.errors import BadInput
from oracle.types import PROPOSALS, Coins, VerifyCase
from oracle.walks import ROOT


class CaseView:
    """A `VerifyCase`, its structure validated whole, its rows validated one by one as they are read."""

    def __init__(self, case: VerifyCase, field: str) -> None:
        self.field = field
        if not isinstance(case, VerifyCase):
            raise BadInput(field, (), "a case is an oracle.types.VerifyCase", type(case).__name__)
        self.proposal = proposal_of(case.proposal, f"{field}.proposal")
        self.parent_field = f"{field}.parent"
        above = parents(case.parent, self.parent_field)
        self._token = integers(case.token, f"{field}.token")
        self.size = len(above)
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
        for i, parent in enumerate(above):
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

    def tokens(self, node: int) -> list[int]:
        return [self._token[child] for child in self.children(node)]

    def target(self, node: int) -> Row:
        return probability_row(self._target, node + 1, f"{self.field}.target_probs")

    def draft(self, node: int) -> Row:
        if self._draft is None:
            raise BadInput(f"{self.field}.draft_probs", (), "a point proposal has no draft rows to read")
        return probability_row(self._draft, node + 1, f"{self.field}.draft_probs")


def coin_reader(coins: Coins, nodes: int, field: str) -> Callable[[int | None], float]:
    """A function that validates and returns the coin of a node, or of the frontier (None)."""
    if not isinstance(coins, Coins):
        raise BadInput(field, (), "coins are an oracle.types.Coins", type(coins).__name__)
    accept = as_array(coins.accept, f"{field}.accept")
    if accept.shape != (nodes,):
        raise BadInput(f"{field}.accept", (), f"there is one accept coin for each of the {nodes} nodes", accept.shape)
    if nodes and accept.dtype.kind not in "fiu":
        raise BadInput(f"{field}.accept", (), "accept coins are real numbers", str(accept.dtype))

    def spend(node: int | None) -> float:
        name, index, value = (
            ("frontier", (), coins.frontier) if node is None else ("accept", (node,), accept[node].item())
        )
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise BadInput(f"{field}.{name}", index, "a coin is a real number", value)
        if not 0 <= value < 1:
            raise BadInput(
                f"{field}.{name}", index, "a coin lies in [0, 1)", value if isinstance(value, int) else float(value)
            )
        return float(value)

    return spend


def as_array(values: object, field: str, index: tuple[int, ...] = ()) -> np.ndarray:
    """`values` as an array; `BadInput` where NumPy makes none of them, as of a ragged list."""
    try:
        return np.asarray(values)
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        raise BadInput(field, index, "is an array: numbers, or rows of one length", type(values).__name__) from None


def reals(array: np.ndarray) -> np.ndarray | None:
    """Integers and rationals in float64, floats as they are; None where other things are among them."""
    if array.dtype.kind == "f":
        return array
    if array.dtype.kind in "iu" or (array.dtype.kind == "O" and all(isinstance(v, Real) for v in array.flat)):
        try:
            return array.astype(np.float64)
        except OverflowError:
            return None
    return None


def integers(values: object, field: str) -> list[int]:
    """A vector of integers as a list; `BadInput` for another shape or dtype."""
    array = as_array(values, field)
    if array.ndim != 1:
        raise BadInput(field, (), "is a vector", array.shape)
    if array.size and array.dtype.kind not in "iu":
        raise BadInput(field, (), "holds integers", str(array.dtype))
    return [int(v) for v in array]


def matrix(values: object, field: str, rows: int, columns: int | None) -> np.ndarray:
    """A matrix of float or rational numbers with `rows` rows and, where given, `columns` columns."""
    array = as_array(values, field)
    if array.ndim != 2 or array.shape[0] != rows or array.shape[1] == 0 or columns not in (None, array.shape[1]):
        wanted = f"[{rows}, {'V' if columns is None else columns}]"
        raise BadInput(field, (), f"has shape {wanted}: the root's row, then one a node", array.shape)
    if array.dtype.kind != "f" and not (array.dtype.kind == "O" and all(isinstance(v, Rational) for v in array.flat)):
        raise BadInput(field, (), "holds floating-point (or rational) numbers", str(array.dtype))
    return array


def probability_row(matrix: np.ndarray, row: int, field: str) -> Row:
    """One row of `matrix` as a list of numbers; `BadInput` unless it is a law."""
    return _law(matrix[row].tolist(), field, (row,), _row_tolerance(matrix), False)


def law_of(values: object, field: str, index: tuple[int, ...], vocabulary: int, may_omit_mass: bool) -> Row:
    """A vector of V probabilities as a list; `BadInput` unless it is a law.

    `may_omit_mass`: its sum may be less than one.
    """
    array = as_array(values, field, index)
    if array.shape != (vocabulary,):
        raise BadInput(field, index, f"is a vector of {vocabulary} real numbers", array.shape)
    row = reals(array)
    if row is None:
        raise BadInput(field, index, f"is a vector of {vocabulary} real numbers", str(array.dtype))
    return _law(row.tolist(), field, index, _row_tolerance(row), may_omit_mass)


def _law(values: Row, field: str, index: tuple[int, ...], tolerance: float, may_omit_mass: bool) -> Row:
    total: Number = 0
    for v, value in enumerate(values):
        if not (0 <= value <= 1 + tolerance):  # false for NaN, too
            shown = value if isinstance(value, Rational) or math.isfinite(value) else str(value)
            raise BadInput(field, (*index, v), "a probability lies in [0, 1]", shown)
        total = total + value
    if total - 1 > tolerance or (total - 1 < -tolerance and not may_omit_mass):
        most = "at most " if may_omit_mass else ""
        raise BadInput(field, index, f"a probability row sums to {most}one", float(total))
    return values


def _row_tolerance(rows: np.ndarray) -> float:
    """1e-9 for float64 rows; one rounding a term for narrower ones, which cannot sum any closer."""
    if rows.dtype == np.float64:
        return 1e-9
    if rows.dtype.kind == "O":
        return 0.0
    rounding: float = np.finfo(rows.dtype).eps * rows.shape[-1]
    return max(1e-9, float(rounding))


def proposal_of(proposal: object, field: str) -> str:
    """A kind of proposal; `BadInput` unless it is known."""
    if not isinstance(proposal, str) or proposal not in PROPOSALS:
        raise BadInput(field, (), f"a proposal is one of {', '.join(PROPOSALS)}", proposal)
    return proposal


def seed_of(seed: object) -> int:
    """A seed as an int; `BadInput` unless it is a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadInput("seed", (), "a seed is a non-negative integer", seed)
    return int(seed)


def parents(values: object, field: str) -> list[int]:
    """The parent vector of a tree, [n] with parent[i] < i and −1 = the root; `BadInput` otherwise."""
    found = integers(values, field)
    for i, parent in enumerate(found):
        if not ROOT <= parent < i:
            raise BadInput(field, (i,), "a parent is −1 (the root) or an earlier node", parent)
    return found
