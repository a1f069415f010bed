"""What the gate is asked, and where a release keeps what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BESIDE = "conformance"
"""The folder below a drafter that holds what is said of it; engines load every safetensors file above it."""
MANIFEST = "manifest.toml"
REFERENCE = "reference_logits.safetensors"


@dataclass(frozen=True)
class Request:
    """drafter, target: folders of checkpoints. manifest, reference: files, None to look beside the checkpoint. impl:
    the adapter that serves. python: the interpreter that it runs in. timeout_s: how long it may take. require: parts
    that have to be judged."""

    drafter: Path
    target: Path
    manifest: Path | None = None
    reference: Path | None = None
    impl: str | None = None
    python: Path | None = None
    timeout_s: float = 600.0
    seed: int = 0
    require: frozenset[str] = frozenset()


def manifest_of(request: Request) -> Path | None:
    """The document that speaks of the drafter: the one that is named, or the one that lies beside it."""
    if request.manifest is not None:
        return request.manifest
    found = [request.drafter / BESIDE / MANIFEST, request.drafter / MANIFEST]
    return next((path for path in found if path.exists() or path.is_symlink()), None)


def reference_of(request: Request) -> Path | None:
    """The stored logits: those that are named, or those that lie beside the manifest or the checkpoint."""
    if request.reference is not None:
        return request.reference
    manifest = manifest_of(request)
    folders = [request.drafter / BESIDE]
    if manifest is not None and manifest.parent != request.drafter:
        folders.insert(0, manifest.parent)
    return next((path / REFERENCE for path in folders if (path / REFERENCE).exists()), None)
