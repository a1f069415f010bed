"""What the commands share: lines, coloured where they go to a terminal, and ends in "could not judge"."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import ClassVar, NoReturn

import typer
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.theme import Theme

from conformance.cli.main import COULD_NOT_JUDGE

WIDTH_OF_A_FILE = 160
"""Tables are this wide where they go to no terminal."""


class _Words(RegexHighlighter):
    """Finds the words of a verdict where they stand as such."""

    base_style = "word."
    highlights: ClassVar[list[str]] = [
        r"^(?:\w+: )?(?P<fit>fit):",
        r"^(?:\w+: )?(?P<unfit>unfit):",
        r"^(?:\w+: )?(?P<unsure>not judged|could not judge):",
        r": (?P<unfit>DISAGREE)$",
        r"^  (?P<clause>[A-Z]+-\d+) ",
    ]


_STYLES = {"word.fit": "bold green", "word.unfit": "bold red", "word.unsure": "bold yellow", "word.clause": "bold"}


class _Out(Console):
    """Goes on in silence when nobody reads any more: the exit code is still to be told."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console(stderr: bool = False) -> Console:
    """Writes in colour to a terminal, and plainly to anything else."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_OF_A_FILE
    return _Out(file=stream, width=width, theme=Theme(_STYLES), highlighter=_Words())


def show(lines: Iterable[str]) -> None:
    """Print lines as they are, however long."""
    from conformance.gate.verdict import printable

    out = console()
    for line in lines:
        out.print(printable(line), markup=False, soft_wrap=True)


def fail(message: object) -> NoReturn:
    """Say why nothing can be judged, and end so."""
    typer.echo(f"eagle-conformance: {message}", err=True)
    raise typer.Exit(COULD_NOT_JUDGE)
