"""Judging a warped row: the second road's law, and what a precision may make of it.

With unit roundoff ε and exponents x = (l − max)/T, an entry of the softmax carries (V + 6 + 2|x|)ε plus twice
the rounding of the logits on their way (`cast_error`); renormalising after a stage adds (V + 3)ε. A set of
survivors whose threshold lies inside these bounds is undecidable at this precision: counted, never failed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from adapters.interface import DTYPES
from conformance import compare as compare_module
from conformance import draw
from conformance.check import Check
from conformance.roads import warping as road
from conformance.verdicts import ClauseViolation, HarnessError
from oracle import warping as oracle
from oracle.types import WarpCase

ORDER, TIES = "temperature,top_k,top_p,min_p", "exact"
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}
"""Smallest normal number of a dtype: what is smaller may come out as zero."""
LARGEST = {"float64": 1.7e308, "float32": 3.4e38, "bfloat16": 3.3e38, "float16": 65504.0}
"""Largest number of a dtype: beyond it nothing is asked."""


def copy(case: WarpCase) -> WarpCase:
    """The same case in arrays of its own."""
    fields = {name: np.copy(v) for name, v in vars(case).items() if isinstance(v, np.ndarray)}
    return replace(case, **fields)


def rows_of(case: WarpCase) -> list[list[float]]:
    logits = np.asarray(case.logits)
    rows: list[list[float]] = logits.reshape(-1, logits.shape[-1]).tolist()
    return rows


def warp(check: Check, case: WarpCase) -> np.ndarray:
    """The implementation's rows, float64 [R, V]; `ClauseViolation` where they are none."""
    found = array(check.call("warp", copy(case)), np.asarray(case.logits).shape)
    return found.reshape(-1, found.shape[-1])


def array(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """What an implementation returned as float64 of `shape`."""
    found = compare_module.plain(value, "the result")
    if found.shape != shape or found.dtype.kind != "f":
        raise ClauseViolation(f"the result is {found.dtype} {list(found.shape)}; the logits are {list(shape)}")
    return found.astype(np.float64)


def convention(check: Check) -> tuple[str, str]:
    """The declared filter order and treatment of ties."""
    return check.convention("filter_order", ORDER), check.convention("top_k_ties", TIES)


def expected(check: Check, case: WarpCase) -> list[road.Warped]:
    """The second road's rows under the declared convention; the oracle has to agree with them."""
    order, ties = convention(check)
    refuse_ignored(case, order)
    found = by_road(case, order, ties)
    if not check.is_oracle:
        ours = oracle.warp(case, order, ties)
        for r, (row, right) in enumerate(zip(ours.reshape(-1, ours.shape[-1]), found)):
            if Judge(case, r, right, "float64").differs(row):
                raise HarnessError(f"row {r}: the oracle warps to {draw.row(row)}, the second road to {shown(right)}")
    return found


def refuse_ignored(case: WarpCase, order: str) -> None:
    """An implementation without a filter cannot have answered a case that uses it."""
    for name, off in OFF.items():
        if name not in order and np.any(np.asarray(getattr(case, name)) != off):
            raise ClauseViolation(f"{name} is given and no stage of {order!r}: it is to be refused, not ignored")


def by_road(case: WarpCase, order: str, ties: str) -> list[road.Warped]:
    return [road.warp_row(row, road.parameters(case, r), order, ties) for r, row in enumerate(rows_of(case))]


def compare(check: Check, case: WarpCase, support: bool = False) -> None:
    """Judge each row of `case`, its law or only which tokens have mass; raises `ClauseViolation`."""
    found = warp(check, case)
    judges = [Judge(case, r, right, check.arithmetic.dtype) for r, right in enumerate(expected(check, case))]
    check.decided(any(judge.decidable for judge in judges))
    for r, judge in enumerate(judges):
        if judge.decidable and judge.wrong(found[r], support):
            place = f"row {r}: " if len(found) > 1 else ""
            raise ClauseViolation(f"{place}{judge.reason(found[r], support)}")


def shown(row: road.Warped) -> str:
    return draw.row([float(p) for p in row.law])


class Judge:
    """How far one row may lie off at a precision."""

    def __init__(self, case: WarpCase, row: int, right: road.Warped, dtype: str) -> None:
        given = road.parameters(case, row)
        logits = rows_of(case)[row]
        self.right, self.unit, self.tiny = right, DTYPES[dtype], TINY[dtype]
        size, stages = len(logits), 3  # each of the three filters may renormalise once
        rounding = max(road.cast_error(logit, given.temperature, self.unit) for logit in logits)
        self.relative = [
            # the bound keeps the infinite exponent of a masked token out of the sums; its law is zero anyhow
            self.unit * (size + 6 + 2 * min(abs(float(x)), 1e6)) + 2 * rounding + stages * (size + 3) * self.unit
            for x in right.exponents
        ]
        kept = max(e for e, p in zip(self.relative, right.law) if p > 0)
        self.relative = [e + kept for e in self.relative]
        scale = max((abs(logit) for logit in logits if logit != -math.inf), default=0.0) / (given.temperature or 1)
        held = all(x == -math.inf or abs(x) <= LARGEST[dtype] for x in logits)
        warm = given.temperature == 0 or TINY[dtype] <= given.temperature <= LARGEST[dtype]
        self.decidable = (
            held
            and warm
            and max(self.relative[v] for v, p in enumerate(right.law) if p > 0) < 0.5
            and right.gap > Decimal(2 * kept + 2 * (size + 2) * self.unit)
            and right.log_gap > Decimal(2 * rounding + 4 * scale * self.unit)
        )

    def wrong(self, found: np.ndarray, support: bool) -> bool:
        """Whether the row lies outside its bounds, or where only `support` is judged, gives mass elsewhere."""
        return self.misplaced(found) if support else self.differs(found)

    def differs(self, found: np.ndarray) -> bool:
        """Whether some entry lies outside its bound, as NaN does."""
        return not all(abs(float(p) - f) <= self.allowed(v) for v, (p, f) in enumerate(zip(self.right.law, found)))

    def allowed(self, token: int) -> float:
        """How far the entry of a token may lie off; a token without mass has none in any arithmetic."""
        p = float(self.right.law[token])
        return p * self.relative[token] + self.tiny if self.right.law[token] > 0 else 0.0

    def reason(self, found: np.ndarray, support: bool) -> str:
        """What is wrong with the row: the token that is furthest off, and its bound."""
        law = [float(p) for p in self.right.law]
        both = f"{{clause}} gives {shown(self.right)}; the implementation gives {draw.row(found)}"
        if support:
            token = next(v for v, p in enumerate(law) if (found[v] > 0) != (self.right.law[v] > 0))
            verb, did = ("keeps", "dropped") if law[token] > 0 else ("drops", "kept")
            return f"{both}: {{clause}} {verb} token {token}, and it was {did}"
        over = [abs(p - f) / max(self.allowed(v), 1e-300) for v, (p, f) in enumerate(zip(law, found))]
        token = max(range(len(law)), key=lambda v: math.inf if math.isnan(over[v]) else over[v])
        return (
            f"{both}: token {token} has {found[token]:.9g} in the place of {law[token]:.9g}, and its arithmetic allows "
            f"a difference of {self.allowed(token):.2g}"
        )

    def misplaced(self, found: np.ndarray) -> bool:
        """Whether a token has mass that has to have none, or the other way round."""
        return any((f > 0) != (p > 0) for p, f in zip(self.right.law, found) if p == 0 or p > 2 * self.tiny)


# ---- conventions


def identify(
    check: Check,
    cases: Sequence[WarpCase],
    name: str,
    declared: str,
    candidates: Mapping[str, tuple[str, str]],
    support: bool = False,
) -> None:
    """Which of `candidates`, name → (filter order, treatment of ties), explain all that is seen on `cases`.

    Observes the declared one where it is among them and some other is not; raises `ClauseViolation` with those
    that are where it is not.
    `support` looks only at which tokens have mass.
    """
    open_to = dict(candidates)
    against: list[tuple[WarpCase, np.ndarray]] = []
    told_apart: set[str] = set()

    def body(case: WarpCase) -> None:
        found = warp(check, case)
        refuse_ignored(case, convention(check)[0])
        agreeing = {
            c for c, (o, t) in candidates.items() if _explains(case, found, check.arithmetic.dtype, o, t, support)
        }
        told_apart.update(set(candidates) - agreeing)
        if declared not in agreeing:
            against.append((case, found))
        for candidate in set(open_to) - agreeing:
            del open_to[candidate]

    check.for_each(cases, body)
    if against:
        case, found = against[0]
        observed = " or ".join(sorted(open_to)) if open_to else "none that the suite knows"
        raise ClauseViolation(
            f"declared is {name} {declared!r}, which gives {shown(by_road(case, *candidates[declared])[0])}; the "
            f"implementation gives {draw.row(found[0])}. What explains all of the {len(cases)} rows: {observed}",
            case,
        )
    if told_apart:
        check.observe(name, declared)


def _explains(case: WarpCase, found: np.ndarray, dtype: str, order: str, ties: str, support: bool) -> bool:
    """Whether the convention explains what was found, as far as it is decidable."""
    judges = [Judge(case, r, right, dtype) for r, right in enumerate(by_road(case, order, ties))]
    return not any(judge.decidable and judge.wrong(found[r], support) for r, judge in enumerate(judges))


def orders_like(declared: str) -> list[str]:
    """The declared order, and every other one over the same stages."""
    names = [name for stage in declared.split(",") for name in stage.split("+") if name]
    return list(dict.fromkeys([declared, *orders(names)]))


def orders(names: Sequence[str]) -> Iterator[str]:
    """Every filter order over `names`: temperature before, between or after the filters, alone or joined."""
    filters = [name for name in names if name != "temperature"]
    for stages in _partitions(filters):
        if "temperature" not in names:
            yield ",".join(stages)
            continue
        for i in range(len(stages) + 1):
            yield ",".join([*stages[:i], "temperature", *stages[i:]])


def _partitions(names: Sequence[str]) -> Iterator[list[str]]:
    if not names:
        yield []
    for size in range(1, len(names) + 1):
        for first in itertools.combinations(names, size):
            for rest in _partitions([name for name in names if name not in first]):
                yield ["+".join(first), *rest]
