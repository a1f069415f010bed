"""Driving a drafter's real `topK_genrate` (EAGLE-2's dynamic tree) over a table, and reading what it returns.

The drafter is the implementation's own, made by its constructor; its forward, head, norm and log-softmax are replaced
on the instance: the forward's hidden state is the number of a prefix, the head turns it into that prefix's log
probabilities, and log-softmax hands them on, since a table's row may omit mass. Scores, frontiers, the choice of
nodes, parents, mask, positions and leaf table are the implementation's, in the dtype of the head.

What is converted, and nothing else:
- widths: one k is both. `depth` counts the iterations after the first layer: max_depth − 1.
- the constructor's `total_tokens` counts the root: budget + 1.
- a draft map goes in as `d2t`; target ids are as many as the map's t2d says, or as its largest one needs.
- rows leave without the root: −1 = the root. `parent` is the nearest row that the mask lets a row see, `depth` is
  what `tree_position_ids` holds, `paths` is `retrieve_indices` without its root column (so a table of nothing but
  the root is empty). Where the three contradict each other, they do so in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.grown_shape import grown_shape, layered
from adapters.interface import NotApplicable
from oracle.candidates import check_candidates
from oracle.errors import BadInput
from oracle.types import DraftTreeCase, Flags, FlattenCase, FlatTree, GrowthCase, Ids, MaskCase, Rows
from oracle.validation import integers, parents

Row = Callable[[tuple[int, ...]], Rows]
"""Log probabilities after a prefix of target ids."""


@dataclass(frozen=True)
class Wanted:
    """A drafter that is wanted. offsets: its `d2t`; None where the vocabularies are one."""

    row: Row
    width: int
    depth: int
    nodes: int
    draft_size: int
    target_size: int
    offsets: Ids | None


@dataclass(frozen=True)
class Grown:
    """What comes out: tokens [n + 1], leaf table, mask [n + 1, n + 1] and positions [n + 1], the root first."""

    tokens: Ids
    leaves: Ids
    mask: Rows
    positions: Ids


@dataclass(frozen=True)
class Drafting:
    """How an implementation is driven.

    make: (wanted) → its drafter, whose `lm_head`, `norm` and `logsoftmax` are modules. more: what its forward
    returns after (hidden state, cache). generate: (drafter, hidden states, ids) → what `topK_genrate` returns.
    names: where its `tree_decoding` is. shape: what else is replaced on a drafter that a given tree is grown from.
    """

    torch: Any
    make: Callable[[Wanted], Any]
    more: tuple[Any, ...]
    generate: Callable[[Any, Any, Any], Any]
    names: Mapping[str, Any]
    shape: Callable[[Any], None] | None = None


def draft_tree(drafting: Drafting, cases: Sequence[DraftTreeCase], dtype: str) -> list[FlatTree]:
    """A whole drafting each, one after the other: the code has no batch."""
    return [_flat(drafting, _grow(drafting, _wanted(case), dtype), case.base) for case in cases]


def flatten_tree(drafting: Drafting, cases: Sequence[FlattenCase]) -> list[FlatTree]:
    """The tree is grown again from a drafter of its shape, so the code lays it out."""
    answers = []
    for case in cases:
        parent, token = selected_rows(case)
        answers.append(_flat(drafting, _shaped(drafting, parent, token), case.base))
    return answers


def selected_rows(case: FlattenCase) -> tuple[list[int], list[int]]:
    """Parents and tokens of the selected nodes, by (depth, node id); `NotApplicable` where they are no grown tree."""
    try:
        nodes = check_candidates(case.tree, "tree")
        selected = integers(case.selected, "selected")
    except BadInput as wrong:
        raise NotApplicable(f"what is laid out was grown, and no growth makes this: {wrong}") from None
    rows = sorted(selected, key=lambda i: (nodes.depth[i], i) if 0 <= i < len(nodes.depth) else (0, i))
    row_of = {-1: -1} | {node: row for row, node in enumerate(rows)}
    if len(row_of) <= len(rows) or any(not 0 <= i < len(nodes.parent) or nodes.parent[i] not in row_of for i in rows):
        raise NotApplicable("what is laid out was grown: each node once, and none without its parent")
    return [row_of[nodes.parent[node]] for node in rows], [nodes.token[node] for node in rows]


def tree_visibility(drafting: Drafting, parent: Ids) -> Flags:
    """The mask without the root; rows in another order than growth's are renumbered, and back."""
    return _mask(drafting, parent)[1:, 1:]


def tree_mask(drafting: Drafting, cases: Sequence[MaskCase]) -> list[np.ndarray]:
    """`tree_mask`, 1 = visible."""
    answers = []
    for case in cases:
        plain_mask(case)
        answers.append(_mask(drafting, case.parent))
    return answers


def plain_mask(case: MaskCase) -> None:
    """`NotApplicable` unless the mask that is wanted is that of the tree alone, with 1 where a row is visible."""
    if case.form != "allowed":
        raise NotApplicable("the mask is 1 where a row is visible; it has no other form")
    if case.prefix:
        raise NotApplicable("the mask has no columns of decided tokens")


def _mask(drafting: Drafting, parent: Ids) -> Flags:
    above = grown_parents(parent)
    order = layered(above)
    row_of = {-1: -1} | {node: row for row, node in enumerate(order)}
    shape = _shaped(drafting, [row_of[above[node]] for node in order], list(range(len(order))))
    place = [0, *(row_of[node] + 1 for node in range(len(order)))]
    return np.asarray(shape.mask != 0)[np.ix_(place, place)]


def grown_parents(parent: Ids) -> list[int]:
    """A parent vector; `NotApplicable` where it is that of no tree."""
    try:
        return parents(parent, "parent")
    except BadInput as wrong:
        raise NotApplicable(f"what is laid out was grown, and no growth makes this: {wrong}") from None


def _shaped(drafting: Drafting, parent: list[int], token: list[int]) -> Grown:
    shape = grown_shape(parent, token)
    size = len(shape.offsets)
    wanted = Wanted(shape.row, shape.width, shape.depth, shape.nodes, size, size + 1, shape.offsets)
    return _grow(drafting, wanted, "float32", drafting.shape)


def _wanted(case: DraftTreeCase) -> Wanted:
    growth = case.growth
    if growth.expand_width != growth.branch_width:
        raise NotApplicable("one top_k is how many nodes are expanded, and how many children each of them gets")
    if growth.max_depth < 1:
        raise NotApplicable("the first layer is always drafted")
    size = len(_probabilities(growth, ()))
    offsets, targets = None, size
    if growth.draft_map is not None:
        if growth.draft_map.convention != "offset":
            raise NotApplicable("d2t holds offsets")
        offsets = np.asarray(growth.draft_map.d2t, dtype=np.int64)
        known = growth.draft_map.t2d
        targets = int((offsets + np.arange(len(offsets))).max()) + 1 if known is None else len(known)
    k = growth.expand_width
    if k > size:
        raise NotApplicable("torch.topk needs a vocabulary of at least k tokens")
    if case.budget > k + (growth.max_depth - 1) * k * k:
        raise NotApplicable("all of total_tokens are chosen from the pool, which holds k + depth·k² nodes")
    return Wanted(_logarithms(growth), k, growth.max_depth, case.budget, size, targets, offsets)


def _probabilities(growth: GrowthCase, prefix: tuple[int, ...]) -> Rows:
    if isinstance(growth.table, Mapping):
        return np.asarray(growth.table[prefix], dtype=np.float64)
    layer: Rows = np.asarray(growth.table[len(prefix)], dtype=np.float64)
    return np.asarray(layer[prefix])


def _logarithms(growth: GrowthCase) -> Row:
    def row(prefix: tuple[int, ...]) -> Rows:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Rows = np.log(_probabilities(growth, prefix))
        return found

    return row


def _grow(drafting: Drafting, wanted: Wanted, dtype: str, shape: Callable[[Any], None] | None = None) -> Grown:
    """One call of `topK_genrate` behind a context of one token, whose hidden state is the empty prefix."""
    torch = drafting.torch
    model = drafting.make(wanted)
    prefixes: list[tuple[int, ...]] = [()]

    def forward(hidden_states: Any, input_ids: Any, position_ids: Any = None, **_: Any) -> Any:
        if position_ids is None:  # the decided tokens
            return (hidden_states, None, *drafting.more)
        states = []
        for above, token in zip(hidden_states[0, :, 0].tolist(), input_ids[0].tolist(), strict=True):
            states.append(float(len(prefixes)))
            prefixes.append((*prefixes[int(above)], token))
        return (torch.tensor(states, dtype=torch.float64)[None, :, None], None, *drafting.more)

    def head(states: Any) -> Any:
        rows = [wanted.row(prefixes[int(number)]) for number in states[:, 0].tolist()]
        return torch.tensor(np.stack(rows), dtype=getattr(torch, dtype))

    model.forward = forward
    model.lm_head.forward = head
    model.norm.forward = model.logsoftmax.forward = lambda states: states
    if shape is not None:
        shape(model)
    model.init_tree()
    start = torch.zeros((1, 1, 1), dtype=torch.float64)
    tokens, leaves, mask, positions = drafting.generate(model, start, torch.zeros((1, 2), dtype=torch.int64))[:4]
    return Grown(tokens[0].numpy(), leaves.numpy(), mask[0, 0].numpy(), positions.numpy())


def _flat(drafting: Drafting, grown: Grown, base: int) -> FlatTree:
    return flat_tree(grown, decoded_positions(drafting.torch, drafting.names, grown, base))


def decoded_positions(torch: Any, names: Mapping[str, Any], grown: Grown, base: int) -> Ids:
    """The positions that `tree_decoding` gives the target, behind `base` decided tokens."""
    seen: list[Any] = []

    class Target:
        use_eagle3 = False
        eagle_layer = torch.nn.Linear(1, 1)

        def __call__(self, *_: Any, position_ids: Any, **__: Any) -> Any:
            seen.append(position_ids)
            outputs = {"hidden_states": [torch.zeros(1)]}
            return outputs, torch.zeros((1, len(grown.tokens), 1)), None

    decided = torch.empty((1, base), dtype=torch.int64, device="meta")  # only its length is read
    tokens, positions = torch.from_numpy(grown.tokens)[None], torch.from_numpy(grown.positions)
    names["tree_decoding"](Target(), tokens, None, positions, decided, torch.from_numpy(grown.leaves))
    found: Ids = seen[0].reshape(-1).numpy()
    return found


def flat_tree(grown: Grown, position: Ids, token: Ids | None = None) -> FlatTree:
    """The rows of a tree without its root."""
    visible = grown.mask[1:, 1:] != 0
    parent = [max(np.flatnonzero(row[:i]).tolist(), default=-1) for i, row in enumerate(visible)]
    paths = grown.leaves[:, 1:].astype(np.int64)
    paths = np.where(paths > 0, paths - 1, -1)
    if not len(parent):
        paths = np.zeros((0, 0), dtype=np.int64)
    return FlatTree(
        node=None,
        parent=np.array(parent, dtype=np.int64),
        token=grown.tokens[1:] if token is None else token,
        depth=grown.positions[1:],
        visible=visible,
        paths=paths,
        first_child=None,
        next_sibling=None,
        position=position,
    )
