"""`eagle-conformance fixtures`: golden vectors built, taken along, verified, compared, kept, and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conformance.cli.showing import fail, show

app = typer.Typer(help="Golden vectors: cases with their answers as data.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder of fixtures, the one of index.json.")]


@app.command()
def build(
    into: Annotated[Path | None, typer.Option(help="Another folder than fixtures/v1 of this checkout.")] = None,
    contracts: Annotated[str, typer.Option(help="Of these alone, comma-separated; then --into is needed.")] = "",
) -> None:
    """Compute every expected value by two roads, and write the files."""
    from conformance.fixtures import build as building
    from conformance.fixtures import reading

    names = _names(contracts)
    if names is not None and into is None:
        fail("--contracts: a part of the fixtures goes to a folder of its own: say --into DIR")
    folder = into or reading.home() / "v1"
    try:
        files = building.texts(names)
    except building.BuildError as error:
        fail(error)
    building.write(folder, files)
    size = sum(len(text.encode()) for text in files.values())
    show([f"{len(files)} files, {size} bytes: {folder}"])


@app.command()
def export(
    folder: Folder,
    contracts: Annotated[str, typer.Option(help="Of these alone, comma-separated.")] = "",
    max_size: Annotated[int | None, typer.Option(min=1, help="Bytes; a larger set is not written.")] = None,
) -> None:
    """Take the fixtures along: write them, or those of some contracts, to a folder."""
    from conformance.fixtures import exporting
    from conformance.fixtures.documents import FixtureError

    try:
        found = exporting.export(folder, _names(contracts) or (), max_size)
    except (exporting.ExportError, FixtureError, OSError) as error:
        fail(error)
    show([f"version {found.version}: {len(found.vectors)} cases of {_contracts(found)} in {folder}"])


@app.command()
def verify(folder: Folder) -> None:
    """Whether a folder holds fixtures, whole and unaltered: digests, format, version, and nothing else beside."""
    from conformance.fixtures import exporting
    from conformance.fixtures.documents import FixtureError

    try:
        found = exporting.verify(folder)
    except FixtureError as error:
        typer.echo(f"not verified: {error}", err=True)
        raise typer.Exit(1) from None
    show([f"verified: version {found.version}, {len(found.vectors)} cases of {_contracts(found)}"])


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD")], new: Annotated[Path, typer.Argument(metavar="NEW")]
) -> None:
    """What a newer set adds, removes and mends, and which step of the version that is."""
    from conformance.fixtures import exporting, reading
    from conformance.fixtures.documents import FixtureError

    try:
        sets = reading.read(old), reading.read(new)
    except FixtureError as error:
        fail(error)
    show(exporting.lines(exporting.difference(*sets), *sets))


@app.command()
def keep(
    case: Annotated[Path, typer.Argument(metavar="CASEFILE", help="A case file that a failure left behind.")],
    operation: Annotated[str, typer.Option(help="Whose case it is, where it may be that of several.")] = "",
    description: Annotated[str, typer.Option(help="One sentence in the present tense.")] = "",
    into: Annotated[Path | None, typer.Option(help="Another folder than conformance/CONTRACT/kept.")] = None,
) -> None:
    """Keep a failing case as a fixture."""
    from conformance.casefile import CaseFileError
    from conformance.fixtures import kept

    try:
        made = kept.keep(case, operation, description, into)
    except (kept.KeepError, CaseFileError, OSError) as error:
        fail(error)
    show([f"kept as {made}", *kept.NEXT])


@app.command()
def kills(contract: Annotated[str, typer.Argument(metavar="CONTRACT")]) -> None:
    """Which faulty and degenerate implementations fail which cases of a contract; 1 where it is not publishable."""
    from conformance.fixtures import build as building
    from conformance.fixtures import killing

    if contract not in building.contracts():
        fail(f"{contract}: one of {', '.join(building.contracts())}")
    try:
        cases = killing.vectors(contract)
    except building.BuildError as error:
        fail(error)
    found = killing.table(contract, cases)
    show(killing.lines(found, cases))
    if found.problems:
        raise typer.Exit(1)


def _names(text: str) -> list[str] | None:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return names or None


def _contracts(found: object) -> str:
    return ", ".join(sorted({vector.contract for vector in getattr(found, "vectors", ())}))
