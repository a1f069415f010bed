"""Batches drawn for a person: an address a column, and what stands there."""

from __future__ import annotations

import numpy as np

from conformance import draw
from oracle.types import GatherCase, RolloutRowsCase, SupervisionCase, TokenBatch

Line = tuple[str, list[str]]


def row(b: int, batch: TokenBatch, more: tuple[Line, ...] = ()) -> list[str]:
    """One batch row; an invalid address shows a dot, what it holds follows where that is not 0."""
    valid = batch.valid[b]

    def shown(values: np.ndarray) -> list[str]:
        return [str(int(v)) if ok else "·" for v, ok in zip(values, valid)]

    lines: list[Line] = [
        ("address", [str(t) for t in range(len(valid))]),
        ("token", shown(batch.tokens[b])),
        ("segment", shown(batch.segment[b])),
        ("position", shown(batch.position[b])),
        ("supervise", shown(batch.supervise[b])),
        *more,
    ]
    width = max((len(cell) for _, cells in lines for cell in cells), default=1)
    return [f"  {name:<10}" + " ".join(cell.rjust(width) for cell in cells) for name, cells in lines]


@draw.drawer(TokenBatch)
def batch(value: TokenBatch) -> str:
    if len({np.shape(values) for values in vars(value).values()}) > 1 or value.valid.ndim != 2:
        return "\n".join(
            f"{name} of shape {np.shape(values)}: {values.tolist()}" for name, values in vars(value).items()
        )
    rows, length = value.valid.shape
    lines = [f"{rows} batch row{'s' if rows != 1 else ''} of {length} address{'es' if length != 1 else ''}"]
    for b in range(rows):
        lines += [f"batch row {b}:", *row(b, value)]
    poisoned = ~value.valid & ((value.tokens != 0) | value.supervise)
    if poisoned.any():
        lines.append(f"  (· is invalid; {int(poisoned.sum())} of these hold what nobody may read)")
    return "\n".join(lines)


@draw.drawer(SupervisionCase)
def supervision(value: SupervisionCase) -> str:
    lines = [batch(value.batch), f"token mask, whose flags are those of the {value.owner}:"]
    return "\n".join([*lines, *("  " + flags(mask) for mask in value.token_mask)])


@draw.drawer(GatherCase)
def gather(value: GatherCase) -> str:
    lines = [batch(value.batch), "features:"]
    for b, features in enumerate(np.asarray(value.features)):
        lines += [f"  f[{b}, {t}] = {draw.row(entries)}" for t, entries in enumerate(features)]
    return "\n".join(lines)


@draw.drawer(RolloutRowsCase)
def rollout(value: RolloutRowsCase) -> str:
    return f"{batch(value.batch)}\nrolled out for {value.steps} step{'s' if value.steps != 1 else ''}"


def flags(values: np.ndarray) -> str:
    """0/1, as in a mask."""
    return " ".join(str(int(v)) for v in values)
