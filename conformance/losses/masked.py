"""What can be done to rows that do not count: fill them with poison, add more of them, take all supervision away."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.losses.cases import Pair
from oracle.types import HassLossCase, RolloutLossCase

ADDED = 17
"""Rows added: more than kernels take at once in a small block."""
POISON = (np.nan, np.inf, -np.inf, 3e38, -3e38)


def pairs(operation: str) -> tuple[str, str]:
    """The fields that hold rows: the drafter's and the target's."""
    if operation in ("soft_cross_entropy", "topk_distillation", "rollout_loss"):
        return "draft_logits", "target_logits"
    return "predicted", "target"


def poisoned(case: Any, operation: str, seed: int) -> Any:
    """The case with poison wherever a row is not supervised."""
    rng = np.random.default_rng(seed)
    filled = {}
    for name in pairs(operation):
        values = getattr(case, name).copy()
        spared = case.supervise
        if spared.ndim == values.ndim:  # rows of a target that every step reads
            spared = spared.any(axis=0)
        for index in np.argwhere(~spared):
            values[tuple(index)] = rng.choice(POISON, values.shape[-1]) if rng.random() < 0.5 else np.nan
        filled[name] = values
    return dataclasses.replace(case, **filled)


def widened(case: Any, operation: str, seed: int) -> Any:
    """The case with `ADDED` more rows, before and after its own, none of them supervised."""
    rng = np.random.default_rng(seed)
    before = int(rng.integers(0, ADDED + 1))
    filled: dict[str, np.ndarray] = {}
    for name in (*pairs(operation), "supervise"):
        values = getattr(case, name)
        axis = _axis(case, name)
        shape = list(values.shape)
        shape[axis] = ADDED
        more = np.zeros(shape, dtype=bool) if values.dtype == bool else rng.integers(-512, 513, shape) / 256
        first, last = np.split(more, [before], axis=axis)
        filled[name] = np.concatenate([first, values, last], axis=axis)
    return dataclasses.replace(case, **filled)


def emptied(case: Any) -> Any:
    """The case with nothing supervised."""
    return dataclasses.replace(case, supervise=np.zeros_like(case.supervise))


def spoilt(case: Any, operation: str) -> Iterator[tuple[str, tuple[int, ...], float, Any]]:
    """The case with one number that is none in a row that counts: field, place, number, case."""
    for name in pairs(operation):
        values = getattr(case, name)
        row = tuple(int(i) for i in np.argwhere(case.supervise)[-1])
        row = row[-(values.ndim - 1) :]
        token = 1
        if isinstance(case, RolloutLossCase) and name == "target_logits" and case.draft_to_target is not None:
            token = int(case.draft_to_target[-1])  # a token that the drafter knows, so that no gate closes the row
        for number in (np.nan, np.inf):
            filled = values.copy()
            filled[(*row, token)] = number
            yield name, (*row, token), number, dataclasses.replace(case, **{name: filled})


def _axis(case: Any, name: str) -> int:
    stepped = isinstance(case, RolloutLossCase) or (isinstance(case, HassLossCase) and name != "target")
    return 1 if stepped else 0


def beside_more(case: Any, operation: str, seed: int) -> Pair:
    """The case, and it with more rows that are not supervised."""
    return Pair((case, widened(case, operation, seed)))


def reordered(case: RolloutLossCase, seed: int) -> Pair:
    """The case, and it with its draft vocabulary in another order."""
    width = case.draft_logits.shape[2]
    order = np.random.default_rng(seed).permutation(width)
    if (np.diff(order) > 0).all():
        order = order[::-1]
    ids = np.arange(width) if case.draft_to_target is None else case.draft_to_target
    draft = np.ascontiguousarray(case.draft_logits[..., order])
    other = dataclasses.replace(case, draft_logits=draft, draft_to_target=ids[order])
    return Pair((case, other), tuple(int(i) for i in order))
