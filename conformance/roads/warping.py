"""Warping in sixty decimal digits: sets of survivors first, one softmax last.

The oracle carries a renormalised law from stage to stage in floats. Here a law is never carried: each filter
is a set of tokens, decided on weights exp((l − max)/T) that are not normalised, and thresholds are multiplied
instead of masses divided. Every decision also tells its distance from the tie, relative to what is compared,
so that this road knows which decisions an implementation of a given precision may take otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

from oracle.types import WarpCase

CONTEXT = Context(prec=60, Emax=10**12, Emin=-(10**12))


@dataclass(frozen=True)
class Parameters:
    """The parameters of one row."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float


@dataclass(frozen=True)
class Warped:
    """One row: its law, the exponents x = (l − max)/T behind it, and how narrowly the survivors were chosen.

    gap: the smallest relative distance of a threshold from what it was compared with; log_gap: the smallest
    distance in x of two tokens that are not tied and that a cut tells apart. Both are infinite without a cut.
    """

    law: tuple[Decimal, ...]
    exponents: tuple[Decimal, ...]
    gap: Decimal
    log_gap: Decimal


INFINITE = Decimal("Infinity")


def parameters(case: WarpCase, row: int) -> Parameters:
    """What the row at `row` is warped with: each parameter is one value, or one a row."""

    def of(value: object) -> float:
        return float(value[row] if hasattr(value, "__getitem__") else value)  # type: ignore[arg-type]

    return Parameters(of(case.temperature), int(of(case.top_k)), of(case.top_p), of(case.min_p))


def warp_row(logits: Sequence[float], given: Parameters, order: str, ties: str) -> Warped:
    """One row under the convention `order`, such as "temperature,top_k,top_p,min_p", and `ties`."""
    with localcontext(CONTEXT):
        alive = {v: Decimal(logit) for v, logit in enumerate(logits) if logit != -math.inf}
        highest = max(alive.values())
        x = {v: logit - highest for v, logit in alive.items()}
        ranked = sorted(alive, key=lambda v: (-alive[v], v))
        gap = log_gap = INFINITE
        for stage in filter(None, order.split(",")):
            if stage == "temperature":
                if given.temperature == 0:
                    ranked = ranked[:1]
                    x = {v: Decimal(0) for v in ranked}
                else:
                    x = {v: (alive[v] - highest) / Decimal(given.temperature) for v in alive}
                continue
            weight = {v: x[v].exp() for v in ranked}
            cuts = [_cut(name, ranked, weight, alive, given, ties) for name in stage.split("+")]
            for cut, narrow in cuts:
                gap = min(gap, narrow)
                if 0 < cut < len(ranked) and alive[ranked[cut - 1]] != alive[ranked[cut]]:
                    log_gap = min(log_gap, x[ranked[cut - 1]] - x[ranked[cut]])
            ranked = ranked[: min(cut for cut, _ in cuts)]
        total = sum((x[v].exp() for v in ranked), Decimal(0))
        law = tuple(x[v].exp() / total if v in ranked else Decimal(0) for v in range(len(logits)))
        exponents = tuple(x.get(v, -INFINITE) for v in range(len(logits)))
        return Warped(law, exponents, gap, log_gap)


def _cut(
    name: str,
    ranked: Sequence[int],
    weight: dict[int, Decimal],
    logit: dict[int, Decimal],
    given: Parameters,
    ties: str,
) -> tuple[int, Decimal]:
    """How many of `ranked` one filter leaves, and how narrowly."""
    if name == "top_k":
        cut = given.top_k if 0 < given.top_k < len(ranked) else len(ranked)
        while ties == "keep" and cut < len(ranked) and logit[ranked[cut]] == logit[ranked[cut - 1]]:
            cut += 1
        return cut, INFINITE
    if name == "min_p":
        threshold = Decimal(given.min_p) * weight[ranked[0]]
        cut = sum(weight[v] >= threshold for v in ranked)
        off = [abs(weight[v] - threshold) / threshold for v in ranked if threshold > 0 and v != ranked[0]]
        # a token exactly at the threshold of one is tied with the largest and stays in any arithmetic
        return cut, min((n for n in off if n > 0 or given.min_p != 1), default=INFINITE)
    if given.top_p == 1:
        return len(ranked), INFINITE
    total = sum(weight.values(), Decimal(0))
    wanted = Decimal(given.top_p) * total
    reached, cut, near = Decimal(0), 0, INFINITE
    for v in ranked:
        near = min(near, abs(reached - wanted) / total)
        if reached >= wanted:
            break
        reached += weight[v]
        cut += 1
        near = min(near, abs(reached - wanted) / total)
    return cut, near


def cast_error(logit: float, temperature: float, unit: float) -> float:
    """How far logit/temperature may lie off once both are numbers of roundoff `unit`, before any softmax.

    A logit that the format holds is cast without error; dividing by a power of two rounds nothing.
    """
    if logit == -math.inf or temperature == 0:
        return 0.0
    scaled = abs(logit / temperature)
    cast = 0.0 if _held(logit, unit) else scaled * unit
    divided = 0.0 if math.frexp(temperature)[0] == 0.5 else 2 * scaled * unit
    return cast + divided


def _held(value: float, unit: float) -> bool:
    """Whether a format of roundoff `unit` holds the value (its exponent range aside)."""
    return (math.frexp(value)[0] / unit).is_integer()
