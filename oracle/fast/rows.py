"""Training rows of a batch, in torch: vectorised over all addresses, on whatever device the batch lies.

x[t] token, f[t] target feature, p[t] target law of x[t+1], all of one batch row. Row t is fed f[t] and x[t+1] and is
trained towards f[t+1] and p[t+1]. How many rows there are depends on the data; `size` makes it a number that the host
knows beforehand, and then nothing waits for the device. Who sees whom is told by `RowPlan.visibility`, as a predicate,
a block mask or documents, and densely only when asked.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.row_visibility import RowVisibility
from oracle.words import OWNERS


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """A batch of token sequences, padded or packed; every tensor is [B, S], all on one device.

    tokens, segment, position: int64. valid, supervise: bool. As `oracle.types.TokenBatch`; only `valid` is read at an
    invalid address.
    """

    tokens: Tensor
    valid: Tensor
    segment: Tensor
    position: Tensor
    supervise: Tensor


@dataclass(frozen=True, eq=False)
class RowPlan:
    """Rows of a batch, ordered by (batch, source): vectors [R], as `oracle.types.RowPlan` has them.

    batch, source, advanced, target, label, position: int64; supervise: bool. segment: int64, that of the row. address:
    int64, batch · S + source, the place of the source in the flattened batch. A row of padding, which there is only
    where a size was asked for, holds −1 and is not supervised.
    """

    batch: Tensor
    source: Tensor
    advanced: Tensor
    target: Tensor
    label: Tensor
    supervise: Tensor
    position: Tensor
    segment: Tensor
    address: Tensor

    @cached_property
    def visibility(self) -> RowVisibility:
        """Who sees whom: a row sees itself and the earlier rows of its segment in its batch row."""
        return RowVisibility(self.batch, self.segment)


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """What a drafter is fed, one entry a row: feature, target [R, d] as the features given, token, position int64 [R],
    supervise bool [R]; batch int64 [R]. A row of padding holds zeros, the token 0, and −1 as its batch and position."""

    batch: Tensor
    feature: Tensor
    token: Tensor
    target: Tensor
    supervise: Tensor
    position: Tensor


@dataclass(frozen=True, eq=False)
class RolloutRows:
    """Nodes of a rollout, ordered by (step, batch, anchor): vectors [N], as `oracle.types.RolloutRows` has them."""

    step: Tensor
    batch: Tensor
    anchor: Tensor
    consumed: Tensor
    target: Tensor
    supervise: Tensor
    position: Tensor
    state_from: Tensor


def soft_rows(batch: TokenBatch, *, size: int | None = None, validate: bool | None = None) -> RowPlan:
    """The rows of a batch that a target law exists for: t and t+1 valid and in one segment (ROWS 2xx–5xx).

    size: how many entries the plan has, padding behind the rows; None = as many as there are rows, which a GPU has to
    tell the host. validate: whether numbers are looked at; None = on a CPU alone. Without it, rows beyond `size` are
    left out. Raises `BadInput`.
    """
    return _plan(View(batch, validate), size, hard=False)


def hard_rows(batch: TokenBatch, *, size: int | None = None, validate: bool | None = None) -> RowPlan:
    """The same rows; one counts only where its segment holds the token at t+2, which is its label. As `soft_rows`."""
    return _plan(View(batch, validate), size, hard=True)


def supervision_at_source(
    batch: TokenBatch, token_mask: Tensor, owner: str = "source", *, validate: bool | None = None
) -> Tensor:
    """Which sources a trainer's unshifted token mask, bool [B, S], supervises: bool [B, S] (ROWS-307, ROWS-308).

    owner: whose flag it is, "source", "advanced" or "label". Raises `BadInput`.
    """
    view = View(batch, validate)
    if not isinstance(owner, str) or owner not in OWNERS:
        raise BadInput("owner", (), f"is one of {', '.join(OWNERS)}", owner)
    mask = _tensor(token_mask, "token_mask", torch.bool, view.shape, view.device)
    ahead = OWNERS.index(owner)
    found = torch.zeros_like(mask)
    length = max(view.shape[1] - ahead, 0)
    torch.logical_and(view.together(ahead), mask[:, ahead:], out=found[:, :length])
    return found


def gather_rows(
    batch: TokenBatch, features: Tensor, *, size: int | None = None, validate: bool | None = None
) -> GatheredRows:
    """The tensors of the soft rows: f[t], x[t+1], f[t+1], out of floating-point features [B, S, d].

    Differentiable in the features. What stands at an address of no row is never read. size, validate: as in
    `soft_rows`; beside the batch, tokens and features that are read are looked at. Raises `BadInput`.
    """
    view = View(batch, validate)
    if not isinstance(features, Tensor) or not features.is_floating_point() or features.ndim != 3:
        raise BadInput("features", (), "is a floating-point tensor [B, S, d]", _told(features))
    if features.shape[:2] != view.shape or features.device != view.device:
        rule = f"has shape {(*view.shape, 'd')} on {view.device}"
        raise BadInput("features", (), rule, (tuple(features.shape), features.device))
    plan = _plan(view, size, hard=False)
    flat = features.reshape(-1, features.shape[2])
    token = _taken(_vector(batch.tokens), plan.address, 1, 0, size)
    feature, target = (_taken(flat, plan.address, step, 0, size) for step in (0, 1))
    if view.checked:
        _look(token < 0, plan, 1, view, "batch.tokens", "a token that is read has an id of at least 0")
        for step, read in ((0, feature), (1, target)):
            _look(~read.isfinite(), plan, step, view, "features", "a feature that is read is finite")
    return GatheredRows(plan.batch, feature, token, target, plan.supervise, plan.position)


def rollout_rows(batch: TokenBatch, steps: int, *, validate: bool | None = None) -> RolloutRows:
    """The nodes of a rollout of `steps` ≥ 1 steps, step 0 included (ROWS 6xx).

    Node (s, a) exists where a … a+s+1 are valid and in one segment. The host learns how many there are. Raises
    `BadInput`.
    """
    view = View(batch, validate)
    rows, length = view.shape
    exists = view.nodes(steps)
    place = _places(_flat(exists))
    step, address = place // max(rows * length, 1), place % max(rows * length, 1)
    row, anchor = address // max(length, 1), address % max(length, 1)
    position = _vector(batch.position).index_select(0, address)
    # the node before has its place a step earlier, and as many nodes before it as there are flags up to there
    rank = exists.reshape(-1).cumsum(0) - 1
    before = rank.index_select(0, (place - rows * length).clamp(min=0)) if len(place) else place
    consumed = anchor + step + 1
    return RolloutRows(
        step=step,
        batch=row,
        anchor=anchor,
        consumed=consumed,
        target=consumed,
        supervise=_vector(batch.supervise).index_select(0, address + step),
        position=position + step,
        state_from=torch.where(step > 0, before, -1),
    )


# ---- planning


def _plan(view: View, size: int | None, hard: bool) -> RowPlan:
    batch, length = view.batch, view.shape[1]
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise BadInput("size", (), "is a whole number of at least 0", size)
    if size is not None and on_cpu(batch.tokens):
        return _padded(_plan(view, None, hard), size, view.checked)
    exists = view.neighbours()
    address = _places(exists) if size is None else _packed(torch.as_tensor(exists), size, view.checked)
    if view.shape[0] == 1:
        row, source = torch.zeros_like(address), address
    else:
        row = torch.div(address, max(length, 1), rounding_mode="floor")
        source = address - row * length
    if size is not None:
        there = address >= 0
        row, source = torch.where(there, row, -1), torch.where(there, source, -1)
    advanced = source + 1 if size is None else torch.where(there, source + 1, -1)
    supervise = _taken(_vector(batch.supervise), address, 0, False, size)
    label = torch.full_like(address, -1)
    if hard and len(exists):
        # a row at t has a label where a row at t+1 exists
        after = torch.zeros(len(exists) + 2, dtype=torch.bool, device=view.device)
        after[: len(exists)] = torch.as_tensor(exists)
        observed = _taken(after, address, 1, False, size)
        last = view.shape[0] * view.shape[1] - 1
        label = torch.where(observed, _vector(batch.tokens).index_select(0, (address + 2).clamp(max=last)), label)
        supervise = supervise & observed
    plan = RowPlan(
        batch=row,
        source=source,
        advanced=advanced,
        target=advanced,
        label=label,
        supervise=supervise,
        position=_taken(_vector(batch.position), address, 0, -1, size),
        segment=_taken(_vector(batch.segment), address, 0, -1, size),
        address=address,
    )
    if hard and view.checked:
        wrong = observed & (label < 0) if len(exists) else supervise
        _look(wrong, plan, 2, view, "batch.tokens", "a token that is read has an id of at least 0")
    return plan


def _padded(plan: RowPlan, size: int, checked: bool) -> RowPlan:
    """Entries of padding behind the rows, where the host knows how many there are."""
    rows = plan.address.numel()
    if checked and rows > size:
        raise BadInput("size", (), f"holds the {rows} rows", size)
    found = {}
    for field in fields(RowPlan):
        vector = getattr(plan, field.name)
        found[field.name] = vector.new_full((size,), False if field.name == "supervise" else -1)
        found[field.name][:rows] = vector[:size]
    return RowPlan(**found)


def on_cpu(tensor: Tensor) -> bool:
    """Whether the host may look at it: NumPy, on the same memory, is quicker with vectors this short."""
    return tensor.device.type == "cpu"


def _flat(values: Tensor) -> Any:
    """[B · S], for slices, comparisons and flags: an array on a CPU, a tensor elsewhere."""
    flat = values.reshape(-1)
    return flat.numpy() if on_cpu(values) else flat


def _vector(values: Tensor) -> Tensor:
    return values.reshape(-1)


def _places(flags: Any) -> Tensor:
    """int64: where they are set, in order."""
    return flags.nonzero().view(-1) if isinstance(flags, Tensor) else torch.from_numpy(np.flatnonzero(flags))


def _packed(flags: Tensor, size: int, checked: bool) -> Tensor:
    """The same in a vector of `size`, −1 behind; without a look at how many there are."""
    if checked and int(flags.sum()) > size:
        raise BadInput("size", (), f"holds the {int(flags.sum())} rows", size)
    place = torch.where(flags, flags.cumsum(0) - 1, size).clamp_(max=size)
    found = torch.full((size + 1,), -1, dtype=torch.int64, device=flags.device)
    return found.scatter_(0, place, torch.arange(len(flags), device=flags.device))[:size]


def _taken(values: Tensor, address: Tensor, ahead: int, padding: int | bool, size: int | None) -> Tensor:
    """What stands `ahead` of the addresses in values [B · S, …]; padding where an address is none."""
    if not len(values):  # padding alone reads a row of nothing, which gradients still flow to
        values = torch.cat([values, values.new_zeros((1, *values.shape[1:]))])
    if size is None:
        return values.index_select(0, address + ahead if ahead else address)
    read = values.index_select(0, (address + ahead).clamp(0, len(values) - 1))
    return read.masked_fill((address < 0).view(-1, *(1,) * (values.ndim - 1)), padding)


def _look(wrong: Tensor, plan: RowPlan, ahead: int, view: View, field: str, rule: str) -> None:
    """`BadInput` at the first row, and entry of it, that is wrong; a row of padding is right."""
    if not wrong.any():
        return
    row, *entry = wrong.nonzero()[0].tolist()
    place = divmod(int(plan.address[row]) + ahead, view.shape[1])
    raise BadInput(field, (*place, *entry), rule)


# ---- reading


class View:
    """A batch, its structure validated whole; its numbers where that is asked, at valid addresses."""

    def __init__(self, batch: TokenBatch, validate: bool | None) -> None:
        if not isinstance(batch, TokenBatch):
            raise BadInput("batch", (), "a batch is an oracle.fast.rows.TokenBatch", type(batch).__name__)
        tokens = batch.tokens
        if not isinstance(tokens, Tensor) or tokens.ndim != 2:
            raise BadInput("batch.tokens", (), "is a tensor [B, S]", _told(tokens))
        self.shape: tuple[int, int] = (tokens.shape[0], tokens.shape[1])
        self.device = tokens.device
        for name in ("tokens", "segment", "position"):
            _tensor(getattr(batch, name), f"batch.{name}", torch.int64, self.shape, self.device)
        for name in ("valid", "supervise"):
            _tensor(getattr(batch, name), f"batch.{name}", torch.bool, self.shape, self.device)
        self.batch = batch
        self._same: Any = None
        self.checked = self.device.type == "cpu" if validate is None else validate
        if self.checked:
            self._check_positions()

    def together(self, ahead: int) -> Tensor:
        """bool [B, S − ahead]: whether an address and the one `ahead` both hold a token of one segment."""
        valid, segment = self.batch.valid, self.batch.segment
        length = max(self.shape[1] - ahead, 0)
        if not ahead:
            return valid
        return (segment[:, :length] == segment[:, ahead:]) & valid[:, :length] & valid[:, ahead:]

    def nodes(self, steps: int) -> Tensor:
        """bool [steps, B, S]: whether a rollout's node is there, a … a+s+1 in one segment. Raises `BadInput`."""
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise BadInput("steps", (), "is a whole number of at least 1", steps)
        rows, length = self.shape
        exists = torch.zeros((steps, rows, length), dtype=torch.bool, device=self.device)
        exists[0, :, : max(length - 1, 0)] = first = self.together(1)
        for s in range(1, min(steps, length - 1)):
            torch.logical_and(exists[s - 1, :, : length - 1 - s], first[:, s:], out=exists[s, :, : length - 1 - s])
        return exists

    def neighbours(self) -> Any:
        """bool [B · S − 1] (nothing of nothing): whether an address of the flattened batch and the next one are."""
        if self._same is None:
            valid, segment = _flat(self.batch.valid), _flat(self.batch.segment)
            self._same = segment[1:] == segment[:-1]
            self._same &= valid[1:]
            self._same &= valid[:-1]
            if self.shape[0] > 1 and self.shape[1]:
                self._same[self.shape[1] - 1 :: self.shape[1]] = False
        return self._same

    def _check_positions(self) -> None:
        """`BadInput` unless they increase strictly over the valid addresses of a segment."""
        same, position, length = self.neighbours(), _flat(self.batch.position), max(self.shape[1], 1)
        wrong = position[1:] <= position[:-1]
        wrong &= same
        if wrong.any():
            self._refuse(int(_places(wrong)[0]) + 1)
        # so much for runs; what a segment holds in several of them is compared where there is such a segment
        if not self.shape[0] * self.shape[1]:
            return
        heads = np.concatenate([[0], _places(~same).cpu().numpy() + 1])
        heads = heads[self.batch.valid.reshape(-1).cpu().numpy()[heads]]
        named = self.batch.segment.reshape(-1).cpu().numpy()[heads]
        if len(set(zip((heads // length).tolist(), named.tolist()))) == len(heads):
            return
        address = _places(_flat(self.batch.valid))
        order = _vector(self.batch.segment).index_select(0, address).sort(stable=True).indices
        order = order[(address // length).index_select(0, order).sort(stable=True).indices]
        address = address.index_select(0, order)
        segment, position = (_vector(v).index_select(0, address) for v in (self.batch.segment, self.batch.position))
        row = address // length
        wrong = (row[1:] == row[:-1]) & (segment[1:] == segment[:-1]) & (position[1:] <= position[:-1])
        if wrong.any():
            self._refuse(int(address[1:][wrong].min()))

    def _refuse(self, address: int) -> None:
        place = divmod(address, self.shape[1])
        rule = f"positions of segment {int(self.batch.segment[place])} increase strictly"
        raise BadInput("batch.position", place, rule, int(self.batch.position[place]))


def _tensor(values: object, field: str, dtype: torch.dtype, shape: tuple[int, int], device: torch.device) -> Tensor:
    if not isinstance(values, Tensor) or tuple(values.shape) != shape:
        raise BadInput(field, (), f"is a tensor of shape {shape}", _told(values))
    if values.dtype != dtype or values.device != device:
        raise BadInput(field, (), f"is {dtype} on {device}", (values.dtype, values.device))
    return values


def _told(values: object) -> object:
    return (tuple(values.shape), values.dtype) if isinstance(values, Tensor) else type(values).__name__
