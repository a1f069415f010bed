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
def _own_bits(rows: int) -> np.ndarray:
    """The bit of each row, [N + 1, words]; the root has none. Not to be written to."""
    bits = np.zeros((rows + 1, max(-(-rows // BITS), 1)), dtype=np.uint64)
    own = np.arange(rows)
    bits[own + 1, own // BITS] = np.left_shift(np.uint64(1), (own % BITS).astype(np.uint64))
    return _kept(bits)


@functools.lru_cache(maxsize=64)
def _climbs(deepest: int) -> np.ndarray:
    """[D + 1, D]: column j of a path of d rows is d − 1 − j steps above its leaf; past its end stands the root."""
    return _kept((np.arange(deepest + 1)[:, None] - 1 - np.arange(deepest)) % (deepest + 1))


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
    found: np.ndarray = values.take(nodes + _starts(*values.shape), mode="wrap")
    return found


def parent_rows(parent: np.ndarray, nodes: np.ndarray, valid: Valid) -> np.ndarray:
    """The row of each node's parent, −1 = the root."""
    batch, count = parent.shape
    starts = _starts(batch, count + 1) + 1
    row = np.empty(batch * (count + 1), dtype=np.int64)
    row[nodes + starts] = np.arange(nodes.shape[1])
    row[:: count + 1] = -1  # after the rows: a node −1 is none
    above = picked(parent, nodes)
    if valid is not None:
        above = np.where(valid, above, -1)
    found: np.ndarray = row.take(above + starts)
    return found


def pointers(parent: np.ndarray, valid: Valid) -> np.ndarray:
    """`up`, int64 [B, N + 1]; a row that does not count hangs below the root."""
    batch, rows = parent.shape
    up = np.empty((batch, rows + 1), dtype=np.int64)
    up[:, 0] = 0
    up[:, 1:] = parent if valid is None else np.where(valid, parent, -1)
    up[:, 1:] += 1
    up += _starts(batch, rows + 1)
    return up


def depths(up: np.ndarray) -> np.ndarray:
    """How many rows stand on the way from the root to each row, itself counted: int64 [B, N + 1], 0 at the root."""
    roots = up[:, :1]
    steps = (np.arange(up.shape[1]) > 0).astype(np.int64) + np.zeros_like(up)
    while (up != roots).any():
        steps = steps + steps.take(up)
        up = up.take(up)
    return steps


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
    bits: np.ndarray = np.unpackbits(little, axis=-1, count=columns, bitorder="little")
    found: np.ndarray = bits.view(bool)
    return found


def links(parent: np.ndarray, valid: Valid) -> tuple[np.ndarray, np.ndarray]:
    """First child and next sibling of each row, −1 = none: int64 [B, N] each."""
    batch, rows = parent.shape
    above = parent + 1 if valid is None else np.where(valid, parent + 1, rows + 1)
    first = np.full((batch, rows + 2), -1, dtype=np.int64)
    following = np.full((batch, rows), -1, dtype=np.int64)
    if not rows:
        return first[:, 1:1], following
    # of what is written to one place the last stays
    np.put(first, (above + _starts(batch, rows + 2))[:, ::-1], np.arange(rows - 1, -1, -1))
    apart = above[:, 1:] != above[:, :-1]
    families = np.count_nonzero(first >= 0)
    if batch + np.count_nonzero(apart) == families:  # siblings stand side by side, as growth leaves them
        np.copyto(following[:, :-1], np.arange(1, rows), where=~apart if valid is None else ~apart & valid[:, 1:])
    else:
        shift = rows.bit_length()
        family = np.sort((above << shift) | np.arange(rows), axis=1)
        row = family & ((1 << shift) - 1)
        family >>= shift
        same = family[:, 1:] == family[:, :-1]
        if valid is not None:
            same &= family[:, 1:] <= rows
        places = row[:, :-1] + _starts(batch, rows)
        following.ravel()[places] = np.where(same, row[:, 1:], -1)
    return first[:, 1 : rows + 1], following


def leaf_table(
    up: np.ndarray, depth: np.ndarray, first_child: np.ndarray, valid: Valid, deepest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Paths int64 [B, L, D] right-padded with −1, and how many each tree has; depth is [B, N]."""
    batch, rows = first_child.shape
    leaf = first_child < 0 if valid is None else (first_child < 0) & valid
    count = leaf.sum(1)
    most = int(count.max(initial=0))
    if not most or not deepest:
        return np.zeros((batch, 0, 0), dtype=np.int64), count
    places = np.flatnonzero(leaf)
    tree = places // rows
    way = np.empty((deepest + 1, len(places)), dtype=np.int64)
    way[0] = places + tree + 1
    flat = up.ravel()
    for level in range(deepest):
        flat.take(way[level], out=way[level + 1], mode="clip")
    way -= tree * (rows + 1) + 1  # rows of their own tree, and −1 at the root
    column = _climbs(deepest).take(depth.take(places), axis=0) * len(places) + np.arange(len(places))[:, None]
    paths = way.take(column)
    if batch == 1:
        return paths[None], count
    padded = np.full((batch, most, deepest), -1, dtype=np.int64)
    slot = np.arange(len(places)) - (np.cumsum(count) - count).take(tree)
    padded.reshape(-1, deepest)[slot + tree * most] = paths
    return padded, count
