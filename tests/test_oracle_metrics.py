"""The oracle of metrics: numbers by hand, workers that add up, and what it refuses, by field, index and rule."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.metrics.cases import EDGES, LONG, NO_ROUNDS, OFF, PAUSES, TWO_FLAGS, TWO_WORKERS, UNEQUAL, WORKERS, run
from conformance.roads import metrics as road
from oracle import metrics
from oracle.errors import BadInput
from oracle.n_alpha import n_alpha
from oracle.types import RoundsCase

STEADY = run([(3, 3, 4), (3, 1, 2), (3, 0, 1), (3, 3, 2), (2, 2, 3)])


def test_rounds_by_hand() -> None:
    found = metrics.summarise_rounds(STEADY)
    assert (found.rounds, found.drafted, found.accepted, found.emitted) == (5, 14, 9, 12)
    assert (found.tau, found.accepted_per_round, found.rate) == (12 / 5, 9 / 5, 9 / 14)
    # depth 1: five tried it, four passed; depth 2: three of these; depth 3: one of the three had no third draft
    assert found.by_depth == (4 / 5, 3 / 4, 2 / 2)


def test_flags_are_read_up_to_the_first_refusal() -> None:
    """vllm-project/vllm#2658: flags 1 0 1 and 0 1 1 accept 1 and 0, and emit 2 and 1."""
    flags = np.array([[1, 0, 1], [0, 1, 1]], dtype=bool)
    assert metrics.accepted_depths(flags, np.array([3, 3])).tolist() == TWO_FLAGS.accepted.tolist() == [1, 0]
    assert metrics.accepted_depths(np.ones((2, 3), dtype=bool), [2, 0]).tolist() == [2, 0]
    assert metrics.summarise_rounds(TWO_FLAGS).emitted == 3


def test_nothing_to_divide_by_is_undefined() -> None:
    nothing = metrics.summarise_rounds(NO_ROUNDS)
    assert dataclasses.astuple(nothing) == (0, 0, 0, 0, None, None, None, ())
    off = metrics.summarise_rounds(OFF)
    assert dataclasses.astuple(off) == (3, 0, 0, 3, 1.0, 0.0, None, ())
    refused = metrics.summarise_rounds(run([(1, 1, 2), (4, 0, 1)]))
    assert refused.by_depth == (1 / 2, None, None, None)


def test_workers_add_up_and_ratios_do_not() -> None:
    """vllm-project/speculators#1095: each of two workers accepts its one draft, so position 0 has 1 and not 1/2."""
    assert metrics.summarise_rounds(TWO_WORKERS).by_depth == (1.0,)
    first, second = run([(4, 4, 5)] * 3), run([(2, 0, 1)])
    found = metrics.combine([first, second])
    assert (found.tau, found.rate) == (16 / 4, 12 / 14)
    assert found.by_depth == (3 / 4, 1.0, 1.0, 1.0)
    assert metrics.combine([]) == metrics.summarise_rounds(NO_ROUNDS)


@pytest.mark.parametrize("case", [*WORKERS, *EDGES, LONG[0]])
def test_parts_add_up_to_the_whole(case: RoundsCase) -> None:
    halves = [
        RoundsCase(case.drafted[part], case.accepted[part], case.emitted[part])
        for part in (slice(0, 2), slice(2, None))
    ]
    assert metrics.combine(halves) == metrics.combine(halves[::-1]) == metrics.summarise_rounds(case)


@pytest.mark.parametrize("case", [*EDGES, *WORKERS, *LONG, NO_ROUNDS])
def test_the_second_road_leads_there_too(case: RoundsCase) -> None:
    ours = metrics.count_rounds(case)
    assert (ours.rounds, ours.drafted, ours.accepted, ours.emitted) == road.counts(case)
    assert list(zip(ours.passed, ours.tried)) == road.by_depth(case)


def test_narrow_integers_are_added_exactly() -> None:
    table = np.full(300, 127, dtype=np.int8)
    found: Any = RoundsCase(table, table, table)  # type: ignore[arg-type]
    assert metrics.summarise_rounds(found).drafted == 300 * 127
    with pytest.raises(
        BadInput, match=re.escape("drafted[1] = 18446744073709551615: an integer that is read has 64 bits")
    ):
        huge: Any = np.array([1, 2**64 - 1], dtype=np.uint64)
        metrics.summarise_rounds(RoundsCase(huge, huge, huge))


# ---- n-α


@pytest.mark.parametrize("case", [*EDGES, NO_ROUNDS, UNEQUAL])
def test_n_alpha_of_fresh_rounds_is_acceptance_by_depth(case: RoundsCase) -> None:
    assert n_alpha(case).alpha == metrics.summarise_rounds(case).by_depth


def test_n_alpha_where_rows_are_carried() -> None:
    """The second round begins with one value of its own: its depths 1 and 2 are n = 1 and 2."""
    found = n_alpha(run([(2, 1, 2), (2, 2, 3), (0, 0, 1)]), np.array([0, 1, 9]))
    assert found.tested == (1, 2, 1)
    assert found.passed == (1, 1, 1)
    assert found.alpha == (1.0, 1 / 2, 1.0)


def test_n_alpha_of_gaps_is_undefined() -> None:
    assert n_alpha(run([(1, 1, 2)]), np.array([2])).alpha == (None, None, 1.0)


# ---- refusals


def changed(**fields: Any) -> RoundsCase:
    return dataclasses.replace(PAUSES, **fields)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no case": (
        lambda: metrics.summarise_rounds([1]),  # type: ignore[arg-type]
        "case = 'list': a case is an oracle.types.RoundsCase",
    ),
    "shape": (lambda: metrics.summarise_rounds(changed(emitted=np.ones(5, int))), "emitted = (5,): has shape [6]"),
    "matrix": (lambda: metrics.summarise_rounds(changed(drafted=np.ones((6, 1), int))), "drafted = (6, 1): has shape"),
    "floats": (lambda: metrics.summarise_rounds(changed(accepted=np.ones(6))), "accepted = 'float64': holds integers"),
    "workers": (lambda: metrics.summarise_rounds(changed(worker=np.zeros(2, int))), "worker = (2,): has shape [6]"),
    "negative": (
        lambda: metrics.summarise_rounds(run([(1, 0, 1), (-1, 0, 1)])),
        "drafted[1] = -1: a draft is 0 to 16777216 tokens deep",
    ),
    "too deep": (lambda: metrics.summarise_rounds(run([(2**40, 0, 1)])), "drafted[0] = 1099511627776: a draft is 0 to"),
    "accepted": (
        lambda: metrics.summarise_rounds(run([(1, 0, 1), (2, 3, 1)])),
        "accepted[1] = 3: a round accepts 0 to all 2 of its drafts",
    ),
    "nothing accepted": (lambda: metrics.summarise_rounds(run([(1, -1, 1)])), "accepted[0] = -1: a round accepts 0 to"),
    "no output": (
        lambda: metrics.summarise_rounds(run([(2, 1, 0)])),
        "emitted[0] = 0: a round that accepts 1 drafts emits 1 to 2 tokens",
    ),
    "output from nowhere": (lambda: metrics.summarise_rounds(run([(2, 1, 3)])), "emitted[0] = 3: a round that accepts"),
    "a part": (
        lambda: metrics.combine([OFF, run([(2, 3, 1)])]),
        "accepted[0] = 3: a round accepts 0 to all 2 of its drafts",
    ),
    "no list": (lambda: metrics.combine(OFF), "parts = 'RoundsCase': parts is a list of RoundsCase"),  # type: ignore[arg-type]
    "no counts": (lambda: metrics.add([1]), "parts[0] = 'int': a part is an oracle.types.RoundCounts"),  # type: ignore[list-item]
    "carried": (
        lambda: n_alpha(OFF, np.array([0, 0, -1])),
        "carried[2] = -1: 0 to 16777216 values are carried",
    ),
    "flags": (
        lambda: metrics.accepted_depths(np.ones((1, 2), bool), np.array([3])),
        "drafted[0] = 3: a round drafts 0 to 2 tokens",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        call()
