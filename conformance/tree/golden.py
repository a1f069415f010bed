"""The golden vectors of trees: worked examples, chains no product can hold, ties, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Flag, Golden
from conformance.tree import drafting
from conformance.tree.answers import answer as answer
from conformance.tree.cases import (
    BUSHY,
    CERTAIN,
    CHAIN,
    DEEP_FIRST,
    FORTY,
    IMPOSSIBLE,
    ONE_BRANCH,
    TIED,
    TWO_OF_FORTY,
    WORKED,
    WORKED_ROWS,
    WORKED_TREE,
    candidates,
    growth,
    table,
)
from conformance.tree.named import (
    BROAD,
    BY_DEPTH,
    CROSSED,
    DEEP_TREE,
    DIAGONAL,
    EMPTY,
    EQUAL_ACROSS,
    FAMILIES,
    FLOORED,
    HALF,
    INNER_LEAVES,
    LATER_FIRST,
    NOTHING,
    PART_TIED,
    SIBLINGS,
    WIDER,
    ZEROS,
    but,
    having,
    mapped,
    part,
    whole,
)
from oracle.types import CandidateTree, DraftTreeCase, FlattenCase, GrowthCase, MaskCase, SelectionCase

FLAGS: Mapping[str, Flag] = {
    "vanishing product": Flag(
        "edge",
        "Products of confidences underflow, and with them the order of whoever compares products.",
        ("https://github.com/SafeAILab/EAGLE",),
    ),
    "certain child": Flag(
        "fault",
        "A child of confidence 1 has its parent's value, and a selection sorted by value alone keeps it without.",
        ("https://github.com/sgl-project/sglang/issues/7477",),
    ),
    "one branch": Flag(
        "fault",
        "All nodes that are expanded hang from one branch, and rows are looked up by another's.",
        ("https://github.com/sgl-project/sglang/issues/7523",),
    ),
    "draft vocabulary": Flag(
        "fault",
        "Draft ids are taken for target ids, or the two kinds of map for each other.",
        ("https://github.com/SafeAILab/EAGLE/issues/222",),
    ),
    "words": Flag(
        "fault",
        "Columns cross the words of a packed mask, or fill the last one in part.",
        ("https://github.com/NVIDIA/TensorRT-LLM/issues/8421",),
    ),
}

# ---- cases


def of(operation: str, told: str, given: Any, *clauses: int, flags: Sequence[str] = ()) -> Golden:
    """A case of one operation; batched ones get a list."""
    parameter = {"tree_visibility": "parent", "grow_tree": "case", "select_nodes": "case"}.get(operation, "cases")
    numbered = tuple(f"TREE-{clause}" for clause in clauses)
    return Golden(operation, numbered, told, {parameter: given}, tuple(flags))


def refused(operation: str, told: str, given: Any, clause: int) -> Golden:
    return of(operation, told, given, clause, flags=("hostile",))


def parents(*nodes: int) -> np.ndarray:
    return np.array(nodes, dtype=np.int64)


def masked(form: str, *members: tuple[np.ndarray, int]) -> list[MaskCase]:
    return [MaskCase(parent.astype(np.int64), prefix, form) for parent, prefix in members]


NAN = float("nan")
LAYERS = (np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.2, 0.8]]))
SHIFTED = dataclasses.replace(WORKED_TREE, log_value=WORKED_TREE.log_value - [0.0, 0.25, 0.5, 0.1, 0.7])
SHUFFLED = candidates([-1, -1, 0, 1, 2, 3], [0.25, 0.5, 1.0, 1.0, 1.0, 1.0])
LEAFY = candidates(BUSHY.parent.tolist(), [0.5, 0.3, 0.17, 0.58, 0.28, 0.9, 0.5, 0.42, 0.8, 0.7])
BROADER = candidates(BROAD.parent.tolist(), [0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.55, 0.3, 0.9])
"""No two values are so close that float32 exchanges them."""
LARGE_IDS = candidates([-1, -1, 0, 1, 1], [0.6, 0.3, 0.7, 0.5, 0.25], [70001, 151643, 3, 128009, 40000])
FIFTY = candidates([-1] * 8 + [i // 2 for i in range(50)], [0.11] * 8 + [0.3, 0.25] * 25, list(range(7, 65)))
ZIGZAG = np.array([-1, *(i // 2 for i in range(30))])
"""With the root 32 rows, one word of 32 bits."""
OFFSETS, ABSOLUTES = mapped("offset", 2), mapped("absolute", 2)
THIN = candidates([-1, 0, 1, 2, 3, 4], [1e-30, 0.5, 1e-30, 0.25, 1e-30, 0.5])

GROWN = (
    of("grow_tree", "The worked example, whose second branch is certain of its child", WORKED, 101, 201, 202, 205, 208),
    of("grow_tree", "A deep node is better than a shallow one", DEEP_FIRST, 203, 204, 206, 210),
    of("grow_tree", "All that is expanded hangs from one branch", ONE_BRANCH, 205, 210, flags=["one branch"]),
    of("grow_tree", "The best node of the second layer hangs from the second one of the first", CROSSED, 210, 212),
    of("grow_tree", "A branch wider than the vocabulary takes all of it", WIDER, 203, 206),
    of("grow_tree", "Impossible children are kept, with the confidence zero", ZEROS, 207, 209),
    of("grow_tree", "Confidences below 1e-12 count as 1e-12 in a value, and stay what they are", FLOORED, 209),
    of("grow_tree", "Two nodes with one value: the earlier is expanded", HALF, 211, 213, flags=["ties"]),
    of("grow_tree", "Tied tokens come in the order of their ids", PART_TIED, 213, flags=["ties"]),
    of("grow_tree", "Six layers of a narrow tree", growth(table("generic", 11, 6, 2), 2, 2, 6), 202, 208, 210),
    of("grow_tree", "No layer makes no node", growth(WORKED_ROWS, 2, 2, 0), 102, flags=["empty"]),
    of("grow_tree", "One layer is the root's children", growth({(): (0.25, 0.6, 0.15)}, 3, 2, 1), 202, 204),
    of("grow_tree", "A table of layers, which is left as it was", GrowthCase(LAYERS, 2, 2, 2), 103, flags=[UNCHANGED]),
    of("grow_tree", "Draft ids with gaps, given as offsets", OFFSETS[0], 214, flags=["draft vocabulary"]),
    of("grow_tree", "Draft ids in another order, given as offsets", OFFSETS[3], 214, 215, flags=["draft vocabulary"]),
    of("grow_tree", "A permutation of equal width, given as offsets", OFFSETS[4], 215, flags=["draft vocabulary"]),
    of("grow_tree", "Draft ids in another order, given absolutely", ABSOLUTES[2], 214, flags=["draft vocabulary"]),
    of("grow_tree", "A permutation of equal width, given absolutely", ABSOLUTES[4], 215, flags=["draft vocabulary"]),
    refused("grow_tree", "A probability that is NaN is refused", having((), (0.25, NAN, 0.25)), 801),
    refused("grow_tree", "A probability below zero is refused", having((0,), (-0.125, 0.125, 0.25)), 801),
    refused("grow_tree", "A probability above one is refused", having((), (0.25, 1.5, 0.25)), 801),
    refused("grow_tree", "A row that sums to more than one is refused", having((1,), (0.5, 0.5, 0.25)), 802),
    refused("grow_tree", "A table with fewer layers than the tree is refused", GrowthCase(LAYERS, 2, 2, 3), 803),
    refused(
        "grow_tree",
        "A table without a row that is reached is refused",
        growth({(): (0.6, 0.4), (0,): (0.5, 0.5)}, 2, 2, 2),
        803,
    ),
    refused("grow_tree", "A tree that expands nothing is refused", growth(WORKED_ROWS, 0, 2, 2), 804),
    refused("grow_tree", "A branch without children is refused", growth(WORKED_ROWS, 2, 0, 2), 804),
    refused("grow_tree", "A depth below zero is refused", growth(WORKED_ROWS, 2, 2, -1), 804),
)


def chosen(told: str, tree: CandidateTree, budget: int, *clauses: int, flags: Sequence[str] = ()) -> Golden:
    return of("select_nodes", told, SelectionCase(tree, budget), *clauses, flags=flags)


SELECTED = (
    chosen("The worked example: depth first, not breadth first", WORKED_TREE, 4, 301, 303, 304),
    chosen("Everything good is deep", DEEP_TREE, 4, 303, 304),
    chosen("A chain is taken from its root", CHAIN, 2, 302, 304),
    chosen("A bushy tree, half of it", LEAFY, 6, 302, 303),
    chosen("A broad tree with one grandchild among the best", BROADER, 5, 303),
    chosen("Equal values in one layer, and below", TIED, 5, 305, flags=["ties"]),
    chosen("A deep node as good as shallow ones comes after them", EQUAL_ACROSS, 3, 305, flags=["ties"]),
    chosen("The better of two nodes has the greater id", LATER_FIRST, 3, 304, 305),
    chosen("A certain chain keeps its beginning", CERTAIN, 2, 306, flags=["ties", "certain child"]),
    chosen("Certain children below the worse branch", SHUFFLED, 3, 306, flags=["ties", "certain child"]),
    chosen("A chain whose product no float64 holds", FORTY, 20, 307, flags=["vanishing product"]),
    chosen("Two chains whose products are both zero", TWO_OF_FORTY, 70, 307, flags=["vanishing product"]),
    chosen("An impossible node outranks an unlikely deep one", IMPOSSIBLE, 3, 308),
    chosen("Values that confidences alone do not give", SHIFTED, 3, 308),
    chosen("A budget above the candidates takes all", WORKED_TREE, 59, 309),
    chosen("A budget of nothing selects nothing", WORKED_TREE, 0, 102, flags=["empty"]),
    chosen("No candidates, whatever the budget", EMPTY, 3, 102, 309, flags=["empty"]),
    chosen("The candidates are left as they were", LEAFY, 4, 103, flags=[UNCHANGED]),
    *(
        refused("select_nodes", told, SelectionCase(tree, budget), clause)
        for told, tree, budget, clause in (
            ("A budget below zero is refused", WORKED_TREE, -1, 804),
            ("A confidence that is NaN is refused", but(confidence=(4, NAN)), 3, 805),
            ("A confidence above one is refused", but(confidence=(4, 1.25)), 3, 805),
            ("Siblings that sum to more than one are refused", but(confidence=(3, 0.5)), 3, 805),
            ("Two children with one token are refused", but(token=(3, int(WORKED_TREE.token[2]))), 3, 806),
            ("A parent that comes later is refused", but(parent=[-1, -1, 3, 2, 1]), 3, 807),
            ("A depth that skips is refused", but(depth=(4, 3)), 3, 807),
            ("A child with a greater value than its parent's is refused", but(log_value=(4, -0.25)), 3, 808),
            ("A value that is NaN is refused", but(log_value=(2, NAN)), 3, 808),
            ("Vectors of different lengths are refused", but(token=[2, 5, 8, 11]), 3, 810),
            ("Tokens that are no integers are refused", but(token=[0.5, 1.5, 2.5, 3.5, 4.5]), 3, 810),
        )
    ),
)


def flattened(told: str, *clauses: int, members: Sequence[FlattenCase], flags: Sequence[str] = ()) -> Golden:
    return of("flatten_tree", told, list(members), *clauses, flags=flags)


FLATTENED = (
    flattened("The worked example after three tokens", 401, 403, 405, 501, 604, members=[whole(WORKED_TREE, 3)]),
    flattened("A chain is one path", 402, 404, 602, members=[whole(CHAIN, 1)]),
    flattened("Leaves at every depth", 404, 601, 603, 605, members=[whole(BUSHY, 5)]),
    flattened("Nodes left out: a row is not its node", 402, 403, 606, members=[part(BUSHY, [0, 2, 5, 8], 2)]),
    flattened("Ids that do not follow depth", 401, 402, members=[whole(BY_DEPTH)]),
    flattened("Rows of one depth whose parents are crossed", 501, 602, members=[whole(DIAGONAL)]),
    flattened("The selection comes in another order", 406, members=[part(BUSHY, [2, 5, 8, 0, 4, 3, 7])]),
    flattened("A leaf at depth one among parents", 601, 603, 604, 606, members=[whole(INNER_LEAVES, 1)]),
    flattened("Children of the root alone", 601, 605, members=[whole(candidates([-1] * 4, [0.4, 0.3, 0.2, 0.1]))]),
    flattened("Ids and a position beyond 16 bits", 403, 405, members=[whole(LARGE_IDS, 4097)], flags=["large"]),
    flattened("Sixty rows, the size that engines verify", 402, 603, 605, members=[whole(FIFTY, 40)], flags=["large"]),
    flattened("Nothing selected", 102, members=[FlattenCase(WORKED_TREE, NOTHING, 3)], flags=["empty"]),
    flattened(
        "Four trees of different sizes",
        407,
        members=[whole(CHAIN, 4), whole(BUSHY, 2), part(WORKED_TREE, [1, 4]), whole(WORKED_TREE, 9)],
        flags=["batch"],
    ),
    flattened(
        "Three trees of one size",
        407,
        members=[whole(CHAIN, 1), part(BUSHY, [0, 1, 2, 5], 3), part(BUSHY, [2, 5, 8, 0], 7)],
        flags=["batch"],
    ),
    flattened("The selection is left as it was", 103, members=[part(WORKED_TREE, [1, 0, 4])], flags=[UNCHANGED]),
    *(
        refused("flatten_tree", told, [whole(WORKED_TREE), case], clause)
        for told, case, clause in (
            ("A base below zero is refused", FlattenCase(WORKED_TREE, np.arange(2), -1), 804),
            ("A confidence below zero is refused", whole(but(confidence=(4, -0.25))), 805),
            ("Two of the root's children with one token are refused", whole(but(token=(1, 2))), 806),
            ("A cycle of parents is refused", whole(but(parent=[1, 0, -1, 0, 1])), 807),
            ("A value above zero is refused", whole(but(log_value=(0, 0.5))), 808),
            ("A node without its parent is refused", part(WORKED_TREE, [0, 4]), 809),
            ("A node named twice is refused", part(WORKED_TREE, [0, 2, 2]), 809),
            ("A node that is none is refused", part(WORKED_TREE, [0, 5]), 809),
            ("Parents that are no integers are refused", whole(but(parent=[-1.0, -1.0, 0.0, 0.0, 1.5])), 810),
        )
    ),
)

SEEN = (
    of("tree_visibility", "Two siblings", parents(-1, -1), 101, 502),
    of("tree_visibility", "A chain sees all that is above it", parents(-1, 0, 1, 2), 502),
    of("tree_visibility", "Two families side by side", FAMILIES.astype(np.int64), 502),
    of("tree_visibility", "Nodes that do not stand in order of depth", parents(-1, 0, -1, 1, 3, 2), 502),
    of("tree_visibility", "Children of one node that stand apart", parents(-1, -1, 1, 0, 2, 0, 4), 502),
    of("tree_visibility", "One node sees itself", parents(-1), 502),
    of("tree_visibility", "Nothing sees nothing", NOTHING, 102, flags=["empty"]),
    of("tree_visibility", "The parents are left as they were", parents(-1, 0, 0, 1), 103, flags=[UNCHANGED]),
    refused("tree_visibility", "A node that is its own parent is refused", parents(-1, -1, 2, 0, 1), 807),
    refused("tree_visibility", "A parent that comes later is refused", parents(-1, -1, 3, 2, 1), 807),
    refused("tree_visibility", "A parent that is no node is refused", parents(-1, -1, 0, 0, 7), 807),
    refused("tree_visibility", "A parent below the root is refused", parents(-1, -1, -2, 0, 1), 807),
)

RAGGED = (FAMILIES, 1), (SIBLINGS, 5), (np.arange(-1, 4), 2)
MASKED = (
    of("tree_mask", "Two siblings see the root and themselves", masked("allowed", (SIBLINGS, 0)), 503),
    of("tree_mask", "Two families below the root", masked("allowed", (FAMILIES, 0)), 504),
    of("tree_mask", "Three decided tokens before the tree", masked("allowed", (FAMILIES, 3)), 505, 504),
    of("tree_mask", "Blocked where a row does not see", masked("blocked", (FAMILIES, 2)), 506, 505),
    of("tree_mask", "Three allowed masks of different sizes", masked("allowed", *RAGGED), 509, flags=["batch"]),
    of("tree_mask", "Three blocked masks of different sizes", masked("blocked", *RAGGED), 506, 509, flags=["batch"]),
    of("tree_mask", "Minus infinity where a row does not see", masked("additive", (FAMILIES, 2)), 507, 505),
    of("tree_mask", "Three additive masks of different sizes", masked("additive", *RAGGED), 507, 509, flags=["batch"]),
    of("tree_mask", "Bytes of bits", masked("packed8", (FAMILIES, 7)), 508, flags=["words"]),
    of("tree_mask", "Words of 16 bits", masked("packed16", (FAMILIES, 23)), 508, flags=["words"]),
    of("tree_mask", "A word of 32 bits, filled", masked("packed32", (ZIGZAG, 0)), 508, flags=["words"]),
    of("tree_mask", "A word of 32 bits and one bit more", masked("packed32", (FAMILIES, 24)), 508, flags=["words"]),
    of(
        "tree_mask",
        "Three packed masks of different sizes",
        masked("packed8", *RAGGED),
        508,
        509,
        flags=["batch", "words"],
    ),
    of("tree_mask", "The parents are left as they were", masked("allowed", (FAMILIES, 2)), 103, flags=[UNCHANGED]),
    refused("tree_mask", "A cycle of parents is refused", masked("allowed", (parents(1, 0, -1), 0)), 807),
    refused("tree_mask", "A form of mask without a name is refused", masked("packed64", (parents(-1, 0), 0)), 810),
)


def drafts(told: str, *clauses: int, members: Sequence[DraftTreeCase], flags: Sequence[str] = ()) -> Golden:
    return of("draft_tree", told, list(members), *clauses, flags=flags)


def sure(budget: int) -> DraftTreeCase:
    """Three chains whose every further draft is certain."""
    return drafting.certain(0.0, False)[budget - 1]


PLAIN = drafting.PLAIN
DRAFTED = (
    drafts("The worked example", 701, 703, 704, 707, members=[PLAIN[0]]),
    drafts("A deep node is better than a shallow one", 702, 704, members=[PLAIN[1]]),
    drafts("All that is expanded hangs from one branch", 702, 706, members=[PLAIN[2]], flags=["one branch"]),
    drafts("A tree of three layers, three children a node", 704, 706, 707, members=[PLAIN[3]]),
    drafts("Six layers of a narrow tree", 704, 706, members=[PLAIN[4]]),
    drafts("Certain children, a budget of two", 705, members=[sure(2)], flags=["ties", "certain child"]),
    drafts("Certain children, a budget of five", 705, members=[sure(5)], flags=["ties", "certain child"]),
    drafts("Two chains of forty drafts", 708, members=[drafting.vanishing()], flags=["vanishing product"]),
    drafts("Three draftings of one call", 709, members=PLAIN[:3], flags=["batch"]),
    drafts(
        "Three draftings of one size",
        709,
        members=[DraftTreeCase(growth(table("generic", seed, 3, 3), 2, 2, 3), 5, seed) for seed in (1, 2, 3)],
        flags=["batch"],
    ),
    drafts("A budget above the candidates drafts all", 710, members=[DraftTreeCase(drafting.CHAIN, 36, 2)]),
    drafts(
        "Draft ids in another order, given as offsets",
        711,
        members=[DraftTreeCase(OFFSETS[2], 5, 1)],
        flags=["draft vocabulary"],
    ),
    drafts(
        "A permutation of equal width, given as offsets",
        711,
        members=[DraftTreeCase(OFFSETS[4], 4, 2)],
        flags=["draft vocabulary"],
    ),
    drafts(
        "A permutation of equal width, given absolutely",
        711,
        members=[DraftTreeCase(ABSOLUTES[4], 5, 1)],
        flags=["draft vocabulary"],
    ),
    drafts("A budget of nothing drafts nothing", 102, members=[DraftTreeCase(WORKED, 0, 2)], flags=["empty"]),
    refused(
        "draft_tree",
        "A row that sums to more than one is refused",
        [DraftTreeCase(having((), (0.75, 0.5, 0.0)), 3)],
        802,
    ),
    refused(
        "draft_tree",
        "A probability that is NaN is refused",
        [DraftTreeCase(having((), (0.25, NAN, 0.25)), 3)],
        801,
    ),
    refused("draft_tree", "A table that is too short is refused", [DraftTreeCase(GrowthCase(LAYERS, 2, 2, 3), 3)], 803),
    refused("draft_tree", "A branch of no children is refused", [DraftTreeCase(growth(WORKED_ROWS, 2, 0, 2), 3)], 804),
)

GOLDEN: tuple[Golden, ...] = (*GROWN, *SELECTED, *FLATTENED, *SEEN, *MASKED, *DRAFTED)
UNTOUCHED: Mapping[str, str] = {}
UNSHOWN: Mapping[str, str] = {}
