"""The entry point: says what is missing where the tool's own packages are, and starts the tool where they are not."""

from __future__ import annotations

import io
import sys
import traceback
from importlib.util import find_spec

PACKAGES = ("typer", "rich", "tomli_w", "junitparser")
COULD_NOT_JUDGE = 2


def main() -> int:
    """The exit code of the command that the arguments ask for."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        print(
            f"eagle-conformance: {', '.join(missing)} missing; the tool comes with the extra cli: "
            "python -m pip install 'eagle-conformance[cli]'",
            file=sys.stderr,
        )
        return COULD_NOT_JUDGE
    from conformance.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without → is no reason to end
    try:
        app(prog_name="eagle-conformance")
    except Exception:  # an uncaught one would end the process with 1, which says "unfit"
        traceback.print_exc()
        print("eagle-conformance: the tool is at fault, and nothing was judged", file=sys.stderr)
        return COULD_NOT_JUDGE
    return 0
