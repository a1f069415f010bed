"""Exact verification of drafted chains and trees, batched and ragged; warping and proposing beside it.

Two ways lead to the same decisions. On a CPU a walk visits the rows that it needs and no other (`walking`). Elsewhere
nothing depends on a number that the host would have to see (`deciding`), so that calls neither synchronise nor break a
CUDA graph; `vectorised` asks for either way by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast import deciding, drafted, walking
from oracle.fast.coins import Coins, coin, coins, requests_of, stream_of
from oracle.fast.drafted import Decisions, Drafts, Laws, Rows, laws
from oracle.fast.proposing import Proposals, propose
from oracle.fast.trees import whole
from oracle.fast.warping import warp

__all__ = [
    "Coins",
    "Decisions",
    "Drafts",
    "Proposals",
    "Rows",
    "coins",
    "propose",
    "verify_greedy",
    "verify_random",
    "verify_sampled",
    "warp",
]


def verify_greedy(
    drafts: Drafts, target: Rows, *, validate: bool | None = None, vectorised: bool | None = None
) -> Decisions:
    """Follow the best token of the target's rows, the lowest on ties, as far as the drafts go; then publish it.

    drafts: see `Drafts`. target: see `Rows`; scores of any kind, probabilities or logits, of any floating dtype.
    validate: whether numbers are looked at, which a GPU would have to wait for; None = on a CPU. Then NaN in a row
    that is read is `BadInput`; otherwise it makes the frontier −1. A node whose token or parent is none is `BadInput`,
    or else taken for absent. vectorised: None = not on a CPU. Source: ACCEPTANCE 2xx.
    """
    batch, _ = _structure(drafts)
    rows = laws(target, False, "target", drafts)
    validate, vectorised = _ways(rows, validate, vectorised)
    if validate or not vectorised:
        nodes_of = drafted.listed(drafts, validate, rows)
    if vectorised:
        found = deciding.greedy(drafts, rows)
        _laws_only(found, rows, validate)
        return found
    scores = walking.Opened(rows, validate)
    return _gathered([walking.greedy(scores, nodes_of, b) for b in range(batch)])


def verify_sampled(
    drafts: Drafts,
    spent: Coins,
    target: Rows,
    draft: Rows | None = None,
    proposal: str = "point",
    *,
    target_logits: bool = False,
    draft_logits: bool = False,
    tests: int | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> Decisions:
    """Test node i with u·q < p, u = spent.accept[:, i], siblings in node order against what the earlier ones left.

    target: laws, or with `target_logits` logits whose softmax they are. draft: the rows that siblings were drawn from,
    the same with `draft_logits`; of chains [B, N, V] suffices. proposal: "point" (drafts were no draw; `draft` is not
    read), "iid" or "without_replacement", as in `oracle.types.VerifyCase`. Probabilities, and sums over rows, are
    float32 at least; tests are float64. tests: of the vectorised way, how many drafts a walk through a tree tests at
    most, where a caller knows; None = N. validate, vectorised: as in `verify_greedy`. Numbers are validated where they
    are read: entries of drafts that are tested lie in [0, 1], rows that are read whole are laws, which of probabilities
    are those of the node where the walk stops, siblings that are tested differ unless they are "iid", and coins that
    are spent lie in [0, 1). Of the vectorised way: siblings, and that the row of the frontier has mass and no NaN.
    Source: ACCEPTANCE 3xx–7xx, coin scheme "per_node".
    """
    _structure(drafts)
    drafted.uniforms(spent, drafts)

    def given(validated: bool) -> Callable[[int], walking.Spend]:
        accept, frontier = spent.accept.tolist(), spent.frontier.tolist()

        def spender(b: int) -> walking.Spend:
            own = [*accept[b], frontier[b]]  # the frontier's stands at −1

            def checked(node: int) -> float:
                value: float = own[node]
                if not 0 <= value < 1:
                    name, index = ("frontier", (b,)) if node < 0 else ("accept", (b, node))
                    raise BadInput(f"coins.{name}", index, "a coin lies in [0, 1)", value)
                return value

            return checked if validated else own.__getitem__

        return spender

    return _verify(
        *(drafts, target, draft, proposal, (target_logits, draft_logits), tests, validate, vectorised),
        *(lambda: spent, given),
    )


def verify_random(
    drafts: Drafts,
    seed: int,
    target: Rows,
    draft: Rows | None = None,
    proposal: str = "point",
    *,
    requests: Tensor | None = None,
    positions: Tensor | None = None,
    target_logits: bool = False,
    draft_logits: bool = False,
    tests: int | None = None,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> Decisions:
    """`verify_sampled` with the coins of (seed, request, position, node): see `oracle.fast.coins`.

    requests: int64 [B], a number for each request that stays its own from round to round; None = 0, 1, … positions:
    int64 [B], where the round begins; None = 0. A decision does not depend on who shares the batch.
    """
    batch, nodes = _structure(drafts)
    device = drafts.token.device
    names = None if requests is None else requests_of(requests, batch, device, "requests")
    where = None if positions is None else requests_of(positions, batch, device, "positions")

    def lazily(_: bool) -> Callable[[int], walking.Spend]:
        own = range(batch) if names is None else names.tolist()
        places = [0] * batch if where is None else where.tolist()
        return lambda b: partial(coin, stream_of(seed, own[b], places[b]))

    return _verify(
        *(drafts, target, draft, proposal, (target_logits, draft_logits), tests, validate, vectorised),
        *(lambda: coins(seed, requests_of(names, batch, device, "requests"), nodes, where), lazily),
    )


def _verify(
    drafts: Drafts,
    target: Rows,
    draft: Rows | None,
    proposal: str,
    logits: tuple[bool, bool],
    tests: int | None,
    validate: bool | None,
    vectorised: bool | None,
    all_coins: Callable[[], Coins],
    spender: Callable[[bool], Callable[[int], walking.Spend]],
) -> Decisions:
    batch, nodes = drafts.token.shape
    proposal = drafted.proposal_of(proposal)
    if tests is not None:
        whole(tests, "tests", 0)
    p = laws(target, logits[0], "target", drafts)
    q = None
    if proposal != "point" and nodes:
        if draft is None:
            raise BadInput("draft", (), f"a proposal {proposal!r} has draft rows", None)
        q = laws(draft, logits[1], "draft", drafts, int(drafts.parent is not None), p)
    validate, vectorised = _ways(p, validate, vectorised)
    if validate or not vectorised:
        nodes_of = drafted.listed(drafts, validate, p, *([] if q is None else [q]))
    if not vectorised:
        target_rows, spend = walking.opened(p, validate), spender(validate)
        if q is None:
            return _gathered([walking.point(target_rows, nodes_of, b, spend(b)) for b in range(batch)])
        draft_rows, replaced = walking.opened(q, validate), proposal == "without_replacement"
        every = range(batch)
        return _gathered([walking.drawn(target_rows, draft_rows, replaced, nodes_of, b, spend(b)) for b in every])
    if validate and proposal != "iid":
        drafted.check_twins(nodes_of)
    if q is None:
        found = deciding.point(drafts, all_coins(), p)
    elif drafts.parent is None:
        found = deciding.chain(drafts, all_coins(), p, q)
    else:
        found = deciding.tree(drafts, all_coins(), p, q, proposal == "without_replacement", tests)
    _laws_only(found, p, validate)
    return found


def _structure(drafts: Drafts) -> tuple[int, int]:
    drafted.structure(drafts)
    batch, nodes = drafts.token.shape
    return batch, nodes


def _ways(rows: Laws, validate: bool | None, vectorised: bool | None) -> tuple[bool, bool]:
    """Whether numbers are validated, and whether the host stays out of it. Raises `BadInput`."""
    on_host = rows.sample.device.type == "cpu"
    if not on_host and vectorised is False:
        raise BadInput("vectorised", (), "a walk reads rows on a CPU", rows.sample.device)
    return on_host if validate is None else validate, not on_host if vectorised is None else vectorised


def _laws_only(found: Decisions, rows: Laws, validate: bool) -> None:
    if validate and bool((found.frontier < 0).any()):
        b = int((found.frontier < 0).nonzero()[0])
        last = max(found.path[b].tolist(), default=-1)
        raise BadInput(rows.field, (b, last + 1), "a row that is read holds no NaN, and has mass")


def _gathered(found: list[walking.Found]) -> Decisions:
    depth = max((len(path) for path, _ in found), default=0)
    rows = [[len(path), frontier, *path, *[-1] * (depth - len(path))] for path, frontier in found]
    table = np.array(rows, dtype=np.int64).reshape(len(found), depth + 2).T.copy()
    # slices of NumPy's cost less than those of tensors
    return Decisions(torch.from_numpy(table[2:].T), torch.from_numpy(table[0]), torch.from_numpy(table[1]))
