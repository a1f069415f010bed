"""The oracle of trees: worked examples, properties over Hypothesis and networkx, conversions both ways, refusals."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.roads import tree as road
from conformance.tree import strategies
from conformance.tree.cases import (
    BUSHY,
    CERTAIN,
    DEEP_FIRST,
    EDGE_SIZES,
    FORTY,
    IMPOSSIBLE,
    KINDS,
    TIED,
    TWO_OF_FORTY,
    WORKED,
    Flattenings,
    candidates,
    growth,
)
from conformance.tree.pictures import bits
from oracle.errors import BadInput
from oracle.masks import tree_mask
from oracle.tree import (
    draft_tree,
    flatten_tree,
    grow_tree,
    leaf_paths,
    parents_from_links,
    parents_from_paths,
    select_nodes,
    sibling_links,
    tree_visibility,
)
from oracle.types import (
    MASK_FORMS,
    CandidateTree,
    DraftTreeCase,
    FlattenCase,
    GrowthCase,
    MaskCase,
    SelectionCase,
)

TREES = st.sampled_from(KINDS).flatmap(lambda kind: strategies.trees(kind, most=14))
GROWTHS = st.sampled_from(KINDS).flatmap(strategies.growths)


def paths(tree: CandidateTree) -> list[tuple[int, ...]]:
    return road.paths(tree.parent.tolist(), tree.token.tolist())


def test_the_worked_example() -> None:
    """A 0.60, A1 0.48, B 0.40, B1 0.38, A2 0.12 with a budget of four; breadth first would keep A2 for B1."""
    tree = grow_tree(WORKED)
    chosen = select_nodes(SelectionCase(tree, 4))
    assert [round(float(np.exp(tree.log_value[node])), 2) for node in chosen] == [0.6, 0.48, 0.4, 0.38]
    assert [paths(tree)[node] for node in chosen] == [(0,), (0, 0), (1,), (1, 1)]
    (flat,) = draft_tree([DraftTreeCase(WORKED, 4, 10)])
    assert flat.parent.tolist() == [-1, -1, 0, 1]
    assert flat.token.tolist() == [0, 1, 0, 1]
    assert flat.paths is not None and flat.paths.tolist() == [[0, 2], [1, 3]]
    assert flat.position is not None and flat.position.tolist() == [10, 11, 11, 12, 12]


def test_breadth_first_gets_it_wrong() -> None:
    tree = grow_tree(DEEP_FIRST)
    best = {paths(tree)[node] for node in select_nodes(SelectionCase(tree, 3))}
    shallow = sorted(range(len(tree.parent)), key=lambda i: (tree.depth[i], -tree.log_value[i]))[:3]
    assert best == {(0,), (0, 0), (0, 0, 0)} != {paths(tree)[node] for node in shallow}


@pytest.mark.parametrize("tree", [BUSHY, CERTAIN, FORTY, IMPOSSIBLE, TIED, TWO_OF_FORTY])
def test_every_prefix_of_the_order_is_a_tree(tree: CandidateTree) -> None:
    order = select_nodes(SelectionCase(tree, len(tree.parent) + 3)).tolist()
    assert sorted(order) == list(range(len(tree.parent)))
    for budget in range(len(order) + 1):
        assert select_nodes(SelectionCase(tree, budget)).tolist() == order[:budget]
        assert road.closed(tree.parent.tolist(), order[:budget])


def test_an_impossible_node_can_outrank_an_unlikely_one() -> None:
    assert select_nodes(SelectionCase(IMPOSSIBLE, 3)).tolist() == [0, 2, 3]
    assert IMPOSSIBLE.confidence[1] == 0.0


@settings(deadline=None, max_examples=60)
@given(GROWTHS)
def test_growth(case: GrowthCase) -> None:
    tree = grow_tree(case)
    right = {one.path: one for one in road.grown(case)}
    assert road.is_tree(tree.parent.tolist())
    assert len(paths(tree)) == len(set(paths(tree))) == len(right)
    for node, above in enumerate(tree.parent.tolist()):
        assert tree.log_value[node] <= (tree.log_value[above] if above >= 0 else 0.0)
        assert tree.depth[node] == len(paths(tree)[node])


@settings(deadline=None, max_examples=60)
@given(TREES, st.integers(0, 16))
def test_selection_is_an_arborescence(tree: CandidateTree, budget: int) -> None:
    chosen = select_nodes(SelectionCase(tree, budget)).tolist()
    assert len(chosen) == min(budget, len(tree.parent))
    assert road.closed(tree.parent.tolist(), chosen)
    assert chosen == road.rank(tree)[:budget]


@settings(deadline=None, max_examples=60)
@given(strategies.flattenings(members=2, ordered=False))
def test_flat_trees(call: Flattenings) -> None:
    for case, flat in zip(call.cases, flatten_tree(call.cases)):
        parent = flat.parent.tolist()
        graph = road.graph(parent)
        assert flat.visible is not None and flat.depth is not None and flat.position is not None
        for row in range(len(parent)):
            assert set(np.flatnonzero(flat.visible[row])) == {row, *nx.ancestors(graph, row)} - {-1}
        assert flat.depth.tolist() == road.depths(parent)
        assert flat.position.tolist() == [case.base, *(case.base + d for d in road.depths(parent))]


@settings(deadline=None, max_examples=100)
@given(strategies.parents())
def test_conversions_both_ways(case: object) -> None:
    parent = case.parent  # type: ignore[attr-defined]
    assert parents_from_paths(leaf_paths(parent)).tolist() == parent.tolist()
    first, following = sibling_links(parent)
    if len(parent) == 0 or parent[0] == -1:
        assert parents_from_links(first, following).tolist() == parent.tolist()
    for path in leaf_paths(parent).tolist():
        rows = [row for row in path if row != -1]
        assert [int(parent[row]) for row in rows] == [-1, *rows[:-1]]


@pytest.mark.parametrize(
    ("paths", "place"),
    [([[0, -1, 1]], "paths[0][1]"), ([[0, 2], [1, 2]], "paths[1][1]"), ([[0, 2]], "paths"), ([0, 1], "paths")],
)
def test_what_is_no_leaf_table_is_refused(paths: list[object], place: str) -> None:
    with pytest.raises(BadInput) as caught:
        parents_from_paths(np.array(paths))
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize(
    ("first", "following"), [([1, 0], [-1, -1]), ([-1, -1], [-1, -1]), ([1], [-1]), ([-1, -1], [1, 0]), ([0], [-1, -1])]
)
def test_what_is_no_list_of_links_is_refused(first: list[int], following: list[int]) -> None:
    with pytest.raises(BadInput):
        parents_from_links(np.array(first), np.array(following))


@pytest.mark.parametrize("rows", EDGE_SIZES)
@pytest.mark.parametrize("prefix", [0, 5])
def test_all_masks_are_one_picture(rows: int, prefix: int) -> None:
    parent = np.array([-1, *(i // 2 for i in range(rows - 1))])
    right = road.verified(parent.tolist(), prefix)
    masks = dict(zip(MASK_FORMS, tree_mask([MaskCase(parent, prefix, form) for form in MASK_FORMS])))
    assert np.array_equal(masks["allowed"], right)
    assert np.array_equal(masks["blocked"], ~right)
    assert np.array_equal(masks["additive"] == 0, right) and np.isneginf(masks["additive"][~right]).all()
    for width in (8, 16, 32):
        words = masks[f"packed{width}"]
        assert words.dtype == f"uint{width}" and words.shape[1] == -(-right.shape[1] // width)
        assert [[bits(row, c, width) for c in range(right.shape[1])] for row in words.tolist()] == right.tolist()


def test_visibility_of_any_topological_order() -> None:
    assert tree_visibility(np.array([-1, 0, -1, 1])).astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 1, 0, 1],
    ]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (growth({(): (0.5, float("nan"))}, 1, 1, 1), "case.table[()][1]"),
        (growth({(): (0.75, 0.5)}, 1, 1, 1), "case.table[()]"),
        (growth({(): (0.5, 0.5)}, 1, 1, 2), "case.table[(0,)]"),
        (GrowthCase((np.array([0.5, 0.5]),), 1, 1, 2), "case.table"),
        (growth({(): (0.5, 0.5)}, 0, 1, 1), "case.expand_width"),
        (growth({(): (0.5, 0.5)}, 1, True, 1), "case.branch_width"),
        (growth({(): (0.5, 0.5)}, 1, 1, -1), "case.max_depth"),
    ],
)
def test_a_growth_that_is_refused_is_named(case: GrowthCase, place: str) -> None:
    with pytest.raises(BadInput) as caught:
        grow_tree(case)
    assert str(caught.value).startswith(place), caught.value


def test_a_batch_is_read_before_it_is_answered() -> None:
    tree = candidates([-1, 0], [0.5, 0.5])
    with pytest.raises(BadInput, match=r"cases\[1\].selected\[0\] = 1: the parent 0 of a node is selected"):
        flatten_tree([FlattenCase(tree, np.array([0])), FlattenCase(tree, np.array([1]))])
