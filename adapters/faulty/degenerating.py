"""What degenerate implementations share: a declaration, losses of a changed case, a walk and a draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from adapters.faulty.declared import Declared
from adapters.interface import Engine
from oracle import losses
from oracle.decode import DRAFT_LENGTH, LONGEST, VOCABULARY
from oracle.types import (
    Rows,
    VerifyCase,
)

Change = Callable[[Any], Any]
C = TypeVar("C")


class Degenerate(Declared, cost={"verify_random": 1e-4}):
    """Declares what every one of them does."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        engine = Engine(VOCABULARY, LONGEST, DRAFT_LENGTH, roundings=2, scale=20.0)
        cls.DECLARATION = dataclasses.replace(cls.DECLARATION, engine=engine)


class Losses:
    """Every loss, of a case that is changed before it is read."""

    change: Change

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = ("feature_regression", "soft_cross_entropy", "eagle1_loss", "topk_distillation", "hass_loss")
        for name in (*names, "rollout_loss"):
            setattr(cls, name, staticmethod(after(cls.change, getattr(losses, name))))


def after(change: Change, operation: Change) -> Change:
    return lambda case: operation(change(case))


def changed(case: C, **fields: Any) -> C:
    found: C = dataclasses.replace(case, **fields)  # type: ignore[type-var]
    return found


def rolled(values: Any, axis: int = 0) -> Any:
    """One further, the last one first."""
    return np.roll(np.asarray(values), 1, axis)


def first_children(case: VerifyCase) -> list[int]:
    """From the root down, always the first child."""
    path: list[int] = []
    while below := np.flatnonzero(np.asarray(case.parent) == (path[-1] if path else -1)).tolist():
        path.append(int(below[0]))
    return path


def drawn(row: Rows, coin: float) -> int:
    """The first token with the coin below the cumulated mass."""
    return min(int(np.searchsorted(np.cumsum(row), coin, side="right")), len(row) - 1)
