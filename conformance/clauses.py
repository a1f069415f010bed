"""The clauses: numbered sentences of each contract's `spec.md`, looked up and never retyped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent

_GROUP = re.compile(r"^## (?P<group>.+)$")
_CLAUSE = re.compile(r"^### (?P<id>[A-Z]+-\d+)$")
_BESIDE = "Beside the ladder: it rests on no other group, and no rung rests on it."
_FIELD = re.compile(r"^- (?P<name>source|implies|excluded|tolerance): (?P<text>.+)$")


class SpecError(Exception):
    """A `spec.md` that does not follow its own form: file, line and rule."""


@dataclass(frozen=True)
class Clause:
    """One rule of a contract.

    `implies` lists the clauses whose checks may fail as a consequence when this one is broken; `rung`
    counts the groups of the file from the lowest guarantee up; `excluded` says why no check exists.
    """

    id: str
    contract: str
    group: str
    rung: int
    sentence: str
    source: str
    implies: frozenset[str]
    excluded: str = ""
    tolerance: str = ""
    beside: bool = False
    """Its group stands beside the ladder."""


@cache
def contracts() -> tuple[str, ...]:
    """The contracts that this version of the suite can judge."""
    return tuple(sorted(path.parent.name for path in HERE.glob("*/spec.md")))


@cache
def clauses(contract: str) -> Mapping[str, Clause]:
    """Clause id → clause, in the order of the file. Raises `SpecError`."""
    path = HERE / contract / "spec.md"
    drafts: list[dict[str, str]] = []
    groups: list[str] = []
    beside: set[str] = set()
    current: dict[str, str] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := _GROUP.match(line):
            groups.append(match["group"])
            current = None
        elif match := _CLAUSE.match(line):
            if not groups:
                raise SpecError(f"{path.name}:{number}: a clause stands in a group")
            current = {"id": match["id"], "group": groups[-1], "sentence": ""}
            drafts.append(current)
        elif line == _BESIDE and groups:
            beside.add(groups[-1])
        elif current is not None and (match := _FIELD.match(line)):
            current[match["name"]] = match["text"]
        elif current is not None and line.strip():
            current["sentence"] = f"{current['sentence']} {line.strip()}".strip()
    ids = [draft["id"] for draft in drafts]
    for draft in drafts:
        if ids.count(draft["id"]) > 1:
            raise SpecError(f"{path.name}: {draft['id']} is defined twice")
        if not draft["sentence"] or "source" not in draft:
            raise SpecError(f"{path.name}: {draft['id']} has a sentence and a source")
    return {
        draft["id"]: Clause(
            id=draft["id"],
            contract=contract,
            group=draft["group"],
            rung=groups.index(draft["group"]),
            sentence=draft["sentence"],
            source=draft["source"],
            implies=_expand(draft.get("implies", ""), drafts, draft["id"]),
            excluded=draft.get("excluded", ""),
            tolerance=draft.get("tolerance", ""),
            beside=draft["group"] in beside,
        )
        for draft in drafts
    }


def clause(identity: str) -> Clause:
    """The clause of that id. Raises `KeyError` naming it."""
    found = clauses(identity.partition("-")[0].lower())
    if identity not in found:
        raise KeyError(f"no clause {identity}")
    return found[identity]


def _expand(text: str, drafts: list[dict[str, str]], owner: str) -> frozenset[str]:
    """Clause numbers and group names, comma-separated, as a set of clause ids."""
    prefix = owner.partition("-")[0]
    wanted: set[str] = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        identity = f"{prefix}-{item}"
        members = {draft["id"] for draft in drafts if draft["group"] == item or draft["id"] == identity}
        if not members:
            raise SpecError(f"{owner}: implies {item!r}, which is neither a clause nor a group")
        wanted |= members
    return frozenset(wanted - {owner})
