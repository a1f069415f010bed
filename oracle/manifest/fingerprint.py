"""Fingerprints of tensors: what they hold, however they are filed.

A tensor's digest covers its name, dtype, shape and bytes; a checkpoint's covers the digests of its tensors in the order
of their names. Shards, the order of files and metadata are no part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from oracle.errors import BadInput
from oracle.manifest.headers import Stored

CHUNK_BYTES = 4 * 2**20
Progress = Callable[[int], None]
"""Is told how many bytes were read since it was last told."""


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
