"""Training cases: small batches for a tiny model, with every token its own and the last rows padded or not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from conformance import compare, draw
from conformance.check import Check
from conformance.handout import copy
from conformance.rows import drawing
from conformance.rows.cases import batch
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import Provenance, TokenBatch, TrainingCase

TOKENS = 16
"""Ids of a training case lie in [0, 16)."""
MAPPINGS = ("drafter", "target", "drafter_grad", "target_grad", "optimizer")


@draw.drawer(TrainingCase)
def training(value: TrainingCase) -> str:
    lines = [
        f"a training step on a tiny model of seed {value.seed}, after {value.warm_steps} others, weight decay "
        f"{draw.number(value.weight_decay)}",
        drawing.batch(value.batch),
    ]
    for name in ("cached_for", "trained_for"):
        if (given := getattr(value, name)) is not None:
            lines.append(f"{name}: revision {given.target_revision}, layer {given.layer}, tokenizer {given.tokenizer}")
    return "\n".join(lines)


@st.composite
def batches(draw: st.DrawFn, supervised: bool) -> TokenBatch:
    """Two sequences, the second one shorter or not; with `supervised` the first rows have their flags set."""
    length = draw(st.integers(4, 6))
    held = draw(st.integers(3, length))
    tokens = [draw(st.permutations(range(TOKENS)))[:length] for _ in range(2)]
    valid = [[1] * length, [1] * held + [0] * (length - held)]
    flags = [[int(supervised and (t < 2 or draw(st.booleans()))) for t in range(length)] for _ in range(2)]
    return batch([[x * ok for x, ok in zip(*pair)] for pair in zip(tokens, valid)], valid, None, None, flags)


@st.composite
def cases(draw: st.DrawFn, supervised: bool) -> TrainingCase:
    """A step after a few others, so that there are moments, with enough weight decay to be seen."""
    seed, warm = draw(st.integers(0, 2**16)), draw(st.integers(1, 2))
    return TrainingCase(draw(batches(supervised)), seed, warm, draw(st.sampled_from([0.01, 0.5])))


MADE_FROM = Provenance("b3f1", "output of layer 11", "tokenizer-7")


def cached(field: str | None) -> TrainingCase:
    """A supervised step on cached features, which differ from what is trained for in `field`."""
    given = batch([[3, 7, 1, 9, 4], [2, 8, 5, 11, 6]])
    others = {"target_revision": "c904", "layer": "output of layer 10", "tokenizer": "tokenizer-8"}
    other = MADE_FROM if field is None else dataclasses.replace(MADE_FROM, **{field: others[field]})
    return TrainingCase(given, 3, 1, 0.01, other, MADE_FROM)


def ask(check: Check, case: TrainingCase) -> Any:
    """The result of a step, its form judged."""
    found = check.call("training_step", copy(case))
    for name in MAPPINGS:
        if not hasattr(getattr(found, name, None), "items"):
            raise ClauseViolation(f"{name} is a {type(getattr(found, name, None)).__name__}, and no mapping by name")
    if not found.drafter:
        raise ClauseViolation("the drafter has no parameter")
    return found


def moved(pairs: Any, where: str) -> dict[str, float]:
    """Name → how far it moved, where it did; a NaN moves."""
    found = {}
    for name, pair in pairs.items():
        before, after = (compare.plain(value, f"{where}[{name!r}]").astype(np.float64) for value in pair)
        if before.shape != after.shape:
            raise ClauseViolation(f"{where}[{name!r}] has shape {before.shape} before and {after.shape} after")
        if not np.array_equal(before, after):
            found[name] = float(np.abs(after - before).max())
    return found


def shown(found: Any) -> None:
    """End the case where the trainer does not show the logits of its loss."""
    if any(getattr(found, name, None) is None for name in ("draft_logits", "target_logits", "supervise", "step_loss")):
        raise Inapplicable("it does not show the logits and the loss of its step")
