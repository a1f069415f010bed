"""Metrics of speculative rounds: what is counted, how counts of several workers add up, and the ratios of the sums.

Accepted drafts and emitted tokens are two counts: a round that accepts k drafts publishes k + 1 tokens, unless a stop
token or the length limit cuts them. Ratios are made last, from sums; where there is nothing to divide by they are None.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import int64, listed, member, tensor
from oracle.types import Ids, Metrics, RoundCounts, RoundsCase

DEEPEST = 2**24
"""An answer has an entry for each depth, so depths end somewhere."""


def summarise_rounds(case: RoundsCase) -> Metrics:
    """Counts and ratios of the rounds (METRICS 2xx–5xx). Raises `BadInput`.

    Source: EAGLE §4 (acceptance length, n-α); vllm-project/vllm#17908, #56101; vllm-project/speculators#1095.
    """
    return ratios(count_rounds(case))


def combine(parts: Sequence[RoundsCase]) -> Metrics:
    """The metrics of rounds that several workers counted: of all their rounds, as one. Raises `BadInput`."""
    listed(parts, "parts", RoundsCase)
    return ratios(add([count_rounds(part) for part in parts]))


def count_rounds(case: RoundsCase) -> RoundCounts:
    """What `summarise_rounds` divides, as counts that `add` adds. Raises `BadInput`."""
    drafted, accepted, emitted = read(case)
    # how many rounds accepted at least d drafts, and how many had no further draft after exactly d
    reached = _at_least(accepted)
    ended: dict[int, int] = {}
    for depth, taken in zip(drafted, accepted):
        if depth == taken:
            ended[depth] = ended.get(depth, 0) + 1
    deepest = max(drafted, default=0)
    reached += [0] * (deepest + 1 - len(reached))
    tried = tuple(reached[d] - ended.get(d, 0) for d in range(deepest))
    return RoundCounts(len(drafted), sum(drafted), sum(accepted), sum(emitted), tried, tuple(reached[1 : deepest + 1]))


def add(parts: Sequence[RoundCounts]) -> RoundCounts:
    """The sum of counts; a part whose drafts were shallower tried no deeper one. Raises `BadInput`."""
    listed(parts, "parts", RoundCounts)
    for i, part in enumerate(parts):
        if not isinstance(part, RoundCounts):
            raise BadInput(f"parts[{i}]", (), "a part is an oracle.types.RoundCounts", type(part).__name__)

    def by_depth(name: str) -> tuple[int, ...]:
        return tuple(map(sum, itertools.zip_longest(*(getattr(part, name) for part in parts), fillvalue=0)))

    return RoundCounts(
        rounds=sum(part.rounds for part in parts),
        drafted=sum(part.drafted for part in parts),
        accepted=sum(part.accepted for part in parts),
        emitted=sum(part.emitted for part in parts),
        tried=by_depth("tried"),
        passed=by_depth("passed"),
    )


def ratios(counts: RoundCounts) -> Metrics:
    """The metrics that counts give."""
    return Metrics(
        rounds=counts.rounds,
        drafted=counts.drafted,
        accepted=counts.accepted,
        emitted=counts.emitted,
        tau=ratio(counts.emitted, counts.rounds),
        accepted_per_round=ratio(counts.accepted, counts.rounds),
        rate=ratio(counts.accepted, counts.drafted),
        by_depth=tuple(map(ratio, counts.passed, counts.tried)),
    )


def ratio(part: int, whole: int) -> float | None:
    """part / whole, rounded once; None, "undefined", where there is nothing to divide by."""
    return part / whole if whole else None


def accepted_depths(flags: object, drafted: object) -> Ids:
    """How many drafts each round accepted, int64 [N], from a flag a draft: those before its first refusal.

    flags bool [N, K]: whether the verifier's test passed a draft, also one behind a refusal; drafted int [N] ≤ K. What
    stands beyond a round's drafts is not read. Raises `BadInput`. Source: vllm-project/vllm#2658.
    """
    passed = tensor(flags, "flags", "b", ("N", "K"))
    depths = tensor(drafted, "drafted", "iu", (len(passed),))
    for i, depth in enumerate(depths):
        if not 0 <= depth <= passed.shape[1]:
            raise BadInput("drafted", (i,), f"a round drafts 0 to {passed.shape[1]} tokens", int(depth))
    kept = [sum(1 for _ in itertools.takewhile(bool, row[:depth])) for row, depth in zip(passed, depths)]
    return np.array(kept, dtype=np.int64)


def numbers(values: object, field: str, size: int | str) -> list[int]:
    """A vector as Python integers, whose sums have no end. Raises `BadInput`."""
    return [int64(value, field, (i,)) for i, value in enumerate(tensor(values, field, "iu", (size,)))]


def outcome(accepted: int, emitted: int, field: str, index: tuple[int, ...]) -> None:
    """`BadInput` unless a round that accepts so many drafts can emit so many tokens."""
    if not 1 <= emitted <= accepted + 1:
        raise BadInput(
            field, index, f"a round that accepts {accepted} drafts emits 1 to {accepted + 1} tokens", emitted
        )


def read(case: RoundsCase) -> tuple[list[int], list[int], list[int]]:
    """drafted, accepted and emitted, each round's numbers checked against each other. Raises `BadInput`."""
    member(case, RoundsCase)
    drafted = numbers(case.drafted, "drafted", "N")
    accepted = numbers(case.accepted, "accepted", len(drafted))
    emitted = numbers(case.emitted, "emitted", len(drafted))
    if case.worker is not None:
        tensor(case.worker, "worker", "iu", (len(drafted),))
    for i, (depth, taken, out) in enumerate(zip(drafted, accepted, emitted)):
        if not 0 <= depth <= DEEPEST:
            raise BadInput("drafted", (i,), f"a draft is 0 to {DEEPEST} tokens deep", depth)
        if not 0 <= taken <= depth:
            raise BadInput("accepted", (i,), f"a round accepts 0 to all {depth} of its drafts", taken)
        outcome(taken, out, "emitted", (i,))
    return drafted, accepted, emitted


def _at_least(values: Sequence[int]) -> list[int]:
    """How many of the values are at least 0, 1, … up to the largest of them."""
    exactly = [0] * (max(values, default=0) + 1)
    for value in values:
        exactly[value] += 1
    return list(itertools.accumulate(reversed(exactly)))[::-1]
