"""Warping: what temperature, top-k, top-p and min-p make of a row of target logits.

Each stage acts on the law that the stages before it left, renormalised. Order and the treatment of ties are
conventions that change the answer, so they are arguments; the defaults are the contract's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np

from oracle.errors import BadInput
from oracle.types import Rows, WarpCase
from oracle.validation import as_array

STAGES = ("temperature", "top_k", "top_p", "min_p")
FILTER_ORDER = ",".join(STAGES)
"""Stages in the order they are applied; filters joined by "+" look at the same law and are applied together."""
TOP_K_TIES = ("exact", "keep")
"""exact: k tokens survive, lower ids first. keep: so does every token tied with the k-th."""


def warp(case: WarpCase, filter_order: str = FILTER_ORDER, top_k_ties: str = "exact") -> Rows:
    """The law that each row of `case.logits` is sampled from, float64 of the shape of the logits.

    Temperature 0 is one-hot at the lowest argmax, whatever the filters. A stage that `filter_order` does not
    name is not applied. Raises `BadInput`. Source: design of `acceptance`, warping.
    """
    if not isinstance(case, WarpCase):
        raise BadInput("case", (), "a case is an oracle.types.WarpCase", type(case).__name__)
    order = stages_of(filter_order)
    if not isinstance(top_k_ties, str) or top_k_ties not in TOP_K_TIES:
        raise BadInput("top_k_ties", (), f"is one of {', '.join(TOP_K_TIES)}", top_k_ties)
    logits = as_array(case.logits, "case.logits")
    if logits.ndim not in (1, 2) or logits.shape[-1] == 0:
        raise BadInput("case.logits", (), "has shape [V] or [R, V]", logits.shape)
    if logits.dtype.kind != "f":
        raise BadInput("case.logits", (), "holds floating-point numbers", str(logits.dtype))
    rows = logits.reshape(-1, logits.shape[-1])
    parameters = {name: _one_a_row(getattr(case, name), name, len(rows), logits.ndim) for name in STAGES}
    warped = []
    for r, row in enumerate(rows.tolist()):
        index = (r,) if logits.ndim == 2 else ()
        _check_logits(row, index)
        given = {name: _checked(name, *values[r]) for name, values in parameters.items()}
        warped.append(_warp_row(row, order, given, top_k_ties))
    return np.array(warped, dtype=np.float64).reshape(logits.shape)


def _warp_row(logits: list[float], order: list[list[str]], given: dict[str, float], ties: str) -> list[float]:
    """The stages one by one: `kept` are the tokens that survive, `scaled` their logits below the maximum."""
    highest = max(logits)
    kept = [v for v, logit in enumerate(logits) if logit > -math.inf]
    scaled = [logit - highest for logit in logits]
    for stage in order:
        if stage == ["temperature"]:
            if given["temperature"] == 0:
                kept = [logits.index(highest)]
            else:
                scaled = [_below(logit, highest, given["temperature"]) for logit in logits]
            continue
        law = _softmax(scaled, kept)
        ranked = sorted(kept, key=lambda v: (-logits[v], v))
        survivors = [_FILTERS[name](law, ranked, logits, given[name], ties) for name in stage]
        kept = [v for v in kept if all(v in survivor for survivor in survivors)]
    return _softmax(scaled, kept)


def _below(logit: float, highest: float, temperature: float) -> float:
    """(logit − highest) / temperature, also where the difference of two finite logits overflows."""
    difference = logit - highest
    if math.isinf(difference) and math.isfinite(logit):
        return logit / temperature - highest / temperature
    return difference / temperature


def _softmax(scaled: list[float], kept: list[int]) -> list[float]:
    """The renormalised law of the tokens kept; their maximum is 0, so nothing overflows."""
    weights = [0.0] * len(scaled)
    for v in kept:
        weights[v] = math.exp(scaled[v])
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _top_k(law: list[float], ranked: list[int], logits: list[float], k: float, ties: str) -> list[int]:
    if k == 0 or k >= len(ranked):
        return ranked
    last = logits[ranked[int(k) - 1]]
    return [v for rank, v in enumerate(ranked) if rank < k or (ties == "keep" and logits[v] == last)]


def _top_p(law: list[float], ranked: list[int], logits: list[float], p: float, ties: str) -> list[int]:
    """The smallest set, most probable first, whose mass reaches p; all where rounding never reaches it."""
    if p == 1:
        return ranked
    reached = 0.0
    for count, v in enumerate(ranked):
        reached += law[v]
        if reached >= p:
            return ranked[: count + 1]
    return ranked


def _min_p(law: list[float], ranked: list[int], logits: list[float], p: float, ties: str) -> list[int]:
    return [v for v in ranked if law[v] >= p * law[ranked[0]]]


_FILTERS: dict[str, Callable[[list[float], list[int], list[float], float, str], list[int]]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
}


def stages_of(filter_order: str) -> list[list[str]]:
    """A `filter_order` as a list of stages. Raises `BadInput` unless each name is known and named once."""
    rule = f"names each of {', '.join(STAGES)} at most once, separated by ',', filters applied together by '+'"
    if not isinstance(filter_order, str):
        raise BadInput("filter_order", (), rule, filter_order)
    order = [stage.split("+") for stage in filter_order.split(",")] if filter_order else []
    names = [name for stage in order for name in stage]
    if set(names) - set(STAGES) or len(names) != len(set(names)):
        raise BadInput("filter_order", (), rule, filter_order)
    if any("temperature" in stage and len(stage) > 1 for stage in order):
        raise BadInput("filter_order", (), "temperature is a stage of its own", filter_order)
    return order


def _check_logits(row: list[float], index: tuple[int, ...]) -> None:
    for v, logit in enumerate(row):
        if math.isnan(logit) or logit == math.inf:
            raise BadInput("case.logits", (*index, v), "a logit is a finite number or −inf", str(logit))
    if max(row) == -math.inf:
        raise BadInput("case.logits", index, "a row has a finite logit")


_RULES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "temperature": ("a temperature is finite and not negative", lambda t: 0 <= t <= sys.float_info.max),
    "top_k": ("top_k is not negative; 0 switches it off", lambda k: k >= 0),
    "top_p": ("top_p lies in (0, 1]", lambda p: 0 < p <= 1),
    "min_p": ("min_p lies in [0, 1]", lambda p: 0 <= p <= 1),
}


def _checked(name: str, value: float, index: tuple[int, ...]) -> float:
    rule, holds = _RULES[name]
    if not holds(value):  # false for NaN, too
        raise BadInput(f"case.{name}", index, rule, value)
    return value


def _one_a_row(values: object, name: str, rows: int, dimensions: int) -> list[tuple[float, tuple[int, ...]]]:
    """A parameter as one number a row, each with its index: empty where one value is for all rows."""
    field = f"case.{name}"
    array = _numbers(values, field)
    kinds, kind = ("iu", "an integer") if name == "top_k" else ("fiu", "a real number")
    if array.dtype.kind not in kinds and not all(_is_integer(v) for v in array.flat):
        raise BadInput(field, (), f"is {kind}, or one a row", values)
    if array.ndim == 0:
        return [(array.item(), ())] * rows
    if dimensions == 1 or array.shape != (rows,):
        raise BadInput(field, (), f"is one value, or one for each of the {rows} rows of [R, V]", array.shape)
    return [(value, (r,)) for r, value in enumerate(array.tolist())]


def _numbers(values: object, field: str) -> np.ndarray:
    """An array in which Python's integers stay as they are: NumPy has a largest one."""
    given = values if isinstance(values, (list, tuple)) else [values]
    if all(_is_integer(value) for value in given):
        return np.array(values, dtype=object)
    return as_array(values, field)


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
