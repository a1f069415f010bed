"""Batches of draft trees as tensors, and the rules that make them trees.

A batch is ragged: its tensors are padded to the greatest tree, what stands behind a length is not read, and answers
hold −1 there. Structure is checked always; numbers are looked at on the host, which a GPU would have to wait for.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput

ROOT = -1
MASS_TOLERANCE = 1e-9
"""How far above one the confidences of siblings may sum in float64; in a narrower dtype, a rounding each."""
PARENT_RULE = "a parent is −1 (the root) or an earlier node"


class Candidates(NamedTuple):
    """The drafted nodes of B trees, [B, n] each, in creation order.

    parent: int64, an earlier node, or −1 = the root. token: int64 target ids. confidence, log_value: floating-point.
    depth: int64, from 1. length: how many nodes of each tree count, int64 [B]; None = all. layered: whether the nodes
    stand by depth, as `grow_tree` makes them. deepest: no node is deeper; None = not known. seen: the fields before it
    when `check_candidates` or `grow_tree` looked at their numbers, which nobody does again while they are these very
    objects; what is written into them later is not noticed.
    """

    parent: Tensor
    token: Tensor
    confidence: Tensor
    log_value: Tensor
    depth: Tensor
    length: Tensor | None = None
    layered: bool = False
    deepest: int | None = None
    seen: tuple[object, ...] = ()


class Numbers(NamedTuple):
    """The first fields of `Candidates` as arrays; float32 where NumPy has no such dtype."""

    parent: np.ndarray
    token: np.ndarray
    confidence: np.ndarray
    value: np.ndarray
    depth: np.ndarray


class FlatTrees(NamedTuple):
    """The selected nodes of B trees as rows, by (depth, node id); int64 [B, N] where nothing is said.

    node: ids in the candidates. parent: in rows, −1 = the root. token, depth. visible: bool [B, N, N], ancestors and
    self. paths: [B, L, D], the rows down to each leaf, in ascending leaf row. first_child, next_sibling: −1 = none.
    position: [B, N+1], the root's first. length, leaves: [B], how many rows and paths count; −1 stands behind them, and
    such a row sees nothing. N is the greatest budget, at most n. On the host L and D are those of the batch; elsewhere
    L is N, and D what the candidates say of their depth, or N.
    """

    node: Tensor
    parent: Tensor
    token: Tensor
    depth: Tensor
    visible: Tensor
    paths: Tensor
    first_child: Tensor
    next_sibling: Tensor
    position: Tensor
    length: Tensor
    leaves: Tensor


def on_host(tensor: Tensor, vectorised: bool | None) -> bool:
    """Whether NumPy works on it; elsewhere nothing leaves the device."""
    return tensor.is_cpu and not vectorised


def checked(validate: bool | None, tensor: Tensor) -> bool:
    """Whether numbers are looked at: as asked, else where nobody has to wait for it."""
    return tensor.is_cpu if validate is None else validate


def whole(value: object, field: str, least: int) -> int:
    """A whole number of at least `least`; `BadInput` otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise BadInput(field, (), f"is a whole number of at least {least}", value)
    return int(value)


def ids(values: object, field: str, shape: tuple[int | None, ...], like: Tensor | None = None) -> Tensor:
    """An int64 tensor of that shape, in which None is any size. Raises `BadInput`."""
    fits = isinstance(values, Tensor) and values.ndim == len(shape) and values.dtype == torch.int64
    if not isinstance(values, Tensor) or not fits or any(n not in (None, m) for n, m in zip(shape, values.shape)):
        rule = f"is an int64 tensor [{', '.join('·' if n is None else str(n) for n in shape)}]"
        raise BadInput(field, (), rule, _shown(values))
    if like is not None and values.device != like.device:
        raise BadInput(field, (), f"is on {like.device}", str(values.device))
    return values


def per_tree(value: int | Tensor, field: str, batch: int, like: Tensor, least: int, validate: bool) -> int | Tensor:
    """A whole number, or one a tree: int64 [B]. Raises `BadInput`."""
    if not isinstance(value, Tensor):
        return whole(value, field, least)
    ids(value, field, (batch,), like)
    if validate and batch and int(value.min()) < least:
        b = int(value.argmin())
        raise BadInput(field, (b,), f"is a whole number of at least {least}", int(value[b]))
    return value


def structure(candidates: Candidates) -> tuple[int, int]:
    """Batch and nodes; `BadInput` unless the tensors fit each other. Looks at no number."""
    if not isinstance(candidates, Candidates):
        raise BadInput("candidates", (), "is a Candidates", type(candidates).__name__)
    parent = ids(candidates.parent, "candidates.parent", (None, None))
    shape, device = parent.shape, parent.device
    for name, one, floats in zip(Candidates._fields, candidates[:5], (False, False, True, True, False)):
        fits = isinstance(one, Tensor) and (one.dtype.is_floating_point if floats else one.dtype == torch.int64)
        if not fits or one.shape != shape:
            kind = "a floating-point" if floats else "an int64"
            raise BadInput(f"candidates.{name}", (), f"is {kind} tensor {list(shape)}", _shown(one))
        if one.device != device:
            raise BadInput(f"candidates.{name}", (), f"is on {device}", str(one.device))
    batch, nodes = shape
    if candidates.length is not None:
        ids(candidates.length, "candidates.length", (batch,), parent)
    if candidates.deepest is not None:
        whole(candidates.deepest, "candidates.deepest", 0)
    return batch, nodes


def counted(length: Tensor | None, batch: int, nodes: int, field: str) -> np.ndarray | None:
    """Which nodes count, bool [B, n]; None = all. `BadInput` for a length beyond the tensors."""
    if length is None:
        return None
    found = array(length)
    _refuse((found < 0) | (found > nodes), field, f"is a number of nodes in [0, {nodes}]", found)
    return np.arange(nodes) < found[:, None]


def check_parents(parent: np.ndarray, counts: np.ndarray | None, field: str) -> None:
    """`BadInput` unless every parent is the root or an earlier node."""
    wrong = (parent < ROOT) | (parent >= np.arange(parent.shape[1]))
    _refuse(wrong if counts is None else wrong & counts, field, PARENT_RULE, parent)


def numbers(candidates: Candidates) -> Numbers:
    """Those of each node, on the host."""
    return Numbers(*map(array, candidates[:5]))


def check_candidates(candidates: Candidates) -> Candidates:
    """The same, seen: `BadInput` unless they are trees, and then their numbers are not looked at again."""
    structure(candidates)
    check_numbers(candidates)
    return candidates._replace(seen=candidates[:-1])


def check_numbers(candidates: Candidates, found: Numbers | None = None) -> None:
    """`BadInput`: parents, depths, tokens, confidences, values that rise, twins, siblings' mass, unless seen before."""
    if candidates.seen and all(map(operator.is_, candidates, candidates.seen)):
        return
    found = found or numbers(candidates)
    parent, token, confidence, value, depth = found
    batch, nodes = parent.shape
    if not parent.size:
        return
    rounding = 0.0 if candidates.confidence.dtype == torch.float64 else epsilon(candidates.confidence)
    layered, deepest = candidates.layered, nodes if candidates.deepest is None else candidates.deepest
    if candidates.length is None and _plain(found, rounding, layered, deepest):
        return
    counts = counted(candidates.length, batch, nodes, "candidates.length")
    check_parents(parent, counts, "candidates.parent")
    if counts is not None:
        parent, confidence = np.where(counts, parent, ROOT), np.where(counts, confidence, 0)
        value, token = np.where(counts, value, 0), np.where(counts, token, np.arange(nodes))
    root = parent < 0
    above = np.where(root, 0, parent) + np.arange(batch)[:, None] * nodes
    wrong = depth != np.where(root, 1, depth.take(above) + 1)
    wrong = wrong if counts is None else wrong & counts
    _refuse(wrong, "candidates.depth", "is one more than that of the parent, 1 below the root", depth)
    _refuse(token < 0, "candidates.token", "a token id is at least 0", token)
    lies = (confidence >= 0) & (confidence <= 1)  # false for NaN, too
    _refuse(~lies, "candidates.confidence", "a confidence lies in [0, 1]", confidence)
    rule = "a log value is a number, and at most that of the parent (0 at the root)"
    _refuse(~(value <= np.where(root, 0, value.take(above))), "candidates.log_value", rule, value)
    _check_twins(parent, token, counts)
    families = (parent + 1) + np.arange(batch)[:, None] * (nodes + 1)
    mass = np.bincount(families.ravel(), confidence.ravel(), batch * (nodes + 1))
    wrong = mass > 1 + np.maximum(MASS_TOLERANCE, rounding * np.bincount(families.ravel(), minlength=len(mass)))
    rule = "the confidences of one parent's children sum to at most one"
    _refuse(wrong.take(families), "candidates.confidence", rule, mass.take(families))
    depth = depth if counts is None else np.where(counts, depth, 0)
    _refuse(depth > deepest, "candidates.deepest", f"no node is deeper than {deepest}", depth)
    if layered:
        falls = depth[:, 1:] < depth[:, :-1]
        _refuse(falls if counts is None else falls & counts[:, 1:], "candidates.layered", "nodes stand by depth", falls)


def _plain(found: Numbers, rounding: float, layered: bool, deepest: int) -> bool:
    """Whether these trees keep all rules and are like those that growth makes: families of one width, the root's first,
    each side by side and by falling value. One rule after the other, for any trees, takes several times as long.
    """
    parent, token, confidence, value, depth = found
    batch, nodes = parent.shape
    width = int(np.count_nonzero(parent[0] == ROOT)) or 1
    if nodes % width or token.view(np.uint64).max() >= 2**31:  # a negative number is a great one without its sign
        return False
    above, level, best = parent[:, width::width], depth[:, ::width], value[:, ::width]
    if np.count_nonzero((above < 0) | (above >= np.arange(width, nodes, width))):
        return False
    place = above + np.arange(0, batch * nodes, nodes)[:, None]
    expanded = np.zeros(batch * nodes, dtype=bool)
    expanded[place] = True
    names = np.sort(token.astype(np.int32).reshape(-1, width), axis=1)
    mass = confidence.reshape(-1, width) @ np.ones(width, dtype=confidence.dtype)
    return bool(
        np.count_nonzero(expanded) == place.size
        and _all(parent[:, 0] == ROOT)
        and _all(_within(np.equal, parent, width))
        and _all(level[:, 0] == 1)
        and _all(level[:, 1:] == depth.take(place) + 1)
        and _all(_within(np.equal, depth, width))
        and level.max() <= deepest
        and (not layered or _all(level[:, 1:] >= level[:, :-1]))
        and _all(best[:, 0] <= 0)
        and _all(best[:, 1:] <= value.take(place))
        and _all(_within(np.greater_equal, value, width))
        and _all(_within(np.not_equal, names, width))
        and confidence.min() >= 0
        and confidence.max() <= 1
        and mass.max() <= 1 + max(MASS_TOLERANCE, rounding * width) / 2  # half of it is for how the sum was rounded
    )


def _within(relation: np.ufunc, values: np.ndarray, width: int) -> np.ndarray:
    """Whether each number has the relation to the next one of its family."""
    flat = values.ravel()
    kept: np.ndarray = relation(flat[:-1], flat[1:])
    kept[width - 1 :: width] = True
    return kept


def _all(flags: np.ndarray) -> bool:
    """A count takes a quarter of the time of `all`."""
    return int(np.count_nonzero(flags)) == flags.size


def _check_twins(parent: np.ndarray, token: np.ndarray, counts: np.ndarray | None) -> None:
    if not token.size:
        return
    if int(token.max()) >= 2**62 // (parent.shape[1] + 1):
        token = np.unique(token, return_inverse=True)[1].reshape(token.shape)
    key = (parent + 1) * (int(token.max()) + 1) + token
    if counts is not None:
        key = np.where(counts, key, -1 - np.arange(key.shape[1]))
    ordered = np.sort(key, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        order = np.argsort(key, axis=1, kind="stable")
        key = np.take_along_axis(key, order, 1)
        again = np.zeros(key.shape, dtype=bool)
        np.put_along_axis(again, order[:, 1:], key[:, 1:] == key[:, :-1], 1)
        _refuse(again, "candidates.token", "the children of one parent have different tokens", token)


def check_selection(candidates: Candidates, selected: Tensor, length: Tensor | None) -> None:
    """`BadInput` unless the selected are nodes, each once, and their parents are among them."""
    batch, nodes = candidates.parent.shape
    chosen = array(selected)
    valid = counted(length, batch, chosen.shape[1], "length")
    counts = nodes if candidates.length is None else array(candidates.length)[:, None]
    wrong = (chosen < 0) | (chosen >= counts)
    wrong = wrong if valid is None else wrong & valid
    _refuse(wrong, "selected", "is a node id of its tree", chosen)
    if valid is not None:
        chosen = np.where(valid, chosen, nodes)
    starts = np.arange(batch)[:, None] * (nodes + 1)
    times = np.bincount((chosen + starts).ravel(), minlength=batch * (nodes + 1)).reshape(batch, nodes + 1)
    times[:, nodes] = 0
    if (times > 1).any():
        last = np.zeros_like(times)
        np.put_along_axis(last, chosen, np.arange(chosen.shape[1])[None], 1)
        again = (times.take(chosen + starts) > 1) & (np.take_along_axis(last, chosen, 1) == np.arange(chosen.shape[1]))
        _refuse(again, "selected", "no node is selected twice", chosen)
    above = np.pad(array(candidates.parent), ((0, 0), (0, 1)), constant_values=ROOT).take(chosen + starts)
    lacks = (above >= 0) & (times.take(np.maximum(above, 0) + starts) == 0)
    _refuse(lacks, "selected", "the parent of a selected node is selected", chosen)


def array(tensor: Tensor) -> np.ndarray:
    """The numbers on the host; float32 where NumPy has no such dtype."""
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    found: np.ndarray = tensor.numpy(force=True)
    return found


def epsilon(tensor: Tensor) -> float:
    """The distance from 1 to the next number of its dtype."""
    return float(torch.finfo(tensor.dtype).eps)


def _refuse(wrong: np.ndarray, field: str, rule: str, found: np.ndarray) -> None:
    """`BadInput` at the first place that is wrong."""
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise BadInput(field, index, rule, found[index].item())


def _shown(found: object) -> object:
    return (tuple(found.shape), found.dtype) if isinstance(found, Tensor) else type(found).__name__
