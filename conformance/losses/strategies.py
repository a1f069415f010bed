"""Cases of losses drawn by Hypothesis: small, no two rows alike, no two sizes equal.

Numbers are odd multiples of 1/256 between 1 and 4: float16 and float32 hold them, bfloat16 does not, and no row has a
tie.
Shapes and conventions are drawn by Hypothesis, numbers by a seed that it draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from conformance.losses.conventions import VALUES, Settled, fields
from oracle.types import (
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    HassLossCase,
    RegressionCase,
    RolloutLossCase,
    TopKCase,
)

SIZES = ((1, 4, 2), (2, 3, 4), (3, 5, 2), (2, 5, 3), (3, 4, 2), (1, 3, 2))
"""Rows, vocabulary, width."""
ROLLOUTS = ((1, 3, 2, 5), (2, 3, 4, 5), (3, 2, 4, 5), (2, 1, 3, 4), (3, 1, 2, 4), (1, 2, 3, 5))
"""Steps, rows, draft vocabulary, vocabulary."""
ODD = np.concatenate([np.arange(-1023, -256, 2), np.arange(257, 1024, 2)]) / 256
BETAS = (1.0, 1.0, 0.5, 2.0)
WEIGHTS = ((1.0, 0.1), (1.0, 0.1), (0.5, 2.0), (1.5, 0.25))
seeds = st.integers(0, 2**31 - 1)


def rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of the grid, none twice in a row."""
    count = math.prod(shape[:-1])
    return np.array([rng.choice(ODD, shape[-1], replace=False) for _ in range(count)]).reshape(shape)


def flags(rng: np.random.Generator, mixed: bool, *shape: int) -> np.ndarray:
    """All true; or mixed, with one true at least in each last axis, and one false where there is room."""
    found = np.ones(shape, dtype=bool)
    if mixed:
        for index in np.ndindex(shape[:-1]):
            row = rng.random(shape[-1]) < 0.5
            first, other = rng.permutation(shape[-1])[:2] if shape[-1] > 1 else (0, 0)
            row[other], row[first] = False, True
            found[index] = row
    return found


@st.composite
def regressions(draw: st.DrawFn, mixed: bool = False) -> RegressionCase:
    """Residuals on both sides of beta."""
    count, _, width = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(seeds))
    target, beta = rows(rng, count, width), draw(st.sampled_from(BETAS))
    size = rng.choice(np.array([0.25, 0.5, 1.5, 2.5]), (count, width)) * beta
    predicted = np.round((target + size * rng.choice([-1, 1], (count, width))) * 256) / 256 + 1 / 128
    return RegressionCase(predicted, target, flags(rng, mixed, count), beta)


@st.composite
def distillations(draw: st.DrawFn, mixed: bool = False, masked: bool = False) -> DistillCase:
    """Two rows of logits each; masked: some of −inf, never where the draft alone is masked."""
    count, vocabulary, _ = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(seeds))
    draft, target = rows(rng, count, vocabulary), rows(rng, count, vocabulary)
    if masked:
        for r in range(count):
            gone = rng.permutation(vocabulary)[: rng.integers(1, vocabulary - 1)]
            target[r, gone] = -np.inf
            draft[r, gone[rng.random(len(gone)) < 0.5]] = -np.inf
    return DistillCase(draft, target, flags(rng, mixed, count))


@st.composite
def eagle1s(draw: st.DrawFn, mixed: bool = False) -> Eagle1Case:
    """Features, and a head that is no square."""
    count, vocabulary, width = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(seeds))
    target, head = rows(rng, count, width), rows(rng, vocabulary, width)
    weights = draw(st.sampled_from(WEIGHTS))
    beta = draw(st.sampled_from(BETAS))
    return Eagle1Case(rows(rng, count, width), target, head, flags(rng, mixed, count), beta, *weights)


@st.composite
def topks(draw: st.DrawFn, mixed: bool = False, whole: bool = False) -> TopKCase:
    """k below the vocabulary; whole: k is the vocabulary."""
    count, vocabulary, _ = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(seeds))
    k = vocabulary if whole else draw(st.integers(1, vocabulary - 1))
    return TopKCase(rows(rng, count, vocabulary), rows(rng, count, vocabulary), flags(rng, mixed, count), k)


@st.composite
def hasses(draw: st.DrawFn, mixed: bool = False) -> HassLossCase:
    """One to three steps."""
    count, vocabulary, width = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(seeds))
    steps = draw(st.sampled_from([n for n in (1, 2, 3) if n != count]))
    weights = draw(st.sampled_from(WEIGHTS))
    supervise = flags(rng, mixed, steps, count)
    if draw(st.booleans()):  # some trainers have one mask for all steps
        supervise[:] = supervise[0]
    return HassLossCase(
        rows(rng, steps, count, width),
        rows(rng, count, width),
        rows(rng, vocabulary, width),
        supervise,
        draw(st.integers(1, vocabulary - 1)),
        draw(st.sampled_from(BETAS)),
        *weights,
        draw(st.sampled_from((1.0, 0.5))),
    )


@st.composite
def rollouts(
    draw: st.DrawFn,
    given: Settled,
    mixed: bool = False,
    mapped: str = "no",
    free: Sequence[str] = (),
    permuted: bool = False,
    gate: str = "argmax",
) -> RolloutLossCase:
    """A rollout. What is settled stays, the conventions named in `free` are drawn, the others are the defaults.

    mapped: "no": one vocabulary; "inside": the target's most probable token is a draft token; "alone": and its other
    tokens are masked; "anywhere". Where `mixed`, each step has a supervised row, which is inside.
    """
    steps, count, width, vocabulary = draw(st.sampled_from(ROLLOUTS))
    rng = np.random.default_rng(draw(seeds))
    supervise = flags(rng, mixed, steps, count)
    ids, permute = None, permuted
    if mapped == "no":
        width = vocabulary
    else:
        ids = np.sort(rng.choice(vocabulary, width, replace=False)).astype(np.int64)
    if permute:
        ids = rng.permutation(width if ids is None else ids).astype(np.int64)
        ids = np.roll(ids, 1) if (np.diff(ids) > 0).all() else ids
    draft, target = rows(rng, steps, count, width), rows(rng, steps, count, vocabulary)
    if mapped != "no":
        assert ids is not None
        for s, r in np.ndindex(steps, count):
            first = int(np.flatnonzero(supervise[s])[0])
            place_best(rng, target[s, r], ids, mapped == "anywhere" and r != first and bool(rng.random() < 0.6))
            if mapped == "alone":
                target[s, r, np.setdiff1d(np.arange(vocabulary), ids)] = -np.inf
    asked: dict[str, Any] = {"gate": gate}
    asked |= {name: draw(st.sampled_from(VALUES[name])) for name in VALUES if name in free}
    if "denominator_epsilon" in free:
        asked["denominator_epsilon"] = draw(st.sampled_from((0.5, 0.0, 0.25, 2.0**-10)))
    if "step_weights" in free:
        given_weights = (0.5, 1.25, 2.0), (1.5, 0.75, 0.25), (1.0, 0.5, 0.25), (1.0, 1.0, 1.0)
        asked["step_weights"] = draw(st.sampled_from((None, *(weights[:steps] for weights in given_weights))))
    return RolloutLossCase(draft, target, supervise, draft_to_target=ids, **fields(given, steps, asked))


def place_best(rng: np.random.Generator, row: np.ndarray, ids: np.ndarray, outside: bool) -> None:
    """Bring the largest logit of a row to a draft token, or outside of these."""
    others = np.setdiff1d(np.arange(len(row)), ids)
    wanted = int(rng.choice(others if outside and len(others) else ids))
    best = int(row.argmax())
    row[[wanted, best]] = row[[best, wanted]]


@st.composite
def maps(draw: st.DrawFn, conventions: Sequence[str], marked: bool | None = None) -> DraftMapCase:
    """A draft vocabulary in ascending order, as checkpoints hold it, that is not the first ids."""
    convention = draw(st.sampled_from(conventions))
    width, vocabulary = draw(st.sampled_from(((2, 5), (3, 5), (2, 4), (3, 7), (4, 6))))
    rng = np.random.default_rng(draw(seeds))
    ids = np.sort(rng.choice(np.arange(1, vocabulary), width, replace=False)).astype(np.int64)
    return map_of(ids, convention, vocabulary if draw(st.booleans()) or marked else None)


def map_of(ids: np.ndarray, convention: str, vocabulary: int | None) -> DraftMapCase:
    """The map of these ids, with its marks where there is a vocabulary."""
    ids = np.asarray(ids, dtype=np.int64)
    d2t = ids - np.arange(len(ids)) if convention == "offset" else ids
    t2d = None if vocabulary is None else np.isin(np.arange(vocabulary), ids)
    return DraftMapCase(d2t, t2d, convention)
