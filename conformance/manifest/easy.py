"""An easy case of the manifest contract: what the smoke step asks of an adapter."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from adapters.interface import Declaration
from conformance.manifest.asking import FIELDS
from conformance.manifest.cases import Recipe, make


def easy(operation: str, _: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Arguments of `operation`, and the fields of its answers."""
    return [make(Recipe("eagle3", sin, 1), _folder(sin)) for sin in ("nothing", "shorter_context_told")], FIELDS


@cache
def _folder(name: str) -> Path:
    """A folder as long as the process lives: smoke hands its cases out after they are made."""
    folder = TemporaryDirectory(prefix=f"{name}-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
