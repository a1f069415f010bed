"""The tool's commands, put together; each imports what it works with when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from conformance import __version__
from conformance.cli.bench import app as bench
from conformance.cli.fixtures import app as fixtures
from conformance.cli.gate import gate, reference
from conformance.cli.manifest import manifest
from conformance.cli.report import report
from conformance.cli.run import run
from conformance.cli.sample import sample

app = typer.Typer(
    help="Judge drafters, releases and implementations of EAGLE-family speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"eagle-conformance {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Judge drafters, releases and implementations of EAGLE-family speculative decoding."""


for command in (gate, reference, manifest, sample, report):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True})(run)
app.add_typer(fixtures, name="fixtures")
app.add_typer(bench, name="bench")
