"""Trees in torch: the oracle's answers in batches of any shape, on the host and without it, closed in every dtype."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from adapters.fast_tree import Tree  # noqa: E402
from oracle import masks as oracle_masks  # noqa: E402
from oracle import tree as oracle  # noqa: E402
from oracle.errors import BadInput  # noqa: E402
from oracle.fast import growing, masks  # noqa: E402
from oracle.fast import tree as fast  # noqa: E402
from oracle.types import (  # noqa: E402
    MASK_FORMS,
    CandidateTree,
    DraftMapCase,
    DraftTreeCase,
    FlattenCase,
    GrowthCase,
    MaskCase,
    SelectionCase,
)


class Device(Tree):
    """By the way that the host stays out of."""

    vectorised = True


WAYS = [pytest.param(Tree, id="host"), pytest.param(Device, id="device")]


def candidates(rng: np.random.Generator, nodes: int) -> CandidateTree:
    """Nodes in any order of depth, with many equal values."""
    parent = [int(rng.integers(-1, i)) for i in range(nodes)]
    siblings = Counter(parent)
    confidence = [2.0 ** -(math.ceil(math.log2(siblings[p])) + int(rng.integers(0, 2))) for p in parent]
    value, depth = [], []
    for above, c in zip(parent, confidence):
        value.append((value[above] if above >= 0 else 0.0) + math.log(c))
        depth.append((depth[above] if above >= 0 else 0) + 1)
    made = [np.array(one, dtype=np.int64) for one in (parent, rng.permutation(nodes) + 2**40, depth)]
    return CandidateTree(made[0], made[1], np.array(confidence), np.array(value), made[2])


def same(found: object, wanted: object) -> None:
    """Fields of one shape, dtype and value."""
    for name, right in vars(wanted).items():
        ours = getattr(found, name)
        assert ours.dtype == right.dtype, name
        np.testing.assert_array_equal(ours, right, err_msg=name)


@pytest.mark.parametrize("way", WAYS)
def test_selections_and_layouts_of_ragged_batches_are_the_oracles(way: Any) -> None:
    rng = np.random.default_rng(0)
    for sizes in ([0], [1], [5, 0, 9], [13, 13, 13], [64, 70, 3], [130]):
        cases = []
        for nodes in sizes:
            tree = candidates(rng, nodes)
            for budget in (0, 1, nodes // 2, nodes, nodes + 2):
                case = SelectionCase(tree, budget)
                selected = oracle.select_nodes(case)
                np.testing.assert_array_equal(way.select_nodes(case), selected)
                cases.append(FlattenCase(tree, rng.permutation(selected), int(rng.integers(0, 9))))
        for found, wanted in zip(way.flatten_tree(cases), oracle.flatten_tree(cases)):
            same(found, wanted)


@pytest.mark.parametrize("vectorised", [False, True])
def test_selection_and_layout_in_one_step_are_the_two_steps(vectorised: bool) -> None:
    rng = np.random.default_rng(1)
    for sizes, budgets in (([9, 9, 9], 4), ([9, 9, 9], 20), ([9, 9, 9], 0), ([3, 70, 0], [2, 50, 1]), ([8, 8], [3, 0])):
        trees = [candidates(rng, nodes) for nodes in sizes]
        batch = Tree._batch(trees)
        budget = torch.tensor(budgets) if isinstance(budgets, list) else budgets
        base = torch.arange(len(trees))
        made = fast.keep_best(batch, budget, base, vectorised=vectorised)
        for b, tree in enumerate(trees):
            own = budgets[b] if isinstance(budgets, list) else budgets
            right = oracle.flatten_tree([FlattenCase(tree, oracle.select_nodes(SelectionCase(tree, own)), b)])[0]
            rows, leaves = len(right.parent), len(right.paths)  # type: ignore[arg-type]
            assert (made.length[b], made.leaves[b]) == (rows, leaves)
            for name in ("node", "parent", "token", "depth", "first_child", "next_sibling"):
                own_rows = getattr(made, name)[b].tolist()
                assert own_rows == [*getattr(right, name).tolist(), *[-1] * (len(own_rows) - rows)], name
            assert not made.visible[b, rows:].any()
            assert not made.visible[b, :, rows:].any()
            assert (made.paths[b, leaves:] == -1).all()


def test_the_adapter_hands_on_what_is_wrong() -> None:
    tree = candidates(np.random.default_rng(9), 4)
    for name, dtype in (("parent", float), ("token", float), ("depth", float), ("confidence", int), ("log_value", int)):
        wrong = replace(tree, **{name: getattr(tree, name).astype(dtype)})
        with pytest.raises(BadInput) as told:
            Tree.select_nodes(SelectionCase(wrong, 2))
        assert told.value.field == f"candidates.{name}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", MASK_FORMS)
def test_masks_of_ragged_batches_are_the_oracles(way: Any, form: str) -> None:
    rng = np.random.default_rng(2)
    for rows in ([0], [1, 7], [6, 62, 63, 64, 65], [128, 3]):
        for prefix in (0, 1, 62, 63, 64, 130):
            shapes = [candidates(rng, n).parent for n in rows]
            cases = [MaskCase(p, max(prefix - i, 0), form) for i, p in enumerate(shapes)]
            for found, wanted in zip(way.tree_mask(cases), oracle_masks.tree_mask(cases)):
                assert found.dtype == wanted.dtype
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("vectorised", [False, True])
def test_parts_of_a_layout_are_the_oracles(vectorised: bool) -> None:
    rng = np.random.default_rng(3)
    for rows in (0, 1, 6, 63, 64, 65):
        parent = candidates(rng, rows).parent
        batch = torch.tensor(np.array([parent, parent]))
        length = torch.tensor([rows, rows // 2])
        for own in (None, length):
            links = fast.sibling_links(batch, length=own, vectorised=vectorised)
            paths, leaves = fast.leaf_paths(batch, length=own, vectorised=vectorised)
            deepest = int((paths >= 0).sum(2).max()) if paths.numel() else 0
            bounded, _ = fast.leaf_paths(batch, length=own, deepest=deepest, vectorised=vectorised)
            assert torch.equal(bounded, paths[:, :, :deepest])
            seen = fast.tree_visibility(batch, length=own, vectorised=vectorised)
            for b in range(2):
                count = rows if own is None else int(own[b])
                right = parent[:count]
                for ours, wanted in zip(links, oracle.sibling_links(right)):
                    np.testing.assert_array_equal(ours[b, :count], wanted)
                table = oracle.leaf_paths(right)
                assert int(leaves[b]) == len(table)
                np.testing.assert_array_equal(paths[b, : len(table), : table.shape[1]], table)
                assert (paths[b, : len(table), table.shape[1] :] == -1).all()
                np.testing.assert_array_equal(seen[b, :count, :count], oracle.tree_visibility(right))
                assert not seen[b, count:].any()


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize("layered", [False, True])
def test_what_stands_behind_a_length_is_not_read(vectorised: bool, layered: bool) -> None:
    """Impossible nodes among those that count are worth as little as what is behind them."""
    rng = np.random.default_rng(10)
    trees = [candidates(rng, nodes) for nodes in (6, 0, 9)]
    for i, tree in enumerate(trees):
        places = np.argsort(tree.depth, kind="stable")
        if layered:
            row = np.append(np.argsort(places), -1)
            tree = replace(tree, **{name: value[places] for name, value in vars(tree).items()})
            tree = replace(tree, parent=row[tree.parent])
        value = np.where(np.isin(np.arange(len(places)), tree.parent), tree.log_value, -np.inf)
        trees[i] = replace(tree, log_value=value)
    plain = Tree._batch(trees)
    assert plain.length is not None
    behind = torch.arange(9) >= plain.length.unsqueeze(1)
    junk = [one.masked_fill(behind, torch.nan if one.is_floating_point() else -3) for one in plain[:5]]
    given = fast.Candidates(*junk, length=plain.length, layered=layered)
    for budget in range(10):
        made = fast.keep_best(given, budget, vectorised=vectorised)
        chosen = fast.select_nodes(given, budget, vectorised=vectorised)
        laid = fast.flatten_tree(given, chosen, length=(chosen >= 0).sum(1), vectorised=vectorised)
        mask = masks.tree_mask(made.parent, 3, length=made.length, vectorised=vectorised)
        for b, tree in enumerate(trees):
            right = oracle.select_nodes(SelectionCase(tree, budget))
            rows = len(right)
            assert chosen[b].tolist() == [*right, *[-1] * (chosen.shape[1] - rows)]
            for found in (made, laid):
                assert found.node[b, :rows].tolist() == sorted(right, key=lambda i: (tree.depth[i], i))
                assert (found.node[b, rows:] == -1).all()
            assert not mask[b, rows + 1 :].any()
            assert mask[b, : rows + 1, :4].all()


@pytest.mark.parametrize("way", WAYS)
def test_ties_at_the_end_of_a_selection_are_broken_as_the_oracle_does(way: Any) -> None:
    for seed in range(6):
        tree = candidates(np.random.default_rng(seed), 20)
        for budget in range(21):
            case = SelectionCase(tree, budget)
            np.testing.assert_array_equal(way.select_nodes(case), oracle.select_nodes(case))


@pytest.mark.parametrize("vectorised", [False, True])
def test_the_one_path_of_a_chain_is_all_of_it(vectorised: bool) -> None:
    for rows in range(1, 18):
        paths, leaves = fast.leaf_paths(torch.arange(-1, rows - 1).unsqueeze(0), vectorised=vectorised)
        assert paths[0, 0].tolist() == list(range(rows))
        assert leaves.tolist() == [1]


@pytest.mark.parametrize("vectorised", [False, True])
def test_batches_of_none_and_budgets_beyond_all_have_answers(vectorised: bool) -> None:
    rng = np.random.default_rng(7)
    none = fast.Candidates(*(one[:0] for one in Tree._batch([candidates(rng, 3)])[:5]))
    for made in (
        fast.keep_best(none, 2, vectorised=vectorised),
        fast.flatten_tree(none, torch.zeros((0, 2), dtype=torch.int64), vectorised=vectorised),
    ):
        assert (made.node.shape, made.position.shape, made.visible.shape) == ((0, 2), (0, 3), (0, 2, 2))
    ragged = Tree._batch([candidates(rng, 3), candidates(rng, 5)])
    for budget in (5, 2**70):
        assert fast.keep_best(ragged, budget, vectorised=vectorised).length.tolist() == [3, 5]


@pytest.mark.parametrize("vectorised", [False, True])
def test_answers_stay_where_the_trees_are_whatever_the_default_device(vectorised: bool) -> None:
    batch = Tree._batch([candidates(np.random.default_rng(8), 5)])
    rows = torch.full((1, 1, 2), 0.5)
    with torch.device("meta"):
        for budget in (0, 3):
            made = fast.keep_best(batch, budget, vectorised=vectorised)
            mask = masks.tree_mask(made.parent, 2, "additive", vectorised=vectorised)
            grown = growing.grow_tree(lambda _: rows, 1, 2, 1)
            assert all(one.device.type == "cpu" for one in (*made, mask, *grown[:5]))


def growths() -> list[GrowthCase]:
    rng = np.random.default_rng(4)
    cases = []
    for vocabulary in (1, 3, 5):
        for rows in (rng.dirichlet(np.ones(vocabulary), 400), np.full((400, vocabulary), 1 / 8)):
            for expand, branch, depth in ((1, 1, 3), (2, 3, 3), (3, 9, 2), (2, 2, 0)):
                ids = rng.permutation(vocabulary + 3)[:vocabulary]
                paths: list[tuple[int, ...]] = [()]
                table = {}
                for _ in range(3):
                    table.update({path: tuple(rows[len(table) + i].tolist()) for i, path in enumerate(paths)})
                    paths = [(*path, int(token)) for path in paths for token in ids]
                cases.append(GrowthCase(table, expand, branch, depth, DraftMapCase(ids, None, "absolute")))
    return cases


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("second_pass", [False, True])
def test_growth_is_the_oracles(way: Any, second_pass: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass over a row, which only a tie needs on the host, changes nothing where nothing ties."""
    if second_pass:
        monkeypatch.setattr(growing, "on_host", lambda *_: False)
    for case in growths():
        found, wanted = way.grow_tree(case), oracle.grow_tree(case)
        for name in ("parent", "token", "confidence", "depth"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        np.testing.assert_allclose(found.log_value, wanted.log_value, rtol=1e-14)
        drafts = [DraftTreeCase(case, budget, budget) for budget in (4, 0, 99)]
        for ours, right in zip(way.draft_tree(drafts), oracle.draft_tree(drafts)):
            same(ours, right)


def test_a_table_of_layers_is_a_drafter() -> None:
    layers = [torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [1.0, 0, 0]])]
    made = growing.grow_tree(growing.from_layers(layers), 2, 2, 2, batch=3)
    right = oracle.grow_tree(GrowthCase([layer.numpy() for layer in layers], 2, 2, 2))
    for b in range(3):
        assert made.token[b].tolist() == right.token.tolist()
        assert made.parent[b].tolist() == right.parent.tolist()
    with pytest.raises(BadInput, match="has a layer for each of 3 depths"):
        growing.grow_tree(growing.from_layers(layers), 2, 2, 3)


def test_a_frontier_tells_where_its_parents_stood() -> None:
    """Node, slot and prefix belong together; equal values are expanded in the order of their ids."""
    seen = []

    def drafter(frontier: growing.Frontier) -> torch.Tensor:
        seen.append(frontier)
        return torch.tensor([[[0.1, 0.5, 0.4]] * frontier.node.shape[1]] * 2)

    made = growing.grow_tree(drafter, 3, 2, 3, batch=2)
    assert made.parent[0].tolist() == [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [f.node[1].tolist() for f in seen] == [[-1], [0, 1], [2, 3, 4]]
    assert [f.slot[1].tolist() for f in seen] == [[0], [0, 0], [0, 0, 1]]
    assert seen[2].prefix[0].tolist() == [[1, 1], [1, 2], [2, 1]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vectorised", [False, True])
def test_what_is_kept_is_closed_in_every_dtype(dtype: torch.dtype, vectorised: bool) -> None:
    """Confidences of nearly one round a child's value to its parent's; values themselves are stored narrow, too."""
    generator = torch.Generator().manual_seed(0)

    def drafter(frontier: growing.Frontier) -> torch.Tensor:
        sharp = torch.randint(0, 12, frontier.node.shape, generator=generator).unsqueeze(2)
        logits = sharp * torch.randn(*frontier.node.shape, 40, generator=generator)
        return torch.softmax(logits, -1, dtype=torch.float64).to(dtype)

    grown = growing.grow_tree(drafter, 6, 6, 8, batch=5)
    narrow = grown._replace(log_value=grown.log_value.to(dtype))
    for given in (grown, narrow, narrow._replace(layered=False, deepest=None)):
        for budget in (1, 7, 40):
            made = fast.keep_best(given, budget, vectorised=vectorised)
            for b in range(5):
                kept = made.node[b].tolist()
                assert all(int(grown.parent[b, node]) in (-1, *kept) for node in kept)
                order = sorted(range(grown.parent.shape[1]), key=lambda i: (-float(given.log_value[b, i]), i))
                assert sorted(order[:budget]) == kept
                assert fast.select_nodes(given, budget, vectorised=vectorised)[b].tolist() == order[:budget]


def test_a_child_is_worth_no_more_than_its_parent_where_a_row_exceeds_one() -> None:
    rows = torch.tensor([[[1 + 1e-6, 0.0]]])
    grown = growing.grow_tree(lambda _: rows, 1, 1, 3, validate=False)
    assert grown.log_value.tolist() == [[0, 0, 0]]


def test_both_ways_agree_on_a_batch_of_the_size_that_is_served() -> None:
    generator = torch.Generator().manual_seed(5)

    def drafter(frontier: growing.Frontier) -> torch.Tensor:
        return torch.randn(*frontier.node.shape, 50, generator=generator)

    grown = growing.grow_tree(drafter, 10, 10, 7, batch=16, logits=True)
    host, device = (fast.keep_best(grown, 60, 7, vectorised=way) for way in (False, True))
    for name, ours in host._asdict().items():
        theirs = getattr(device, name)
        if name == "paths":
            assert (theirs[:, ours.shape[1] :] == -1).all()
            theirs = theirs[:, : ours.shape[1], : ours.shape[2]]
        assert torch.equal(ours, theirs), name


class Told(TorchDispatchMode):
    """How many operations, the most bytes of one result, and the operations that a GPU's host would wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.count = 0
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.count += 1
        for one in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(one, torch.Tensor):
                self.bytes = max(self.bytes, one.numel() * one.element_size())
        if func.__name__.partition(".")[0] in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "item"):
            self.waits.append(func.__name__)
        return found


@pytest.mark.parametrize("deepest", [4, None])
def test_the_way_of_a_gpu_waits_for_nothing_and_has_no_loop_over_nodes(
    deepest: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many operations for 4 trees of 33 rows as for 40 of 60, and none whose shape depends on numbers."""
    monkeypatch.setattr(growing, "on_host", lambda *_: False)
    counts = []
    for trees, budget in ((4, 33), (40, 60)):  # both take six doublings
        rows = torch.softmax(torch.randn(trees, 10, 30, generator=torch.Generator().manual_seed(1)), -1)

        def drafter(frontier: growing.Frontier, rows: torch.Tensor = rows) -> torch.Tensor:
            return rows[:, : frontier.node.shape[1]]

        with Told() as told:
            grown = growing.grow_tree(drafter, 10, 10, 4, batch=trees, validate=False)._replace(deepest=deepest)
            made = fast.keep_best(grown, budget, validate=False, vectorised=True)
            masks.tree_mask(made.parent, 8, "packed8", validate=False, vectorised=True)
        assert not told.waits
        counts.append(told.count)
    assert counts[0] == counts[1]


def test_a_packed_mask_holds_no_byte_a_column() -> None:
    parent = torch.arange(-1, 59).expand(4, -1).contiguous()
    with Told() as told:
        made = masks.tree_mask(parent, 100_000, "packed8", vectorised=True, validate=False)
    assert made.shape == (4, 61, -(-100_061 // 8))
    assert told.bytes <= 9 * made.numel()  # 64-bit places at most, one an 8-byte word
