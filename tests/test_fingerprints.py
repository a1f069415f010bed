"""Fingerprints: what they depend on and what not, by hand; flat memory, and about the speed of the hash itself."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance.manifest.filing import Tensor, safetensors, tensor, write_weights
from conformance.roads import manifest as road
from oracle.errors import BadInput
from oracle.manifest import fingerprint, numbers
from oracle.manifest.checkpoint import read_checkpoint
from oracle.manifest.headers import Stored, read_header
from oracle.manifest.tokenizer import read_tokenizer

MIB = 2**20
HELD = {
    "b.weight": tensor([[1.0, -2.0, 0.5], [0.25, 4.0, -8.0]], "BF16"),
    "a.weight": tensor([1.5, 2.5], "F16"),
    "d2t": tensor([0, 0, 3], "I64"),
}


def of(folder: Path) -> str:
    (folder / "config.json").write_text("{}")
    return fingerprint.fingerprint(read_checkpoint(folder).tensors.values())


def filed(folder: Path, held: dict[str, Tensor], shards: int = 1, backwards: bool = False) -> str:
    write_weights(folder, held, shards, backwards)
    return of(folder)


def test_a_fingerprint_by_hand(tmp_path: Path) -> None:
    def spelled(name: bytes, dtype: bytes, shape: bytes, data: bytes) -> bytes:
        sizes = [len(word).to_bytes(8, "little") for word in (name, dtype, shape)]
        return hashlib.sha256(sizes[0] + name + sizes[1] + dtype + sizes[2] + shape + data).digest()

    halves, ids = np.array([1.5, 2.5], "<f2").tobytes(), np.array([0, 0, 3], "<i8").tobytes()
    bfloats = bytes.fromhex("803f 00c0 003f 803e 8040 00c1")
    parts = [
        spelled(b"a.weight", b"F16", b"2", halves),
        spelled(b"b.weight", b"BF16", b"2,3", bfloats),
        spelled(b"d2t", b"I64", b"3", ids),
    ]
    assert filed(tmp_path, HELD) == "sha256:" + hashlib.sha256(b"".join(parts)).hexdigest()
    assert road.weights(tmp_path) == of(tmp_path)


def test_how_tensors_are_filed_is_no_part_of_it(tmp_path: Path) -> None:
    plain = filed(tmp_path, HELD)
    assert filed(tmp_path, HELD, shards=2) == filed(tmp_path, HELD, shards=3, backwards=True) == plain
    assert filed(tmp_path, HELD, backwards=True) == plain
    (tmp_path / "model.safetensors").write_bytes(safetensors(HELD, {"format": "pt", "note": "x" * 999}))
    assert of(tmp_path) == plain


CHANGES: dict[str, Callable[[dict[str, Tensor]], object]] = {
    "dtype": lambda held: held.update({"a.weight": dataclasses.replace(held["a.weight"], dtype="BF16")}),
    "shape": lambda held: held.update({"b.weight": dataclasses.replace(held["b.weight"], shape=(3, 2))}),
    "rank": lambda held: held.update({"a.weight": dataclasses.replace(held["a.weight"], shape=(2, 1))}),
    "name": lambda held: held.update({"c.weight": held.pop("a.weight")}),
    "one tensor less": lambda held: held.pop("d2t"),
    "an empty tensor more": lambda held: held.update({"z": Tensor("U8", (0,), b"")}),
    "exchanged": lambda held: held.update({"a.weight": held["d2t"], "d2t": held["a.weight"]}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_it_depends_on(change: str, tmp_path: Path) -> None:
    held, plain = dict(HELD), filed(tmp_path, HELD)
    CHANGES[change](held)
    assert filed(tmp_path, held) != plain


def test_it_depends_on_every_byte(tmp_path: Path) -> None:
    plain = filed(tmp_path, HELD)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    for at in range(begin, len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 128]) + content[at + 1 :])
        assert of(tmp_path) != plain, at


@pytest.mark.parametrize("size", [0, 1, fingerprint.CHUNK_BYTES - 1, fingerprint.CHUNK_BYTES, 2 * MIB + 4 * MIB + 1])
def test_pieces_have_no_seams(size: int, tmp_path: Path) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    told: list[int] = []
    write_weights(tmp_path, {"x": Tensor("U8", (size,), data)}, 1)
    stored = read_header(tmp_path / "model.safetensors")["x"]
    assert (
        fingerprint.tensor_digest(stored, told.append) == hashlib.sha256(road.spelled("x", "U8", [size], data)).digest()
    )
    assert sum(told) == size, "progress tells every byte once"


def sparse(path: Path, size: int, dtype: str = "BF16") -> Stored:
    """A tensor of zeros that takes no room on the disk."""
    shape = [size // 2] if dtype == "BF16" else [size]
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.truncate(8 + len(header) + size)
    return read_header(path)["x"]


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_flat(tmp_path: Path) -> None:
    small, large = sparse(tmp_path / "small", 32 * MIB), sparse(tmp_path / "large", 192 * MIB)
    peaks = [peak(lambda stored=stored: fingerprint.fingerprint([stored])) for stored in (small, large)]
    assert max(peaks) < 2 * fingerprint.CHUNK_BYTES
    assert abs(peaks[1] - peaks[0]) < MIB
    scanned = peak(lambda: [np.isfinite(piece).all() for piece in numbers.pieces(small)])
    assert scanned < 32 * MIB, "a piece in float64 and what is made of it"


def test_it_is_about_as_fast_as_its_hash(tmp_path: Path) -> None:
    """The bound is far from what is measured (bench/bench_manifest.py), so that a busy machine does not matter."""
    stored = sparse(tmp_path / "file", 48 * MIB)

    def seconds(call: Callable[[], object]) -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    def plain() -> None:
        with stored.path.open("rb") as stream:
            hashlib.file_digest(stream, "sha256")

    ours = min(seconds(lambda: fingerprint.fingerprint([stored])) for _ in range(3))
    assert ours < 5 * min(seconds(plain) for _ in range(3)) + 0.05


def test_a_file_that_shrinks_is_told(tmp_path: Path) -> None:
    stored = sparse(tmp_path / "file", MIB)
    with stored.path.open("r+b") as stream:
        stream.truncate(stored.start + 1000)
    with pytest.raises(BadInput, match="holds the 1048576 bytes of 'x'"):
        fingerprint.fingerprint([stored])
    with pytest.raises(BadInput, match="holds the 1048576 bytes of 'x'"):
        list(numbers.pieces(stored))


# ---- configurations, tokenizers, maps


def test_configurations() -> None:
    config = {"a": 1.0, "b": {"y": [1, 2.5], "x": True}, "torch_dtype": "float16", "c": None}
    right = hashlib.sha256(b'{"a":1,"b":{"x":true,"y":[1,2.5]}}').hexdigest()
    assert fingerprint.config_digest(config) == f"sha256:{right}"
    assert fingerprint.config_digest({"b": {"x": True, "y": [1.0, 2.5]}, "a": 1}) == f"sha256:{right}"
    assert fingerprint.config_digest({**config, "a": 1.5}) != f"sha256:{right}"
    assert fingerprint.config_digest({**config, "a": True}) != f"sha256:{right}"


def test_tokenizers(tmp_path: Path) -> None:
    files = {
        "one": {"tokenizer.json": {"model": {"vocab": {"b": 1, "a": 0}}, "added_tokens": [{"id": 2, "content": "ü"}]}},
        "list": {"tokenizer.json": {"model": {"vocab": [["a", -1.0], ["b", -2.0], ["ü", -3.0]]}}},
        "two": {"vocab.json": {"a": 0, "b": 1}, "added_tokens.json": {"ü": 2}},
    }
    found = {}
    for name, documents in files.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, document in documents.items():
            (folder / file).write_text(json.dumps(document))
        found[name] = read_tokenizer(folder)
    (tmp_path / "vocab.txt").write_text("a\nb\nü\n")
    assert list(found.values()) == [{0: "a", 1: "b", 2: "ü"}] * 3
    assert read_tokenizer(tmp_path) == found["one"]
    spelt = b"".join(bytes([i, *bytes(7), len(t), *bytes(7)]) + t for i, t in enumerate((b"a", b"b", "ü".encode())))
    right = "sha256:" + hashlib.sha256(spelt).hexdigest()
    assert fingerprint.tokenizer_digest({2: "ü", 0: "a", 1: "b"}) == right
    assert fingerprint.tokenizer_digest({0: "b", 1: "a", 2: "ü"}) != right
    (tmp_path / "one" / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 0}}}')
    with pytest.raises(BadInput, match="one id has one token; 'a' has it, too"):
        read_tokenizer(tmp_path / "one")
    (tmp_path / "vocab.txt").unlink()
    assert read_tokenizer(tmp_path) is None


def test_maps_and_parts(tmp_path: Path) -> None:
    right = hashlib.sha256(np.array([2, 3, 70_000], "<i8").tobytes()).hexdigest()
    assert fingerprint.map_digest(np.array([2, 3, 70_000])) == f"sha256:{right}"
    write_weights(tmp_path, {"lm_head.weight": HELD["b.weight"], "other": HELD["b.weight"]}, 1)
    stored = read_header(tmp_path / "model.safetensors")
    assert fingerprint.part_digest(stored["lm_head.weight"]) == fingerprint.part_digest(stored["other"])
    assert fingerprint.part_digest(stored["other"]) == road.part(tmp_path, "other")


# ---- numbers


def test_numbers_of_each_dtype(tmp_path: Path) -> None:
    bytes_of = {
        "BF16": (bytes.fromhex("803f 80ff c07f"), [1.0, -np.inf, np.nan]),
        "F16": (bytes.fromhex("ff7b 007c"), [65504.0, np.inf]),
        "F8_E4M3": (bytes([0x7E, 0x7F, 0x38, 0x81]), [448.0, np.nan, 1.0, -(2.0**-9)]),
        "F8_E5M2": (bytes([0x7B, 0x7C, 0xBC, 0x7D]), [57344.0, np.inf, -1.0, np.nan]),
        "F8_E8M0": (bytes([127, 255]), [1.0, np.nan]),
    }
    for dtype, (data, right) in bytes_of.items():
        write_weights(tmp_path, {"x": Tensor(dtype, (len(right),), data)}, 1)
        stored = read_header(tmp_path / "model.safetensors")["x"]
        np.testing.assert_array_equal(np.concatenate(list(numbers.pieces(stored, 1))), right)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_where_casts_overflow(dtype: str) -> None:
    edge = numbers.OVERFLOW[dtype]
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(edge).astype(dtype))
        assert np.isfinite(np.nextafter(np.float64(edge), 0).astype(dtype))
    assert numbers.LARGEST[dtype] == np.finfo(dtype).max


def test_the_edge_of_bfloat16() -> None:
    """Its largest number is 0x7f7f; halfway to the next power of two is 0x7f7f8000 in float32."""
    largest, half = (np.array([bits], "<u4").view("<f4")[0] for bits in (0x7F7F0000, 0x7F7F8000))
    assert (numbers.LARGEST["bfloat16"], numbers.OVERFLOW["bfloat16"]) == (float(largest), float(half))
