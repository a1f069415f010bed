"""Publication in paged storage: the same model as `oracle.publish`, kept as engines keep it.

A request's rows lie in blocks of `block_size` slots, found through its table. Verification appends its rows behind the
committed length, in verification order; publication moves the accepted ones together, gives back the blocks behind
them and swaps in a new catalogue, which is the moment of publication (`oracle.blocks` says why there is nothing to
undo). Up to it only slots behind every committed length are written, and never a block that two tables hold: it is
copied first. A batch is one transaction, and so is every other operation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import takewhile

from oracle.blocks import DRAFT, FEATURE, KV, Interrupted, Pool, Request, Work
from oracle.errors import BadInput
from oracle.moves import ordered
from oracle.publication import Round, floats, ids, read
from oracle.tensors import listed, one_of, tensor, whole
from oracle.types import DRAFT_KV, ROOT_ROW, CommittedState, Decision, Limits, PublishCase, Verified

Turn = tuple[str, Verified, Decision, Limits]
"""One request's part of a round, by name."""


def publish(cases: Sequence[PublishCase], block_size: int = 16, draft_kv: str = "recomputed") -> list[CommittedState]:
    """As `oracle.publish.publish`, through a fresh store that holds the states of the cases. Raises `BadInput`."""
    store, turns = loaded(Store, cases, block_size, draft_kv)
    return store.publish(turns, draft_kv)


def interrupted_publish(
    cases: Sequence[PublishCase], step: int, block_size: int = 16, draft_kv: str = "recomputed"
) -> list[CommittedState] | None:
    """The states found after a publication that failed at its step-th change; None where it has no more changes.

    Raises `BadInput`.
    """
    store, turns = loaded(Store, cases, block_size, draft_kv)
    return interrupted(store, turns, step, draft_kv)


class Store(Pool):
    """Requests by name, their rows in blocks."""

    # ---- requests come, are read, and go

    def load(self, name: str, state: CommittedState) -> None:
        """Take in a request as it is. The blocks of a prefix that another request holds are shared.

        Raises `BadInput` for rows that do not fit each other, `OutOfBlocks`.
        """
        if name in self.catalogue.requests:
            raise BadInput("name", (), "is the name of one request", name)
        drafts = None if state.draft_kv is None else len(state.draft_kv)
        request = Request(
            prompt=tuple(int(token) for token in state.prompt),
            output=tuple(int(token) for token in state.output),
            blocks=(),
            length=0,
            drafts=drafts,
            pending=None if state.pending is None else int(state.pending),
            finished=bool(state.finished),
            seed=None if state.seed is None else float(state.seed),
            freed=tuple(float(row) for row in state.freed),
            finish_reason=state.finish_reason,
        )
        self._fill(name, request, state)

    def resume(self, name: str, rows: CommittedState) -> None:
        """Take in the rows of a preempted request, which prefill made anew of its tokens.

        Raises `BadInput`, `OutOfBlocks`.
        """
        request = self.request(name)
        if request.blocks:
            raise BadInput("name", (), "is a preempted request", name)
        seed = float(rows.features[-1]) if request.pending is not None and len(rows.features) else None
        drafts = None if rows.draft_kv is None else len(rows.draft_kv)
        self._fill(name, dataclasses.replace(request, seed=seed, drafts=drafts), rows)

    def fork(self, name: str, source: str) -> None:
        """Another request with the state of `source`, whose blocks both hold. Raises `BadInput`."""
        if name in self.catalogue.requests:
            raise BadInput("name", (), "is the name of one request", name)
        work, request = self.begin(), self.request(source)
        for block in request.blocks:
            work.share(block)
        work.requests[name] = request
        self.commit(work)

    def state(self, name: str) -> CommittedState:
        """A request's state, in arrays of its own; a preempted one has no rows. Raises `BadInput`."""
        request = self.request(name)
        kv, features = (self._rows(request, kind, request.length) for kind in (KV, FEATURE))
        return CommittedState(
            prompt=ids(request.prompt),
            output=ids(request.output),
            kv=floats(kv),
            features=floats(features),
            pending=request.pending,
            finished=request.finished,
            seed=request.seed,
            freed=request.freed,
            finish_reason=request.finish_reason,
            draft_kv=None if request.drafts is None else floats(self._rows(request, DRAFT, request.drafts)),
        )

    def preempt(self, name: str) -> None:
        """Give back all blocks of a request, which keeps its tokens and nothing of drafting. Raises `BadInput`."""
        request, work = self.request(name), self.begin()
        for block in request.blocks:
            work.give(block)
        drafts = None if request.drafts is None else 0
        work.requests[name] = dataclasses.replace(request, blocks=(), length=0, drafts=drafts, seed=None, freed=())
        self.commit(work)

    def drop(self, name: str) -> None:
        """Forget a request and give back its blocks. Raises `BadInput`."""
        request, work = self.request(name), self.begin()
        for block in request.blocks:
            work.give(block)
        del work.requests[name]
        self.commit(work)

    def rollback(self, name: str, tokens: int) -> None:
        """Go back to the first `tokens` tokens of the output; the last token left waits for its KV again.

        Raises `BadInput`.
        """
        request, work = self.request(name), self.begin()
        if whole(tokens, "tokens", 0) > len(request.output):
            raise BadInput("tokens", (), f"is no more than the {len(request.output)} tokens of the output", tokens)
        output = request.output[:tokens]
        length = len(request.prompt) + len(output) - 1
        if length > request.length:
            raise BadInput("name", (), "is no preempted request", name)
        kept = self._trimmed(work, list(request.blocks), length)
        work.requests[name] = dataclasses.replace(
            request,
            output=output,
            blocks=kept,
            length=length,
            drafts=None if request.drafts is None else length,
            pending=(request.prompt + output)[-1],
            finished=False,
            seed=self.read(FEATURE, self.slot(kept, length - 1)) if length else None,
            freed=(),
            finish_reason=None,
        )
        self.commit(work)

    # ---- publication

    def publish(self, turns: Sequence[Turn], draft_kv: str = "recomputed") -> list[CommittedState]:
        """Publish a round of each of these requests. Raises `BadInput`, `OutOfBlocks`; then nothing has changed."""
        kept = one_of(draft_kv, "draft_kv", DRAFT_KV) == "kept"
        rounds: dict[str, Round] = {}
        for i, (name, verified, decision, limits) in enumerate(turns):
            if name in rounds:
                raise BadInput(f"cases[{i}]", (), "a request has one round in a batch", name)
            case = PublishCase(self.state(name), verified, decision, limits)
            rounds[name] = read(case, f"cases[{i}]", kept)
        work = self.begin()
        for name, found in rounds.items():
            self.publish_one(work, name, found)
        self.commit(work)
        return [self.state(name) for name in rounds]

    def publish_one(self, work: Work, name: str, found: Round) -> None:
        """The part of a transaction that is one request's."""
        before = work.requests[name]
        start, drafts = before.length, before.drafts
        table = self.writable(work, before, start if drafts is None else min(start, drafts))
        self.extend(work, table, start + len(found.row_kv))
        self.append(table, start, found)
        root = [ROOT_ROW] if ROOT_ROW in found.rows else []
        rows = [found.rows[node] for node in root + found.accepted]
        freed = [self.read(KV, self.slot(table, start + row)) for row in sorted(found.rows.values()) if row not in rows]
        length = start + len(rows)
        self.gather(table, (KV, FEATURE), {start + i: start + row for i, row in enumerate(rows)})
        if drafts is not None:
            self.draft(table, start, drafts, found)
        work.requests[name] = dataclasses.replace(
            before,
            output=before.output + tuple(found.new),
            blocks=self._trimmed(work, table, length),
            length=length,
            drafts=None if drafts is None else drafts + len(found.new),
            pending=found.pending,
            finished=found.reason is not None,
            seed=None if found.pending is None else self.read(FEATURE, self.slot(table, length - 1)),
            freed=tuple(freed),
            finish_reason=found.reason,
        )

    def writable(self, work: Work, request: Request, first: int) -> list[int]:
        """The request's table, with blocks of its own from place `first` on: what others hold, too, is copied."""
        table = list(request.blocks)
        for i in range(first // self.block_size, len(table)):
            if work.holders[table[i]] > 1:
                copy = work.take()
                for place in range(i * self.block_size, min((i + 1) * self.block_size, request.length)):
                    for kind in (KV, FEATURE, DRAFT):
                        at = place % self.block_size
                        value = self.read(kind, table[i] * self.block_size + at)
                        self.write(kind, copy * self.block_size + at, value)
                work.give(table[i])
                table[i] = copy
        return table

    def extend(self, work: Work, table: list[int], places: int) -> None:
        """Take blocks until the table has as many places."""
        while len(table) < self.blocks_for(places):
            table.append(work.take())

    def append(self, table: list[int], start: int, found: Round) -> None:
        """Verification: its rows, but padding, behind the committed ones."""
        for row in sorted(found.rows.values()):
            slot = self.slot(table, start + row)
            self.write(KV, slot, found.row_kv[row])
            self.write(FEATURE, slot, found.row_features[row])
            if found.row_draft_kv is not None:
                self.write(DRAFT, slot, found.row_draft_kv[row])

    def gather(self, table: list[int], kinds: Sequence[int], moves: dict[int, int]) -> None:
        """Move rows from place to place (destination → source), so that none is overwritten before it is read."""
        for to, source in ordered(moves):
            for kind in kinds:
                self.write(kind, self.slot(table, to), self.read(kind, self.slot(table, source)))

    def draft(self, table: list[int], start: int, drafts: int, found: Round) -> None:
        """The drafter's rows of new tokens, each beside the feature before its token: kept, or made of that feature."""
        moves = {}
        if found.row_draft_kv is not None:
            for i, node in enumerate(found.accepted):
                if not math.isnan(found.row_draft_kv[found.rows[node]]):
                    moves[drafts + i] = start + found.rows[node]
        self.gather(table, (DRAFT,), moves)
        for place in range(drafts, drafts + len(found.new)):
            if place not in moves:
                slot = self.slot(table, place)
                self.write(DRAFT, slot, self.read(FEATURE, slot))

    # ---- what these share

    def _rows(self, request: Request, kind: int, count: int) -> list[float]:
        return [self.read(kind, self.slot(request.blocks, place)) for place in range(count)]

    def _trimmed(self, work: Work, table: list[int], length: int) -> tuple[int, ...]:
        """The table without the blocks behind `length` places, which are given back."""
        kept = self.blocks_for(length)
        for block in table[kept:]:
            work.give(block)
        return tuple(table[:kept])

    def _fill(self, name: str, request: Request, rows: CommittedState) -> None:
        """Write a request's rows, but those of a prefix that another request holds: its blocks are shared."""
        sequence = request.prompt + request.output
        length = len(sequence) - (request.pending is not None)
        kv = tensor(rows.kv, "kv", "f", (length,)).tolist()
        features = tensor(rows.features, "features", "f", (length,)).tolist()
        draft_kv: list[float | None] = [None] * length
        if rows.draft_kv is not None:
            drafts = len(sequence) - 1
            draft_kv[:drafts] = tensor(rows.draft_kv, "draft_kv", "f", (drafts,)).tolist()
        mine = list(zip(sequence, kv, features, draft_kv))
        work, shared, source = self.begin(), 0, None
        for other in work.requests.values():
            alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(mine, self._places(other)))))
            if alike > shared:
                shared, source = alike, other
        blocks = () if source is None else source.blocks[: self.blocks_for(shared)]
        for block in blocks:
            work.share(block)
        table = list(blocks)
        if shared < length:
            table = self.writable(work, dataclasses.replace(request, blocks=blocks, length=shared), shared)
        self.extend(work, table, length)
        for place in range(shared, length):
            _, *values = mine[place]
            for kind, value in zip((KV, FEATURE, DRAFT), values):
                if value is not None:
                    self.write(kind, self.slot(table, place), value)
        work.requests[name] = dataclasses.replace(request, blocks=tuple(table), length=length)
        self.commit(work)

    def _places(self, request: Request) -> list[tuple[int, float, float, float | None]]:
        """Token, KV, feature and the drafter's row of every place."""
        kv, features = (self._rows(request, kind, request.length) for kind in (KV, FEATURE))
        draft_kv: list[float | None] = [None] * request.length
        draft_kv[: request.drafts or 0] = self._rows(request, DRAFT, request.drafts or 0)
        return list(zip(request.prompt + request.output, kv, features, draft_kv))


def loaded(kind: type[Store], cases: Sequence[PublishCase], block_size: int, draft_kv: str) -> tuple[Store, list[Turn]]:
    """A fresh store with the states of the cases and room for their rounds, and the rounds. Raises `BadInput`."""
    listed(cases, "cases", PublishCase)
    kept = one_of(draft_kv, "draft_kv", DRAFT_KV) == "kept"
    rounds = [read(case, f"cases[{i}]", kept) for i, case in enumerate(cases)]
    size = whole(block_size, "block_size", 1)
    # beside full blocks each needs one that is begun, and one that is shared and copied
    most = sum((len(found.kv) + len(found.row_kv)) // size + 2 for found in rounds)
    store = kind(most, size)
    for i, case in enumerate(cases):
        store.load(str(i), case.state)
    return store, [(str(i), case.verified, case.decision, case.limits) for i, case in enumerate(cases)]


def interrupted(store: Store, turns: Sequence[Turn], step: int, draft_kv: str) -> list[CommittedState] | None:
    """The states found after a publication that failed at its step-th change; None where it has no more changes."""
    store.fail_at(whole(step, "step", 0))
    try:
        store.publish(turns, draft_kv)
    except Interrupted:
        return [store.state(name) for name, *_ in turns]
    return None
