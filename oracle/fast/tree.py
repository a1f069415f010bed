"""EAGLE-2 trees, batched: growing candidates, keeping the best ones, laying them out for verification.

Everywhere nodes are ordered by (−log value, depth, node id), and a log value is at most that of its parent in every
dtype, so what this order takes first is closed under ancestors. On the host NumPy does the work; elsewhere, or with
`vectorised`, torch does, without a loop over trees or nodes and without waiting for the device.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast import laying, laying_host
from oracle.fast.growing import Drafter as Drafter
from oracle.fast.growing import Frontier as Frontier
from oracle.fast.growing import from_layers as from_layers
from oracle.fast.growing import grow_tree as grow_tree
from oracle.fast.trees import Candidates as Candidates
from oracle.fast.trees import FlatTrees as FlatTrees
from oracle.fast.trees import (
    Numbers,
    array,
    check_numbers,
    check_parents,
    check_selection,
    checked,
    counted,
    ids,
    numbers,
    on_host,
    per_tree,
    structure,
    whole,
)
from oracle.fast.trees import check_candidates as check_candidates

LARGEST = 2**63 - 1


def select_nodes(
    candidates: Candidates,
    budget: int | Tensor,
    *,
    widest: int | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> Tensor:
    """The best nodes of each tree, in selection order: int64 [B, M], −1 behind the last one (TREE 3xx).

    budget: of every tree, or one a tree, int64 [B]. M is the greatest budget, at most n; where the host does not look
    at budgets it is `widest`, which none of them exceeds, or n. validate: whether numbers are looked at; None = where
    nobody waits for it. Raises `BadInput`. Source: EAGLE-2 §4.2.
    """
    found, most = _read(candidates, budget, widest, validate, vectorised)
    if found is None:
        return _ranked(candidates, budget, most)
    if isinstance(budget, Tensor) or candidates.length is not None:
        return torch.from_numpy(_ranked_on_host(found, candidates.length, budget, most))
    chosen = laying_host.best(found.value, found.depth, most, _layered(candidates, found))
    order = np.lexsort((laying_host.picked(found.depth, chosen), -laying_host.picked(found.value, chosen)), axis=-1)
    return torch.from_numpy(np.take_along_axis(chosen, order, 1))


def flatten_tree(
    candidates: Candidates,
    selected: Tensor,
    base: int | Tensor = 0,
    *,
    length: Tensor | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> FlatTrees:
    """The selected nodes of each tree as rows, with their visibility, paths, links and positions (TREE 4xx–6xx).

    selected: int64 [B, M] node ids, ancestor-closed, in any order. length: how many of them each tree has, int64 [B];
    None = all. base: the position of the root, of all trees or int64 [B]. Raises `BadInput`.
    """
    batch, _ = structure(candidates)
    ids(selected, "selected", (batch, None), candidates.parent)
    if length is not None:
        ids(length, "length", (batch,), candidates.parent)
    look = checked(validate, candidates.parent)
    _base(base, candidates, look)
    found = numbers(candidates) if on_host(candidates.parent, vectorised) else None
    if look:
        check_numbers(candidates, found)
        check_selection(candidates, selected, length)
    if found is None:
        return _laid_out(candidates, selected, length, base)
    valid = None if length is None else np.arange(selected.shape[1]) < array(length)[:, None]
    place = laying_host.by_rows(array(selected), found.depth, _layered(candidates, found), valid)
    return _laid_out_on_host(found, place, valid, base)


def keep_best(
    candidates: Candidates,
    budget: int | Tensor,
    base: int | Tensor = 0,
    *,
    widest: int | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> FlatTrees:
    """`select_nodes` and `flatten_tree` in one: what stands between the drafter and the verifier. Raises `BadInput`."""
    found, most = _read(candidates, budget, widest, validate, vectorised)
    _base(base, candidates, checked(validate, candidates.parent))
    ragged = isinstance(budget, Tensor) or candidates.length is not None
    if found is None:
        chosen = _ranked(candidates, budget, most)
        return _laid_out(candidates, chosen, (chosen >= 0).sum(1) if ragged else None, base)
    layered, valid = _layered(candidates, found), None
    if ragged:
        place = _ranked_on_host(found, candidates.length, budget, most)
        valid = place >= 0
    else:
        place = laying_host.best(found.value, found.depth, most, layered)
    if ragged or not layered:
        place = laying_host.by_rows(place, found.depth, layered, valid)
    return _laid_out_on_host(found, place, valid, base)


def draft_tree(
    drafter: Drafter,
    expand_width: int,
    branch_width: int,
    max_depth: int,
    budget: int | Tensor,
    base: int | Tensor = 0,
    batch: int = 1,
    *,
    draft_to_target: Tensor | None = None,
    logits: bool = False,
    widest: int | None = None,
    device: torch.device | str = "cpu",
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> FlatTrees:
    """Grow, select and flatten (TREE 7xx): see `grow_tree` and `keep_best`. Raises `BadInput`."""
    grown = grow_tree(
        *(drafter, expand_width, branch_width, max_depth, batch),
        draft_to_target=draft_to_target,
        logits=logits,
        device=device,
        validate=validate,
    )
    return keep_best(grown, budget, base, widest=widest, validate=validate, vectorised=vectorised)


def tree_visibility(
    parent: Tensor,
    *,
    length: Tensor | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> Tensor:
    """Ancestors and self: bool [B, N, N], row × column (TREE-502). parent: int64 [B, N]. Raises `BadInput`."""
    words = visible_words(parent, length=length, validate=validate, vectorised=vectorised)
    if on_host(parent, vectorised):
        return torch.from_numpy(laying_host.unpacked(words.numpy()[:, 1:].view(np.uint64), parent.shape[1]))
    return laying.unpacked(words[:, 1:], parent.shape[1])


def visible_words(
    parent: Tensor,
    *,
    length: Tensor | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> Tensor:
    """Ancestors and self as bits: int64 [B, N+1, ceil(N/64)], the root's row first, which sees no row. Bit i of word w
    is row 64·w + i. Raises `BadInput`."""
    valid = _parents(parent, length, validate)
    if not on_host(parent, vectorised):
        return laying.visible_words(laying.pointers(parent, valid), valid, parent.shape[1])
    host = None if valid is None else valid.numpy()
    up = laying_host.pointers(parent.numpy(), host)
    return torch.from_numpy(laying_host.visible_words(up, host, parent.shape[1]).view(np.int64))


def leaf_paths(
    parent: Tensor,
    *,
    length: Tensor | None = None,
    deepest: int | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """One row a leaf, in ascending leaf row: int64 [B, L, D], right-padded with −1, and how many each tree has: [B].

    parent: int64 [B, N]. L and D: see `FlatTrees`; `deepest` bounds D. Raises `BadInput`. Source: TREE-602.
    """
    valid, rows = _parents(parent, length, validate), parent.shape[1]
    most = rows if deepest is None else min(whole(deepest, "deepest", 0), rows)
    look = most < rows and checked(validate, parent)
    if not on_host(parent, vectorised):
        up = laying.pointers(parent, valid)
        depth = laying.depths(up, rows if look else most)[:, 1:]
        if look:
            _check_deepest(most, array(depth if valid is None else torch.where(valid, depth, 0)))
        return laying.leaf_table(up, depth, laying.links(parent, valid)[0], valid, most)
    host = None if valid is None else valid.numpy()
    above = laying_host.pointers(parent.numpy(), host)
    words = laying_host.visible_words(above, host, rows)
    steps = np.count_nonzero(laying_host.unpacked(words[:, 1:], rows), axis=2)
    if look:
        _check_deepest(most, steps)
    paths, count = laying_host.leaf_table(above, steps, laying_host.links(above, host)[0], host)
    return torch.from_numpy(paths), torch.from_numpy(count)


def sibling_links(
    parent: Tensor,
    *,
    length: Tensor | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """First child and next sibling of each row: int64 [B, N] each, −1 = none (TREE-605, 606). Raises `BadInput`."""
    valid = _parents(parent, length, validate)
    if not on_host(parent, vectorised):
        return laying.links(parent, valid)
    host = None if valid is None else valid.numpy()
    first, following = laying_host.links(laying_host.pointers(parent.numpy(), host), host)
    return torch.from_numpy(first), torch.from_numpy(following)


def _read(
    candidates: Candidates, budget: int | Tensor, widest: int | None, validate: bool | None, vectorised: bool | None
) -> tuple[Numbers | None, int]:
    """The numbers if the host works on them, and how many nodes the greatest answer has."""
    batch, nodes = structure(candidates)
    host, look = on_host(candidates.parent, vectorised), checked(validate, candidates.parent)
    per_tree(budget, "budget", batch, candidates.parent, 0, look)
    found = numbers(candidates) if host else None
    if look:
        check_numbers(candidates, found)
    if not isinstance(budget, Tensor):
        most = budget
    elif widest is not None:
        most = whole(widest, "widest", int(budget.max()) if look and batch else 0)
    else:
        most = int(budget.max()) if host and batch else nodes
    return found, min(most, nodes)


def _layered(candidates: Candidates, found: Numbers) -> bool:
    return candidates.layered or laying_host.is_layered(found.depth)


def _base(base: int | Tensor, candidates: Candidates, look: bool) -> None:
    batch, nodes = candidates.parent.shape
    per_tree(base, "base", batch, candidates.parent, 0, look)
    rule = "a position has 64 bits"
    if not isinstance(base, Tensor):
        if base > LARGEST - nodes:
            raise BadInput("base", (), rule, base)
    elif look and batch and int(base.max()) > LARGEST - nodes:
        raise BadInput("base", (int(base.argmax()),), rule, int(base.max()))


def _check_deepest(deepest: int, depth: np.ndarray) -> None:
    most = int(depth.max(initial=0))
    if most > deepest:
        raise BadInput("deepest", (), f"bounds the depth of the rows, which is {most}", deepest)


def _parents(parent: Tensor, length: Tensor | None, validate: bool | None) -> Tensor | None:
    """Which rows count; None = all."""
    batch, rows = ids(parent, "parent", (None, None)).shape
    if length is not None:
        ids(length, "length", (batch,), parent)
    if checked(validate, parent):
        check_parents(array(parent), counted(length, batch, rows, "length"), "parent")
    return _behind(length, rows)


def _behind(length: Tensor | None, rows: int) -> Tensor | None:
    return None if length is None else torch.arange(rows, device=length.device) < length.unsqueeze(1)


def _ranked(candidates: Candidates, budget: int | Tensor, most: int) -> Tensor:
    valid = _behind(candidates.length, candidates.parent.shape[1])
    order = laying.ordered(candidates.log_value.detach(), candidates.depth, valid, candidates.layered)[:, :most]
    own = budget if isinstance(budget, Tensor) else torch.full(order.shape[:1], most, device=order.device)
    if candidates.length is not None:
        own = torch.minimum(own, candidates.length)
    return torch.where(torch.arange(most, device=order.device) < own.unsqueeze(1), order, -1)


def _ranked_on_host(found: Numbers, length: Tensor | None, budget: int | Tensor, most: int) -> np.ndarray:
    batch, nodes = found.depth.shape
    own = np.full(batch, nodes) if length is None else array(length)
    valid = None if length is None else np.arange(nodes) < own[:, None]
    own = np.minimum(own, array(budget) if isinstance(budget, Tensor) else most)
    order = laying_host.ordered(found.value, found.depth, valid)[:, :most]
    return np.where(np.arange(most) < own[:, None], order, -1)


def _laid_out_on_host(found: Numbers, place: np.ndarray, valid: np.ndarray | None, base: int | Tensor) -> FlatTrees:
    batch, rows = place.shape
    if not place.size or not found.parent.size:
        return _empty(batch, rows, base, torch.device("cpu"))
    root = array(base)[:, None] if isinstance(base, Tensor) else base
    made = laying_host.laid_out(found.parent, found.token, found.depth, place, valid, root)
    return FlatTrees(*map(torch.from_numpy, made))


def _laid_out(candidates: Candidates, nodes: Tensor, length: Tensor | None, base: int | Tensor) -> FlatTrees:
    """Rows of the nodes; they are closed under ancestors."""
    batch, rows = nodes.shape
    if not rows or not candidates.parent.shape[1]:
        return _empty(batch, rows, base, nodes.device)
    valid = _behind(length, rows)
    deepest = rows if candidates.deepest is None else min(candidates.deepest, rows)
    nodes = laying.by_rows(nodes, candidates.depth, candidates.layered, valid)
    root = base.unsqueeze(1) if isinstance(base, Tensor) else torch.full_like(nodes[:, :1], base)
    return FlatTrees(
        *laying.laid_out(candidates.parent, candidates.token, candidates.depth, nodes, valid, root, deepest)
    )


def _empty(batch: int, rows: int, base: int | Tensor, device: torch.device) -> FlatTrees:
    """Trees without a node."""
    none = torch.full((batch, rows), -1, dtype=torch.int64, device=device)
    root = base.unsqueeze(1) if isinstance(base, Tensor) else torch.full((batch, 1), base, device=device)
    count = torch.zeros(batch, dtype=torch.int64, device=device)
    visible = torch.zeros((batch, rows, rows), dtype=torch.bool, device=device)
    paths = torch.zeros((batch, 0, 0), dtype=torch.int64, device=device)
    return FlatTrees(
        *(none, none, none, none, visible, paths, none, none, torch.cat((root.to(torch.int64), none), 1), count, count)
    )
