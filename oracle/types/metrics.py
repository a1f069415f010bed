"""Metrics of speculative rounds."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.types.arrays import Ids


@dataclass(frozen=True, eq=False)
class RoundsCase:
    """Rounds, one entry each; int64 [N].

    drafted: how deep the draft was along the accepted path: its accepted depth, and the drafted depth below its end.
    accepted: how many drafts were accepted. emitted: how many tokens came out, after the stop cut. worker: who counted
    the round, where several do; it changes no answer.
    """

    drafted: Ids
    accepted: Ids
    emitted: Ids
    worker: Ids | None = None


@dataclass(frozen=True)
class RoundCounts:
    """What is counted of rounds, and can be added: by depth, how many rounds tried it and how many accepted it.

    A round tries depth d + 1 if it drafted it and accepted all before. tried, passed: as long as the deepest draft.
    """

    rounds: int
    drafted: int
    accepted: int
    emitted: int
    tried: tuple[int, ...]
    passed: tuple[int, ...]


@dataclass(frozen=True)
class Metrics:
    """Sums over rounds and their ratios; None is "undefined": nothing to divide by.

    A ratio that an implementation does not tell is `NOT_SHOWN`.

    tau: emitted / rounds. accepted_per_round: accepted / rounds. rate: accepted / drafted. by_depth: as long as the
    deepest draft; entry d = rounds that accepted depth d + 1 / rounds that drafted it and accepted all before.
    """

    rounds: int
    drafted: int
    accepted: int
    emitted: int
    tau: float | None
    accepted_per_round: float | None
    rate: float | None
    by_depth: tuple[float | None, ...]
