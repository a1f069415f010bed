"""What is verified: a ragged batch of drafted chains or trees beside the rows of their laws, and what comes of it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.coins import Coins
from oracle.fast.trees import ids
from oracle.words import PROPOSALS

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
    """Rows of laws: probabilities, or logits whose softmax they are.

    field: for errors. sample: any of the tensors. spare: rows that a request has beyond those of its nodes.
    """

    rows: Rows
    logits: bool
    field: str
    sample: Tensor
    vocabulary: int
    spare: int

    def packed(self) -> tuple[Tensor, Tensor]:
        """All rows [R, V], and where those of each request begin [B]."""
        if isinstance(self.rows, Tensor):
            batch, rows, size = self.rows.shape
            return self.rows.reshape(batch * rows, size), torch.arange(batch, device=self.rows.device) * rows
        starts = [0]
        for one in self.rows[:-1]:
            starts.append(starts[-1] + one.shape[0])
        # filled where they are needed: a list of the host's would have to be waited for
        filled = [torch.full((1,), start, device=self.sample.device) for start in starts]
        return torch.cat(list(self.rows)), torch.cat(filled)


def laws(rows: Rows, logits: bool, field: str, drafts: Drafts, spare: int = 1, like: Laws | None = None) -> Laws:
    """The rows of all requests. like: others, whose vocabulary they share. Raises `BadInput`."""
    batch, nodes = drafts.token.shape
    if not isinstance(rows, (Tensor, list, tuple)):
        raise BadInput(field, (), "is a tensor [B, N+1, V], or a list of one [n+1, V] a request", type(rows).__name__)
    members = [rows] if isinstance(rows, Tensor) else list(rows)
    dimensions, shape = (3, "[B, N+1, V]") if isinstance(rows, Tensor) else (2, "[n+1, V]")
    if not isinstance(rows, Tensor) and (len(members) != batch or not members):
        raise BadInput(field, (), f"holds the rows of each of {batch} requests, of one at least", len(members))
    for i, one in enumerate(members):
        index = () if isinstance(rows, Tensor) else (i,)
        if not isinstance(one, Tensor) or one.ndim != dimensions or not one.dtype.is_floating_point:
            raise BadInput(field, index, f"is a floating-point tensor {shape}", _shown(one))
        if one.shape[-1] == 0 or one.shape[-1] != members[0].shape[-1]:
            raise BadInput(field, index, f"has V = {members[0].shape[-1]} > 0 columns", tuple(one.shape))
        if one.dtype != members[0].dtype:
            raise BadInput(field, index, "has the dtype of the first", _shown(one))
        if one.device != drafts.token.device:
            raise BadInput(field, index, f"is on {drafts.token.device}, as the drafts are", str(one.device))
        if one.shape[-2] < nodes + spare and (dimensions == 3 or drafts.length is None):
            raise BadInput(field, index, f"has {nodes + spare} rows at least", tuple(one.shape))
    if isinstance(rows, Tensor) and rows.shape[0] != batch:
        raise BadInput(field, (), f"has {batch} members", tuple(rows.shape))
    made = Laws(rows, logits, field, members[0], members[0].shape[-1], spare)
    if like is not None and made.vocabulary != like.vocabulary:
        rule = f"has the V = {like.vocabulary} columns of {like.field}"
        raise BadInput(field, (), rule, tuple(made.sample.shape))
    return made


def structure(drafts: Drafts) -> None:
    """Shapes and dtypes of the drafts; `BadInput` otherwise. Looks at no number."""
    if not isinstance(drafts, Drafts):
        raise BadInput("drafts", (), "is a Drafts", type(drafts).__name__)
    token = ids(drafts.token, "drafts.token", (None, None))
    if drafts.parent is not None:
        ids(drafts.parent, "drafts.parent", tuple(token.shape), token)
    if drafts.length is not None:
        ids(drafts.length, "drafts.length", (len(token),), token)


def uniforms(spent: Coins, drafts: Drafts) -> None:
    """Shapes, dtypes and device of the coins; `BadInput` otherwise."""
    if not isinstance(spent, Coins):
        raise BadInput("coins", (), "is a Coins", type(spent).__name__)
    batch, nodes = drafts.token.shape
    for name, given, shape in (("accept", spent.accept, (batch, nodes)), ("frontier", spent.frontier, (batch,))):
        fits = isinstance(given, Tensor) and given.dtype in (torch.float64, torch.float32)  # a narrow one rounds to one
        if not fits or tuple(given.shape) != shape:
            raise BadInput(f"coins.{name}", (), f"is a tensor {list(shape)} of float64 or float32", _shown(given))
        if given.device != drafts.token.device:
            raise BadInput(f"coins.{name}", (), f"is on {drafts.token.device}", str(given.device))


def proposal_of(proposal: object) -> str:
    """A kind of proposal; `BadInput` unless it is known."""
    if not isinstance(proposal, str) or proposal not in PROPOSALS:
        raise BadInput("proposal", (), f"a proposal is one of {', '.join(PROPOSALS)}", proposal)
    return proposal


class Listed(NamedTuple):
    """The nodes of each request that count, on the host: their tokens and parents."""

    tokens: list[list[int]]
    parents: Sequence[Sequence[int]]


def listed(drafts: Drafts, validate: bool, *laws: Laws) -> Listed:
    """The nodes that count, read on the host.

    validate: every one has an earlier parent, a token, and its rows; `BadInput` otherwise. What has no token or no
    earlier parent is nobody's child without it.
    """
    (batch, nodes), size = drafts.token.shape, laws[0].vocabulary
    tokens: list[list[int]] = drafts.token.tolist()
    parents: list[list[int]] = [] if drafts.parent is None else drafts.parent.tolist()
    if drafts.length is not None:
        for b, length in enumerate(drafts.length.tolist()):
            if validate:
                _check_length(b, length, nodes, laws)
            for own in (tokens[b], parents[b]) if parents else (tokens[b],):
                del own[max(length, 0) :]
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
            above = parents[b]
            if min(above) < -1 or any(map(operator.ge, above, range(len(above)))):
                i = next(i for i, parent in enumerate(above) if not -1 <= parent < i)
                raise BadInput("drafts.parent", (b, i), "a parent is −1 (the root) or an earlier node", above[i])
    return Listed(tokens, parents or [range(-1, nodes - 1)] * batch)


def _check_length(member: int, length: int, nodes: int, laws: Sequence[Laws]) -> None:
    if not 0 <= length <= nodes:
        raise BadInput("drafts.length", (member,), f"a request has 0 to {nodes} nodes", length)
    for one in laws:
        if not isinstance(one.rows, Tensor) and one.rows[member].shape[0] < length + one.spare:
            rule = f"has {length + one.spare} rows at least"
            raise BadInput(one.field, (member,), rule, tuple(one.rows[member].shape))


def check_twins(found: Listed) -> None:
    """Siblings differ; `BadInput` otherwise."""
    for b, (parents, tokens) in enumerate(zip(*found)):
        places = list(zip(parents, tokens))
        if len(set(places)) < len(places):
            raise twin(b, next(i for i, place in enumerate(places) if place in places[:i]), tokens)


def twin(member: int, node: int, tokens: Sequence[int]) -> BadInput:
    """What is wrong with a sibling that is none."""
    return BadInput("drafts.token", (member, node), "siblings of such a proposal differ", tokens[node])


def _shown(found: object) -> object:
    return (tuple(found.shape), found.dtype) if isinstance(found, Tensor) else type(found).__name__
