"""What is verified: a ragged batch of drafted chains or trees beside the rows of their laws, and what comes of it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.types import PROPOSALS

Rows = Tensor | Sequence[Tensor]
"""[B, N+1, V], or a tensor [n+1, V] of each request: row 0 = after the root, row i+1 = after node i."""


NOBODY = -2
"""The parent of a node that is left out."""


class Drafts(NamedTuple):
    """A ragged batch of drafts, padded to N nodes.

    token: int64 [B, N]. parent: int64 [B, N], parent[i] < i and −1 = the root; None = chains. length: how many nodes
    of each request count, int64 [B]; None = all. What stands behind a length is not read.
    """

    token: Tensor
    parent: Tensor | None = None
    length: Tensor | None = None


class Decisions(NamedTuple):
    """What a batch publishes.

    path: int64 [B, D], ids of the accepted nodes, −1 behind the last one; D is the longest path, or N where the batch
    is decided without the host. accepted: int64 [B], how many. frontier: int64 [B]; −1 where the row that it is drawn
    from is no law.
    """

    path: Tensor
    accepted: Tensor
    frontier: Tensor


class Laws(NamedTuple):
    """Rows of laws: probabilities, or logits whose softmax they are. field: for errors. sample: any of the tensors."""

    rows: Rows
    logits: bool
    field: str
    sample: Tensor
    vocabulary: int

    def packed(self) -> tuple[Tensor, Tensor]:
        """All rows [R, V], and where those of each request begin [B]."""
        if isinstance(self.rows, Tensor):
            batch, rows, size = self.rows.shape
            return self.rows.reshape(batch * rows, size), torch.arange(batch, device=self.rows.device) * rows
        starts = [0]
        for one in self.rows[:-1]:
            starts.append(starts[-1] + one.shape[0])
        return torch.cat(list(self.rows)), torch.tensor(starts, device=self.sample.device)


def laws(rows: Rows, logits: bool, field: str, batch: int, least: int, like: Laws | None = None) -> Laws:
    """Rows of B requests, `least` of each at least where all have N nodes. Raises `BadInput`."""
    members = [rows] if isinstance(rows, Tensor) else list(rows)
    if not isinstance(rows, Tensor) and len(members) != batch:
        raise BadInput(field, (), f"holds the rows of each of {batch} requests", len(members))
    for i, one in enumerate(members):
        index = () if isinstance(rows, Tensor) else (i,)
        dimensions = 3 if isinstance(rows, Tensor) else 2
        if not isinstance(one, Tensor) or one.ndim != dimensions or not one.dtype.is_floating_point:
            rule = f"is a floating-point tensor {'[B, N+1, V]' if dimensions == 3 else '[n+1, V]'}"
            raise BadInput(field, index, rule, _shown(one))
        if one.shape[-1] == 0 or one.shape[-1] != members[0].shape[-1]:
            raise BadInput(field, index, f"has V = {members[0].shape[-1]} > 0 columns", tuple(one.shape))
        if one.dtype != members[0].dtype or one.device != members[0].device:
            raise BadInput(field, index, "has the dtype and device of the first", _shown(one))
    if isinstance(rows, Tensor) and (rows.shape[0] != batch or rows.shape[1] < least):
        raise BadInput(field, (), f"has {batch} members of at least {least} rows", tuple(rows.shape))
    if not members:
        raise BadInput(field, (), "holds the rows of one request at least", 0)
    made = Laws(rows, logits, field, members[0], members[0].shape[-1])
    if like is not None and (made.vocabulary != like.vocabulary or made.sample.device != like.sample.device):
        rule = f"has the V = {like.vocabulary} columns of {like.field}, on {like.sample.device}"
        raise BadInput(field, (), rule, (tuple(made.sample.shape), made.sample.device))
    return made


def structure(drafts: Drafts) -> None:
    """Shapes and dtypes of the drafts; `BadInput` otherwise. Looks at no number."""
    token = drafts.token
    if not isinstance(token, Tensor) or token.ndim != 2 or token.dtype != torch.int64:
        raise BadInput("drafts.token", (), "is an int64 tensor [B, N]", _shown(token))
    for name, given, shape in (
        ("drafts.parent", drafts.parent, tuple(token.shape)),
        ("drafts.length", drafts.length, (token.shape[0],)),
    ):
        if given is not None and (tuple(given.shape) != shape or given.dtype != torch.int64):
            raise BadInput(name, (), f"is an int64 tensor {list(shape)}", _shown(given))
        if given is not None and given.device != token.device:
            raise BadInput(name, (), f"is on {token.device}", given.device)


def uniforms(accept: Tensor, frontier: Tensor, drafts: Drafts) -> None:
    """Shapes and dtypes of the coins; `BadInput` otherwise."""
    batch, nodes = drafts.token.shape
    for name, given, shape in (("accept", accept, (batch, nodes)), ("frontier", frontier, (batch,))):
        if not isinstance(given, Tensor) or tuple(given.shape) != shape or not given.dtype.is_floating_point:
            raise BadInput(f"coins.{name}", (), f"is a floating-point tensor {list(shape)}", _shown(given))


def proposal_of(proposal: object) -> str:
    """A kind of proposal; `BadInput` unless it is known."""
    if not isinstance(proposal, str) or proposal not in PROPOSALS:
        raise BadInput("proposal", (), f"a proposal is one of {', '.join(PROPOSALS)}", proposal)
    return proposal


class Listed(NamedTuple):
    """The nodes of each request that count, on the host: their tokens and parents."""

    tokens: list[list[int]]
    parents: Sequence[Sequence[int]]


def listed(drafts: Drafts, rows: Laws, validate: bool, distinct: bool) -> Listed:
    """The nodes that count, read on the host.

    validate: every one has an earlier parent, a token and a row, and where `distinct` siblings differ; `BadInput`
    otherwise. What has no token or no earlier parent is nobody's child without it.
    """
    batch, nodes = drafts.token.shape
    size = rows.vocabulary
    tokens: list[list[int]] = drafts.token.tolist()
    parents: list[list[int]] = [] if drafts.parent is None else drafts.parent.tolist()
    if drafts.length is not None:
        for b, length in enumerate(drafts.length.tolist()):
            if validate:
                _check_length(b, length, nodes, rows)
            del tokens[b][max(length, 0) :]
    for b, own in enumerate(tokens):
        if own and (min(own) < 0 or max(own) >= size):
            lost = next(i for i, token in enumerate(own) if not 0 <= token < size)
            if validate:
                raise BadInput("drafts.token", (b, lost), f"a token id lies in [0, {size})", own[lost])
            if parents:
                parents[b] = [up if 0 <= token < size else NOBODY for up, token in zip(parents[b], own)]
            else:
                del own[lost:]
        if validate and parents and own:
            _check_tree(b, parents[b], own, distinct)
    return Listed(tokens, parents or [range(-1, nodes - 1)] * batch)


def _check_length(member: int, length: int, nodes: int, rows: Laws) -> None:
    if not 0 <= length <= nodes:
        raise BadInput("drafts.length", (member,), f"a request has 0 to {nodes} nodes", length)
    if not isinstance(rows.rows, Tensor) and rows.rows[member].shape[0] <= length:
        raise BadInput(rows.field, (member,), f"has {length + 1} rows at least", tuple(rows.rows[member].shape))


def _check_tree(member: int, parents: list[int], tokens: list[int], distinct: bool) -> None:
    parents = parents[: len(tokens)]
    if min(parents) < -1 or any(map(operator.ge, parents, range(len(parents)))):
        i = next(i for i, parent in enumerate(parents) if not -1 <= parent < i)
        raise BadInput("drafts.parent", (member, i), "a parent is −1 (the root) or an earlier node", parents[i])
    if distinct and len(set(zip(parents, tokens))) < len(tokens):
        places = list(zip(parents, tokens))
        i = next(i for i, place in enumerate(places) if place in places[:i])
        raise BadInput("drafts.token", (member, i), "siblings of such a proposal differ", tokens[i])


def _shown(found: object) -> object:
    return (tuple(found.shape), found.dtype) if isinstance(found, Tensor) else type(found).__name__
