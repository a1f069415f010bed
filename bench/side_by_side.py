"""A race: contestants on the same inputs, answers compared first, then round by round in turn, on one thread.

    def test_verify(benchmark):
        race(benchmark, "a tree of 61 nodes", [Contestant("fast", …), peer(…), moved(…)], same=…, targets=[…])

pytest-benchmark drives the rounds and stores what a race found, under `extra_info`, in its JSON. Ratios say how many
times as long as the fast path a contestant takes: the ratio of the medians of the process's own time on a core, with an
interval of the median of the rounds' ratios, which needs no law of their noise (order statistics). Memory is what the
process grows by during one call.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.contestants import Contestant, Missing, Peer, Racer, bound, moved, peer

__all__ = ["Contestant", "Target", "bound", "moved", "peer", "race"]

FORMAT = 1
LEVEL = 0.99
"""Of an interval, where there are rounds enough for it (eight)."""


class Differs(AssertionError):
    """Two contestants answer differently; nothing is timed."""


@dataclass(frozen=True)
class Target:
    """What is to be reached: another takes `times` as long at least, or the fast path `within` as long at most."""

    other: str
    """A name, or its first words: `angelslim` is any version of it."""
    times: float | None = None
    within: float | None = None

    @property
    def least(self) -> float:
        """The least ratio of the other one to the fast path."""
        return self.times if self.times is not None else 1 / (self.within or math.inf)

    def told(self) -> str:
        """`≥ 12×` or `≤ 1.2×`."""
        return f"≥ {self.times:g}×" if self.times is not None else f"≤ {self.within:g}×"


def race(
    benchmark: Any,
    title: str,
    contestants: Sequence[Racer | Missing],
    *,
    same: Callable[[Any, Any], None],
    rounds: int = 15,
    calls: int = 1,
    memory: bool = False,
    targets: Sequence[Target] = (),
    growth: tuple[str, float] | None = None,
) -> dict[str, Any]:
    """Compare, then time; the first contestant is the fast path that the ratios refer to.

    same(fast's answer, another's) raises `AssertionError` where they differ. calls: how many make one measurement.
    growth: the axis of a plot and where on it this race stands; races of one test function share a plot.
    """
    torch.set_num_threads(1)
    racers = [one for one in contestants if not isinstance(one, Missing)]
    missing = [one for one in contestants if isinstance(one, Missing)]
    try:
        _compare(racers, same, title)
        taken: dict[str, list[tuple[float, float]]] = {one.name: [] for one in racers}
        turn = iter(range(rounds + 1))

        def one_round() -> None:
            gc.collect()
            number = next(turn)
            # in another order each time: whoever runs behind a large allocation pays for it
            for one in random.Random(number).sample(racers, len(racers)):
                found = one.time(one.calls or calls)
                if number:  # the first round warms up
                    taken[one.name].append((found.cpu, found.wall))

        benchmark.pedantic(one_round, rounds=rounds, iterations=1, warmup_rounds=1)
        grown = {one.name: one.memory() if memory and one.kind != "bound" else None for one in racers}
    finally:
        for one in racers:
            if isinstance(one, Peer):
                one.close()
    rows = [_row(one, racers[0], taken, grown[one.name]) for one in racers]
    benchmark.extra_info["race"] = {
        "format": FORMAT,
        "title": title,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "calls": calls,
        "contestants": rows,
        "missing": [{"name": one.name, "why": one.why} for one in missing],
        "targets": [_reached(target, rows, missing) for target in targets],
        "growth": None if growth is None else {"axis": growth[0], "at": growth[1]},
    }
    return dict(benchmark.extra_info["race"])


def _compare(racers: Sequence[Racer], same: Callable[[Any, Any], None], title: str) -> None:
    expected = racers[0].answer()
    for one in racers[1:]:
        if one.compared:
            try:
                same(expected, one.answer())
            except AssertionError as error:
                raise Differs(f"{title}: {one.name} answers otherwise than {racers[0].name}: {error}") from None


def _row(one: Racer, first: Racer, taken: dict[str, list[tuple[float, float]]], grown: int | None) -> dict[str, Any]:
    cpu, wall = ([each[i] for each in taken[one.name]] for i in (0, 1))
    base = [each[0] for each in taken[first.name]]
    low, high, level = interval([a / b for a, b in zip(cpu, base)])
    return {
        "name": one.name,
        "kind": one.kind,
        "seconds": statistics.median(cpu),
        "least": min(cpu),
        "most": max(cpu),
        "wall": statistics.median(wall),
        "peak_bytes": grown,
        "ratio": statistics.median(cpu) / statistics.median(base),
        "interval": [low, high],
        "level": level,
    }


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float, float]:
    """The narrowest pair of order statistics, from the outside in, that holds the median with `level`, and its level.

    P(the k-th smallest of n ≤ median ≤ the k-th largest) = 1 − 2 P(B < k), B binomial (n, ½), whatever the law is.
    Where even the extremes hold it with less, they are the interval, and the level says so.
    """
    ordered, n = sorted(values), len(values)
    k, below = 1, 1.0  # P(B < k) · 2ⁿ
    while 1 - 2 * (below + math.comb(n, k)) / 2**n >= level:
        below += math.comb(n, k)
        k += 1
    return ordered[k - 1], ordered[n - k], 1 - 2 * below / 2**n


def _reached(target: Target, rows: Sequence[dict[str, Any]], missing: Sequence[Missing]) -> dict[str, Any]:
    """`reached` or `missed` where the whole interval says so, else `undecided`; `not run` without the other one."""
    found = [row for row in rows if row["name"].startswith(target.other)]
    if not found and not any(one.name.startswith(target.other) for one in missing):
        raise ValueError(f"targets: {target.other} takes no part in this race")
    said = {"other": target.other, "asks": target.told(), "least": target.least}
    if not found:
        return said | {"verdict": "not run"}
    low, high = found[0]["interval"]
    verdict = "reached" if low >= target.least else "missed" if high < target.least else "undecided"
    return said | {"verdict": verdict}
