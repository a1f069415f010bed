"""`eagle-conformance manifest`: the manifest of a release as far as its files tell, and what they leave unsaid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conformance.cli.gate import Drafter, Target, bar
from conformance.cli.showing import fail, show


def manifest(
    drafter: Drafter,
    target: Target,
    base: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", help="A manifest whose words stand before all others.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What no file tells: features.layers=[1,5]."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write it beside the checkpoint.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the one that is there.")] = False,
) -> None:
    """Infer the manifest of a release, print or write it, and list what it leaves unsaid.

    Its fingerprints are those of the target that is given: infer it where the drafter was trained.
    """
    import tomli_w

    from conformance.gate.making import infer
    from conformance.gate.request import BESIDE, MANIFEST, Request
    from conformance.report import atomic
    from oracle.errors import BadInput
    from oracle.manifest.document import as_table, unsaid

    path = output or (drafter / BESIDE / MANIFEST if write else None)
    if path is not None and path.exists() and not force:
        fail(f"{path} is there already; --force replaces it")
    try:
        with bar() as progress_of:
            found = infer(Request(drafter, target, base), settings or [], progress_of)
        text = tomli_w.dumps(as_table(found))
        if path is not None:
            atomic.write_text(path, text)
    except (BadInput, OSError, MemoryError) as error:
        fail(error)
    show(text.splitlines() if path is None else [str(path)])
    # a comment, so that what is printed is a manifest as it stands
    show([f"# unsaid: {', '.join(unsaid(found)) or 'nothing'}"])
