"""Writing a file whole: a half-written one never stands under its name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write the file, and its folder where there is none. Raises `OSError`, and then leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o666 & ~_mask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_text(path: Path, text: str) -> None:
    """Write the text in UTF-8. Raises `OSError`."""
    write_bytes(path, text.encode("utf-8"))


def _mask() -> int:
    """What the process takes away from the rights of new files; mkstemp takes away more."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
