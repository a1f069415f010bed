"""`eagle-conformance report`: stored reports, of the suite or of the gate; a table where there are several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conformance.cli.showing import console, fail, show

if TYPE_CHECKING:
    from conformance.report.model import Run


def report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON reports of `run` or of `gate`.")],
) -> None:
    """Show a stored report, or several side by side."""
    found = [_read(path) for path in files]
    if len(found) == 1:
        show(found[0].lines)
    else:
        _table(files, found)


@dataclass(frozen=True)
class _Stored:
    """lines: the report as its own run printed it. of, what, found, code: as cells of a table."""

    lines: list[str]
    of: str
    what: str
    found: str
    code: str


def _read(path: Path) -> _Stored:
    """The report of a file, of either kind; one that is not in its form is refused."""
    from conformance.gate import verdict
    from conformance.report.model import ReportError, read

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and document.get("format") == verdict.FORMAT:
            return _of_gate(document)
        return _of_suite(read(path))
    except ReportError as error:
        fail(error)
    except (OSError, ValueError, RecursionError) as error:
        fail(f"{path}: {error}")
    except (KeyError, TypeError, AttributeError) as error:
        fail(f"{path}: it is not in its form: {type(error).__name__}: {error}")


def _of_gate(document: dict[str, Any]) -> _Stored:
    from conformance.gate import output

    release = f"{document['drafter']} for {document['target']}"
    code = str(document["exit_code"])
    return _Stored(list(output.lines(document)), "gate", release, output.counted(document), code)


def _of_suite(run: Run) -> _Stored:
    from conformance.report import text

    told = ", ".join(f"{count} {word}" for word, count in run.counts.items() if count)
    lines = [run.title, *text.summary(run)]
    return _Stored(lines, f"suite, {run.profile}", f"{run.title} ({run.spec})", told, str(run.exit_code))


def _table(files: Sequence[Path], found: Sequence[_Stored]) -> None:
    from rich import box
    from rich.table import Table

    out = console()
    table = Table(box=box.SIMPLE if out.is_terminal else None, pad_edge=False)
    for name in ("report", "of", "what", "found", "exit"):
        table.add_column(name, overflow="fold")
    for path, one in zip(files, found):
        table.add_row(str(path), one.of, one.what, one.found, one.code)
    out.print(table)
