"""How fast a checkpoint is fingerprinted, beside hashlib's SHA-256 of the same file.

    python -m pytest bench/bench_manifest.py            (a gigabyte; BENCH_MIB=64 for less)

The bound: at least 0.8 times the speed of the hash alone, in the same run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle.manifest.fingerprint import fingerprint
from oracle.manifest.headers import read_header

MIB = int(os.environ.get("BENCH_MIB", "1024"))
TENSORS = 16
LEAST_RATIO = 0.8
SECONDS: dict[str, float] = {}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen tensors of random bytes, in the cache of the file system."""
    size = MIB * 2**20 // TENSORS
    block = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8).tobytes()
    header = json.dumps(
        {f"t{i}": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]} for i in range(TENSORS)}
    ).encode()
    path = tmp_path_factory.mktemp("checkpoint") / "model.safetensors"
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        for _ in range(TENSORS):
            stream.write(block)
    return path


def _measure(benchmark: Any, name: str, call: Callable[[], object]) -> None:
    benchmark.pedantic(call, rounds=3, iterations=1, warmup_rounds=1)
    SECONDS[name] = benchmark.stats.stats.min


def test_hashlib(benchmark: Any, checkpoint: Path) -> None:
    def call() -> str:
        with checkpoint.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    _measure(benchmark, "hashlib", call)


def test_fingerprint(benchmark: Any, checkpoint: Path) -> None:
    _measure(benchmark, "fingerprint", lambda: fingerprint(read_header(checkpoint).values()))


def test_ratio() -> None:
    """Of the two minima above; without them there is nothing to say, and that is no pass."""
    assert SECONDS.keys() == {"hashlib", "fingerprint"}, "both are measured first, in the same run"
    ratio = SECONDS["hashlib"] / SECONDS["fingerprint"]
    print(f"\nfingerprint runs at {ratio:.2f} times the speed of hashlib's SHA-256")
    assert ratio >= LEAST_RATIO
