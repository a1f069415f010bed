"""Opening the files of a release, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle: whole files are read, and the manifest is judged by its JSON schema.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "BOOL": 1}
SCHEMA = Path(__file__).parents[2] / "oracle" / "manifest" / "schema" / "manifest.v1.json"
INDEX = "model.safetensors.index.json"
LONGEST_HEADER = 2**24
Held = tuple[str, list[int], bytes]
"""Dtype, shape, bytes."""


class Refused(ValueError):
    """What cannot be read."""


def demand(holds: bool, rule: str) -> None:
    """`Refused` unless it holds."""
    if not holds:
        raise Refused(rule)


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of manifests."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


class Opening:
    """Reads manifests and checkpoints, and refuses what it should."""

    # ---- the document

    @classmethod
    def document(cls, path: Path) -> dict[str, Any]:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        cls.fits(found, schema(), "manifest")
        return found

    @classmethod
    def fits(cls, value: Any, rule: Mapping[str, Any], where: str) -> None:
        """As a validator of JSON schemas does, for the words that ours uses."""
        demand("const" not in rule or value == rule["const"], f"{where}: another format")
        demand("enum" not in rule or value in rule["enum"], f"{where}: one of {rule.get('enum')}")
        cls.kind(value, rule, where)
        if isinstance(value, str):
            demand(re.fullmatch(rule.get("pattern", "(?s).*"), value) is not None, f"{where}: form")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            low, above = rule.get("minimum", -math.inf), rule.get("exclusiveMinimum", -math.inf)
            demand(math.isfinite(value) and low <= value > above and value <= rule.get("maximum", math.inf), where)
        elif isinstance(value, list):
            demand(rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", 64), f"{where}: length")
            for i, entry in enumerate(value):
                cls.fits(entry, rule["items"], f"{where}[{i}]")
        elif isinstance(value, dict):
            demand(set(rule.get("required", ())) <= set(value), f"{where}: a key is missing")
            cls.keys(value, rule["properties"], where)
            for key, entry in value.items():
                if key in rule["properties"]:
                    cls.fits(entry, rule["properties"][key], f"{where}.{key}")

    @classmethod
    def kind(cls, value: Any, rule: Mapping[str, Any], where: str) -> None:
        kinds: dict[str, Any] = {"string": str, "boolean": bool, "number": (int, float), "array": list, "object": dict}
        wanted = rule.get("type")
        if wanted == "integer":
            whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == math.floor(value)
            demand(whole, f"{where}: a whole number")
        elif wanted is not None:
            demand(isinstance(value, kinds[wanted]), f"{where}: a {wanted}")
            demand(wanted == "boolean" or not isinstance(value, bool), f"{where}: a {wanted}")

    @classmethod
    def keys(cls, value: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
        demand(set(value) <= set(known), f"{where}: unknown {sorted(set(value) - set(known))}")

    # ---- a checkpoint

    @classmethod
    def config(cls, folder: Path) -> dict[str, Any]:
        found = cls.parsed(cls.opened(folder, "config.json").decode("utf-8"), "config.json")
        demand(isinstance(found, dict), "config.json: an object")
        for key in ("hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings"):
            cls.size(found, key)
        return dict(found)

    @classmethod
    def size(cls, config: Mapping[str, Any], key: str) -> None:
        value = config.get(key)
        demand(value is None or (isinstance(value, int) and value > 0), f"config.json: {key} is {value!r}")

    @classmethod
    def parsed(cls, text: str, where: str) -> Any:
        try:
            return json.loads(text, object_pairs_hook=lambda pairs: cls.once(pairs, where))
        except RecursionError:
            raise Refused(f"{where}: nested too deep") from None

    @classmethod
    def once(cls, pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
        demand(len(dict(pairs)) == len(pairs), f"{where}: a key stands twice")
        return dict(pairs)

    @classmethod
    def tensors(cls, folder: Path) -> dict[str, Held]:
        found: dict[str, Held] = {}
        for name in cls.files(folder):
            cls.joined(found, cls.file(cls.opened(folder, name), name))
        return found

    @classmethod
    def files(cls, folder: Path) -> list[str]:
        if (folder / INDEX).exists():
            index = cls.parsed(cls.opened(folder, INDEX).decode("utf-8"), INDEX)["weight_map"]
            names = sorted(set(index.values()))
        else:
            names = sorted(path.name for path in folder.glob("*.safetensors"))
        demand(bool(names), "no weights")
        cls.plain(names)
        return names

    @classmethod
    def plain(cls, names: list[str]) -> None:
        demand(all(name.endswith(".safetensors") for name in names), f"safetensors alone, not {names}")

    @classmethod
    def joined(cls, found: dict[str, Held], more: dict[str, Held]) -> None:
        demand(not set(found) & set(more), "a tensor stands in two files")
        found.update(more)

    @classmethod
    def opened(cls, folder: Path, name: str) -> bytes:
        cls.inside(folder, name)
        return (folder / name).read_bytes()

    @classmethod
    def inside(cls, folder: Path, name: str) -> None:
        demand((folder / name).resolve().parent == folder.resolve(), f"{name} leads out of the folder")

    @classmethod
    def file(cls, content: bytes, name: str) -> dict[str, Held]:
        cls.whole(content, name)
        end = 8 + int.from_bytes(content[:8], "little")
        header = cls.header(content[8:end], name)
        header.pop("__metadata__", None)
        cls.ranges(header, len(content) - end, name)
        return {key: cls.held(entry, content[end:]) for key, entry in header.items()}

    @classmethod
    def whole(cls, content: bytes, name: str) -> None:
        demand(len(content) >= 8, f"{name}: no header")
        length = int.from_bytes(content[:8], "little")
        demand(length <= LONGEST_HEADER and length <= len(content) - 8, f"{name}: a header of {length} bytes")

    @classmethod
    def header(cls, text: bytes, name: str) -> dict[str, Any]:
        found = cls.parsed(text.decode("utf-8"), name)
        demand(isinstance(found, dict), f"{name}: the header is an object")
        return dict(found)

    @classmethod
    def ranges(cls, header: Mapping[str, Any], size: int, name: str) -> None:
        for entry in header.values():
            demand(entry["dtype"] in SIZES, f"{name}: dtype {entry['dtype']}")
            low, high = entry["data_offsets"]
            demand(0 <= low <= high, f"{name}: a range runs backwards")
            cls.spans(entry, low, high, name)
        cls.covered(sorted(entry["data_offsets"] for entry in header.values()), size, name)

    @classmethod
    def spans(cls, entry: Mapping[str, Any], low: int, high: int, name: str) -> None:
        demand(high - low == math.prod(entry["shape"]) * SIZES[entry["dtype"]], f"{name}: shape and range differ")

    @classmethod
    def covered(cls, spans: list[list[int]], size: int, name: str) -> None:
        """Without gap, overlap or remainder."""
        end = 0
        for low, high in spans:
            cls.meets(low, end, name)
            end = max(end, high)
        cls.ends(end, size, name)

    @classmethod
    def meets(cls, low: int, end: int, name: str) -> None:
        demand(low == end, f"{name}: ranges overlap or leave a gap")

    @classmethod
    def ends(cls, end: int, size: int, name: str) -> None:
        demand(end <= size, f"{name}: the data is cut short")
        demand(end == size, f"{name}: bytes are left over")

    @classmethod
    def held(cls, entry: Mapping[str, Any], data: bytes) -> Held:
        low, high = entry["data_offsets"]
        return entry["dtype"], entry["shape"], data[low:high]

    # ---- a tokenizer

    @classmethod
    def tokens(cls, folder: Path) -> dict[int, str] | None:
        found: dict[int, str] = {}
        if (folder / "tokenizer.json").exists():
            document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
            found = {identity: token for token, identity in document["model"]["vocab"].items()}
            found |= cls.added({entry["content"]: entry["id"] for entry in document["added_tokens"]})
        elif (folder / "vocab.json").exists():
            vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
            added = json.loads((folder / "added_tokens.json").read_text(encoding="utf-8"))
            found = {identity: token for token, identity in vocabulary.items()} | cls.added(added)
        return found or None

    @classmethod
    def added(cls, tokens: Mapping[str, int]) -> dict[int, str]:
        return {identity: token for token, identity in tokens.items()}
