"""What `make bench` measured, as data, and what got worse between two runs of it.

The file is pytest-benchmark's JSON; a race lies under `extra_info.race` of its benchmark. A ratio says how many times
as long as the fast path somebody takes, so a smaller one is worse for us. It got worse where its whole interval lies
below the older one: of two runs that differ by chance alone, intervals of level 1 − α lie apart with probability α at
most.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
LARGEST = 64 * 2**20
"""Bytes of a file that is read."""


class RaceError(ValueError):
    """A file of measurements that cannot be read: the file, the field and the rule."""


@dataclass(frozen=True)
class Ratio:
    """How many times as long as the fast path a contestant takes: of medians, and the interval of the median."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """A contestant of a race in an older and a newer run; None where a run has no such one."""

    race: str
    contestant: str
    old: Ratio | None
    new: Ratio | None

    @property
    def word(self) -> str:
        """`worse`, `better`, `same` within the intervals, `gone`, or `new`."""
        if self.new is None:
            return "gone"
        if self.old is None:
            return "new"
        return "worse" if self.new.high < self.old.low else "better" if self.new.low > self.old.high else "same"


Ratios = dict[tuple[str, str], Ratio]


def read(path: Path) -> Ratios:
    """(benchmark, contestant) → its ratio, the fast path's own left out. Raises `RaceError`."""
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise RaceError(f"{path}: {size} bytes; at most {LARGEST} are read")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise error if isinstance(error, RaceError) else RaceError(f"{path}: {error}") from None
    found: Ratios = {}
    for i, one in enumerate(_typed(document, "benchmarks", list, f"{path}")):
        where = f"{path}: benchmarks[{i}]"
        told = _typed(one, "extra_info", dict, where)
        if "race" not in told:
            continue
        name, race = _typed(one, "fullname", str, where), _typed(told, "race", dict, where)
        if race.get("format") != FORMAT:
            raise RaceError(f"{where}: race.format: this version reads {FORMAT}")
        rows = _typed(race, "contestants", list, where)
        for k, row in enumerate(rows[1:], 1):
            at = f"{where}: race.contestants[{k}]"
            found[name, _typed(row, "name", str, at)] = _ratio(row, at)
    return found


def _ratio(row: dict[str, Any], where: str) -> Ratio:
    ends = _typed(row, "interval", list, where)
    values = [row.get("ratio"), *ends]
    if len(values) != 3 or not all(isinstance(v, float | int) and math.isfinite(v) and v > 0 for v in values):
        raise RaceError(f"{where}: ratio, interval: three positive numbers, found {values}")
    if values[1] > values[2]:
        raise RaceError(f"{where}: interval: the lower end first, found {ends}")
    return Ratio(*map(float, values))


def _typed(holder: object, field: str, kind: type, where: str) -> Any:
    value = holder.get(field) if isinstance(holder, dict) else None
    if not isinstance(value, kind):
        raise RaceError(f"{where}: {field}: a {kind.__name__} is read here, found {type(value).__name__}")
    return value


def changes(old: Ratios, new: Ratios) -> list[Change]:
    """What both runs and what one of them measured, in the order of the older."""
    return [Change(*key, old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new])]


def line(change: Change) -> str:
    """One change in words."""
    told = [f"{r.value:.3g}× [{r.low:.3g}, {r.high:.3g}]" if r else "not measured" for r in (change.old, change.new)]
    return f"{change.word:6}  {change.race}  {change.contestant}: {told[0]} → {told[1]}"
