"""The pair matrix, trainer × server: `python -m conformance.report.pairs FILE… [--page PAGE]`.

Files are those of `conformance.drafter.pairs`. Two implementations are given the same checkpoints and have to give the
same logits at every step, within what the dtypes of both may round. Without a page the tables are printed; with one
they are written between its markers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.drafter.pairs import FORMAT, ROLES
from conformance.report.model import ReportError
from conformance.report.table import replace

TITLES = {"eagle1": "EAGLE-1", "eagle3": "EAGLE-3"}
PART = "pairs"
_TINY = 1e-300
"""In the place of a bound of zero."""
_TOLD = 2
"""Differing cases of a pair that a cell tells."""
_NAMED = 4
"""Equal ones that it names rather than counts."""


@dataclass(frozen=True)
class Side:
    """One implementation's file. answers: variant → case → logits and bounds [steps, Vd], or why there are none."""

    spec: str
    role: str
    version: str
    dtype: str
    deviations: Sequence[Mapping[str, str]]
    cases: str
    answers: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def why_not(self, variant: str, case: str) -> str:
        """Why the case is not applicable; "" where it was answered."""
        return str(self.answers[variant][case].get("not_applicable", ""))


@dataclass(frozen=True)
class Found:
    """A case of a pair: the first step that differs, or None, and the entry that lies furthest out of its bound."""

    case: str
    step: int | None
    difference: float
    bound: float

    @property
    def share(self) -> float:
        """Of the bound."""
        return self.difference / max(self.bound, _TINY)


def read(path: Path) -> Side:
    """Read a file. Raises `ReportError`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReportError(f"{path}: format: this version reads {FORMAT!r}")
    names = ("spec", "role", "version", "dtype", "deviations", "cases", "answers")
    if missing := [name for name in names if name not in document]:
        raise ReportError(f"{path}: {', '.join(missing)}: missing")
    if document["role"] not in ROLES:
        raise ReportError(f"{path}: role = {document['role']!r}: one of {', '.join(ROLES)}")
    return Side(**{name: document[name] for name in names})


def compared(one: Side, other: Side, variant: str) -> list[Found]:
    """Every case that both answer. The bound of a pair is the sum of both sides'."""
    found = []
    for case in one.answers[variant]:
        if one.why_not(variant, case) or other.why_not(variant, case):
            continue
        answers = one.answers[variant][case], other.answers[variant][case]
        logits, bounds = (tuple(np.array(answer[name]) for answer in answers) for name in ("logits", "bounds"))
        apart, allowed = np.abs(logits[0] - logits[1]), bounds[0] + bounds[1]
        steps = np.flatnonzero(~(apart <= allowed).all(axis=1)).tolist()
        step = steps[0] if steps else None
        rows = slice(None) if step is None else slice(step, step + 1)
        shares = (apart[rows] / np.maximum(allowed[rows], _TINY)).ravel()
        worst = int(np.argmax(shares))
        found.append(Found(case, step, float(apart[rows].ravel()[worst]), float(allowed[rows].ravel()[worst])))
    return found


def cell(one: Side, other: Side, variant: str) -> str:
    """How a pair fared."""
    if one is other:
        return "–"
    found = compared(one, other, variant)
    if not found:
        return f"not applicable: {_why(one, other, variant)}"
    differing = [f for f in found if f.step is not None]
    equal = [f for f in found if f.step is None]
    parts = [
        f"`{f.case}` step {f.step}: differs by {f.difference:.2g} (bound {f.bound:.2g})" for f in differing[:_TOLD]
    ]
    if len(differing) > _TOLD:
        parts.append(f"and {len(differing) - _TOLD} more differ")
    if equal:
        worst = max(equal, key=lambda f: f.share)
        few = len(equal) <= _NAMED
        where = ", ".join(f"`{f.case}`" for f in equal) if few else f"{len(equal)} cases"
        parts.append(f"equal in {where} ({worst.difference:.2g} / {worst.bound:.2g})")
    return "<br>".join(parts)


def _why(one: Side, other: Side, variant: str) -> str:
    for side in (one, other):
        reasons = {side.why_not(variant, case) for case in side.answers[variant]}
        if "" not in reasons:
            return f"`{side.spec}`: {sorted(reasons)[0]}"
    return "no case is answered by both"


def tables(sides: Sequence[Side]) -> str:
    """A table a variant. Raises `ReportError` where files are made of different cases."""
    if len({side.cases for side in sides}) > 1:
        raise ReportError("the files are made of different cases: write them again, with one version of the suite")
    lines: list[str] = []
    for variant in dict.fromkeys(variant for side in sides for variant in side.answers):
        known = [s for s in sides if any(not s.why_not(variant, case) for case in s.answers[variant])]
        trainers, servers = (
            sorted((s for s in known if s.role in (role, "both")), key=lambda s: (s.role == "both", s.spec))
            for role in ("trainer", "server")
        )
        lines += [
            f"### {TITLES.get(variant, variant)}",
            "",
            f"| trainer ↓ server → | {' | '.join(f'`{s.spec}`' for s in servers)} |",
            f"|---|{'---|' * len(servers)}",
        ]
        lines += [
            f"| `{one.spec}` | {' | '.join(cell(one, other, variant) for other in servers)} |" for one in trainers
        ]
        lines += ["", *_notes(known, variant), ""]
    versions = ", ".join(f"`{side.spec}` {side.version} in {side.dtype}" for side in sides)
    return "\n".join([*lines, f"Versions: {versions}."])


def _notes(sides: Sequence[Side], variant: str) -> Iterator[str]:
    """What implementations that differ are known to do otherwise, and the cases that they do not answer."""
    yardsticks = [side for side in sides if side.role == "both"] or sides
    for side in sides:
        differs = any(found.step is not None for other in yardsticks for found in compared(side, other, variant))
        for deviation in side.deviations if differs else ():
            link = f" ({deviation['link']})" if deviation["link"] else ""
            yield f"- `{side.spec}`, {deviation['clauses']}: {deviation['reason']}{link}."
        reasons: dict[str, list[str]] = {}
        for case in side.answers[variant]:
            if why := side.why_not(variant, case):
                reasons.setdefault(why, []).append(f"`{case}`")
        for why, cases in reasons.items():
            yield f"- `{side.spec}` does not answer {', '.join(cases)}: {why}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    content = tables([read(path) for path in chosen.files])
    if chosen.page is None:
        print(content)
    else:
        page = chosen.page.read_text(encoding="utf-8")
        chosen.page.write_text(replace(page, PART, content), encoding="utf-8")


if __name__ == "__main__":
    main()
