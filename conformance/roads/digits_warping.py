"""Warping in fifty digits: each token asks by itself whether it stays.

Nothing is sorted and no set is cut: a token's rank is the number of tokens before it, the mass before it a sum over
those, and a filter a sentence about the two. Of the law that the filters leave each entry is one quotient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from oracle.types import WarpCase

ORDER = ("top_k", "top_p", "min_p")
"""Of the filters, behind the temperature."""
SMALLEST = 400
"""Decimal places behind which a mass is zero in every format."""


class Parameters(NamedTuple):
    """What one row is warped with."""

    temperature: float
    top_k: float
    top_p: float
    min_p: float


def rows(case: WarpCase, digits: int) -> list[list[Any]]:
    """The law of each row, entries of mpmath."""
    import mpmath

    held = np.asarray(case.logits).reshape(-1, np.asarray(case.logits).shape[-1]).tolist()
    given = [np.broadcast_to(getattr(case, name), len(held)).tolist() for name in Parameters._fields]
    with mpmath.workdps(digits):
        return [_law(row, Parameters(*own), mpmath.mpf, mpmath.exp) for row, own in zip(held, zip(*given))]


def _law(logits: Sequence[float], given: Parameters, mpf: Callable[..., Any], exp: Callable[..., Any]) -> list[Any]:
    tokens = [v for v, logit in enumerate(logits) if logit > -math.inf]
    before = {v: [w for w in tokens if (-logits[w], w) < (-logits[v], v)] for v in tokens}
    (best,) = [v for v in tokens if not before[v]]
    if given.temperature == 0:
        return [mpf(int(v == best)) for v in range(len(logits))]
    weight = {v: exp((mpf(logits[v]) - mpf(logits[best])) / mpf(given.temperature)) for v in tokens}
    kept = set(tokens)
    for name in ORDER:
        # every sentence speaks of the tokens that the filters before it have left
        stays = _SENTENCES[name]
        kept = {v for v in kept if stays(given, v, [w for w in before[v] if w in kept], kept, weight, mpf)}
    total = sum(weight[v] for v in kept)
    law = [weight[v] / total if v in kept else mpf(0) for v in range(len(logits))]
    return [p if p > mpf(10) ** -SMALLEST else mpf(0) for p in law]


Weights = Mapping[int, Any]


def _top_k(given: Parameters, token: int, ahead: list[int], kept: set[int], weight: Weights, mpf: Any) -> bool:
    return given.top_k == 0 or len(ahead) < given.top_k


def _top_p(given: Parameters, token: int, ahead: list[int], kept: set[int], weight: Weights, mpf: Any) -> bool:
    """The mass of those before it falls short."""
    return given.top_p == 1 or sum(weight[w] for w in ahead) < mpf(given.top_p) * sum(weight[w] for w in kept)


def _min_p(given: Parameters, token: int, ahead: list[int], kept: set[int], weight: Weights, mpf: Any) -> bool:
    """The best token weighs one."""
    return bool(weight[token] >= mpf(given.min_p))


_SENTENCES: Mapping[str, Callable[..., bool]] = {"top_k": _top_k, "top_p": _top_p, "min_p": _min_p}
