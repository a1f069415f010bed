"""Right publications that do it in another way: by masks, in narrow types, with kept draft rows, showing little."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from adapters.faulty.publishing import ROOT, Publisher, Round
from adapters.interface import Declaration, NotApplicable
from oracle import publish as oracle
from oracle.types import NOT_SHOWN, CommittedState, PublishCase


class OtherCode(Publisher):
    """Written apart from the oracle, step by step."""


class KeepsDraftRows(Publisher, draft_kv="kept"):
    """Keeps the rows of accepted drafts as drafting made them."""


class MovesThroughACopy(Publisher):
    """Moves accepted rows to the front of a buffer, from a copy of it."""

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        rows = cls.kv_rows(found, nodes)
        buffer, source = np.array(found.kv), np.array(found.kv)
        buffer[: len(rows)] = source[rows]
        return [*found.case.state.kv.tolist(), *buffer[: len(rows)].tolist()]


class Narrow(Publisher):
    """Returns token ids and rows in 32 bits, where they fit, and freed rows as a tuple."""

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        state = super().member(found)
        wide = max([*state.prompt.tolist(), *state.output.tolist()]) >= 2**31
        rows = {name: getattr(state, name).astype(np.float32) for name in ("kv", "features")}
        tokens = {name: getattr(state, name).astype(np.int64 if wide else np.int32) for name in ("prompt", "output")}
        return dataclasses.replace(state, **rows, **tokens, freed=tuple(np.asarray(state.freed).tolist()))


class OutputsAlone(Publisher):
    """An engine's sampler: it shows tokens, and nothing of what is stored."""

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        state = super().member(found)
        names = ("kv", "features", "pending", "finished", "seed", "freed", "finish_reason", "draft_kv")
        return CommittedState(state.prompt, state.output, **dict.fromkeys(names, NOT_SHOWN))


class RowsAlone(Publisher):
    """A cache: it shows KV and what is given back, knows no ends and no padding, and one request at a time."""

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        if len(cases) > 1:
            raise NotApplicable("one request at a time")
        for case in cases:
            if case.limits.stop_tokens or case.limits.max_new_tokens is not None:
                raise NotApplicable("a cache does not know where a request ends")
            if (case.verified.row_node == -2).any():
                raise NotApplicable("it has no padding")
        return super().publish(cases)

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        names = ("features", "pending", "finished", "seed", "finish_reason", "draft_kv")
        return dataclasses.replace(super().member(found), **dict.fromkeys(names, NOT_SHOWN))


class NoRoot:
    """The oracle for an engine whose verification never holds the root."""

    DECLARATION = Declaration("NoRoot", "1.0", conventions={"root_in_verification": "no"}, cost={"publish": 2e-4})

    @staticmethod
    def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
        if any(ROOT in case.verified.row_node.tolist() for case in cases):
            raise NotApplicable("its verification has no root row")
        return oracle.publish(cases)
