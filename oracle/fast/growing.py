"""Growing trees: one call of the drafter a layer for all trees, whose shapes are the same whatever it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.trees import Candidates, check_candidates, checked, ids, on_host, whole

FLOOR = 1e-12
"""Confidences count as no less than this in a log value; what is stored as confidence stays as it is."""


class Frontier(NamedTuple):
    """The nodes that are expanded next; int64 [B, M].

    node: their ids, −1 = the root. slot: where the parent of each stood in the frontier before. prefix: [B, M, l], the
    target ids from the root's child down to each, its own last.
    """

    node: Tensor
    slot: Tensor
    prefix: Tensor


Drafter = Callable[[Frontier], Tensor]
"""What is expanded → the laws of its children, floating-point [B, M, V]: probabilities, or logits if that is said."""


def grow_tree(
    drafter: Drafter,
    expand_width: int,
    branch_width: int,
    max_depth: int,
    batch: int = 1,
    *,
    draft_to_target: Tensor | None = None,
    logits: bool = False,
    device: torch.device | str = "cpu",
    validate: bool | None = None,
) -> Candidates:
    """Grow B trees layer by layer (TREE 2xx). Source: EAGLE-2 §4.1.

    The frontier of a layer is its best `expand_width` nodes; each gets its `branch_width` most probable tokens as
    children, the lower target id first among equals, impossible ones included. draft_to_target: the target id of each
    draft id, int64 [V]; None = the same. logits: rows are logits, whose softmax is taken. validate: whether rows are
    looked at, which a GPU would have to wait for; None = on a CPU; a row may omit mass, never exceed one. Log values,
    and confidences from logits, are float32 for rows of a narrower dtype. Raises `BadInput`.
    """
    expand, branch = whole(expand_width, "expand_width", 1), whole(branch_width, "branch_width", 1)
    layers, batch = whole(max_depth, "max_depth", 0), whole(batch, "batch", 1)
    node = torch.full((batch, 1), -1, dtype=torch.int64, device=device)
    if draft_to_target is not None:
        ids(draft_to_target, "draft_to_target", (None,), node)
    frontier = Frontier(node, torch.zeros_like(node), node.new_zeros((batch, 1, 0)))
    value: Tensor | None = None
    found: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []
    created, vocabulary = 0, None if draft_to_target is None else len(draft_to_target)
    for layer in range(1, layers + 1):
        rows = drafter(frontier)
        vocabulary = _check_rows(rows, frontier.node, vocabulary)
        wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
        if logits:
            rows = torch.softmax(rows, -1, dtype=wide)
        confidence, token = children(rows, min(branch, vocabulary), draft_to_target)
        if checked(validate, rows):
            _check_laws(confidence if logits else rows, wide, layer)  # of logits one that is NaN makes all of them so
        step = torch.log(confidence.to(wide).clamp(FLOOR, 1))  # a row that nobody looked at may exceed one
        below = step if value is None else value.unsqueeze(2) + step
        nodes, width = frontier.node.shape[1], confidence.shape[2]
        token, confidence, below = (one.reshape(batch, nodes * width) for one in (token, confidence, below))
        parents = frontier.node.unsqueeze(2).expand(-1, -1, width).reshape(batch, -1)
        found.append((parents, token, confidence, below, torch.full_like(parents, layer)))
        if layer < layers:
            kept = torch.sort(below, dim=1, descending=True, stable=True).indices[:, :expand]
            slot = torch.div(kept, width, rounding_mode="floor")
            value = below.gather(1, kept)
            above = frontier.prefix.gather(1, slot.unsqueeze(2).expand(-1, -1, layer - 1))
            prefix = torch.cat((above, token.gather(1, kept).unsqueeze(2)), 2)
            frontier = Frontier(kept + created, slot, prefix)
        created += nodes * width
    if not found:
        none = node.new_zeros((batch, 0))
        return Candidates(none, none, none.double(), none.double(), none, layered=True, deepest=0)
    parent, token, confidence, below, depth = (torch.cat(parts, 1) for parts in zip(*found))
    made = Candidates(parent, token, confidence, below, depth, layered=True, deepest=layers)
    return check_candidates(made) if checked(validate, parent) else made


def children(rows: Tensor, width: int, draft_to_target: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The `width` most probable tokens of each row, by (−probability, target id): their probabilities and target ids.

    rows: [..., V]. Where values tie at the end of the list, top-k may hand out any
    of them: those ids are found in a second pass, which the host skips where nothing ties.
    """
    vocabulary = rows.shape[-1]
    some = torch.topk(rows, min(width + 1, vocabulary), dim=-1)
    values, token = some.values[..., :width], some.indices[..., :width]
    names = token if draft_to_target is None else draft_to_target[token]
    if not on_host(rows, None) or bool((some.values[..., 1:] == some.values[..., :-1]).any()):
        least = values[..., -1:]
        every = torch.arange(vocabulary, device=rows.device) if draft_to_target is None else draft_to_target
        tied = torch.topk(torch.where(rows == least, -every, torch.iinfo(torch.int64).min), width, dim=-1).values
        above = (values > least).sum(-1, keepdim=True)
        place = torch.arange(width, device=rows.device)
        names = torch.where(place < above, names, -tied.gather(-1, (place - above).clamp(min=0)))
        order = torch.sort(names, dim=-1).indices
        values, names = values.gather(-1, order), names.gather(-1, order)
        order = torch.sort(values, dim=-1, descending=True, stable=True).indices
        values, names = values.gather(-1, order), names.gather(-1, order)
    return values, names


def from_layers(layers: Sequence[Tensor]) -> Drafter:
    """A drafter that is a table: layers[l] of shape [V]*l + [V] holds the rows after l tokens, the same for all trees.

    Raises `BadInput` where there is no row after a prefix.
    """

    def drafter(frontier: Frontier) -> Tensor:
        level = frontier.prefix.shape[2]
        if level >= len(layers):
            raise BadInput("layers", (), f"has a layer for each of {level + 1} depths", len(layers))
        layer = layers[level]
        if not isinstance(layer, Tensor) or layer.ndim != level + 1:
            shown = tuple(layer.shape) if isinstance(layer, Tensor) else type(layer).__name__
            raise BadInput("layers", (level,), "layer l has shape [V] * l + [V]", shown)
        way = frontier.prefix.unbind(2)
        for place, token in enumerate(way):
            if checked(None, token) and token.numel() and int(token.max()) >= layer.shape[place]:
                raise BadInput("layers", (level, place), "has a row for each prefix", int(token.max()))
        return layer[way] if way else layer.expand(*frontier.node.shape, -1)

    return drafter


def _check_rows(rows: object, nodes: Tensor, vocabulary: int | None) -> int:
    batch, width = nodes.shape
    fits = isinstance(rows, Tensor) and rows.ndim == 3 and rows.dtype.is_floating_point
    if not isinstance(rows, Tensor) or not fits or rows.shape[:2] != (batch, width) or not rows.shape[2]:
        shown = (tuple(rows.shape), rows.dtype) if isinstance(rows, Tensor) else type(rows).__name__
        raise BadInput("drafter", (), f"gives a floating-point tensor [{batch}, {width}, V]", shown)
    if vocabulary is not None and rows.shape[2] != vocabulary:
        raise BadInput("drafter", (), f"gives rows of {vocabulary} tokens", tuple(rows.shape))
    if rows.device != nodes.device:
        raise BadInput("drafter", (), f"gives rows on {nodes.device}", str(rows.device))
    return int(rows.shape[2])


def _check_laws(rows: Tensor, wide: torch.dtype, layer: int) -> None:
    tolerance = 1e-9 if rows.dtype == torch.float64 else torch.finfo(rows.dtype).eps * rows.shape[-1]
    total = rows.sum(-1, dtype=wide)
    wrong = ~(rows.amin(-1) >= 0) | ~(total <= 1 + tolerance)
    if bool(wrong.any()):
        b, m = wrong.nonzero()[0].tolist()
        rule = "probabilities are at least 0 and sum to at most one"
        raise BadInput("drafter", (layer, b, m), rule, float(total[b, m]))
