"""`eagle-conformance bench`: measurements of two runs compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conformance.cli.showing import fail, show

app = typer.Typer(help="What `make bench` measured.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """What `make bench` measured."""


@app.command()
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="JSON of an older run.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="JSON of a newer run, on the same machine.")],
) -> None:
    """Which ratios got worse, better, or stayed: 0 none got worse, 1 one did, 2 could not judge (one is gone)."""
    from conformance.report import races

    try:
        found = races.changes(races.read(old), races.read(new))
    except races.RaceError as error:
        fail(error)
    show(map(races.line, found))
    words = [change.word for change in found]
    if "worse" in words:
        raise typer.Exit(1)
    if "gone" in words:
        fail(f"{words.count('gone')} ratios of {old} were not measured in {new}")
    if not set(words) & {"same", "better"}:
        fail("no race is in both files")
