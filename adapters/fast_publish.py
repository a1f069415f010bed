"""Publication by `oracle.fast.publish`, as `adapters.fast` hands it out: the requests of a call make one batch, their
vectors padded to the longest, with −1 as tokens and NaN as rows. One number a row is what a row holds.

The drafter is played here: its row of a token is the number of the feature before it. What vectors cannot say once they
are padded, that two of them differ in length, is refused here. A state holds neither its seed nor what was given back.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from oracle.errors import BadInput
from oracle.types import FINISH_REASONS, NOT_SHOWN, CommittedState, PublishCase

if TYPE_CHECKING:
    from torch import Tensor

COST: Mapping[str, float] = {"publish": 1e-3, "interrupted_publish": 3e-3}


class Publish:
    """The operations, with drafter rows that are recomputed or kept."""

    draft_kv = "recomputed"

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        """One batch."""
        return _Batch(cases, cls.draft_kv).published() if cases else []

    @classmethod
    def interrupted_publish(cls, cases: Sequence[PublishCase], step: int) -> list[CommittedState] | None:
        """A change is an operation that writes to a tensor of the states; the step-th raises instead."""
        batch = _Batch(cases, cls.draft_kv)
        try:
            with _failing(batch.tensors(), step):
                batch.publish()
        except _Failure:
            return batch.states()
        return None


class kept(Publish):
    """Drafter rows of accepted drafts are kept from drafting."""

    draft_kv = "kept"


class _Failure(Exception):
    pass


@contextmanager
def _failing(tensors: Sequence[Tensor], step: int) -> Iterator[None]:
    """While it lasts, the step-th write to one of the tensors raises: torch's own ones, and those of `moving.write`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from oracle.fast import moving

    held, changes = {tensor.untyped_storage().data_ptr() for tensor in tensors}, itertools.count()

    def count(tensor: Tensor) -> None:
        if tensor.untyped_storage().data_ptr() in held and next(changes) == step:
            raise _Failure

    class Failing(TorchDispatchMode):  # type: ignore[misc,name-defined,no-untyped-call,unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func._schema.is_mutable:
                count(args[0])
            return func(*args, **(kwargs or {}))

    def write(pool: Tensor, *how: Any) -> None:
        count(pool)
        real(pool, *how)

    real = moving.write
    with mock.patch.object(moving, "write", write), Failing():  # type: ignore[no-untyped-call,unused-ignore]
        yield


class _Batch:
    """Requests in tensors, and what a round makes of them."""

    def __init__(self, cases: Sequence[PublishCase], draft_kv: str) -> None:
        import torch

        from oracle.fast import publish as fast

        self.cases, self.fast, self.draft_kv = cases, fast, draft_kv
        states, rounds = [case.state for case in cases], [case.verified for case in cases]
        paths = [tuple(case.decision.path) for case in cases]
        tokens = [[*_list(state.prompt), *_list(state.output)] for state in states]
        most = max(len(verified.row_node) for verified in rounds)
        longest = max(len(path) for path in paths) + 1
        room = longest + max(max(map(len, (row, s.kv, s.features, _drafts(s)))) for row, s in zip(tokens, states))
        keeps = [draft_kv == "kept" and state.draft_kv is not None for state in states]
        for i, verified in enumerate(rounds):
            for name in ("row_token", "kv", "features", *(["draft_kv"] if keeps[i] else [])):
                found = -1 if getattr(verified, name) is None else len(getattr(verified, name))
                if found != len(verified.row_node):
                    raise BadInput(f"cases[{i}].verified.{name}", (), "has one entry a row", found)
        counters = [
            [len(_list(state.prompt)) for state in states],
            [len(row) for row in tokens],
            [-1 if state.pending is None else state.pending for state in states],
            [_reason(state) for state in states],
            [len(state.kv) for state in states],
            [len(state.features) for state in states],
            [len(row) - 1 if s.draft_kv is None else len(s.draft_kv) for row, s in zip(tokens, states)],
        ]
        self.drafts = _padded([_drafts(s) for s in states], np.nan, room)
        self.state = fast.State(
            tokens=_padded(tokens, -1, room, np.int64),
            counters=torch.tensor(np.array(counters, dtype=np.int64)),
            kv=_padded([s.kv for s in states], np.nan, room),
            features=_padded([s.features for s in states], np.nan, room),
            draft_kv=self.drafts,
        )
        drafts = _padded([v.draft_kv if kept else () for v, kept in zip(rounds, keeps)], np.nan, most)
        self.row_kv = _padded([v.kv for v in rounds], np.nan, most)
        self.verified = fast.Verified(
            row_node=_padded([v.row_node for v in rounds], -2, most, np.int64),
            row_token=_padded([v.row_token for v in rounds], -1, most, np.int64),
            kv=self.row_kv,
            features=_padded([v.features for v in rounds], np.nan, most),
            draft_kv=drafts,
            drafted=~drafts.isnan(),
        )
        self.decision = fast.Decision(
            _padded(paths, -1, None, np.int64),
            torch.tensor([len(path) for path in paths]),
            torch.tensor([_frontier(case.decision.frontier) for case in cases]),
        )
        limits = [case.limits for case in cases]
        self.limits = fast.Limits(
            _padded([one.stop_tokens for one in limits], -1, None, np.int64),
            torch.tensor([-1 if one.max_new_tokens is None else one.max_new_tokens for one in limits]),
        )

    def tensors(self) -> list[Tensor]:
        """All that the states consist of."""
        return [self.state.tokens, self.state.counters, self.state.kv, self.state.features, self.drafts]

    def publish(self) -> Any:
        """The round."""
        given = (self.state, self.verified, self.decision, self.limits, self.draft_kv)
        return self.fast.publish(*given, drafter=self._draft, validate=True)

    def _draft(self, made: Any) -> None:
        """Rows of the drafter, from the features of the same places."""
        request, place = made.redraft.nonzero(as_tuple=True)
        place = place + self.state.draft_length[request]
        self.drafts[request, place] = self.state.features[request, place]

    def published(self) -> list[CommittedState]:
        """The states after the round, with their seeds and what it gave back."""
        made = self.publish()
        found = self.states()
        for i, (state, seed) in enumerate(zip(found, made.seed.tolist())):
            freed = self.row_kv[i][made.round.freed[i]].cpu().numpy()
            found[i] = dataclasses.replace(state, seed=None if seed < 0 else float(state.features[seed]), freed=freed)
        return found

    def states(self) -> list[CommittedState]:
        """The states as they stand in the tensors."""
        found = []
        for i, case in enumerate(self.cases):
            prompt, length, pending, reason, kv, features, drafts = self.state.counters[:, i].tolist()
            tokens = self.state.tokens[i].cpu().numpy().copy()
            found.append(
                CommittedState(
                    prompt=tokens[:prompt],
                    output=tokens[prompt:length],
                    kv=self.state.kv[i, :kv].cpu().numpy().copy(),
                    features=self.state.features[i, :features].cpu().numpy().copy(),
                    pending=None if pending < 0 else pending,
                    finished=reason != 0,
                    seed=NOT_SHOWN,
                    freed=NOT_SHOWN,
                    finish_reason=None if reason == 0 else FINISH_REASONS[reason - 1],
                    draft_kv=None if case.state.draft_kv is None else self.drafts[i, :drafts].cpu().numpy().copy(),
                )
            )
        return found


def _list(values: Any) -> list[int]:
    found: list[int] = _integers(values).tolist()
    return found


def _drafts(state: CommittedState) -> Any:
    return () if state.draft_kv is None else state.draft_kv


def _reason(state: CommittedState) -> int:
    """1 or 2 where it is finished, 0 where it is not."""
    if not state.finished:
        return 0
    return 1 + FINISH_REASONS.index(state.finish_reason or FINISH_REASONS[0])


def _frontier(token: object) -> int:
    """A token, or −1 where it is none: it may be anything where nobody reads it."""
    fits = isinstance(token, (int, np.integer)) and not isinstance(token, bool) and 0 <= token < 2**63
    return int(token) if fits else -1  # type: ignore[call-overload]


def _integers(values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"a vector of integers, not {array.dtype} of shape {array.shape}")
    return array


def _padded(vectors: Sequence[Any], filler: float, size: int | None = None, dtype: Any = np.float64) -> Tensor:
    """[B, size], or as long as the longest."""
    import torch

    arrays = [_integers(v) if dtype is np.int64 else np.asarray(v, dtype=np.float64) for v in vectors]
    found = np.full((len(arrays), max(map(len, arrays)) if size is None else size), filler, dtype=dtype)
    for row, array in zip(found, arrays):
        row[: len(array)] = array
    return torch.as_tensor(found)
