"""Acceptance: what is verified, drafted and warped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oracle.types.arrays import Ids, Rows
from oracle.words import PROPOSALS as PROPOSALS


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


@dataclass(frozen=True, eq=False)
class WarpCase:
    """Raw target logits, and what turns them into the law that is sampled from.

    logits: float64 [V], or [R, V] for R rows that are warped side by side; −inf is a masked token.
    temperature: ≥ 0; 0 is the one-hot at the lowest argmax. top_k: how many tokens survive; 0 is off, more
        than V is V. top_p: in (0, 1]; the smallest set that reaches the mass survives; 1 is off. min_p: in
        [0, 1]; tokens below min_p times the largest probability fall; 0 is off.
    Each parameter is one value, or one a row: float64 [R], top_k int64 [R].
    """

    logits: Rows
    temperature: float | Rows = 1.0
    top_k: int | Ids = 0
    top_p: float | Rows = 1.0
    min_p: float | Rows = 0.0


DraftTable = Sequence[Rows] | Mapping[tuple[int, ...], Sequence[float]]
"""A drafter as a table: table[l] has shape [V]*l + [V] and holds its laws after l drafted tokens; or prefix → row."""


@dataclass(frozen=True, eq=False)
class ProposalCase:
    """What a drafter is asked for: `trials` independent drafts of one tree, each with fresh randomness.

    table: see `DraftTable`. parent: int64 [n], the shape of the tree, parent[i] < i, −1 = child of the root;
    node order is draw order. proposal: as in `VerifyCase`.
    """

    table: DraftTable
    parent: Ids
    proposal: str
    trials: int
    seed: int


@dataclass(frozen=True, eq=False)
class Proposals:
    """Drafted tokens and the rows that the implementation declares for them.

    token: int64 [trials, n]. draft_probs: float64 [trials, n+1, V], row 0 = the row that the children of the
    root were drawn from, row i+1 = that of the children of node i; rows of leaves are unread. For "point"
    they are confidences, no law.
    """

    token: Ids
    draft_probs: Rows
