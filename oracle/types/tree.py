"""Draft trees: how they are grown, pruned to a budget, and laid out for verification.

A drafted node stands below the root, the last token that is already decided. The root is no node: parent −1 is the
root, and its children have depth 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.types.acceptance import DraftTable
from oracle.types.arrays import Flags, Ids, Rows
from oracle.types.losses import DraftMapCase
from oracle.words import MASK_FORMS as MASK_FORMS


@dataclass(frozen=True, eq=False)
class GrowthCase:
    """A drafter as a table, and how far a tree grows from it.

    table: see `DraftTable`; a row may omit mass, never exceed one. expand_width: how many nodes of the latest layer are
    expanded. branch_width: how many children each of them gets. max_depth: the number of layers.
    draft_map: where given, rows are over draft ids and prefixes over target ids, which the tree's tokens are.
    """

    table: DraftTable
    expand_width: int
    branch_width: int
    max_depth: int
    draft_map: DraftMapCase | None = None


@dataclass(frozen=True, eq=False)
class CandidateTree:
    """All drafted nodes; vectors [n], in creation order: layer by layer, parents by frontier order.

    parent: int64, an earlier node, or −1 = the root. token: int64 target ids. confidence: float64, the probability of
    the token after its parent. log_value: float64, the sum of log max(confidence, 1e-12) from the root's child to the
    node. depth: int64, from 1.
    """

    parent: Ids
    token: Ids
    confidence: Rows
    log_value: Rows
    depth: Ids


@dataclass(frozen=True, eq=False)
class SelectionCase:
    """Which nodes are verified: the best `budget` ones, the root not counted."""

    tree: CandidateTree
    budget: int


@dataclass(frozen=True, eq=False)
class FlattenCase:
    """A tree and the nodes that are verified. selected: int64 node ids, ancestor-closed, in any order.

    base: the position of the root.
    """

    tree: CandidateTree
    selected: Ids
    base: int = 0


@dataclass(frozen=True, eq=False)
class FlatTree:
    """The selected nodes as rows, ordered by (depth, node id); vectors [n].

    node: int64 ids in the candidate tree. parent: int64, in rows, −1 = the root. token, depth: int64. visible: bool
    [n, n], row × column: ancestors and self. paths: int64 [leaves, deepest], the rows from the root's child down to
    each leaf, in ascending leaf row, right-padded with −1; (0, 0) when empty. first_child, next_sibling: int64,
    −1 = none; the root's list starts at row 0. position: int64 [n + 1], the root's first, then each row's ([n] where
    the root is no row of the verification input).
    An implementation that has no such thing says None; parent and token are always there.
    """

    node: Ids | None
    parent: Ids
    token: Ids
    depth: Ids | None
    visible: Flags | None
    paths: Ids | None
    first_child: Ids | None
    next_sibling: Ids | None
    position: Ids | None = None


@dataclass(frozen=True, eq=False)
class DraftTreeCase:
    """A whole drafting: grow, keep the best `budget` nodes, lay them out with the root at position `base`."""

    growth: GrowthCase
    budget: int
    base: int = 0


@dataclass(frozen=True, eq=False)
class MaskCase:
    """A verification mask that is wanted. parent: int64 [n], parent[i] < i, −1 = the root.

    prefix: how many columns of decided tokens stand before the tree's; every row sees them. form: one of `MASK_FORMS`.
    """

    parent: Ids
    prefix: int = 0
    form: str = "allowed"
