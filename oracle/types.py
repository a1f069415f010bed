"""The values that cross the interface: frozen dataclasses of NumPy arrays.

They hold, they do not judge: an operation validates what it reads (`oracle.errors.BadInput`), so a
case can also carry poison where nothing may look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Rows = NDArray[np.float64]

PROPOSALS = ("point", "iid", "without_replacement")


@dataclass(frozen=True, eq=False)
class VerifyCase:
    """One request of a verification: a draft tree and the laws at its nodes.

    parent: int64 [n], parent[i] < i, −1 = child of the root; a chain of K drafts is −1, 0, …, K−2.
    token: int64 [n], drafted token ids in [0, V).
    target_probs: float64 [n+1, V], row 0 = law after the root, row i+1 = law after node i.
    proposal: "point" (the draft law is one-hot at the token), "iid" (siblings drawn independently from
        the draft row) or "without_replacement" (each sibling from the row renormalised without the
        earlier ones). Node order is draw order.
    draft_probs: float64 [n+1, V], the row the children of the root (0) and of node i (i+1) were drawn
        from; None and unread for "point".
    """

    parent: Ids
    token: Ids
    target_probs: Rows
    proposal: str
    draft_probs: Rows | None = None


@dataclass(frozen=True, eq=False)
class Coins:
    """The uniforms of one request, each in [0, 1).

    accept: float64 [n], accept[i] is spent when node i is tested.
    frontier: picks the frontier token by inverse CDF in token order.
    """

    accept: Rows
    frontier: float


@dataclass(frozen=True)
class Decision:
    """What one request publishes: accepted node ids in path order, then exactly one frontier token."""

    path: tuple[int, ...]
    frontier: int
