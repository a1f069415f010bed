"""What the checks of metrics run on, and cases worth keeping by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance import draw
from conformance.casefile import storable
from oracle import metrics as oracle
from oracle.types import RoundsCase

Round = tuple[int, int, int]
"""Drafted, accepted, emitted."""
SHOWN = 24


@storable
@dataclass(frozen=True, eq=False)
class Runs:
    """Runs that are summed up one after the other."""

    runs: tuple[RoundsCase, ...]

    def drawn(self) -> str:
        return "\n".join(f"run {i}: {drawn(run)}" for i, run in enumerate(self.runs))


def run(rounds: Sequence[Round], worker: Sequence[int] | None = None) -> RoundsCase:
    """A run of rounds in arrays of its own."""
    table = np.array(rounds, dtype=np.int64).reshape(len(rounds), 3)
    who = None if worker is None else np.array(worker, dtype=np.int64)
    return RoundsCase(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy(), who)


@draw.drawer(RoundsCase)
def drawn(value: RoundsCase) -> str:
    """A round a column, the middle of a long run left out."""
    given = {"worker": value.worker, "drafted": value.drafted, "accepted": value.accepted, "emitted": value.emitted}
    lines = [f"{np.size(value.drafted)} rounds"]
    for name, values in given.items():
        if values is not None:
            entries = [str(v) for v in np.asarray(values).reshape(-1).tolist()]
            if len(entries) > SHOWN:
                entries[SHOWN - 4 : -3] = ["…"]
            lines.append(f"  {name:<9}" + " ".join(entry.rjust(3) for entry in entries))
    return "\n".join(lines)


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    for one in case.runs if isinstance(case, Runs) else [case]:
        if isinstance(one, RoundsCase):
            oracle.summarise_rounds(one)


NO_ROUNDS = run([])
OFF = run([(0, 0, 1)] * 3)
"""Drafting is switched off: a token a round."""
ONE = run([(4, 2, 3)])
TWO_FLAGS = run([(3, 1, 2), (3, 0, 1)])
"""The prefixes of the flags 1 0 1 and 0 1 1 (vllm-project/vllm#2658)."""
CUT = run([(3, 2, 2), (3, 3, 1), (3, 1, 2), (3, 2, 1)])
"""Stop tokens inside the path: fewer tokens come out than were accepted (vllm-project/vllm#56101)."""
CERTAIN = run([(5, 5, 6), (5, 5, 6), (5, 5, 4)])
REFUSED = run([(4, 0, 1)] * 5)
"""Nothing is accepted: deeper depths are never reached."""
STEADY = run([(5, 0, 1), (5, 3, 4), (5, 5, 6), (5, 1, 2), (5, 3, 4), (5, 4, 2), (5, 2, 3)])
ONE_DEPTH = (ONE, TWO_FLAGS, CUT, CERTAIN, REFUSED, STEADY)
"""All rounds of a run draft as many tokens."""
TWO_DEPTHS = run([(1, 1, 2), (4, 1, 2)])
"""As many drafts accepted, at rates of 1 and 1/4 (NVIDIA/TensorRT-LLM#12905)."""
UNREACHED = run([(1, 1, 2), (4, 0, 1), (1, 0, 1)])
"""Depth 2 was drafted by a round that had lost depth 1, and reached by one that had not drafted it."""
PAUSES = run([(0, 0, 1), (3, 2, 3), (0, 0, 1), (2, 2, 3), (0, 0, 1), (5, 1, 1)])
"""Rounds without drafts among others."""
FALLING = run([(6, 6, 7), (5, 5, 3), (4, 4, 5), (3, 2, 3), (2, 0, 1), (1, 1, 1)])
RISING = run([(1, 0, 1), (2, 2, 3), (3, 3, 4), (4, 2, 2), (5, 4, 5), (8, 7, 8)])
DEEP = run([(70, 66, 67), (3, 3, 4), (70, 12, 9), (300, 257, 258), (70, 70, 71)])
DEFAULT = run(
    [(k, a, a + 1 - (i % 11 == 5 and a > 0)) for i in range(400) for k, a in [((i * 3) % 8, (i * i) % 8)] if a <= k]
)
"""As many rounds as an answer of some length takes, up to seven deep."""
SEVERAL_DEPTHS = (TWO_DEPTHS, UNREACHED, PAUSES, FALLING, RISING, DEEP, DEFAULT)
EDGES = (OFF, *ONE_DEPTH, *SEVERAL_DEPTHS)

TWO_WORKERS = run([(1, 1, 2), (1, 1, 2)], [0, 1])
"""Each accepts the one draft it made: 1, not 1/2 (vllm-project/speculators#1095)."""
UNEQUAL = run([(4, 4, 5), (4, 3, 4), (4, 4, 5), (4, 2, 2), (4, 0, 1)], [0, 0, 0, 0, 1])
"""One worker had most of the rounds."""
IDLE = run([(0, 0, 1), (3, 1, 2), (0, 0, 1), (3, 2, 3)], [7, 2, 7, 2])
"""One worker drafts nothing."""
OWN_DEPTHS = run([(2, 2, 3), (6, 5, 6), (2, 1, 2), (3, 3, 2), (6, 1, 2), (3, 0, 1)], [1, 70_000, 1, 5, 70_000, 5])
"""Each worker has its own depth, and ids have gaps."""
WORKERS = (TWO_WORKERS, UNEQUAL, IDLE, OWN_DEPTHS)

_BLOCK = [(70_000, 69_991, 69_992), (69_999, 65_537, 65_530), (1, 0, 1), (70_000, 70_000, 70_001)]
LARGE = run([(300, 255, 256)] * 260)
"""Sums beyond 16 bits."""
HUGE = run(_BLOCK * 21_000)
"""Sums beyond 32 bits, odd ones, of a few very deep drafts, each many times over."""
ENDURING = run([(3, 3, 4)] * 3_000 + [(3, 0, 1)] * 2_001 + [(5, 2, 2)] * 500)
"""A run whose last thousand rounds are not like its others."""
LONG = (LARGE, HUGE, ENDURING)

WITNESSES: Mapping[str, Any] = {
    "no_rounds": NO_ROUNDS,
    "off": OFF,
    "cut": CUT,
    "refused": REFUSED,
    "steady": STEADY,
    "pauses": PAUSES,
    "unreached": UNREACHED,
    "falling": FALLING,
    "two_workers": TWO_WORKERS,
    "unequal": UNEQUAL,
    "idle": IDLE,
    "own_depths": OWN_DEPTHS,
    "enduring": ENDURING,
}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them."""
