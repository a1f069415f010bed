"""Laying out trees with NumPy: few calls over all trees at once, on one core the fastest there is.

Rows count from 1 where the root is row 0, and trees stand one behind another in one vector: `up` is the row of each
row's parent in it, the root's being the root. `valid` tells which rows count, bool [B, N]; None = all.
"""

from __future__ import annotations

import functools

import numpy as np

Valid = np.ndarray | None
BITS = 64


@functools.lru_cache(maxsize=64)
def _starts(batch: int, stride: int) -> np.ndarray:
    """Where the numbers of each tree start, [B, 1]; not to be written to."""
    return _kept(np.arange(0, batch * max(stride, 1), max(stride, 1))[:, None])


@functools.lru_cache(maxsize=64)
def _places(batch: int, stride: int) -> np.ndarray:
    """The places of all numbers of each tree, [B, stride]; not to be written to."""
    return _kept(np.arange(batch * stride).reshape(batch, stride))


@functools.lru_cache(maxsize=64)
def _filled(deepest: int) -> np.ndarray:
    """Which columns a path of each length fills, bool [D + 1, D]; not to be written to."""
    return _kept(np.arange(deepest) < np.arange(deepest + 1)[:, None])


@functools.lru_cache(maxsize=64)
def _own_bits(rows: int) -> np.ndarray:
    """The bit of each row, [N + 1, words]; the root has none. Not to be written to."""
    bits = np.zeros((rows + 1, max(-(-rows // BITS), 1)), dtype=np.uint64)
    own = np.arange(rows)
    bits[own + 1, own // BITS] = np.left_shift(np.uint64(1), (own % BITS).astype(np.uint64))
    return _kept(bits)


def _kept(values: np.ndarray) -> np.ndarray:
    values.setflags(write=False)
    return values


def best(value: np.ndarray, depth: np.ndarray, count: int, layered: bool) -> np.ndarray:
    """The best `count` nodes of each tree, by id: int64 [B, count]; they are told from the rest without a sort."""
    batch, nodes = value.shape
    starts = _starts(batch, nodes)
    if not 0 < count < nodes:
        return np.broadcast_to(np.arange(min(count, nodes)), (batch, min(count, nodes))).copy()
    least = np.partition(value, nodes - count, axis=1)[:, nodes - count, None]
    places = np.flatnonzero(value >= least)
    if len(places) != batch * count:
        tied, kept = value == least, value > least
        room = count - kept.sum(1, keepdims=True)
        if layered:
            rank = np.cumsum(tied, axis=1)
        else:
            order = np.argsort(np.where(tied, depth, np.iinfo(np.int64).max), axis=1, kind="stable")
            rank = np.empty_like(order)
            np.put_along_axis(rank, order, np.arange(1, nodes + 1)[None], 1)
        places = np.flatnonzero(kept | (tied & (rank <= room)))
    found: np.ndarray = places.reshape(batch, count) - starts
    return found


def ordered(value: np.ndarray, depth: np.ndarray, valid: Valid) -> np.ndarray:
    """All nodes of each tree by (−value, depth, id), those that do not count last: int64 [B, n]."""
    keys = (depth, -value) if valid is None else (depth, -value, ~valid)
    found: np.ndarray = np.lexsort(keys, axis=-1)
    return found


def is_layered(depth: np.ndarray) -> bool:
    """Whether nodes stand by depth."""
    return bool((depth[:, 1:] >= depth[:, :-1]).all())


def laid_out(
    parent: np.ndarray, token: np.ndarray, depth: np.ndarray, nodes: np.ndarray, valid: Valid, root: int | np.ndarray
) -> tuple[np.ndarray, ...]:
    """The fields of `FlatTrees` for the nodes, which are rows already: int64 [B, N]. root: its position, or [B, 1]."""
    batch, rows = nodes.shape
    places = nodes + _starts(*parent.shape)  # where a node is −1, anything
    above, tokens, steps = parent.take(places), token.take(places), depth.take(places)
    if valid is not None:
        above, tokens, steps = (np.where(valid, one, -1) for one in (above, tokens, steps))
    up = row_pointers(above, nodes, parent.shape[1])
    visible = unpacked(visible_words(up, valid, int(steps.max()))[:, 1:], rows)
    first, following = links(up, valid)
    paths, leaves = leaf_table(up, steps, first, valid)
    position = np.empty((batch, rows + 1), dtype=np.int64)
    position[:, :1] = root
    np.add(steps, root, out=position[:, 1:])
    row = up[:, 1:] - (_starts(batch, rows + 1) + 1)
    count = np.full(batch, rows) if valid is None else valid.sum(1)
    if valid is not None:
        position[:, 1:] = np.where(valid, position[:, 1:], -1)
    return nodes, row, tokens, steps, visible, paths, first, following, position, count, leaves


def by_rows(nodes: np.ndarray, depth: np.ndarray, layered: bool, valid: Valid) -> np.ndarray:
    """Node ids by (depth, id), those that do not count last."""
    count = depth.shape[1]
    key = nodes
    if not layered:
        safe = nodes if valid is None else np.where(valid, nodes, 0)
        key = depth.take(safe + _starts(*depth.shape)) * count + nodes
    if valid is not None:
        key = np.where(valid, key, np.iinfo(np.int64).max)
    key = np.sort(key, axis=1)
    if not layered:
        key = key % max(count, 1)
    return key if valid is None else np.where(np.sort(~valid, axis=1), -1, key)


def picked(values: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The values at the nodes of each tree; where a node is −1, anything."""
    found: np.ndarray = values.take(nodes + _starts(*values.shape))
    return found


def row_pointers(above: np.ndarray, nodes: np.ndarray, count: int) -> np.ndarray:
    """`up`, int64 [B, N + 1], from the node in each row and its parent, of `count` nodes a tree; −1 = the root."""
    batch, rows = nodes.shape
    starts, places = _starts(batch, count + 1) + 1, _places(batch, rows + 1)
    row = np.empty(batch * (count + 1), dtype=np.int64)
    row[nodes + starts] = places[:, 1:]
    row[:: count + 1] = places[:, 0]  # after the rows: a node −1 is none
    up = np.empty((batch, rows + 1), dtype=np.int64)
    up[:, 0] = places[:, 0]
    up[:, 1:] = row.take(above + starts)
    return up


def pointers(parent: np.ndarray, valid: Valid) -> np.ndarray:
    """`up`, int64 [B, N + 1], from the parent of each row; a row that does not count hangs below the root."""
    batch, rows = parent.shape
    up = np.empty((batch, rows + 1), dtype=np.int64)
    up[:, 0] = 0
    up[:, 1:] = parent if valid is None else np.where(valid, parent, -1)
    up[:, 1:] += 1
    up += _starts(batch, rows + 1)
    return up


def visible_words(up: np.ndarray, valid: Valid, deepest: int) -> np.ndarray:
    """Ancestors and self as bits, uint64 [B, N + 1, words], the root's row first: bit i of word w is row 64·w + i."""
    batch, rows = up.shape[0], up.shape[1] - 1
    own = _own_bits(rows)
    words = own.shape[1]
    bits = np.empty((batch, rows + 1, words), dtype=np.uint64)
    bits[:] = own
    if valid is not None:
        bits[:, 1:] *= valid[:, :, None]
    bits = bits.reshape(batch * (rows + 1), words)
    covered, way = 1, up.ravel()
    while covered < deepest:
        bits |= bits.take(way, axis=0)
        covered *= 2
        if covered < deepest:
            way = way.take(way)
    return bits.reshape(batch, rows + 1, words)


def unpacked(words: np.ndarray, columns: int) -> np.ndarray:
    """Bits [..., words] as bool [..., columns]."""
    if not columns or not words.size:
        return np.zeros((*words.shape[:-1], columns), dtype=bool)
    little = np.ascontiguousarray(words).astype(words.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    bits = np.unpackbits(little.ravel(), bitorder="little").view(bool)
    found: np.ndarray = np.ascontiguousarray(bits.reshape(*words.shape[:-1], -1)[..., :columns])
    return found


def links(up: np.ndarray, valid: Valid) -> tuple[np.ndarray, np.ndarray]:
    """First child and next sibling of each row, −1 = none: int64 [B, N] each."""
    batch, rows = up.shape[0], up.shape[1] - 1
    spare = batch * (rows + 1)  # the parent of what does not count
    above = up[:, 1:] if valid is None else np.where(valid, up[:, 1:], spare)
    first = np.full(spare + 1, -1, dtype=np.int64)
    first[above[:, ::-1]] = np.arange(rows - 1, -1, -1)  # of what is written to one place the last stays
    following = np.full((batch, rows), -1, dtype=np.int64)
    together = above[:, 1:] == above[:, :-1]
    if valid is not None:
        together &= valid[:, 1:]
    runs = (batch * rows if valid is None else np.count_nonzero(valid)) - np.count_nonzero(together)
    if runs == np.count_nonzero(first[:-1] >= 0):  # siblings stand side by side, as growth leaves them
        np.copyto(following[:, :-1], np.arange(1, rows), where=together)
    else:
        shift = rows.bit_length()
        family = np.sort((above << shift) | np.arange(rows), axis=1)
        row = family & ((1 << shift) - 1)
        family >>= shift
        same = (family[:, 1:] == family[:, :-1]) & (family[:, 1:] < spare)
        following.ravel()[row[:, :-1] + _starts(batch, rows)] = np.where(same, row[:, 1:], -1)
    return first[:-1].reshape(batch, rows + 1)[:, 1:], following


def leaf_table(
    up: np.ndarray, depth: np.ndarray, first_child: np.ndarray, valid: Valid
) -> tuple[np.ndarray, np.ndarray]:
    """Paths int64 [B, L, D] right-padded with −1, and how many each tree has; depth is [B, N]."""
    batch, rows = first_child.shape
    places = np.flatnonzero(first_child < 0 if valid is None else (first_child < 0) & valid)
    if not len(places):
        return np.zeros((batch, 0, 0), dtype=np.int64), np.zeros(batch, dtype=np.int64)
    if batch == 1:  # a tree alone needs fewer calls
        tree, count, lengths = 0, np.array([len(places)]), depth.take(places)[None]
    else:
        tree = places // rows
        count = np.bincount(tree, minlength=batch)
        lengths = np.zeros((batch, int(count.max())), dtype=np.int64)
        lengths[np.arange(lengths.shape[1]) < count[:, None]] = depth.take(places)
    deepest = int(lengths.max())
    # the way up from each leaf, written from right to left; what it holds below the root is the path
    way = np.empty((deepest, len(places)), dtype=np.int64)
    at, start, above = places + (tree + 1), tree * (rows + 1) + 1, up.ravel()
    for column in range(deepest - 1, -1, -1):
        np.subtract(at, start, out=way[column])
        at = above.take(at)
    way = way.T
    paths = np.full((*lengths.shape, deepest), -1, dtype=np.int64)
    paths[_filled(deepest).take(lengths, axis=0)] = way[way >= 0]
    return paths, count
