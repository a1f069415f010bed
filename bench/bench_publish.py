"""What it costs to publish a round of a batch, and to move the rows that it keeps.

    python -m bench.bench_publish [--requests 1 16 64] [--rounds 100] [--json FILE]

Trees of 60 drafts below the root, paths of `--depth`, sequences of 2000 tokens in buffers of 2304, one slot a row. One
thread, contestants in turn on the same inputs, medians of the process's own time, and ratios to the fast path; results
are checked equal first. `loop` is the plain version, a request at a time; `oracle` is NumPy, and makes its states anew.
Rows of a pool move beside `pool[destination] = pool[source]`, which is what SGLang's `move_kv_cache_native` does a
layer, and beside a copy of as many bytes, there and back, which is the bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle import publish as oracle
from oracle import types
from oracle.fast.publish import Decision, Limits, State, Verified, move_rows, publish

DRAFTS, PROMPT, OUTPUT, ROOM = 60, 1500, 500, 2304
STOP = 31999
Contestant = Callable[[], Any]


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

    def shown(self) -> list[Tensor]:
        kv, tokens = self.state.kv_length, self.state.length
        held = [row[:n].clone() for rows in (self.state.kv, self.state.features) for row, n in zip(rows, kv)]
        return [self.state.counters.clone(), *held, *(row[:n].clone() for row, n in zip(self.state.tokens, tokens))]


def publishing(requests: int, depth: int) -> dict[str, Contestant]:
    """A whole round."""
    given = Round(requests, depth)
    given.fast()
    first = given.shown()
    given.loop()
    if not all(torch.equal(one, other) for one, other in zip(first, given.shown())):
        raise ValueError("the loop publishes something else")
    for row, state in zip(given.state.kv, oracle.publish(given.cases)):
        if not np.array_equal(row[: len(state.kv)].numpy(), state.kv):
            raise ValueError("the oracle publishes something else")
    return {
        "fast": given.fast,
        "fast, unchecked": lambda: given.fast(validate=False),
        "loop": given.loop,
        "oracle": lambda: oracle.publish(given.cases),
    }


def moving(requests: int, depth: int, width: int) -> dict[str, Contestant]:
    """Accepted rows of a pool into the places behind what is held, where rejected rows stand."""
    rng = np.random.default_rng(1)
    window = DRAFTS + 1
    pool = torch.randn(requests * window, width).to(torch.bfloat16)
    rows = np.array([np.sort(rng.permutation(window)[: depth + 1]) for _ in range(requests)])
    base = np.arange(requests)[:, None] * window
    source = torch.tensor((base + rows).reshape(-1))
    destination = torch.tensor((base + np.arange(depth + 1)).reshape(-1))
    once, other = pool.clone(), pool.clone()
    move_rows(once, source, destination)
    other[destination] = other[source]
    if not torch.equal(once, other):
        raise ValueError("other rows")
    there, back = torch.empty(len(source), width, dtype=pool.dtype), pool[: len(source)].clone()

    def assigned() -> None:
        pool[destination] = pool[source]

    def copied() -> None:
        there.copy_(back)
        back.copy_(there)

    return {
        "fast": lambda: move_rows(pool, source, destination, validate=False),
        "fast, checked": lambda: move_rows(pool, source, destination),
        "pool[…] = pool[…]": assigned,
        "copy, there and back": copied,
    }


def timed(runs: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds of the process's own time, the contestants in turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            found[name].append(time.process_time() - start)
    return found


def main() -> None:
    """Print a table each; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--width", type=int, default=4096, help="numbers a row of the pool")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    report = []
    for requests in asked.requests:
        report.append(told(f"publish, B = {requests}", timed(publishing(requests, asked.depth), asked.rounds)))
        moved = moving(requests, asked.depth, asked.width)
        report.append(told(f"rows of {asked.width}, B = {requests}", timed(moved, asked.rounds)))
    if asked.json is not None:
        asked.json.write_text(json.dumps(report, indent=1))


def told(name: str, found: dict[str, list[float]]) -> dict[str, Any]:
    """The table, printed."""
    own = statistics.median(found["fast"])
    print(name)
    table = {}
    for contestant, seconds in found.items():
        median = statistics.median(seconds)
        table[contestant] = {"seconds": median, "least": min(seconds), "most": max(seconds), "ratio": median / own}
        least = f"(least {1e3 * min(seconds):.3f})"
        print(f"  {contestant:20} {1e3 * median:9.3f} ms {least}  {median / own:6.2f}", flush=True)
    return {"table": name, "contestants": table}


if __name__ == "__main__":
    main()
