"""Writing checkpoints and manifests: as little of safetensors and TOML as tiny releases need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tensor:
    """A tensor as it is filed: dtype by the name of the format, shape, bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def changed(self, entry: int, value: float) -> Tensor:
        """The tensor with another number at a flat index."""
        values = numbers(self)
        values[entry] = value
        return tensor(values.reshape(self.shape), self.dtype)


def tensor(values: Any, dtype: str) -> Tensor:
    """An array as a tensor of BF16 (cut, not rounded), F16, F32, I64 or BOOL."""
    array = np.asarray(values)
    if dtype == "BF16":
        data = (np.ascontiguousarray(array, dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        kinds = {"F16": "<f2", "F32": "<f4", "I64": "<i8", "BOOL": "?"}
        with np.errstate(over="ignore"):
            data = np.ascontiguousarray(array, dtype=kinds[dtype]).tobytes()
    return Tensor(dtype, array.shape, data)


def numbers(held: Tensor) -> np.ndarray:
    """The entries of a tensor, flat."""
    if held.dtype == "BF16":
        return (np.frombuffer(held.data, dtype="<u2").astype("<u4") << 16).view("<f4").copy()
    kinds = {"F16": "<f2", "F32": "<f4", "I64": "<i8", "BOOL": "?"}
    return np.frombuffer(held.data, dtype=kinds[held.dtype]).copy()


def safetensors(held: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """A file: eight bytes of header length, the header, the bytes in the order of the mapping."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, one in held.items():
        header[name] = {
            "dtype": one.dtype,
            "shape": list(one.shape),
            "data_offsets": [end, end + len(one.data)],
        }
        end += len(one.data)
    return filed(json.dumps(header).encode(), b"".join(one.data for one in held.values()))


def filed(header: bytes, data: bytes) -> bytes:
    """A file of any header, right or wrong."""
    return len(header).to_bytes(8, "little") + header + data


def write_weights(folder: Path, held: Mapping[str, Tensor], shards: int, backwards: bool = False) -> None:
    """The tensors in one file or in several with an index; `backwards` also tells the files who wrote them."""
    names = list(held)[:: -1 if backwards else 1]
    metadata = {"format": "pt", "made": "backwards"} if backwards else None
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors({name: held[name] for name in names}, metadata))
        return
    index: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        chosen = {name: held[name] for name in names[shard::shards]}
        (folder / file).write_bytes(safetensors(chosen, metadata))
        index |= dict.fromkeys(chosen, file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})


def write_json(path: Path, document: Any, indent: int | None = 2) -> None:
    path.write_text(json.dumps(document, indent=indent, ensure_ascii=False), encoding="utf-8")


def toml(document: Mapping[str, Any]) -> str:
    """A table of texts, numbers, flags, lists and tables of these as TOML."""
    plain = {key: value for key, value in document.items() if not isinstance(value, dict)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for section, entries in document.items():
        if isinstance(entries, dict) and entries:
            lines += ["", f"[{section}]", *(f"{key} = {_value(value)}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
