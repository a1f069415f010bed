"""What the checks of rows run on, and cases worth keeping by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from conformance.handout import copy
from conformance.roads import rows as road
from conformance.rows import drawing as drawing
from oracle import rows as oracle
from oracle.types import GatherCase, RolloutRowsCase, SupervisionCase, TokenBatch

POISON_TOKEN = -7
"""No id of any vocabulary."""


def batch(
    tokens: Sequence[Sequence[int]],
    valid: Sequence[Sequence[int]] | None = None,
    segment: Sequence[Sequence[int]] | None = None,
    position: Sequence[Sequence[int]] | None = None,
    supervise: Sequence[Sequence[int]] | None = None,
) -> TokenBatch:
    """A batch in arrays of its own; by default all is valid and supervised, of segment 0, at positions 0, 1, …"""
    ids = np.array(tokens, dtype=np.int64)
    shape = ids.shape

    def given(values: Any, default: np.ndarray, kind: type) -> np.ndarray:
        return np.array(default if values is None else values, dtype=kind).reshape(shape)

    return TokenBatch(
        tokens=ids,
        valid=given(valid, np.ones(shape), bool),
        segment=given(segment, np.zeros(shape), np.int64),
        position=given(position, np.tile(np.arange(shape[1]), (shape[0], 1)), np.int64),
        supervise=given(supervise, np.ones(shape), bool),
    )


def empty(rows: int, length: int) -> TokenBatch:
    """`rows` batch rows of `length` addresses, none of them valid."""
    zeros = np.zeros((rows, length), dtype=np.int64)
    return TokenBatch(zeros, zeros.astype(bool), zeros.copy(), zeros.copy(), zeros.astype(bool))


def traced(case: TokenBatch) -> GatherCase:
    """The batch with features that spell their address: code c = 1 + b·S + t, as (c, −c, 2c + 1); invalid ones are 0.

    Token ids that repeat would spell nothing, so valid tokens are codes as well, counted from the end.
    """
    rows, length = case.valid.shape
    codes = 1 + np.arange(rows * length).reshape(rows, length)
    features = np.stack([codes, -codes, 2 * codes + 1], axis=2).astype(np.float64)
    features[~case.valid] = 0.0
    tokens = np.where(case.valid, rows * length + 1 - codes, case.tokens)
    return GatherCase(dataclasses.replace(case, tokens=tokens), features)


def poisoned(case: TokenBatch) -> TokenBatch:
    """The batch with ids of no vocabulary, foreign segments and wild positions wherever nothing is valid."""
    bad = ~case.valid
    place = np.arange(case.valid.size).reshape(case.valid.shape)
    return TokenBatch(
        tokens=np.where(bad, np.where(place % 2, POISON_TOKEN, 10**6), case.tokens),
        valid=case.valid.copy(),
        segment=np.where(bad, case.segment + place % 3 - 1, case.segment),
        position=np.where(bad, (place * 5) % 7 - 3, case.position),
        supervise=case.supervise | bad,
    )


def trapped(case: TokenBatch, pads: bool) -> GatherCase:
    """Traced, with NaN and ids of no vocabulary wherever no row reads; with `pads` wherever nothing is valid."""
    made = traced(case)
    plan = road.plan(made.batch)
    read = case.valid & pads
    read[plan.batch, plan.source] = read[plan.batch, plan.target] = True
    own = copy(made)
    own.features[~read] = np.nan
    own.batch.tokens[~read] = POISON_TOKEN
    return GatherCase(own.batch, own.features)


def ids_of_their_own(case: TokenBatch) -> TokenBatch:
    """The batch with segment ids that no other batch row has."""
    return dataclasses.replace(case, segment=case.segment + 8 * np.arange(len(case.valid), dtype=np.int64)[:, None])


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if isinstance(case, TokenBatch):
        oracle.soft_rows(case)
    elif isinstance(case, SupervisionCase):
        oracle.supervision_at_source(case)
    elif isinstance(case, RolloutRowsCase):
        oracle.rollout_rows(case)
    elif isinstance(case, GatherCase):
        oracle.gather_rows(case)


WORKED = batch([[11, 12, 13, 14, 15, 16]], valid=[[1, 1, 1, 1, 1, 0]])
"""Five valid tokens of six: four soft rows, three of which count for the hard objective."""
PACKED = batch(
    [[5, 3, 9, 2, 7, 4, 8]],
    segment=[[4, 4, 4, 1, 1, 1, 1]],
    position=[[0, 1, 2, 0, 1, 2, 3]],
    supervise=[[1, 0, 1, 1, 1, 0, 1]],
)
"""Two sequences in one batch row."""
ANSWER = batch([[11, 12, 13, 14, 15]], supervise=[[0, 0, 1, 1, 1]])
"""An answer of three tokens after a prompt of two (SpecForge#885)."""
_HELD = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
RAGGED = batch([[11, 12, 13, 14, 15], [21, 22, 23, 0, 0]], valid=_HELD, supervise=_HELD)
"""A short sample beside a long one, the flag of every token set."""
LEFT = batch(
    [[0, 0, 11, 12, 13], [21, 22, 23, 24, 25]],
    valid=[[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]],
    position=[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]],
    supervise=[[0, 0, 1, 0, 1], [0, 1, 1, 0, 1]],
)
"""A short sample beside a long one, padded on the left."""
HOLE = batch(
    [[11, 12, 0, 13, 14, 15]],
    valid=[[1, 1, 0, 1, 1, 1]],
    position=[[0, 1, 0, 2, 3, 4]],
    supervise=[[1, 0, 0, 0, 1, 1]],
)
"""One sample with a token missing in the middle."""
REUSED = batch(
    [[11, 12, 13, 14, 15], [21, 22, 23, 24, 25]],
    segment=[[7, 7, 2, 2, 2], [2, 2, 2, 7, 7]],
    position=[[0, 1, 0, 1, 2], [0, 1, 2, 0, 1]],
    supervise=[[1, 0, 1, 1, 0], [0, 1, 1, 1, 0]],
)
"""Two packs whose segments have the same ids, cut at other addresses."""
WIDE = batch(
    [[151_000, 3, 128_255, 70_001, 151_001, 2]],
    segment=[[-1, -1, -1, 2**40 - 1, 2**40 - 1, 2**40 - 1]],
    position=[[131_072, 131_073, 131_080, 5, 131_072, 2**33]],
    supervise=[[1, 0, 1, 1, 1, 0]],
)
"""Ids and positions as large models have them, and larger; cut to 32 bits or less, both segments are one."""
LARGE = batch([[151_000, 3, 128_255, 70_001, 2]], supervise=[[0, 1, 1, 0, 1]])
"""Token ids of a large vocabulary."""
EDGES = (WORKED, RAGGED, LEFT, HOLE, PACKED, REUSED)
"""Each way in which a batch is not one full segment."""

WITNESSES: Mapping[str, Any] = {
    # its last flag is set, and the last row is kept: that row is trained towards what does not exist
    "flag_on_the_last_token": ANSWER,
    "flag_on_the_last_token_traced": traced(ANSWER),
    "flag_on_the_last_token_rolled_out": RolloutRowsCase(ANSWER, 2),
    "ragged": RAGGED,
    "ragged_traced": traced(RAGGED),
    "ragged_rolled_out": RolloutRowsCase(RAGGED, 2),
    "left": LEFT,
    "left_traced": traced(LEFT),
    "hole": HOLE,
    "reused": REUSED,
    "packed": PACKED,
    "packed_traced": traced(PACKED),
    "packed_rolled_out": RolloutRowsCase(PACKED, 2),
    "rolled_out": RolloutRowsCase(batch([[11, 12, 13, 14, 15]]), 3),
}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them."""
