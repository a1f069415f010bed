"""Warping rows of logits, on any device: every filter keeps the first so many tokens of a row that is sorted once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.drawing import accumulated

STAGES = ("temperature", "top_k", "top_p", "min_p")
FILTER_ORDER = ",".join(STAGES)
TOP_K_TIES = ("exact", "keep")
Parameter = float | int | Tensor


def warp(
    logits: Tensor,
    temperature: Parameter = 1.0,
    top_k: Parameter = 0,
    top_p: Parameter = 1.0,
    min_p: Parameter = 0.0,
    filter_order: str = FILTER_ORDER,
    top_k_ties: str = "exact",
    *,
    validate: bool | None = None,
) -> Tensor:
    """The law that each row is sampled from: float32 of the shape of the logits, float64 of float64.

    logits: [V] or [R, V], −inf = a masked token. Parameters: a number, or a tensor [R], one a row (top_k: integers).
    temperature 0: one-hot at the lowest argmax. top_k 0, top_p 1, min_p 0: off. filter_order: stages in the order they
    are applied, each filter on the law that is left; filters joined by "+" look at the same law. top_k_ties: "keep"
    keeps tokens tied with the k-th, otherwise lower ids stay. validate: whether numbers are looked at, which a GPU
    would have to wait for; None = on a CPU. A row that is not validated and has no law comes back as NaN.

    Raises `BadInput`. Source: ACCEPTANCE 10xx.
    """
    if not isinstance(logits, Tensor) or logits.ndim not in (1, 2) or not logits.dtype.is_floating_point:
        raise BadInput("logits", (), "is a floating-point tensor [V] or [R, V]", _shown(logits))
    if logits.shape[-1] == 0:
        raise BadInput("logits", (), "has a token", tuple(logits.shape))
    if top_k_ties not in TOP_K_TIES:
        raise BadInput("top_k_ties", (), f"is one of {', '.join(TOP_K_TIES)}", top_k_ties)
    order = _stages(filter_order)
    rows = logits.detach().reshape(-1, logits.shape[-1])
    rows = rows.to(accumulated(rows.dtype))
    given = dict(zip(STAGES, (temperature, top_k, top_p, min_p)))
    for name, value in given.items():
        _check_parameter(name, value, logits)
    if logits.device.type == "cpu" if validate is None else validate:
        _check_numbers(rows, given, logits.ndim)
    named = [name for stage in order for name in stage]
    active = [name for name in named if isinstance(given[name], Tensor) or given[name] != _OFF[name]]
    if not set(active) - {"temperature"} and not (active and _may_be_zero(temperature)):
        scaled = _scaled(rows, rows.amax(-1, keepdim=True), _held(temperature, rows) if active else None)
        return torch.softmax(scaled, -1).reshape(logits.shape)
    first = _first_filter(order, active) == "top_k" and top_k_ties == "exact" and rows.device.type == "cpu"
    few = first and isinstance(top_k, int) and top_k < rows.shape[1] // 4
    ranked = _few(rows, int(top_k)) if few else _all(rows)
    law = _Filtered(ranked, rows.amax(-1, keepdim=True), top_k_ties)
    for stage in order:
        if stage == ["temperature"]:
            law.cool(_held(temperature, rows))
        else:
            law.filter({name: _column(given[name], rows) for name in stage if name in active})
    return torch.zeros_like(rows).scatter_(1, ranked.ids, law.law()).reshape(logits.shape)


class _Ranked(NamedTuple):
    """Logits from the largest down, the lower id first on ties, and their tokens: [R, n]."""

    values: Tensor
    ids: Tensor


class _Filtered:
    """What the stages so far have left: the first `count` [R, 1] of ranked tokens, and their logits below the top."""

    def __init__(self, ranked: _Ranked, highest: Tensor, ties: str) -> None:
        self.ranked, self.highest, self.ties = ranked, highest, ties
        self.rank = torch.arange(ranked.values.shape[1], device=highest.device)
        self.count = (ranked.values > -math.inf).sum(-1, keepdim=True)
        self.scaled = _scaled(ranked.values, highest, None)

    def cool(self, temperature: Tensor) -> None:
        zero = temperature == 0
        self.count = torch.where(zero, self.count.clamp(max=1), self.count)
        self.scaled = _scaled(self.ranked.values, self.highest, torch.where(zero, 1.0, temperature))

    def filter(self, given: dict[str, Tensor]) -> None:
        counts = [_FILTERS[name](self, value) for name, value in given.items()]
        for count in counts:
            self.count = torch.minimum(self.count, count)

    def law(self) -> Tensor:
        weights = self.weights()
        return weights / weights.sum(-1, keepdim=True)

    def weights(self) -> Tensor:
        return torch.where(self.rank < self.count, self.scaled.exp(), 0.0)

    def top_k(self, k: Tensor) -> Tensor:
        k = k.to(torch.int64)
        kept = torch.where((k == 0) | (k >= self.count), self.count, k)
        if self.ties == "exact":
            return kept
        last = self.ranked.values.gather(1, (kept - 1).clamp(min=0))
        return ((self.ranked.values >= last) & (self.rank < self.count)).sum(-1, keepdim=True)

    def top_p(self, p: Tensor) -> Tensor:
        reached = self.weights().cumsum(-1)
        short = (reached < p * reached[:, -1:]).sum(-1, keepdim=True)
        return torch.where(p == 1, self.count, torch.minimum(short + 1, self.count))

    def min_p(self, p: Tensor) -> Tensor:
        weights = self.weights()
        return ((weights >= p * weights[:, :1]) & (self.rank < self.count)).sum(-1, keepdim=True)


_FILTERS: dict[str, Callable[[_Filtered, Tensor], Tensor]] = {
    "top_k": _Filtered.top_k,
    "top_p": _Filtered.top_p,
    "min_p": _Filtered.min_p,
}
_OFF = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}
_RULES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "temperature": ("a temperature is finite and not negative", lambda t: (t >= 0) & (t < math.inf)),
    "top_k": ("top_k is not negative; 0 switches it off", lambda k: k >= 0),
    "top_p": ("top_p lies in (0, 1]", lambda p: (p > 0) & (p <= 1)),
    "min_p": ("min_p lies in [0, 1]", lambda p: (p >= 0) & (p <= 1)),
}


def _all(rows: Tensor) -> _Ranked:
    values, ids = rows.sort(dim=-1, descending=True, stable=True)
    return _Ranked(values, ids)


def _few(rows: Tensor, k: int) -> _Ranked:
    """The first k alone, without sorting what is behind them."""
    least = rows.topk(k, -1).values[:, -1:]
    above, tied = rows > least, rows == least
    wanted = above | (tied & (tied.cumsum(-1) <= k - above.sum(-1, keepdim=True)))
    ids = wanted.nonzero()[:, 1]
    if len(ids) != len(rows) * k:  # NaN, which is ranked with the rest
        return _all(rows)
    ids = ids.view(len(rows), k)
    values, order = rows.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    return _Ranked(values, ids.gather(1, order))


def _scaled(values: Tensor, highest: Tensor, temperature: Tensor | None) -> Tensor:
    """(values − highest) / temperature, also where the difference of two finite logits overflows."""
    difference = values - highest
    if temperature is None:
        return difference
    lost = torch.isinf(difference) & torch.isfinite(values)
    return torch.where(lost, values / temperature - highest / temperature, difference / temperature)


def _column(value: Parameter, rows: Tensor) -> Tensor:
    """A parameter as [R, 1] or [1, 1]; a number of tokens stays one, and the others are of the rows' dtype."""
    if isinstance(value, Tensor):
        column = value.to(rows.device).reshape(-1, 1)
        return column if not column.dtype.is_floating_point else column.to(rows.dtype)
    if isinstance(value, int) and value > rows.shape[1]:
        value = rows.shape[1]
    return torch.full((1, 1), float(value), dtype=rows.dtype, device=rows.device)


def _held(temperature: Parameter, rows: Tensor) -> Tensor:
    """Temperatures as a column of the rows' dtype, where one that is not zero does not become zero, nor infinite."""
    if isinstance(temperature, Tensor):
        column = temperature.to(rows.device, torch.float64).reshape(-1, 1)
    else:
        column = torch.full((1, 1), float(temperature), dtype=torch.float64, device=rows.device)
    limits = torch.finfo(rows.dtype)
    return torch.where(column == 0, column, column.clamp(limits.tiny, limits.max)).to(rows.dtype)


def _first_filter(order: list[list[str]], active: list[str]) -> str:
    """The filter that is applied first, where it is alone."""
    filters = [[name for name in stage if name in active and name != "temperature"] for stage in order]
    first = next((stage for stage in filters if stage), [])
    return first[0] if len(first) == 1 else ""


def _may_be_zero(temperature: Parameter) -> bool:
    return isinstance(temperature, Tensor) or temperature == 0


def _stages(filter_order: str) -> list[list[str]]:
    rule = f"names each of {', '.join(STAGES)} at most once, separated by ',', filters applied together by '+'"
    if not isinstance(filter_order, str):
        raise BadInput("filter_order", (), rule, filter_order)
    order = [stage.split("+") for stage in filter_order.split(",")] if filter_order else []
    names = [name for stage in order for name in stage]
    alone = all(len(stage) == 1 for stage in order if "temperature" in stage)
    if set(names) - set(STAGES) or len(names) != len(set(names)) or not alone:
        raise BadInput("filter_order", (), rule, filter_order)
    return order


def _check_parameter(name: str, value: Parameter, logits: Tensor) -> None:
    if isinstance(value, Tensor):
        whole = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
        fits = value.ndim == 0 or value.shape == logits.shape[:-1]
        if not fits or not (whole or (value.is_floating_point() and name != "top_k")):
            raise BadInput(name, (), f"is a number, or one for each of {list(logits.shape[:-1])} rows", _shown(value))
        return
    kinds = int if name == "top_k" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise BadInput(name, (), f"is {'an integer' if name == 'top_k' else 'a real number'}, or one a row", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    rule, holds = _RULES[name]
    if not holds(number):
        raise BadInput(name, (), rule, value)


def _check_numbers(rows: Tensor, given: dict[str, Parameter], dimensions: int) -> None:
    highest = rows.amax(-1)
    bad = ~torch.isfinite(highest)
    if bad.any():
        r = int(bad.nonzero()[0])
        index = (r,) if dimensions == 2 else ()
        if highest[r] == -math.inf:
            raise BadInput("logits", index, "a row has a finite logit")
        v = int((~(rows[r] < math.inf)).nonzero()[0])
        raise BadInput("logits", (*index, v), "a logit is a finite number or −inf", str(float(rows[r, v])))
    for name, value in given.items():
        rule, holds = _RULES[name]
        if isinstance(value, Tensor) and not (fine := holds(value)).all():
            r = int((~fine.reshape(-1)).nonzero()[0])
            raise BadInput(name, (r,) if value.ndim else (), rule, value.reshape(-1)[r].item())


def _shown(found: object) -> object:
    return (tuple(found.shape), found.dtype) if isinstance(found, Tensor) else found
