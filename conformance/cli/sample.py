"""`eagle-conformance sample`: a tiny real release, to try the gate on; good, or with one fault."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conformance.cli.showing import fail, show


def sample(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where it is made; a new folder, or an empty one.")],
    layout: Annotated[str, typer.Option(metavar="NAME", help="In which project's layout.")] = "specforge",
    fault: Annotated[str, typer.Option(metavar="NAME", help="What is wrong with it; --list names all.")] = "nothing",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of its sizes and numbers.")] = 0,
    faults: Annotated[bool, typer.Option("--list", help="Name the faults and their layouts.")] = False,
) -> None:
    """Make a drafter, a target and a manifest, of a few kilobytes each."""
    from conformance.manifest.cases import HOSTILE, Recipe, make, validate
    from conformance.manifest.releases import MAKERS
    from conformance.manifest.sins import SINS
    from oracle.errors import BadInput

    if faults:
        show(f"{name}: {', '.join(one.layouts)}" for name, one in SINS.items())
        show(f"{name}: {', '.join(MAKERS)}" for name in HOSTILE)
        return
    recipe = Recipe(layout, fault, seed)
    try:
        validate(recipe)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            fail(f"{folder} is not empty")
        case = make(recipe, folder)
    except (BadInput, OSError) as error:
        fail(error)
    show([f"drafter  {case.drafter}", f"target   {case.target}", f"manifest {case.manifest or 'none'}"])
