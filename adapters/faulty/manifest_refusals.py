"""Gates of releases that accept what is to be refused, one thing each."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapters.faulty.gating import WholeGate
from adapters.faulty.opening import Held, demand
from oracle.types import ReleaseCase, Violation


class UnknownKeysAreComments(WholeGate):
    """Passes over keys of the manifest that it does not know."""

    refutes = "MANIFEST-901"

    @classmethod
    def keys(cls, value: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
        return None


class UnknownKeysOfSections(WholeGate):
    """Knows the sections of a manifest, and passes over unknown keys in them."""

    refutes = "MANIFEST-901"

    @classmethod
    def keys(cls, value: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
        if where == "manifest":
            super().keys(value, known, where)


class AnyFormat(WholeGate):
    """Reads a manifest of any version."""

    refutes = "MANIFEST-902"

    @classmethod
    def fits(cls, value: Any, rule: Mapping[str, Any], where: str) -> None:
        super().fits(value, {key: held for key, held in rule.items() if key not in ("const", "required")}, where)


class NumbersAsTexts(WholeGate):
    """Reads numbers out of texts."""

    refutes = "MANIFEST-902"

    @classmethod
    def kind(cls, value: Any, rule: Mapping[str, Any], where: str) -> None:
        if not (isinstance(value, str) and value.isdigit()):
            super().kind(value, rule, where)


class FractionsOfTokens(WholeGate):
    """Cuts fractions off where whole numbers are wanted."""

    refutes = "MANIFEST-902"

    @classmethod
    def kind(cls, value: Any, rule: Mapping[str, Any], where: str) -> None:
        super().kind(int(value) if isinstance(value, float) and value == value else value, rule, where)


class ReadsUpToTheEnd(WholeGate):
    """Fills up what is missing at the end of a file."""

    refutes = "MANIFEST-903"

    @classmethod
    def ends(cls, end: int, size: int, name: str) -> None:
        demand(end >= size, f"{name}: bytes are left over")

    @classmethod
    def held(cls, entry: Mapping[str, Any], data: bytes) -> Held:
        dtype, shape, found = super().held(entry, data)
        low, high = entry["data_offsets"]
        return dtype, shape, found + bytes(high - low - len(found))


class OverlapsAreShared(WholeGate):
    """Lets two tensors share their bytes."""

    refutes = "MANIFEST-904"

    @classmethod
    def meets(cls, low: int, end: int, name: str) -> None:
        demand(low <= end, f"{name}: ranges leave a gap")


class BytesLeftOver(WholeGate):
    """Passes over bytes that belong to no tensor."""

    refutes = "MANIFEST-904"

    @classmethod
    def ends(cls, end: int, size: int, name: str) -> None:
        demand(end <= size, f"{name}: the data is cut short")


class ShapesAreTrusted(WholeGate):
    """Does not compare a shape with the bytes that it has."""

    refutes = "MANIFEST-904"

    @classmethod
    def spans(cls, entry: Mapping[str, Any], low: int, high: int, name: str) -> None:
        return None


class ListsAreHeaders(WholeGate):
    """Takes a header that is no object for one without tensors."""

    refutes = "MANIFEST-905"

    @classmethod
    def header(cls, text: bytes, name: str) -> dict[str, Any]:
        found = cls.parsed(text.decode("utf-8"), name)
        return dict(found) if isinstance(found, dict) else {}


class LengthsOf32Bits(WholeGate):
    """Reads the lower half of a header's length."""

    refutes = "MANIFEST-905"

    @classmethod
    def file(cls, content: bytes, name: str) -> dict[str, Held]:
        return super().file(content[:4] + bytes(4) + content[8:] if len(content) >= 8 else content, name)


class TheLastOfTwo(WholeGate):
    """Takes the last of two tensors of one name in a header."""

    refutes = "MANIFEST-906"

    @classmethod
    def header(cls, text: bytes, name: str) -> dict[str, Any]:
        found = json.loads(text)
        demand(isinstance(found, dict), f"{name}: the header is an object")
        return dict(found)


class TheLastOfTwoFiles(WholeGate):
    """Takes a tensor from the last file that has it."""

    refutes = "MANIFEST-906"

    @classmethod
    def joined(cls, found: dict[str, Held], more: dict[str, Held]) -> None:
        found.update(more)


class TheLastOfTwoNames(WholeGate):
    """Takes the last of the names that mean one tensor."""

    refutes = "MANIFEST-906"

    @classmethod
    def not_twice(cls, name: str, found: Mapping[str, Held]) -> None:
        return None


class LoadsPickles(WholeGate):
    """Loads pickled weights before it finds that it cannot read them."""

    refutes = "MANIFEST-907"

    @classmethod
    def check_release(cls, case: ReleaseCase) -> list[Violation]:
        for folder in (case.drafter, case.target):
            for path in [*folder.glob("*.bin"), *folder.glob("*.pt")]:
                with path.open("rb") as stream:
                    pickle.load(stream)
        return super().check_release(case)


class PassesPickles(WholeGate):
    """Passes over pickled files of an index, as of a checkpoint that somebody else judges."""

    refutes = "MANIFEST-907"

    @classmethod
    def plain(cls, names: list[str]) -> None:
        names[:] = [name for name in names if name.endswith(".safetensors")]


class FollowsLinks(WholeGate):
    """Opens links, wherever they lead."""

    refutes = "MANIFEST-908"

    @classmethod
    def inside(cls, folder: Path, name: str) -> None:
        demand((folder / name).parent.resolve() == folder.resolve(), f"{name} leads out of the folder")


class FollowsTheIndex(WholeGate):
    """Opens the files of an index, wherever they lie."""

    refutes = "MANIFEST-908"

    @classmethod
    def inside(cls, folder: Path, name: str) -> None:
        if "/" not in name:
            super().inside(folder, name)


class NoManifestIsSilence(WholeGate):
    """Takes a manifest that is not there for none."""

    refutes = "MANIFEST-909"

    @classmethod
    def document(cls, path: Path) -> dict[str, Any]:
        return super().document(path) if path.exists() else {}


class SizesAreTrusted(WholeGate):
    """Reads sizes out of texts."""

    refutes = "MANIFEST-909"

    @classmethod
    def config(cls, folder: Path) -> dict[str, Any]:
        found = super().config(folder)
        return {key: int(held) if isinstance(held, str) and held.isdigit() else held for key, held in found.items()}

    @classmethod
    def size(cls, config: Mapping[str, Any], key: str) -> None:
        return None
