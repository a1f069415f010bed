"""What lies between the drafter and the verifier: the best nodes, parents, mask, positions, sibling links, leaf table.

    python -m pytest bench/bench_tree.py

Trees as EAGLE-2 grows them, of width 10 and depth 7: 610 candidates, of which 60 are kept. The laws are sharp enough
(a first child holds 0.57 on average) for most trees to reach that depth. Growth has looked at its candidates, so `fast`
does not; `fast, candidates looked at` does, as for those from elsewhere. `without the host` is the way of a GPU, here
on a CPU. The peer is AngelSlim's `_finalize_results`, a call a tree; it makes no sibling links. The bound is what has
to be read and written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import Tensor

from bench.side_by_side import Contestant, Target, moved, peer, race
from oracle import tree as oracle
from oracle.fast.masks import tree_mask
from oracle.fast.tree import Candidates, FlatTrees, Frontier, grow_tree, keep_best, select_nodes
from oracle.masks import tree_mask as oracle_mask
from oracle.types import CandidateTree, FlattenCase, FlatTree, MaskCase, SelectionCase

WIDTH, DEPTH, BUDGET, BASE = 10, 7, 60, 100
VOCABULARY = 1000
ANGELSLIM = {1: 3, 64: 20}
"""Times the fast path that AngelSlim is asked to take, by trees."""


def grown(trees: int, depth: int = DEPTH) -> Candidates:
    """Trees from random laws."""
    generator = torch.Generator().manual_seed(0)

    def drafter(frontier: Frontier) -> Tensor:
        return torch.softmax(5 * torch.randn(*frontier.node.shape, VOCABULARY, generator=generator), -1)

    return grow_tree(drafter, WIDTH, WIDTH, depth, trees)


def dense(given: Candidates, budget: int) -> dict[str, Tensor]:
    """The plain torch version: nodes against nodes, and the mask as a power of the parents' matrix."""
    node = given.log_value.topk(budget).indices.sort().values
    token, depth, above = (one.gather(1, node) for one in (given.token, given.depth, given.parent))
    below = node.unsqueeze(1) == above.unsqueeze(2)
    parent = torch.where(below.any(2), below.int().argmax(2), -1)
    visible = below | torch.eye(budget, dtype=torch.bool)
    for _ in range((DEPTH - 1).bit_length()):
        visible = visible.float() @ visible.float() > 0
    siblings = (parent.unsqueeze(1) == parent.unsqueeze(2)).triu(1)
    following = torch.where(siblings.any(2), siblings.int().argmax(2), -1)
    first = torch.where(below.any(1), below.int().argmax(1), -1)
    rows = torch.where(visible, torch.arange(budget), budget).sort(2).values[..., :DEPTH]
    paths = torch.where(rows < budget, rows, -1)[first < 0]
    position = BASE + torch.nn.functional.pad(depth, (1, 0))
    fields = {"node": node, "token": token, "parent": parent, "depth": depth, "visible": visible}
    return fields | {"first_child": first, "next_sibling": following, "paths": paths, "position": position}


def by_oracle(given: Candidates, budget: int) -> Callable[[], list[FlatTree]]:
    """Tree by tree."""
    trees = [CandidateTree(*(one[b].numpy() for one in given[:5])) for b in range(len(given.parent))]
    selections = [SelectionCase(tree, budget) for tree in trees]
    return lambda: oracle.flatten_tree([FlattenCase(one.tree, oracle.select_nodes(one), BASE) for one in selections])


def same(ours: FlatTrees, other: Any) -> None:
    """A dictionary has the fields of a batch, or AngelSlim's of each tree, in which the root is row 0."""
    if isinstance(other, FlatTrees):
        other = other._asdict()
        other["paths"] = other["paths"][:, : ours.paths.shape[1]]
    if isinstance(other, dict) and "node" in other:
        for name, values in other.items():
            found = getattr(ours, name)
            if values.ndim < found.ndim:  # the paths of all trees
                found = found[found[:, :, 0] >= 0]
            rows = [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] - found.shape[-1])]
            assert_array_equal(values, np.pad(found.numpy(), rows, constant_values=-1), err_msg=name)
        return
    for b in range(len(ours.parent)):
        paths = ours.paths[b, : ours.leaves[b], : ours.depth[b].max()]
        if isinstance(other, dict):
            assert_array_equal(other[f"token{b}"][0, 1:], ours.token[b])
            assert_array_equal(other[f"mask{b}"][0, 0, 1:, 1:] > 0, ours.visible[b])
            assert_array_equal(other[f"position{b}"] + BASE, ours.position[b])
            rows = other[f"paths{b}"][:, 1:]
            assert_array_equal(np.where(rows > 0, rows - 1, -1), paths)
        else:
            for name, values in vars(other[b]).items():
                assert_array_equal(values, paths if name == "paths" else getattr(ours, name)[b], err_msg=name)


def kept(trees: int, budget: int = BUDGET, depth: int = DEPTH) -> list[Any]:
    """Who takes part."""
    given = grown(trees, depth)
    arrays = {name: getattr(given, name).numpy() for name in ("log_value", "token", "parent")}
    arrays |= {"width": np.array(WIDTH), "budget": np.array(budget)}
    answer = keep_best(given, budget, BASE)
    size = sum(one.numel() * one.element_size() for one in (given.log_value, *answer))
    contestants = [
        Contestant("fast", lambda: keep_best(given, budget, BASE)),
        Contestant("fast, candidates looked at", lambda: keep_best(given._replace(seen=()), budget, BASE)),
        peer("adapters.angelslim", "bench.peers.angelslim:tree_layout", arrays, calls=1 if trees > 4 else None),
        Contestant("without the host", lambda: keep_best(given, budget, BASE, vectorised=True)),
        Contestant("dense", lambda: dense(given, budget)),
        moved(size),
    ]
    if trees == 1:
        contestants.append(Contestant("oracle", by_oracle(given, budget), calls=1))
    return contestants


@pytest.mark.parametrize("trees", [1, 8, 64, 256])
def test_keep(benchmark: Any, trees: int) -> None:
    """Growth with the batch."""
    targets = [Target("angelslim", times=ANGELSLIM[trees])] if trees in ANGELSLIM else []
    race(
        *(benchmark, f"post-processing of {trees} tree{'s' * (trees > 1)}, {BUDGET} of 610 nodes", kept(trees)),
        same=same,
        rounds=25,
        calls=max(1, 40 // trees),
        memory=trees == 64,
        targets=targets,
        growth=("trees", trees),
    )


@pytest.mark.parametrize("budget", [15, 60, 240])
def test_keep_more(benchmark: Any, budget: int) -> None:
    """Growth with the nodes that are kept."""
    title = f"post-processing of 16 trees, {budget} of 610 nodes"
    race(benchmark, title, kept(16, budget), same=same, rounds=12, calls=8, growth=("nodes kept", budget))


@pytest.mark.parametrize("depth", [2, 8, 32])
def test_keep_deeper(benchmark: Any, depth: int) -> None:
    """Growth with the depth of the candidates, a hundred more a layer."""
    contestants = [one for one in kept(16, depth=depth) if one.name != "dense"]  # it is for depth 7
    title = f"post-processing of 16 trees of depth {depth}"
    race(benchmark, title, contestants, same=same, rounds=12, calls=8, growth=("depth", depth))


@pytest.mark.parametrize("trees", [1, 64])
def test_select(benchmark: Any, trees: int) -> None:
    """The choice of nodes alone, which is what SGLang does in torch; its layout is a kernel of a GPU."""
    given = grown(trees)
    arrays = {name: getattr(given, name).numpy() for name in ("log_value", "token", "parent")}
    arrays |= {"width": np.array(WIDTH), "budget": np.array(BUDGET)}

    def fast() -> dict[str, Tensor]:
        node = select_nodes(given, BUDGET).sort().values
        return {"node": node, "token": given.token.gather(1, node)}

    def equal(ours: dict[str, Tensor], other: Any) -> None:
        for name, values in ours.items():
            assert_array_equal(values, other[name], err_msg=name)

    race(
        *(benchmark, f"the best {BUDGET} of 610 nodes of {trees} tree{'s' * (trees > 1)}"),
        [
            Contestant("fast", fast),
            peer("adapters.sglang", "bench.peers.sglang:tree_selection", arrays),
            moved(given.log_value.nbytes + 2 * 8 * BUDGET * trees),
        ],
        same=equal,
        calls=max(1, 40 // trees),
    )


@pytest.mark.parametrize("form", ["allowed", "packed32"])
def test_mask(benchmark: Any, form: str) -> None:
    """Masks of 64 trees behind 512 decided tokens each."""
    parent = keep_best(grown(64), BUDGET).parent
    cases = [MaskCase(one.numpy(), 512, form) for one in parent]

    def equal(ours: Tensor, other: Any) -> None:
        assert_array_equal(ours.numpy(), np.stack(other) if isinstance(other, list) else other.numpy())

    race(
        *(benchmark, f"masks of 64 trees, {form}"),
        [
            Contestant("fast", lambda: tree_mask(parent, 512, form)),
            Contestant("without the host", lambda: tree_mask(parent, 512, form, vectorised=True)),
            Contestant("oracle", lambda: oracle_mask(cases), calls=1),
            moved(tree_mask(parent, 512, form).nbytes),
        ],
        same=equal,
        rounds=8,
        calls=5,
    )
