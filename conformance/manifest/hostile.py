"""Releases that cannot be read: damaged by accident or made to harm; each is to be refused, and nothing of it run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.manifest.filing import filed
from oracle.types import ReleaseCase

MARKER = "pickle-was-loaded"
"""What a pickled file leaves in the folder of the release when somebody loads it."""
Damage = Callable[[ReleaseCase], ReleaseCase | None]


@dataclass(frozen=True)
class Hostile:
    """damage: changes the files of a good release, or hands out another case."""

    clause: str
    damage: Damage


HOSTILE: dict[str, Hostile] = {}
"""Name → damage."""


def hostile(clause: str) -> Callable[[Damage], Damage]:
    """Decorator: the function is a damage by its name."""

    def register(damage: Damage) -> Damage:
        HOSTILE[damage.__name__] = Hostile(f"MANIFEST-{clause}", damage)
        return damage

    return register


# ---- the document


def _line(text: str, section: str = "") -> Damage:
    """A line at the top of the document, or of a section."""

    def damage(case: ReleaseCase) -> None:
        path = _manifest(case)
        before = path.read_text(encoding="utf-8")
        after = before.replace(f"[{section}]\n", f"[{section}]\n{text}\n") if section else f"{text}\n{before}"
        path.write_text(after, encoding="utf-8")

    return damage


def _instead(old: str, new: str) -> Damage:
    """One line that begins with `old` is another."""

    def damage(case: ReleaseCase) -> None:
        path = _manifest(case)
        lines = path.read_text(encoding="utf-8").splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith(old))
        path.write_text("\n".join([*lines[:at], new, *lines[at + 1 :]]) + "\n", encoding="utf-8")

    return damage


for _name, _clause, _damage in (
    ("unknown_key", "901", _line('colour = "red"')),
    ("unknown_key_of_a_section", "901", _line("layer = 3", "features")),
    ("unknown_section", "901", _instead("[noise]", "[nois]")),
    ("another_format", "902", _instead("format", 'format = "eagle-conformance/manifest/2"')),
    ("no_format", "902", _instead("format", "# format")),
    ("number_as_text", "902", _instead("vocabulary_size", 'vocabulary_size = "40"')),
    ("flag_as_number", "902", _instead("root_counted", "root_counted = 1")),
    ("fraction_of_a_token", "902", _instead("hidden_size", "hidden_size = 8.5")),
    ("digest_too_short", "902", _instead("made_from", 'made_from = "sha256:12ab"')),
    ("unknown_variant", "902", _instead("variant", 'variant = "eagle9"')),
    ("number_that_is_none", "902", _instead("rope_theta", "rope_theta = nan")),
    ("section_as_a_list", "902", _instead("[noise]", "[[noise]]")),
    ("no_toml", "902", _instead("format", "format = = 1")),
    ("key_twice", "902", _line("position_base = 1", "conventions")),
):
    HOSTILE[_name] = Hostile(f"MANIFEST-{_clause}", _damage)


# ---- checkpoints


@hostile("903")
def data_cut(case: ReleaseCase) -> None:
    """The last byte is missing."""
    _rewrite(case, lambda content: content[:-1])


@hostile("903")
def header_cut(case: ReleaseCase) -> None:
    """The file ends within its header."""
    _rewrite(case, lambda content: content[:100])


@hostile("903")
def empty_file(case: ReleaseCase) -> None:
    """No byte at all."""
    _rewrite(case, lambda _: b"")


@hostile("903")
def shard_missing(case: ReleaseCase) -> None:
    """The index names a file that is not there."""
    next(iter(sorted(case.target.glob("*.safetensors")))).unlink()


@hostile("904")
def ranges_overlap(case: ReleaseCase) -> None:
    """Two tensors share their bytes."""

    def change(header: dict[str, Any]) -> None:
        low = min(header.values(), key=lambda entry: entry["data_offsets"][0])
        twin = {**low}
        header["twin"] = twin

    _reheader(case, change)


@hostile("904")
def range_beyond_the_file(case: ReleaseCase) -> None:
    """A tensor ends far behind the end."""

    def change(header: dict[str, Any]) -> None:
        header["far"] = {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}

    _reheader(case, change)


@hostile("904")
def range_runs_backwards(case: ReleaseCase) -> None:
    """A tensor ends before it begins."""

    def change(header: dict[str, Any]) -> None:
        header["back"] = {"dtype": "U8", "shape": [0], "data_offsets": [8, 4]}

    _reheader(case, change)


@hostile("904")
def shape_of_other_bytes(case: ReleaseCase) -> None:
    """A shape of twice the bytes that its range has."""

    def change(header: dict[str, Any]) -> None:
        first = next(iter(header.values()))
        first["shape"] = [2, *first["shape"]]

    _reheader(case, change)


@hostile("904")
def shape_beyond_integers(case: ReleaseCase) -> None:
    """A shape whose size is zero modulo 2**64."""

    def change(header: dict[str, Any]) -> None:
        header["huge"] = {"dtype": "U8", "shape": [2**32, 2**32], "data_offsets": [0, 0]}

    _reheader(case, change)


@hostile("904")
def bytes_of_nobody(case: ReleaseCase) -> None:
    """Data behind the last tensor."""
    _rewrite(case, lambda content: content + b"\1" * 16)


@hostile("904")
def unknown_dtype(case: ReleaseCase) -> None:
    """A dtype that the format has not."""

    def change(header: dict[str, Any]) -> None:
        next(iter(header.values()))["dtype"] = "F17"

    _reheader(case, change)


@hostile("905")
def header_of_exabytes(case: ReleaseCase) -> None:
    """A length that no file has; its lower half is right."""
    _rewrite(case, lambda content: content[:7] + b"\x40" + content[8:])


@hostile("905")
def header_longer_than_the_file(case: ReleaseCase) -> None:
    """A length beyond the end."""
    _rewrite(case, lambda content: len(content).to_bytes(8, "little") + content[8:])


@hostile("905")
def header_of_zeros(case: ReleaseCase) -> None:
    """A file with a hole: forty megabytes of header that is no JSON."""
    with _weights(case).open("r+b") as stream:
        stream.truncate(0)
        stream.write((40 * 2**20).to_bytes(8, "little"))
        stream.truncate(41 * 2**20)


@hostile("905")
def header_that_nests(case: ReleaseCase) -> None:
    """JSON nested a hundred thousand times."""
    _rewrite(case, lambda _: filed(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b""))


@hostile("905")
def header_as_a_list(case: ReleaseCase) -> None:
    """JSON, and no object."""
    _rewrite(case, lambda _: filed(b"[]", b""))


@hostile("906")
def name_twice(case: ReleaseCase) -> None:
    """One name stands twice in a header: readers take the first or the last."""

    def twice(content: bytes) -> bytes:
        begin = 8 + int.from_bytes(content[:8], "little")
        header = content[8:begin].decode()
        name, entry = next(iter(json.loads(header).items()))
        return filed(f'{{"{name}": {json.dumps(entry)}, {header[1:]}'.encode(), content[begin:])

    _rewrite(case, twice)


@hostile("906")
def name_in_two_files(case: ReleaseCase) -> None:
    """A second file that has every tensor again."""
    content = _weights(case).read_bytes()
    (case.drafter / "model-extra.safetensors").write_bytes(content)


@hostile("906")
def one_tensor_under_two_names(case: ReleaseCase) -> None:
    """`model.fc.weight` beside `fc.weight`: engines load the one or the other."""

    def doubled(content: bytes) -> bytes:
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:begin])
        low, high = header["fc.weight"]["data_offsets"]
        end = len(content) - begin
        header["model.fc.weight"] = {**header["fc.weight"], "data_offsets": [end, end + high - low]}
        return filed(json.dumps(header).encode(), content[begin:] + content[begin + low : begin + high])

    _rewrite(case, doubled)


class _Loaded:
    """Leaves a file where it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


@hostile("907")
def pickled_weights(case: ReleaseCase) -> None:
    """The drafter's weights as a pickled file alone."""
    _weights(case).unlink()
    _pickled(case.drafter / "pytorch_model.bin")


@hostile("907")
def pickled_target(case: ReleaseCase) -> None:
    """The target's weights as a pickled file alone."""
    for path in case.target.glob("*.safetensors*"):
        path.unlink()
    _pickled(case.target / "model.pt")


@hostile("907")
def pickled_shard(case: ReleaseCase) -> None:
    """An index that sends a tensor to a pickled file."""
    _pickled(case.target / "pytorch_model.bin")
    _reindex(case, "pytorch_model.bin")


@hostile("908")
def linked_weights(case: ReleaseCase) -> None:
    """The weights are a link that leads out of the folder."""
    _outside(_weights(case))


@hostile("908")
def linked_config(case: ReleaseCase) -> None:
    """The configuration is a link that leads out of the folder."""
    _outside(case.target / "config.json")


@hostile("908")
def shard_above_the_folder(case: ReleaseCase) -> None:
    """An index that names a file above the folder."""
    shard = min(case.target.glob("*.safetensors"))
    shard.rename(case.target.parent / shard.name)
    path = case.target / "model.safetensors.index.json"
    path.write_text(path.read_text(encoding="utf-8").replace(shard.name, f"../{shard.name}"), encoding="utf-8")


@hostile("909")
def no_config(case: ReleaseCase) -> None:
    """No config.json."""
    (case.drafter / "config.json").unlink()


@hostile("909")
def no_folder(case: ReleaseCase) -> ReleaseCase:
    """A target that is not there."""
    return ReleaseCase(case.manifest, case.drafter, case.target.parent / "nowhere")


@hostile("909")
def no_document(case: ReleaseCase) -> ReleaseCase:
    """A manifest that is not there."""
    return ReleaseCase(case.drafter.parent / "nothing.toml", case.drafter, case.target)


for _name, _content in (
    ("config_cut", b'{"hidden_size": 8,'),
    ("config_as_a_list", b"[8, 16]"),
    ("config_that_nests", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ("config_in_latin", '{"naïve": 1}'.encode("latin-1")),
    ("config_key_twice", b'{"hidden_size": 8, "hidden_size": 16}'),
):

    def _written(case: ReleaseCase, content: bytes = _content) -> None:
        (case.drafter / "config.json").write_bytes(content)

    HOSTILE[_name] = Hostile("MANIFEST-909", _written)


def _settings(case: ReleaseCase, change: Callable[[dict[str, Any]], None]) -> None:
    path = case.drafter / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(json.dumps(config), encoding="utf-8")


@hostile("909")
def size_as_text(case: ReleaseCase) -> None:
    """A size of the configuration is a text."""
    _settings(case, lambda config: config.update(vocab_size=str(config["vocab_size"])))


@hostile("909")
def size_below_one(case: ReleaseCase) -> None:
    """A size of the configuration is negative."""
    _settings(case, lambda config: config.update(max_position_embeddings=-96))


# ---- what these share


def _manifest(case: ReleaseCase) -> Path:
    if case.manifest is None:
        raise ValueError("the release has a manifest")
    return case.manifest


def _weights(case: ReleaseCase) -> Path:
    """The drafter's one file."""
    return case.drafter / "model.safetensors"


def _rewrite(case: ReleaseCase, change: Callable[[bytes], bytes]) -> None:
    path = _weights(case)
    path.write_bytes(change(path.read_bytes()))


def _reheader(case: ReleaseCase, change: Callable[[dict[str, Any]], None]) -> None:
    def rewritten(content: bytes) -> bytes:
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:begin])
        change(header)
        return filed(json.dumps(header).encode(), content[begin:])

    _rewrite(case, rewritten)


def _reindex(case: ReleaseCase, file: str) -> None:
    """The index sends its first tensor to `file`."""
    path = case.target / "model.safetensors.index.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["weight_map"][next(iter(document["weight_map"]))] = file
    path.write_text(json.dumps(document), encoding="utf-8")


def _outside(path: Path) -> None:
    elsewhere = path.parent.parent / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(_Loaded(path.parent.parent / MARKER)))
