"""Rules of the numbers: finite ones, that the serving dtype can hold (MANIFEST 7xx)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from oracle.manifest import numbers
from oracle.manifest.headers import Stored
from oracle.manifest.numbers import DTYPE_NAMES, LARGEST, OVERFLOW
from oracle.manifest.opened import Found, Release


def finite(release: Release) -> Found:
    """MANIFEST-701."""
    for name, stored in _floats(release):
        place = 0
        for piece in numbers.pieces(stored):
            odd = np.flatnonzero(~np.isfinite(piece))
            if len(odd):
                index = [int(i) for i in np.unravel_index(place + int(odd[0]), stored.shape or (1,))]
                yield (
                    name,
                    f"{name}{index} is {piece[odd[0]]}, a weight is finite: every logit that it reaches is NaN, "
                    "and argmax of NaN is a token",
                )
                break
            place += len(piece)


def weights_fit(release: Release) -> Found:
    """MANIFEST-702."""
    served = release.said.dtype.compute
    if served is None:
        return
    for name, stored in _floats(release):
        if LARGEST.get(DTYPE_NAMES.get(stored.dtype, ""), math.inf) <= LARGEST[served]:
            continue
        largest = 0.0
        for piece in numbers.pieces(stored):
            held = np.abs(piece[np.isfinite(piece)])
            largest = max(largest, float(held.max(initial=0.0)))
        if largest >= OVERFLOW[served]:
            yield (
                name,
                f"holds {largest:g}, {served} ends at {LARGEST[served]:g}: the cast makes it infinite, and nothing is "
                "accepted",
            )


def logits_fit(release: Release) -> Found:
    """MANIFEST-703: a normed state reaches the logit sqrt(d)·‖w ⊙ g‖ of a row w, with g the final norm's weight."""
    served, head = release.said.dtype.compute, release.own_head or release.target_head
    norm, hidden = release.drafter.tensors.get("norm.weight"), release.of_drafter("hidden_size")
    if served is None or head is None or norm is None or hidden is None or release.variant == "eagle1":
        return
    readable = head.dtype in numbers.FLOATS and norm.dtype in numbers.FLOATS
    if norm.shape != (hidden,) or len(head.shape) != 2 or head.shape[1] != hidden or not readable:
        return
    gain = np.concatenate(list(numbers.pieces(norm)))
    rows = max(1, numbers.PIECE_BYTES // (8 * hidden))
    first = 0
    for piece in numbers.pieces(head, rows * hidden):
        with np.errstate(over="ignore", invalid="ignore"):
            reach = math.sqrt(hidden) * np.linalg.norm(piece.reshape(-1, hidden) * gain, axis=1)
        beyond = np.flatnonzero(np.isfinite(reach) & (reach >= OVERFLOW[served]))
        if len(beyond):
            row = int(beyond[0])
            yield (
                head.name,
                f"row {first + row} reaches a logit of {reach[row]:g} from a normed state, {served} ends at "
                f"{LARGEST[served]:g}: the softmax of an infinite logit is NaN",
            )
            return
        first += len(reach)


def stored_dtype(release: Release) -> Found:
    """MANIFEST-704."""
    said = release.given.dtype.weights
    for name, stored in _floats(release):
        held = DTYPE_NAMES.get(stored.dtype)
        if said is not None and held is not None and held != said:
            yield (
                "dtype.weights",
                f"the manifest says {said}, {name} is {held}: the weights were cast after training, and rounded",
            )
            return


def _floats(release: Release) -> Iterator[tuple[str, Stored]]:
    for name, stored in release.drafter.tensors.items():
        if stored.dtype in numbers.FLOATS:
            yield name, stored
