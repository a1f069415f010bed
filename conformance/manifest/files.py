"""A release as data: its files by path, so that a golden vector needs no code to make them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.casefile import storable
from oracle.errors import BadInput
from oracle.types import ReleaseCase

MOST_FILES = 32
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,79}", re.ASCII)


@storable
@dataclass(frozen=True, eq=False)
class ReleaseFiles:
    """manifest: the path of the document, or None where none was written. drafter, target: folders. files: path →
    content, a text in UTF-8 or bytes. links: path → where the symbolic link there leads, seen from its folder. Paths
    are relative to the release, with slashes."""

    manifest: str | None
    drafter: str
    target: str
    files: Mapping[str, str | bytes]
    links: Mapping[str, str]


def laid(release: ReleaseFiles, folder: Path) -> ReleaseCase:
    """The release as files below an empty folder. Raises `BadInput` where one would lie anywhere else."""
    if len(release.files) + len(release.links) > MOST_FILES:
        raise BadInput("files", (), f"a release has at most {MOST_FILES} files", len(release.files))
    for name, content in release.files.items():
        path = folder / _inside("files", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    # behind the files, so that none is written through a link
    for name, leads in release.links.items():
        path = folder / _inside("links", name)
        _inside("links", posixpath.normpath(posixpath.join(posixpath.dirname(name), leads)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(leads)
    manifest = None if release.manifest is None else folder / _inside("manifest", release.manifest)
    return ReleaseCase(
        manifest, folder / _inside("drafter", release.drafter), folder / _inside("target", release.target)
    )


def taken(case: ReleaseCase, folder: Path) -> ReleaseFiles:
    """What lies below a folder, as data."""
    files: dict[str, str | bytes] = {}
    links: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            leads = path.readlink()
            links[name] = os.path.relpath(leads, path.parent) if leads.is_absolute() else leads.as_posix()
        elif path.is_file():
            files[name] = _text(path.read_bytes())
    named = [None if path is None else path.relative_to(folder).as_posix() for path in (case.manifest, case.drafter)]
    return ReleaseFiles(named[0], named[1] or "", case.target.relative_to(folder).as_posix(), files, links)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, byte by byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _inside(field: str, name: str) -> str:
    parts = name.split("/")
    if not all(_PART.fullmatch(part) for part in parts) or len(parts) > 4:
        raise BadInput(field, (), "is a path below the release, of letters, digits, '.', '_' and '-'", name)
    return name


def _text(content: bytes) -> str | bytes:
    """A text where it is one that people read."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return content
    return text if text.replace("\n", "").isprintable() else content
