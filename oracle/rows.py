"""Training rows: decided address by address before anything is gathered.

x[t] token, f[t] target feature, p[t] target law of x[t+1], all of one batch row. Row t is fed f[t] and x[t+1] and is
trained towards f[t+1] and p[t+1].
"""

from __future__ import annotations

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import int64, member, one_of, tensor, whole
from oracle.types import (
    OWNERS,
    Flags,
    GatherCase,
    GatheredRows,
    RolloutRows,
    RolloutRowsCase,
    RowPlan,
    SupervisionCase,
    TokenBatch,
)


def soft_rows(batch: TokenBatch) -> RowPlan:
    """The rows of a batch that a target law exists for (ROWS 2xx–5xx).

    Row t exists where t and t+1 are valid and in one segment. `label` is −1 throughout. Raises `BadInput`.
    """
    return _plan(_View(batch, "batch"), hard=False)


def hard_rows(batch: TokenBatch) -> RowPlan:
    """The same rows; one counts only where the token at t+2 is observed in its segment, which is its label.

    Raises `BadInput`.
    """
    return _plan(_View(batch, "batch"), hard=True)


def supervision_at_source(case: SupervisionCase) -> Flags:
    """Which sources a trainer's unshifted token mask supervises: bool [B, S] (ROWS-307, ROWS-308).

    Raises `BadInput`.
    """
    member(case, SupervisionCase)
    view = _View(case.batch, "batch")
    mask = tensor(case.token_mask, "token_mask", "b", view.shape)
    ahead = OWNERS.index(one_of(case.owner, "owner", OWNERS))
    found = np.zeros(view.shape, dtype=bool)
    for b in range(view.shape[0]):
        for t in range(view.shape[1]):
            owner = t + ahead
            found[b, t] = view.together(b, t, owner) and mask[b, owner]
    return found


def gather_rows(case: GatherCase) -> GatheredRows:
    """The tensors of the soft rows: features f[t], tokens x[t+1], target features f[t+1]. Raises `BadInput`."""
    member(case, GatherCase)
    view = _View(case.batch, "batch")
    features = tensor(case.features, "features", "f", (*view.shape, "d"))
    plan = _plan(view, hard=False)
    rows = len(plan.source)
    feature = np.empty((rows, features.shape[2]))
    target = np.empty((rows, features.shape[2]))
    token = np.empty(rows, dtype=np.int64)
    for r in range(rows):
        b, t = int(plan.batch[r]), int(plan.source[r])
        for address in (t, t + 1):
            for i, value in enumerate(features[b, address]):
                if not np.isfinite(value):
                    raise BadInput("features", (b, address, i), "a feature that is read is finite", float(value))
        feature[r] = features[b, t]
        token[r] = view.token(b, t + 1)
        target[r] = features[b, t + 1]
    return GatheredRows(plan.batch, feature, token, target, plan.supervise, plan.position)


def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
    """The nodes of a rollout (ROWS 6xx).

    Node (s, a) exists where a … a+s+1 are valid and in one segment. It is fed x[a+s+1] and, at step 0, f[a], later the
    state of (s−1, a); its targets are f[a+s+1] and p[a+s+1], its supervision that of source a+s, its position that of
    a plus s. Raises `BadInput`.
    """
    member(case, RolloutRowsCase)
    view = _View(case.batch, "batch")
    steps = whole(case.steps, "steps", 1)
    nodes: list[tuple[int, int, int, int, bool, int, int]] = []
    index: dict[tuple[int, int, int], int] = {}
    for s in range(steps):
        for b in range(view.shape[0]):
            for a in range(view.shape[1]):
                if not all(view.together(b, a, a + i) for i in range(s + 2)):
                    continue
                index[s, b, a] = len(nodes)
                fed = index[s - 1, b, a] if s else -1
                nodes.append((s, b, a, a + s + 1, view.supervised(b, a + s), view.stands(b, a, s), fed))
    step, batch, anchor, consumed, supervise, position, state_from = zip(*nodes) if nodes else ((),) * 7
    return RolloutRows(
        step=_ids(step),
        batch=_ids(batch),
        anchor=_ids(anchor),
        consumed=_ids(consumed),
        target=_ids(consumed),
        supervise=np.array(supervise, dtype=bool),
        position=_ids(position),
        state_from=_ids(state_from),
    )


def _plan(view: _View, hard: bool) -> RowPlan:
    rows = [(b, t) for b in range(view.shape[0]) for t in range(view.shape[1]) if view.together(b, t, t + 1)]
    label, supervise = [], []
    for b, t in rows:
        observed = hard and view.together(b, t + 1, t + 2)
        label.append(view.token(b, t + 2) if observed else -1)
        supervise.append(view.supervised(b, t) and (observed or not hard))
    visible = np.zeros((len(rows), len(rows)), dtype=bool)
    for i, (b, t) in enumerate(rows):
        for j, (c, u) in enumerate(rows):
            visible[i, j] = b == c and view.together(b, t, u) and view.position(b, u) <= view.position(b, t)
    source = _ids([t for _, t in rows])
    return RowPlan(
        batch=_ids([b for b, _ in rows]),
        source=source,
        advanced=source + 1,
        target=source + 1,
        label=_ids(label),
        supervise=np.array(supervise, dtype=bool),
        position=_ids([view.position(b, t) for b, t in rows]),
        visible=visible,
    )


class _View:
    """A `TokenBatch`, its structure validated whole, its numbers at valid addresses alone."""

    def __init__(self, batch: TokenBatch, field: str) -> None:
        if not isinstance(batch, TokenBatch):
            raise BadInput(field, (), "a batch is an oracle.types.TokenBatch", type(batch).__name__)
        self._field = field
        self._tokens = tensor(batch.tokens, f"{field}.tokens", "iu", ("B", "S"))
        self.shape: tuple[int, int] = (self._tokens.shape[0], self._tokens.shape[1])
        self._valid = tensor(batch.valid, f"{field}.valid", "b", self.shape)
        self._segment = tensor(batch.segment, f"{field}.segment", "iu", self.shape)
        self._position = tensor(batch.position, f"{field}.position", "iu", self.shape)
        self._supervise = tensor(batch.supervise, f"{field}.supervise", "b", self.shape)
        for b in range(self.shape[0]):
            last: dict[int, int] = {}
            for t in range(self.shape[1]):
                if not self._valid[b, t]:
                    continue
                segment, position = int(self._segment[b, t]), self.position(b, t)
                if segment in last and position <= last[segment]:
                    rule = f"positions of segment {segment} increase strictly"
                    raise BadInput(f"{field}.position", (b, t), rule, position)
                last[segment] = position

    def together(self, b: int, t: int, u: int) -> bool:
        """Whether both addresses hold a token of one segment."""
        length = self.shape[1]
        if not (0 <= t < length and 0 <= u < length and self._valid[b, t] and self._valid[b, u]):
            return False
        return bool(self._segment[b, t] == self._segment[b, u])

    def supervised(self, b: int, t: int) -> bool:
        return bool(self._supervise[b, t])

    def position(self, b: int, t: int) -> int:
        return int64(self._position[b, t], f"{self._field}.position", (b, t))

    def stands(self, b: int, a: int, s: int) -> int:
        return int64(self.position(b, a) + s, f"{self._field}.position", (b, a))

    def token(self, b: int, t: int) -> int:
        token = int64(self._tokens[b, t], f"{self._field}.tokens", (b, t))
        if token < 0:
            raise BadInput(f"{self._field}.tokens", (b, t), "a token that is read has an id of at least 0", token)
        return token


def _ids(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64).reshape(-1)
