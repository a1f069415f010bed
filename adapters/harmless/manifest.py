"""Right gates of releases that look different: the other order, other words, a violation a clause, other types."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from adapters.faulty.gating import WholeGate
from oracle.types import ReleaseCase, Violation


class FromTheLastClause(WholeGate):
    """Tells violations from the last clause on."""

    @classmethod
    def check_release(cls, case: ReleaseCase) -> list[Violation]:
        return super().check_release(case)[::-1]


class OneAClause(WholeGate):
    """Tells one violation of each clause."""

    @classmethod
    def check_release(cls, case: ReleaseCase) -> list[Violation]:
        return list({one.clause: one for one in super().check_release(case)}.values())


class OtherWords(WholeGate):
    """Has words of its own, and hands out a type of its own."""

    @classmethod
    def check_release(cls, case: ReleaseCase) -> Any:
        told = super().check_release(case)
        return [
            SimpleNamespace(clause=v.clause, field=f"release/{v.field}", message=f"Beware of this: {v.message}!")
            for v in told
        ]


class OpensFilesTwice(WholeGate):
    """Reads every file twice, and compares."""

    @classmethod
    def opened(cls, folder: Path, name: str) -> bytes:
        first, second = super().opened(folder, name), super().opened(folder, name)
        if first != second:
            raise ValueError(f"{name} changes while it is read")
        return second
