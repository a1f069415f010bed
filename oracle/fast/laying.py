"""Laying out trees on any device: no loop over trees, nodes or depth, and nothing that the host waits for.

What lies above a row is found by doubling: as many steps as the logarithm of the depth.

The functions are those of `oracle.fast.laying_host`, on tensors. Rows count from 1 where the root is row 0; `up` is the
row of each row's parent, the root's being the root. `valid` tells which rows count, bool [B, N]; None = all.
"""

from __future__ import annotations

import torch
from torch import Tensor

Valid = Tensor | None
BITS = 64
_LAST = torch.iinfo(torch.int64).max


def ordered(value: Tensor, depth: Tensor, valid: Valid, layered: bool) -> Tensor:
    """All nodes of each tree by (−value, depth, id), those that do not count last: int64 [B, n]."""
    if valid is not None:
        value, depth = torch.where(valid, value, -torch.inf), torch.where(valid, depth, _LAST)
    if layered:
        return torch.sort(value, dim=1, descending=True, stable=True).indices
    order = torch.sort(depth, dim=1, stable=True).indices
    best = torch.sort(value.gather(1, order), dim=1, descending=True, stable=True).indices
    return order.gather(1, best)


def laid_out(
    parent: Tensor, token: Tensor, depth: Tensor, nodes: Tensor, valid: Valid, root: Tensor, deepest: int
) -> tuple[Tensor, ...]:
    """The fields of `FlatTrees` for the nodes, which are rows already: int64 [B, N]. root: its position, [B, 1]."""
    rows = nodes.shape[1]
    above, tokens, steps = parent_rows(parent, nodes, valid), picked(token, nodes), picked(depth, nodes)
    if valid is not None:
        above, tokens, steps = (torch.where(valid, one, -1) for one in (above, tokens, steps))
    up = pointers(above, valid)
    visible = unpacked(visible_words(up, valid, deepest)[:, 1:], rows)
    first, following = links(above, valid)
    paths, leaves = leaf_table(up, steps, first, valid, deepest)
    below = root + steps if valid is None else torch.where(valid, root + steps, -1)
    count = torch.full_like(leaves, rows) if valid is None else valid.sum(1)
    position = torch.cat((root, below), 1)
    return nodes, above, tokens, steps, visible, paths, first, following, position, count, leaves


def by_rows(nodes: Tensor, depth: Tensor, layered: bool, valid: Valid) -> Tensor:
    """Node ids by (depth, id), those that do not count last."""
    count = depth.shape[1]
    if valid is not None:
        nodes = torch.where(valid, nodes, -1)
    key = nodes if layered else picked(depth, nodes) * count + nodes
    if valid is not None:
        key = torch.where(valid, key, _LAST)
    key = torch.sort(key, dim=1).values
    found = key if layered else key % max(count, 1)
    return found if valid is None else torch.where(key == _LAST, -1, found)


def picked(values: Tensor, nodes: Tensor) -> Tensor:
    """The values at the nodes of each tree; where a node is −1, anything."""
    return values.gather(1, nodes.clamp(min=0))


def parent_rows(parent: Tensor, nodes: Tensor, valid: Valid) -> Tensor:
    """The row of each node's parent, −1 = the root."""
    batch, count = parent.shape
    rows = torch.arange(nodes.shape[1], device=nodes.device).expand(batch, -1)
    row = torch.full((batch, count + 1), -1, dtype=torch.int64, device=nodes.device)
    row.scatter_(1, nodes + 1, rows)
    row[:, 0] = -1  # after the rows: a node −1 is none
    above = picked(parent, nodes)
    if valid is not None:
        above = torch.where(valid, above, -1)
    return row.gather(1, above + 1)


def pointers(parent: Tensor, valid: Valid) -> Tensor:
    """`up`, int64 [B, N + 1]; a row that does not count hangs below the root."""
    above = parent if valid is None else torch.where(valid, parent, -1)
    return torch.nn.functional.pad(above + 1, (1, 0))


def depths(up: Tensor, deepest: int) -> Tensor:
    """How many rows stand on the way from the root to each row, itself counted: int64 [B, N + 1], 0 at the root."""
    steps = torch.ones_like(up)
    steps[:, 0] = 0
    covered = 1
    while covered < deepest:
        steps = steps + steps.gather(1, up)
        up = up.gather(1, up)
        covered *= 2
    return steps


def visible_words(up: Tensor, valid: Valid, deepest: int) -> Tensor:
    """Ancestors and self as bits, int64 [B, N + 1, words], the root's row first: bit i of word w is row 64·w + i."""
    rows = up.shape[1] - 1
    words = max(-(-rows // BITS), 1)
    own = torch.arange(rows, device=up.device)
    bit = torch.bitwise_left_shift(torch.ones_like(own), own % BITS).unsqueeze(1)
    bit = torch.where(own.unsqueeze(1) // BITS == torch.arange(words, device=up.device), bit, 0)
    bits = torch.nn.functional.pad(bit, (0, 0, 1, 0)).expand(up.shape[0], -1, -1)
    if valid is not None:
        bits = torch.where(torch.nn.functional.pad(valid, (1, 0)).unsqueeze(2), bits, 0)
    covered = 1
    while covered < deepest:
        bits = bits | bits.gather(1, up.unsqueeze(2).expand(-1, -1, words))
        up = up.gather(1, up)
        covered *= 2
    return bits


def unpacked(words: Tensor, columns: int) -> Tensor:
    """Bits [..., words] as bool [..., columns]."""
    octets = words.contiguous().view(torch.uint8)[..., : -(-columns // 8)].unsqueeze(-1)
    bit = 1 << torch.arange(8, dtype=torch.uint8, device=words.device)
    return (octets & bit).ne(0).flatten(-2)[..., :columns]


def links(parent: Tensor, valid: Valid) -> tuple[Tensor, Tensor]:
    """First child and next sibling of each row, −1 = none: int64 [B, N] each."""
    batch, rows = parent.shape
    above = parent + 1 if valid is None else torch.where(valid, parent + 1, rows + 1)
    own = torch.arange(rows, device=parent.device).expand(batch, -1)
    first = torch.full((batch, rows + 2), rows, dtype=torch.int64, device=parent.device)
    first.scatter_reduce_(1, above, own, "amin")
    first = torch.where(first < rows, first, -1)
    shift = rows.bit_length()
    family = torch.sort((above << shift) | own, dim=1).values
    row, family = family & ((1 << shift) - 1), family >> shift
    same = (family[:, 1:] == family[:, :-1]) & (family[:, 1:] <= rows)
    following = torch.full_like(parent, -1)
    following.scatter_(1, row[:, :-1], torch.where(same, row[:, 1:], -1))
    return first[:, 1 : rows + 1], following


def leaf_table(up: Tensor, depth: Tensor, first_child: Tensor, valid: Valid, deepest: int) -> tuple[Tensor, Tensor]:
    """Paths int64 [B, N, D] right-padded with −1, and how many each tree has; depth is [B, N]."""
    batch, rows = first_child.shape
    leaf = first_child < 0 if valid is None else (first_child < 0) & valid
    way = torch.arange(1, rows + 1, device=up.device).expand(batch, -1).unsqueeze(2)
    while way.shape[2] <= deepest:  # up to the root, twice as far each time
        way = torch.cat((way, up.gather(1, way.flatten(1)).view_as(way)), 2)
        up = up.gather(1, up)
    # column j of a path of d rows is d − 1 − j steps above its leaf; past its end stands the root
    steps = (depth.unsqueeze(2) - 1 - torch.arange(deepest, device=up.device)) % (deepest + 1)
    paths = way.gather(2, steps) - 1
    slot = torch.where(leaf, leaf.cumsum(1) - 1, rows).unsqueeze(2).expand(-1, -1, deepest)
    padded = torch.full((batch, rows + 1, deepest), -1, dtype=torch.int64, device=up.device)
    return padded.scatter_(1, slot, paths)[:, :rows], leaf.sum(1)
