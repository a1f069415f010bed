"""The second road to fingerprints: whole files in memory, one string of bytes a tensor, hashed at once.

Which clauses a release breaks needs no road: it is made with one fault, and the fault is the expected value.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def hashed(content: bytes) -> str:
    """The digest of some bytes, in writing."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def tensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Name → dtype, shape and bytes, of every file of the folder."""
    found = {}
    for path in folder.glob("*.safetensors"):
        content = path.read_bytes()
        (length,) = struct.unpack_from("<Q", content)
        begin = 8 + length
        for name, entry in json.loads(content[8:begin]).items():
            if name != "__metadata__":
                low, high = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], content[begin + low : begin + high])
    return found


def spelled(name: str, dtype: str, shape: Sequence[int], content: bytes) -> bytes:
    """A tensor as one string: each of its words behind its length, then its bytes."""
    words = [name.encode(), dtype.encode(), ",".join(str(n) for n in shape).encode()]
    return b"".join(struct.pack("<Q", len(word)) + word for word in words) + content


def weights(folder: Path) -> str:
    """The fingerprint of a checkpoint: of the digests of its tensors, by name."""
    held = tensors(folder)
    return hashed(b"".join(hashlib.sha256(spelled(name, *held[name])).digest() for name in sorted(held)))


def part(folder: Path, name: str) -> str:
    """The fingerprint of one tensor without its name."""
    return hashed(spelled("", *tensors(folder)[name]))


def draft_map(ids: Sequence[int]) -> str:
    """The fingerprint of a map's absolute ids."""
    return hashed(struct.pack(f"<{len(ids)}q", *ids))


def tokenizer(tokens: Mapping[int, str]) -> str:
    """The fingerprint of a tokenizer: each id, the length of its token, and the token."""
    spelt = [(identity, token.encode()) for identity, token in sorted(tokens.items())]
    return hashed(b"".join(struct.pack("<QQ", identity, len(token)) + token for identity, token in spelt))


def config(settings: Mapping[str, Any], no_settings: Sequence[str]) -> str:
    """The fingerprint of a configuration that holds texts, numbers, lists and tables of them."""
    return hashed(_spelt({key: value for key, value in settings.items() if key not in no_settings}).encode())


def _spelt(value: Any) -> str:
    if isinstance(value, dict):
        entries = sorted((key, entry) for key, entry in value.items() if entry is not None)
        return "{" + ",".join(f'"{key}":{_spelt(entry)}' for key, entry in entries) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelt, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    return str(value) if isinstance(value, int) else f'"{value}"'
