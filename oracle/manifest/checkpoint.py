"""A checkpoint as a folder: its configuration and where its tensors stand, over however many files.

Files are safetensors and JSON; pickled ones are refused by their names and never opened. Nothing outside the folder is
read, whatever a link or an index says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from oracle.errors import BadInput
from oracle.manifest.headers import Stored, read_header

LIMIT_JSON_BYTES = 64 * 2**20
"""Tokenizers are the largest JSON files of a checkpoint: some tens of megabytes."""
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """config: config.json, read. tensors: name → where it stands. files: every file that holds one, by name."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    files: tuple[str, ...]


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint of a folder. Raises `BadInput` naming the file and the rule."""
    if not folder.is_dir():
        raise BadInput(str(folder), (), "is a folder with a checkpoint", "missing" if not folder.exists() else "a file")
    config = read_json(folder, "config.json")
    if not isinstance(config, dict):
        raise BadInput("config.json", (), "is a JSON object", type(config).__name__)
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLED)
        rule = "weights are safetensors files; a pickled file runs code when it is loaded, and is never opened"
        raise BadInput(str(folder), (), rule, pickled or "no *.safetensors")
    index = read_index(folder) if (folder / INDEX).exists() else None
    tensors: dict[str, Stored] = {}
    for name in names if index is None else sorted(set(index.values())):
        for tensor, stored in read_header(inside(folder, name)).items():
            if tensor in tensors:
                other = tensors[tensor].path.name
                raise BadInput(name, (), f"no tensor stands in two files; {other} has it, too", tensor)
            if index is not None and index.get(tensor) != name:
                raise BadInput(
                    INDEX, (), f"names the file of every tensor; {tensor!r} stands in {name}", index.get(tensor)
                )
            tensors[tensor] = stored
    for tensor, name in (index or {}).items():
        if tensor not in tensors:
            raise BadInput(INDEX, (), f"{name} holds the tensors that the index says", tensor)
    return Checkpoint(folder, config, tensors, tuple(sorted({s.path.name for s in tensors.values()})))


def read_index(folder: Path) -> dict[str, str]:
    """Tensor → file, as the index of a sharded checkpoint says. Raises `BadInput`."""
    document = read_json(folder, INDEX)
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise BadInput(INDEX, (), "has a weight_map of tensor names to file names", type(weight_map).__name__)
    for name in weight_map.values():
        if PurePosixPath(name).suffix in PICKLED:
            raise BadInput(INDEX, (), "weights are safetensors files; a pickled one is never opened", name)
    return weight_map


def read_json(folder: Path, name: str) -> Any:
    """A JSON file of the folder; no duplicate keys, no NaN, of bounded size. Raises `BadInput`."""
    content = read_bounded(inside(folder, name), LIMIT_JSON_BYTES)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(pairs)
        if len(held) != len(pairs):
            keys = [key for key, _ in pairs]
            raise BadInput(name, (), "no key stands twice", next(key for key in keys if keys.count(key) > 1))
        return held

    def constant(text: str) -> float:
        raise BadInput(name, (), "holds finite numbers", text)

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput(name, (), "is JSON in UTF-8", f"{type(error).__name__}: {error}") from None


def read_bounded(path: Path, limit: int) -> bytes:
    """A file of at most `limit` bytes; what is larger is refused before it is read. Raises `BadInput`."""
    size = path.stat().st_size
    if size <= limit:
        with path.open("rb") as stream:
            content = stream.read(size + 1)
        if len(content) <= size:
            return content
    raise BadInput(path.name, (), f"has at most {limit} bytes, and does not grow while it is read", size)


def inside(folder: Path, name: str) -> Path:
    """The path of a file of the folder. Raises `BadInput` where it is missing or leads out of the folder."""
    path = folder / name
    if len(PurePosixPath(name).parts) != 1 or name in ("..", ".") or "\\" in name:
        raise BadInput(name, (), "is the name of a file of the folder", name)
    if path.is_symlink() and not path.resolve().is_relative_to(allowed_root(folder)):
        raise BadInput(name, (), "no link leads out of the folder", str(path.readlink()))
    if not path.is_file():
        raise BadInput(name, (), "is a file of the folder", "missing" if not path.exists() else "no plain file")
    return path


def allowed_root(folder: Path) -> Path:
    """Where links may lead: the folder, or the repository's own cache where the folder is a snapshot of one.

    Hugging Face's cache keeps files in `blobs` and links them from `snapshots/<revision>`.
    """
    resolved = folder.resolve()
    repository = resolved.parent.parent
    if resolved.parent.name == "snapshots" and (repository / "blobs").is_dir():
        return repository
    return resolved
