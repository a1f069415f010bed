"""`eagle-conformance run`: the suite on an implementation, as `pytest --pyargs conformance` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from conformance.cli.main import COULD_NOT_JUDGE
from conformance.plugin import DEFAULT_IMPLEMENTATION, DEFAULT_PROFILE, PROFILE_NAMES

_PLUGIN = "conformance.plugin"


def run(
    context: typer.Context,
    impl: Annotated[str, typer.Option(metavar="MODULE[:ATTR]", help="The adapter to judge.")] = DEFAULT_IMPLEMENTATION,
    contract: Annotated[str, typer.Option(metavar="NAME", help="One contract alone, such as acceptance.")] = "",
    profile: Annotated[str, typer.Option(metavar="|".join(PROFILE_NAMES), help="How thorough.")] = DEFAULT_PROFILE,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdicts as JSON.")] = None,
) -> None:
    """Judge an implementation. What follows `--` goes to pytest as it is.

    Exit codes: 0 nothing failed, 1 something failed, 2 could not judge.
    """
    from conformance import clauses

    if contract and contract not in clauses.contracts():
        raise typer.BadParameter(f"{contract!r} is none of {', '.join(clauses.contracts())}", param_hint="--contract")
    if profile not in PROFILE_NAMES:
        raise typer.BadParameter(f"{profile!r} is none of {', '.join(PROFILE_NAMES)}", param_hint="--profile")
    target = f"conformance.{contract}" if contract else "conformance"
    options = [f"--impl={impl}", f"--conformance-profile={profile}"]
    if report is not None:
        options.append(f"--conformance-report={report}")
    command = [sys.executable, "-m", "pytest", "-p", _PLUGIN, "--pyargs", target, *options, *context.args]
    code = subprocess.run(command, env=_environment(), check=False).returncode
    raise typer.Exit(code if code in (0, 1) else COULD_NOT_JUDGE)  # pytest has words of its own for what went wrong


def _environment() -> dict[str, str]:
    """An adapter in the folder where the tool is called is found there, as `python -m` finds it."""
    paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
