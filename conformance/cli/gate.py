"""`eagle-conformance gate` and `reference`: whether a release belongs together, and logits to hold it against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli.main import COULD_NOT_JUDGE
from conformance.cli.showing import console, fail, show

if TYPE_CHECKING:
    from conformance.gate.judge import ProgressOf
    from oracle.manifest.fingerprint import Progress as Told

SHOWN_BYTES = 2**28
"""From so many bytes on reading takes long enough for a bar."""

Drafter = Annotated[Path, typer.Argument(metavar="DRAFTER", help="The folder of the drafter's checkpoint.")]
Target = Annotated[Path, typer.Option(metavar="TARGET", help="The folder of the target's checkpoint.")]
ManifestFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Its manifest, where it does not lie beside the checkpoint.")
]
Impl = Annotated[str | None, typer.Option(metavar="MODULE[:ATTR]", help="The adapter of the engine that serves it.")]
Python = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The python that the engine is installed for; else this one.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of the features and tokens that are drawn.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How long the engine may take.")]


def gate(
    drafter: Drafter,
    target: Target,
    manifest: ManifestFile = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Stored logits, where they do not lie beside the manifest.")
    ] = None,
    impl: Impl = None,
    python: Python = None,
    require: Annotated[
        str, typer.Option(metavar="PARTS", help="Comma-separated: parts without whose verdict nothing is fit.")
    ] = "",
    seed: Seed = 0,
    timeout: Timeout = 600.0,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdict as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdict as JUnit XML.")] = None,
) -> None:
    """Say whether a drafter, a target and an engine belong together.

    Exit codes: 0 fit, 1 unfit, 2 could not judge.
    """
    from conformance.gate import output
    from conformance.gate.judge import gate as judge
    from conformance.gate.request import Request
    from conformance.gate.verdict import PARTS

    wanted = frozenset(filter(None, (name.strip() for name in require.split(","))))
    if unknown := sorted(wanted - set(PARTS)):
        fail(f"--require: {', '.join(unknown)}: parts are {', '.join(PARTS)}")
    request = Request(drafter, target, manifest, reference, impl, python, timeout, seed, wanted)
    with bar() as progress_of:
        verdict = judge(request, progress_of)
    code = verdict.exit_code
    for path, write in ((report, output.write_json), (junit, output.write_junit)):
        if path is not None:
            try:
                write(verdict, path)
            except OSError as error:
                typer.echo(f"eagle-conformance: {path} cannot be written: {error}", err=True)
                code = code or COULD_NOT_JUDGE
    show(output.lines(verdict.document()))
    raise typer.Exit(code)


def reference(
    drafter: Drafter,
    target: Target,
    manifest: ManifestFile = None,
    impl: Impl = None,
    python: Python = None,
    seed: Seed = 0,
    timeout: Timeout = 600.0,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where they are written to.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace those that are there.")] = False,
) -> None:
    """Make reference logits of a drafter, with an implementation of the trainer or, without one, with the oracle.

    They are written beside the manifest; a gate holds the release against them ever after.
    """
    from conformance.gate.making import make_reference
    from conformance.gate.request import BESIDE, REFERENCE, Request, manifest_of
    from conformance.report import atomic
    from oracle.errors import BadInput

    request = Request(drafter, target, manifest, impl=impl, python=python, timeout_s=timeout, seed=seed)
    beside = manifest_of(request)
    inside = beside is None or beside.parent.absolute() == drafter.absolute()
    folder = drafter / BESIDE if inside or beside is None else beside.parent
    path = output or folder / REFERENCE
    if path.parent.absolute() == drafter.absolute():
        fail(f"{path}: engines would load it as weights; folders below the checkpoint are left alone")
    if path.exists() and not force:
        fail(f"{path} is there already; --force replaces it")
    try:
        content, words = make_reference(request)
        atomic.write_bytes(path, content)
    except (BadInput, OSError, MemoryError) as error:
        fail(error)
    show([f"{path}: {words}"])


@contextmanager
def bar() -> Iterator[ProgressOf]:
    """Hands out a bar for what is read of large files, where somebody looks at the terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    err = console(stderr=True)
    columns = (TextColumn("fingerprints"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:

        def progress_of(total: int) -> Told | None:
            if total < SHOWN_BYTES or not err.is_terminal:
                return None
            task = progress.add_task("", total=total)
            return lambda count: progress.advance(task, count)

        yield progress_of
