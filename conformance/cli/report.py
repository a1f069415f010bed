"""`eagle-conformance report`: stored reports, of the suite or of the gate; a table where there are several."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
        _show_one(found[0])
    else:
        _table(files, found)


def _read(path: Path) -> Run | dict[str, Any]:
    """The report of a file, of either kind."""
    from conformance.gate import verdict
    from conformance.report.model import ReportError, read

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and document.get("format") == verdict.FORMAT:
            return _checked(document, path)
        return read(path)
    except ReportError as error:
        fail(error)
    except (OSError, ValueError, RecursionError) as error:
        fail(f"{path}: {error}")


def _checked(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The gate's report, its keys all there."""
    from conformance.gate.verdict import Verdict

    wanted = Verdict("", "", None, None, 0, []).document()
    if missing := sorted(set(wanted) - set(document)):
        fail(f"{path}: {', '.join(missing)}: missing, so the report is partial")
    return document


def _show_one(found: Run | dict[str, Any]) -> None:
    from conformance.gate import output
    from conformance.report import text

    try:
        show(output.lines(found) if isinstance(found, dict) else [found.title, *text.summary(found)])
    except (KeyError, TypeError, AttributeError) as error:
        fail(f"the report is not in its form: {type(error).__name__}: {error}")


def _table(files: Sequence[Path], found: Sequence[Run | dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    out = console()
    table = Table(box=box.SIMPLE if out.is_terminal else None, pad_edge=False)
    for name in ("report", "of", "what", "found", "exit"):
        table.add_column(name, overflow="fold")
    for path, one in zip(files, found):
        table.add_row(str(path), *_row(one))
    out.print(table)


def _row(found: Run | dict[str, Any]) -> tuple[str, str, str, str]:
    from conformance.gate.output import counted

    if isinstance(found, dict):
        return "gate", f"{found['drafter']} for {found['target']}", counted(found), str(found["exit_code"])
    told = ", ".join(f"{count} {word}" for word, count in found.counts.items() if count)
    return f"suite, {found.profile}", f"{found.title} ({found.spec})", told, str(found.exit_code)
