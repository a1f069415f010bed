"""Fingerprints of tensors, configurations, tokenizers and maps: what they hold, however they are filed.

A tensor's digest covers its name, dtype, shape and bytes; a checkpoint's covers the digests of its tensors in the order
of their names. Shards, the order of files and metadata are no part of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from oracle.errors import BadInput
from oracle.manifest.headers import Stored
from oracle.types import Ids

CHUNK_BYTES = 4 * 2**20
Progress = Callable[[int], None]
"""Is told how many bytes were read since it was last told."""
NO_SETTINGS = frozenset(
    ("_name_or_path", "_commit_hash", "transformers_version", "torch_dtype", "dtype", "use_cache", "auto_map")
)
"""Keys of a configuration that say where it came from, or how it is loaded; the dtype of each tensor is part of the
weights' fingerprint."""


def fingerprint(tensors: Iterable[Stored], progress: Progress | None = None) -> str:
    """ "sha256:…" of the tensors, in one pass of bounded memory. Raises `BadInput` where a file ends early."""
    whole = hashlib.sha256()
    for stored in sorted(tensors, key=lambda s: s.name):
        whole.update(tensor_digest(stored, progress))
    return f"sha256:{whole.hexdigest()}"


def tensor_digest(stored: Stored, progress: Progress | None = None) -> bytes:
    """SHA-256 of one tensor: name, dtype and shape, each with its length, then the bytes. Raises `BadInput`."""
    digest = hashlib.sha256()
    for part in (stored.name, stored.dtype, ",".join(map(str, stored.shape))):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    buffer = memoryview(bytearray(min(CHUNK_BYTES, stored.size)))
    left = stored.size
    with stored.path.open("rb", buffering=0) as stream:
        stream.seek(stored.start)
        while left:
            count = stream.readinto(buffer[: min(left, len(buffer))])
            if not count:
                raise BadInput(
                    stored.path.name, (), f"holds the {stored.size} bytes of {stored.name!r}", stored.size - left
                )
            digest.update(buffer[:count])
            left -= count
            if progress is not None:
                progress(count)
    return digest.digest()


def part_digest(stored: Stored, progress: Progress | None = None) -> str:
    """ "sha256:…" of one tensor whatever its name: a head or an embedding that two checkpoints may share."""
    return f"sha256:{tensor_digest(dataclasses.replace(stored, name=''), progress).hex()}"


def map_digest(ids: Ids) -> str:
    """ "sha256:…" of a draft map's absolute ids, [Vd]: the same under either convention of the file."""
    return f"sha256:{hashlib.sha256(np.ascontiguousarray(ids, dtype='<i8').tobytes()).hexdigest()}"


def config_digest(config: Mapping[str, Any]) -> str:
    """ "sha256:…" of a configuration: its canonical JSON, without `NO_SETTINGS` and without what is null.

    Keys are sorted, whole floats are integers: spelling and order are no part of it.
    """
    held = {key: value for key, value in config.items() if key not in NO_SETTINGS}
    text = json.dumps(_canonical(held), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, (list, tuple)):
        return [_canonical(entry) for entry in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def tokenizer_digest(tokens: Mapping[int, str]) -> str:
    """ "sha256:…" of a tokenizer: which id is which token, by rising id, however the file writes it down."""
    digest = hashlib.sha256()
    for identity in sorted(tokens):
        encoded = tokens[identity].encode("utf-8", "surrogatepass")
        digest.update(identity.to_bytes(8, "little") + len(encoded).to_bytes(8, "little") + encoded)
    return f"sha256:{digest.hexdigest()}"
