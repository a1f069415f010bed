"""`eagle-conformance run`: the suite on an implementation, as `pytest --pyargs conformance` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from conformance.cli.main import COULD_NOT_JUDGE
from conformance.cli.showing import fail

_PLUGIN = "conformance.plugin"


def run(
    context: typer.Context,
    impl: Annotated[
        str | None, typer.Option(metavar="MODULE[:ATTR]", help="The adapter to judge; else the reference.")
    ] = None,
    contract: Annotated[str, typer.Option(metavar="NAME", help="One contract alone, such as acceptance.")] = "",
    profile: Annotated[str | None, typer.Option(metavar="quick|ci|deep", help="How thorough; else ci.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdicts as JSON.")] = None,
) -> None:
    """Judge an implementation. What follows `--` goes to pytest as it is.

    Exit codes: 0 nothing failed, 1 something failed, 2 could not judge.
    """
    from conformance import clauses

    if contract and contract not in clauses.contracts():
        fail(f"--contract: {contract!r} is none of {', '.join(clauses.contracts())}")
    target = f"conformance.{contract}" if contract else "conformance"
    asked = {"--impl": impl, "--conformance-profile": profile, "--conformance-report": report}
    options = [f"{name}={value}" for name, value in asked.items() if value is not None]
    command = [sys.executable, "-m", "pytest", "-p", _PLUGIN, "--pyargs", target, *options, *context.args]
    code = subprocess.run(command, env=_environment(), check=False).returncode
    raise typer.Exit(code if code in (0, 1) else COULD_NOT_JUDGE)  # pytest has words of its own for what went wrong


def _environment() -> dict[str, str]:
    """An adapter in the folder where the tool is called is found there, as `python -m` finds it."""
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
