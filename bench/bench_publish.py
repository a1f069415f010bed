"""What it costs to publish a round of a batch, and to move the rows that it keeps.

    python -m pytest bench/bench_publish.py

Trees of 60 drafts below the root, sequences of 2000 tokens in buffers of 2304, one slot a row, paths of seven drafts
where nothing else is said. `loop` is the plain version, a request at a time, which refuses nothing and is quickest with
a request or two; `oracle` is NumPy, and makes its states anew. Rows of a pool move beside SGLang's
`move_kv_cache_native`, `pool[…] = pool[…]`, and beside copies of as many bytes: there and back, as rows are read before
they are written, and once, which nobody beats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import Tensor

from bench.side_by_side import Contestant, bound, moved, peer, race
from oracle import publish as oracle
from oracle import types
from oracle.fast.publish import Decision, Limits, State, Verified, move_rows, publish

DRAFTS, DEPTH, PROMPT, OUTPUT, ROOM = 60, 7, 1500, 500, 2304
STOP = 31999


class Round:
    """The same round in tensors, and as the oracle's cases."""

    def __init__(self, requests: int, depth: int) -> None:
        rng = np.random.default_rng(0)
        self.cases = [self._case(rng, depth) for _ in range(requests)]
        states = [case.state for case in self.cases]
        length = PROMPT + OUTPUT
        tokens = np.zeros((requests, ROOM), dtype=np.int64)
        tokens[:, :length] = [np.concatenate([state.prompt, state.output]) for state in states]
        counters = [PROMPT, length, 0, 0, length - 1, length - 1, length - 1]
        self.counters = torch.tensor(counters)[:, None].repeat(1, requests)
        self.counters[2] = torch.tensor([int(state.pending or 0) for state in states])
        self.state = State(torch.tensor(tokens), self.counters.clone(), self._held("kv"), self._held("features"))
        verified = [case.verified for case in self.cases]
        names = ("row_node", "row_token", "kv", "features")
        self.verified = Verified(*(torch.tensor(np.array([getattr(v, n) for v in verified])) for n in names))
        self.decision = Decision(
            torch.tensor(np.array([case.decision.path for case in self.cases]).reshape(requests, depth)),
            torch.full((requests,), depth),
            torch.tensor([case.decision.frontier for case in self.cases]),
        )
        self.limits = Limits(torch.full((requests, 1), STOP), torch.full((requests,), 2000))

    @staticmethod
    def _case(rng: np.random.Generator, depth: int) -> types.PublishCase:
        prompt, output = rng.integers(0, STOP, PROMPT), rng.integers(0, STOP, OUTPUT)
        node = np.arange(-1, DRAFTS)
        token = rng.integers(0, STOP, DRAFTS + 1)
        token[0] = output[-1]
        held = rng.random((2, PROMPT + OUTPUT - 1))
        return types.PublishCase(
            types.CommittedState(prompt, output, held[0], held[1], int(output[-1]), False),
            types.Verified(node, token, rng.random(DRAFTS + 1), rng.random(DRAFTS + 1)),
            types.Decision(tuple(sorted(rng.permutation(DRAFTS)[:depth].tolist())), int(rng.integers(0, STOP))),
            types.Limits((STOP,), 2000),
        )

    def _held(self, name: str) -> Tensor:
        found = torch.zeros(len(self.cases), ROOM, dtype=torch.float64)
        for row, case in zip(found, self.cases):
            values = torch.tensor(np.array(getattr(case.state, name)))
            row[: len(values)] = values
        return found

    def again(self) -> None:
        """As before the round: what stands behind the counters is nobody's."""
        self.state.counters.copy_(self.counters)

    def fast(self, **how: Any) -> None:
        self.again()
        publish(self.state, self.verified, self.decision, self.limits, **how)

    def loop(self) -> None:
        """A request at a time, in place."""
        self.again()
        state, verified = self.state, self.verified
        for b in range(len(self.cases)):
            length, held = int(state.length[b]), int(state.kv_length[b])
            nodes = verified.row_node[b].tolist()
            rows = [nodes.index(-1)]
            new: list[int] = []
            reason = 0
            room = int(self.limits.max_new_tokens[b]) - (length - PROMPT)  # type: ignore[index]
            for node in self.decision.path[b].tolist():
                rows.append(nodes.index(node))
                new.append(int(verified.row_token[b, rows[-1]]))
                reason = 1 if new[-1] == STOP else 2 if len(new) == room else 0
                if reason:
                    break
            pending = -1
            if not reason:
                pending = int(self.decision.frontier[b])
                new.append(pending)
                reason = 1 if pending == STOP else 2 if len(new) == room else 0
            place = torch.tensor(rows)
            assert verified.kv is not None and verified.features is not None
            state.kv[b, held : held + len(rows)] = verified.kv[b, place]
            state.features[b, held : held + len(rows)] = verified.features[b, place]
            state.tokens[b, length : length + len(new)] = torch.tensor(new)
            freed = torch.ones(len(nodes), dtype=torch.bool)
            freed[place] = False
            counters = [PROMPT, length + len(new), pending, reason, *[held + len(rows)] * 2, length - 1 + len(new)]
            state.counters[:, b] = torch.tensor(counters)

    def shown(self) -> list[types.CommittedState]:
        """The states as the oracle tells them, as far as both do."""
        found = []
        for b, (prompt, length, pending, reason, kv, features, _) in enumerate(self.state.counters.T.tolist()):
            rows = (self.state.tokens[b, prompt:length], self.state.kv[b, :kv], self.state.features[b, :features])
            output, *held = (each.numpy().copy() for each in rows)
            found.append(types.CommittedState(self.cases[b].state.prompt, output, *held, pending, reason != 0))
        return found


def same_states(found: list[types.CommittedState], other: list[types.CommittedState]) -> None:
    for one, its in zip(found, other, strict=True):
        for name in ("output", "kv", "features", "pending", "finished"):
            assert_array_equal(getattr(one, name), getattr(its, name), err_msg=name)


def publishing(benchmark: Any, requests: int, depth: int, growth: tuple[str, float]) -> None:
    """A whole round."""
    given = Round(requests, depth)

    def ours(name: str, run: Callable[[], None]) -> Contestant:
        return Contestant(name, run, lambda: (run(), given.shown())[1])

    race(
        benchmark,
        f"a round published, B = {requests}, paths of {depth}",
        [
            ours("fast", given.fast),
            ours("fast, numbers not looked at", lambda: given.fast(validate=False)),
            ours("loop", given.loop),
            Contestant("oracle", lambda: oracle.publish(given.cases), calls=1),
        ],
        same=same_states,
        rounds=15,
        calls=5,
        memory=True,
        growth=growth,
    )


@pytest.mark.parametrize("requests", [1, 4, 16, 64])
def test_publish(benchmark: Any, requests: int) -> None:
    publishing(benchmark, requests, DEPTH, ("requests", requests))


@pytest.mark.parametrize("depth", [1, 4, 16, 60])
def test_publish_deeper(benchmark: Any, depth: int) -> None:
    publishing(benchmark, 16, depth, ("depth of a path", depth))


@pytest.mark.parametrize("requests", [1, 16, 64])
def test_moved_rows(benchmark: Any, requests: int) -> None:
    """Accepted rows of a layer's keys and values into the places behind what is held, where rejected rows stand."""
    rng = np.random.default_rng(1)
    window, heads, size = DRAFTS + 1, 8, 128
    pools = [torch.from_numpy(rng.random((requests * window, heads, size)).astype(np.float16)) for _ in "kv"]
    rows = np.array([np.sort(rng.permutation(window)[: DEPTH + 1]) for _ in range(requests)])
    base = np.arange(requests)[:, None] * window
    source = torch.tensor((base + rows).reshape(-1))
    destination = torch.tensor((base + np.arange(DEPTH + 1)).reshape(-1))
    given = (*pools, source, destination)
    inputs = {name: each.numpy() for name, each in zip(("keys", "values", "source", "destination"), given)}
    there, back = (torch.empty(2 * len(source), heads, size, dtype=pools[0].dtype) for _ in range(2))

    def fast(held: list[Tensor], validate: bool) -> list[Tensor]:
        for pool in held:
            move_rows(pool, source, destination, validate=validate)
        return held

    def assigned(held: list[Tensor]) -> list[Tensor]:
        for pool in held:
            pool[destination] = pool[source]
        return held

    def same(found: list[Tensor], other: Any) -> None:
        for one, its in zip(found, [*other.values()] if isinstance(other, dict) else other):
            assert_array_equal(one, its)

    def fresh() -> list[Tensor]:
        return [pool.clone() for pool in pools]

    race(
        benchmark,
        f"rows moved, B = {requests}, {DEPTH + 1} of {window} rows of {2 * heads * size * 2} bytes each",
        [
            Contestant("fast", lambda: fast(pools, False), lambda: fast(fresh(), False)),
            Contestant("fast, checked", lambda: fast(pools, True), lambda: fast(fresh(), True)),
            Contestant("pool[…] = pool[…]", lambda: assigned(pools), lambda: assigned(fresh())),
            peer("adapters.sglang", "bench.peers.sglang:moved_rows", inputs),
            bound("copied, there and back", lambda: (there.copy_(back), back.copy_(there))),
            moved(2 * there.nbytes),  # once: each byte is read and written
        ],
        same=same,
        rounds=15,
        calls=10,
        growth=("requests", requests),
    )
