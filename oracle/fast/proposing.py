"""Drafting the nodes of a tree of known shape, batched: one call of the drafter a depth, and one row a parent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.coins import drafting_coins, requests_of
from oracle.fast.drafted import proposal_of
from oracle.fast.drawing import accumulated, inverse_cdf, without
from oracle.fast.trees import PARENT_RULE, whole

Drafter = Callable[[Tensor], Tensor]
"""Tokens int64 [B, M, l] drafted on the way to M nodes of depth l → their children's laws [B, M, V]."""


class Proposals(NamedTuple):
    """Drafted tokens int64 [B, N], and the rows they were drawn from [B, N+1, V]: row 0 = of the root's children, row
    i+1 = of those of node i; zeros where a node has none."""

    token: Tensor
    draft_probs: Tensor


def propose(
    drafter: Drafter,
    parent: Sequence[int],
    proposal: str,
    seed: int,
    batch: int = 1,
    *,
    requests: Tensor | None = None,
    positions: Tensor | None = None,
    device: torch.device | str = "cpu",
    validate: bool | None = None,
) -> Proposals:
    """Draft a tree for each of B requests.

    drafter: see `Drafter`; probabilities, for "point" confidences. parent: the shape of the tree, parent[i] < i, −1 =
    the root; node order is draw order. proposal: "iid" draws every child from the row of its parent,
    "without_replacement" from that row without the tokens of earlier siblings, "point" takes the most probable tokens
    in turn, the lower id first on ties. requests, positions: int64 [B], see `oracle.fast.coins`. validate: whether rows
    are laws and siblings stay within the support, which a GPU would have to wait for; None = on a CPU. A token that was
    not to be had is −1. Raises `BadInput`. Source: ACCEPTANCE 11xx.
    """
    kind, above, device = proposal_of(proposal), _shape(parent), torch.device(device)
    batch = whole(batch, "batch", 0)
    validate = device.type == "cpu" if validate is None else validate
    names = requests_of(requests, batch, device, "requests")
    coins = drafting_coins(seed, names, len(above), positions)
    children = [[i for i, up in enumerate(above) if up == node - 1] for node in range(len(above) + 1)]
    token = torch.zeros((batch, len(above)), dtype=torch.int64, device=device)
    rows: Tensor | None = None
    depth = [[-1]]
    way: dict[int, list[int]] = {-1: []}
    while depth[-1]:
        parents = [node for node in depth[-1] if children[node + 1] or node < 0]
        if not parents:
            break
        prefix = _prefixes(token, [way[node] for node in parents])
        found = drafter(prefix)
        _check_rows(found, prefix, rows)
        if rows is None:
            rows = found.new_zeros((batch, len(above) + 1, found.shape[2]))
        if len(above) and validate and batch:
            _check_laws(found, parents, kind == "point")
        for m, node in enumerate(parents):
            if len(above):
                rows[:, node + 1] = found[:, m]
            _draft(token, found[:, m], children[node + 1], kind, coins)
            for child in children[node + 1]:
                if validate and bool((token[:, child] < 0).any()):
                    raise BadInput("parent", (child,), f"siblings of a {kind!r} proposal stay within the support")
            way.update({child: [*way[node], child] for child in children[node + 1]})
        depth.append([child for node in parents for child in children[node + 1]])
    if rows is None:
        raise BadInput("drafter", (), "gives the root a row")
    return Proposals(token, rows)


def _draft(token: Tensor, row: Tensor, children: Sequence[int], kind: str, coins: Tensor) -> None:
    """Write the tokens of siblings; −1 where no mass is left."""
    left = row.to(accumulated(row.dtype))
    for child in children:
        if kind == "point":
            mass, best = left.max(-1)
            drawn = torch.where(mass > 0, best, -1)
            left = left.scatter(-1, best.unsqueeze(-1), -1.0)
        else:
            drawn = inverse_cdf(left, coins[:, child])
            if kind == "without_replacement":
                left = without(left, drawn.clamp(min=0))
        token[:, child] = drawn


def _prefixes(token: Tensor, ways: Sequence[Sequence[int]]) -> Tensor:
    """int64 [B, M, l]. By columns: a list of indices would have to reach the device first."""
    columns = [token[:, node] for way in ways for node in way]
    if not columns:
        return token.new_zeros((token.shape[0], len(ways), 0))
    return torch.stack(columns, 1).view(token.shape[0], len(ways), len(ways[0]))


def _shape(parent: Sequence[int]) -> list[int]:
    for i, node in enumerate(parent):
        if isinstance(node, bool) or not isinstance(node, (int, np.integer)) or not -1 <= node < i:
            raise BadInput("parent", (i,), PARENT_RULE, node)
    return [int(node) for node in parent]


def _check_rows(found: object, prefix: Tensor, before: Tensor | None) -> None:
    batch, nodes, _ = prefix.shape
    fits = isinstance(found, Tensor) and found.ndim == 3 and found.dtype.is_floating_point
    if not isinstance(found, Tensor) or not fits or found.shape[:2] != (batch, nodes) or found.shape[2] == 0:
        shown = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise BadInput("drafter", (), f"gives a floating-point tensor [{batch}, {nodes}, V]", shown)
    if found.device != prefix.device:
        raise BadInput("drafter", (), f"gives rows on {prefix.device}", str(found.device))
    if before is not None and (found.shape[2] != before.shape[2] or found.dtype != before.dtype):
        rule = f"gives rows of {before.shape[2]} tokens in {before.dtype}, as before"
        raise BadInput("drafter", (), rule, (tuple(found.shape), found.dtype))


def _check_laws(found: Tensor, parents: Sequence[int], may_omit_mass: bool) -> None:
    rows = found.to(accumulated(found.dtype))
    epsilon = torch.finfo(found.dtype).eps * rows.shape[-1]
    tolerance = 1e-9 if found.dtype == torch.float64 else max(1e-9, epsilon)
    total = rows.sum(-1)
    short = (total < 1 - tolerance) & (not may_omit_mass)
    wrong = ~(rows >= 0).all(-1) | ~(total <= 1 + tolerance) | short
    if wrong.any():
        b, m = wrong.nonzero()[0].tolist()
        raise BadInput(
            "drafter", (b, parents[m] + 1), "gives laws: no mass below zero, and a sum of one", float(total[b, m])
        )
