"""The second road to rows: sets of addresses, runs of neighbours and ranks, instead of a test an address.

A segment is the set of its valid addresses; a run is a stretch of neighbours inside it. Rows are the addresses of a run
but its last one; the nodes of step s those but its last s + 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.types import Flags, Ids, RolloutRows, RowPlan, TokenBatch

Address = tuple[int, int]


def segments(batch: TokenBatch) -> list[list[Address]]:
    """The valid addresses of each segment of each batch row, in order."""
    found: dict[tuple[int, int], list[Address]] = {}
    for b, t in np.argwhere(batch.valid).tolist():
        found.setdefault((b, int(batch.segment[b, t])), []).append((b, t))
    return list(found.values())


def runs(batch: TokenBatch) -> list[list[Address]]:
    """Maximal stretches of neighbouring addresses of one segment."""
    found: list[list[Address]] = []
    for segment in segments(batch):
        for address in segment:
            b, t = address
            if (b, t - 1) in segment:
                found[-1].append(address)
            else:
                found.append([address])
    return found


def plan(batch: TokenBatch, hard: bool = False) -> RowPlan:
    """The rows of a batch; with `hard`, those of the objective that needs observed labels."""
    rows = sorted(address for run in runs(batch) for address in run[:-1])
    observed = {address for run in runs(batch) for address in run[:-2]} if hard else set()
    wanted = set(map(tuple, np.argwhere(batch.supervise).tolist())) & (observed if hard else set(rows))
    rank = {
        address: (number, place)
        for number, segment in enumerate(segments(batch))
        for place, address in enumerate(sorted(segment, key=lambda a: int(batch.position[a])))
    }
    visible = np.array(
        [[rank[q][0] == rank[k][0] and rank[q][1] >= rank[k][1] for k in rows] for q in rows], dtype=bool
    ).reshape(len(rows), len(rows))
    return RowPlan(
        batch=_ids(b for b, _ in rows),
        source=_ids(t for _, t in rows),
        advanced=_ids(t + 1 for _, t in rows),
        target=_ids(t + 1 for _, t in rows),
        label=_ids(int(batch.tokens[b, t + 2]) if (b, t) in observed else -1 for b, t in rows),
        supervise=np.array([address in wanted for address in rows], dtype=bool),
        position=_ids(int(batch.position[address]) for address in rows),
        visible=visible,
    )


def supervised_sources(batch: TokenBatch, mask: Flags, ahead: int) -> Flags:
    """Sources whose token `ahead` addresses on is of their segment and has its flag set: bool [B, S]."""
    found = np.zeros(batch.valid.shape, dtype=bool)
    for segment in segments(batch):
        for b, t in segment:
            if (b, t - ahead) in segment:
                found[b, t - ahead] = mask[b, t]
    return found


def rollout(batch: TokenBatch, steps: int, position: str = "anchor_plus_step") -> RolloutRows:
    """The nodes of a rollout; `position` "own" counts a node's position at its source instead of its anchor."""
    nodes = sorted((s, b, a) for s in range(steps) for run in runs(batch) for b, a in run[: max(0, len(run) - s - 1)])
    place = {node: i for i, node in enumerate(nodes)}
    own = position == "own"
    return RolloutRows(
        step=_ids(s for s, _, _ in nodes),
        batch=_ids(b for _, b, _ in nodes),
        anchor=_ids(a for _, _, a in nodes),
        consumed=_ids(a + s + 1 for s, _, a in nodes),
        target=_ids(a + s + 1 for s, _, a in nodes),
        supervise=np.array([batch.supervise[b, a + s] for s, b, a in nodes], dtype=bool),
        position=_ids(int(batch.position[b, a + s]) if own else int(batch.position[b, a]) + s for s, b, a in nodes),
        state_from=_ids(place[s - 1, b, a] if s else -1 for s, b, a in nodes),
    )


def _ids(values: object) -> Ids:
    listed: Sequence[int] = list(values)  # type: ignore[call-overload]
    return np.array(listed, dtype=np.int64)
