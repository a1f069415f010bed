"""Fixtures from elsewhere: refused as a whole, with the file, the place and the rule."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.fixtures import build, documents, exporting, reading
from conformance.fixtures.documents import FixtureError
from tests.running import ROOT
from tests.test_fixtures_build import array, small

OWN = ROOT / "fixtures" / "v1"
FILE = "noise/feature_noise.json"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixtures of noise."""
    made = tmp_path_factory.mktemp("exported") / "fixtures"
    exporting.export(made, ["noise"])
    return made


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """The same, of one's own."""
    return Path(shutil.copytree(exported, tmp_path / "fixtures"))


def indexed(folder: Path) -> None:
    """Make the index say what the files are now."""
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    for name in index["files"]:
        content = (folder / name).read_bytes()
        index["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")


def refused(folder: Path, file: str, place: str, rule: str) -> None:
    with pytest.raises(FixtureError) as caught:
        reading.read(folder)
    error = caught.value
    assert (error.file, error.place) == (file, place), error
    assert rule in error.rule
    assert str(error) == ": ".join(part for part in (file, place, error.rule) if part)


def test_what_is_exported_is_read(folder: Path) -> None:
    assert {vector.contract for vector in reading.read(folder).vectors} == {"noise"}


# ---- files


def grown(folder: Path) -> None:
    (folder / FILE).write_bytes((folder / FILE).read_bytes() + b" ")


def altered(folder: Path) -> None:
    text = (folder / FILE).read_text(encoding="utf-8")
    (folder / FILE).write_text(text.replace("0.5", "0.6", 1), encoding="utf-8")


def lost(folder: Path) -> None:
    (folder / FILE).unlink()


def linked(folder: Path) -> None:
    shutil.copy(folder / FILE, folder.parent / "elsewhere.json")
    (folder / FILE).unlink()
    (folder / FILE).symlink_to(folder.parent / "elsewhere.json")


def linked_folder(folder: Path) -> None:
    (folder / "noise").rename(folder.parent / "elsewhere")
    (folder / "noise").symlink_to(folder.parent / "elsewhere")


def piped(folder: Path) -> None:
    (folder / FILE).unlink()
    os.mkfifo(folder / FILE)


def beside(folder: Path) -> None:
    (folder / "noise" / "more.json").write_text("{}", encoding="utf-8")


def hidden(folder: Path) -> None:
    (folder / ".more").write_text("", encoding="utf-8")


def huge(folder: Path) -> None:
    with (folder / FILE).open("r+b") as stream:
        stream.truncate(documents.MOST_BYTES + 1)


BROKEN: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "grown": (grown, FILE, "is not the file of the index"),
    "altered": (altered, FILE, "is not the file of the index"),
    "lost": (lost, FILE, "No such file"),
    "linked": (linked, FILE, "no link"),
    "linked folder": (linked_folder, "noise", "stands beside"),
    "piped": (piped, FILE, "is a plain file"),
    "beside": (beside, "noise/more.json", "stands beside"),
    "hidden": (hidden, ".more", "stands beside"),
    "huge": (huge, FILE, "has at most"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_files_that_are_not_those_of_the_index(folder: Path, name: str) -> None:
    break_, file, rule = BROKEN[name]
    break_(folder)
    refused(folder, file, "", rule)


def test_a_folder_without_an_index(tmp_path: Path) -> None:
    refused(tmp_path, "index.json", "", "No such file")
    refused(tmp_path / "nowhere", "index.json", "", "No such file")


# ---- the index


@pytest.mark.parametrize(
    ("key", "value", "place", "rule"),
    [
        ("version", "2.0.0", "version", "has the major number"),
        ("version", "1.0", "version", "is a text of the form"),
        ("format", "eagle-conformance/fixtures/9", "format", "is eagle-conformance/fixtures/1"),
        ("schema", "0" * 64, "schema", "is the digest"),
        ("schema", "0", "schema", "is a text of the form"),
        ("counts", {"noise": {"feature_noise": 1}}, "counts", "are those of the files"),
        ("counts", {"noise": {"feature_noise": -1}}, "counts.noise.feature_noise", "is a number"),
        ("files", {"../secret.json": {"bytes": 1, "sha256": "0" * 64}}, "files", "with keys of the form"),
        ("files", {"/etc/passwd": {"bytes": 1, "sha256": "0" * 64}}, "files", "with keys of the form"),
        ("files", {"noise/../../a.json": {"bytes": 1, "sha256": "0" * 64}}, "files", "with keys of the form"),
        ("files", {"flags.json": {"bytes": 1}}, "files[flags.json]", "exactly the keys"),
        ("files", {"flags.json": {"bytes": 2**40, "sha256": "0" * 64}}, "files[flags.json].bytes", "of at most"),
        ("untouched", {"noise": {"NOISE-201": ""}}, "untouched.noise.NOISE-201", "is a text of 1"),
        ("author", "me", "", "exactly the keys"),
    ],
)
def test_an_index_that_says_something_else(folder: Path, key: str, value: Any, place: str, rule: str) -> None:
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    (folder / "index.json").write_text(json.dumps({**index, key: value}), encoding="utf-8")
    refused(folder, "index.json", place, rule)


# ---- texts


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"cases": NaN}', "NaN is no number of JSON"),
        ('{"cases": -Infinity}', "-Infinity is no number of JSON"),
        ('{"cases": 1e999}', "the number 1e999 is out of range"),
        ('{"cases": 9007199254740993}', "is beyond ±2^53"),
        (f'{{"cases": {"1" * 5000}}}', "is beyond ±2^53"),
        ("[" * 30 + "]" * 30, "is nested deeper than 24"),
        ("[" * 100_000 + "]" * 100_000, "is nested deeper than 24"),
        ('{"cases": [', "is no JSON"),
        ("", "is no JSON"),
        ("\ufeff{}", "is no JSON"),
        (b"\xff\xfe{}", "is UTF-8 text"),
    ],
)
def test_texts_that_are_no_documents(folder: Path, text: str | bytes, rule: str) -> None:
    (folder / FILE).write_bytes(text if isinstance(text, bytes) else text.encode() or b" ")
    indexed(folder)
    refused(folder, FILE, "", rule)


# ---- documents


CASE = "cases[0]"
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "another digest": (small(id="0" * 12), f"{CASE}.id", "is the digest of contract, operation and input"),
    "a clause of another contract": (small(clauses=["NOISE-201"]), f"{CASE}.clauses", "are clauses of tree"),
    "another parameter": (small(input={"parents": 1}), f"{CASE}.input", "has the parameters of tree_visibility"),
    "another dataclass": (small(input={"parent": {"type": "Popen"}}), CASE, "is no dataclass of the interface"),
    "a dataclass with less": (small(input={"parent": {"type": "Coins", "accept": 1}}), CASE, "has exactly the fields"),
    "another shape": (small(input=array(shape=[3])), f"{CASE}.input.parent", "holds 3 values"),
    "a shape beyond all": (small(input=array(shape=[2**30, 2**30, 0])), f"{CASE}.input.parent", "holds 0 values"),
    "many axes": (small(input=array(shape=[1] * 5)), f"{CASE}.input.parent", "at most 4 axes"),
    "a boolean among integers": (small(input=array(data=[-1, True])), f"{CASE}.input.parent", "is no entry"),
    "no base64": (small(input={"parent": {"bytes": "=?"}}), CASE, "is base64"),
    "a rational by halves": (
        small(input=array(dtype="rational", data=["2/4", "0"])),
        f"{CASE}.input.parent",
        "no entry",
    ),
    "a refusal with a value": (small(tolerance={"class": "refusal"}), f"{CASE}.expected", "exactly the keys refused"),
    "a negative bound": (
        small(tolerance={"class": "rounding", "roundings": -1, "scale": 1}),
        f"{CASE}.tolerance.roundings",
        "is a number of at least 0",
    ),
    "a long description": (small(description="x" * 401), f"{CASE}.description", "1 to 400 characters"),
    "the same road twice": (small(roads=["oracle", "oracle"]), f"{CASE}.roads", "each once"),
    "a list of nothing": (small(cases=[]), "cases", "are between 1"),
    "an operation of another contract": (small(operation="warp"), "operation", "is one of grow_tree"),
}


@pytest.mark.parametrize("name", WRONG)
def test_documents_of_another_form(name: str) -> None:
    document, place, rule = WRONG[name]
    with pytest.raises(FixtureError) as caught:
        documents.vectors_of(document, "a.json")
    assert (caught.value.file, caught.value.place) == ("a.json", place), caught.value
    assert rule in caught.value.rule


def test_a_case_that_stands_twice() -> None:
    document = small(input=array())
    document["cases"] *= 2
    with pytest.raises(FixtureError, match=r"cases\[1\].id: is that of no other case"):
        documents.vectors_of(document, "a.json")


def test_a_flag_that_nobody_defines(folder: Path) -> None:
    document = json.loads((folder / FILE).read_text(encoding="utf-8"))
    document["cases"][0]["flags"] = ["novel"]
    (folder / FILE).write_text(json.dumps(document), encoding="utf-8")
    indexed(folder)
    refused(folder, FILE, document["cases"][0]["id"], "flags.json lacks novel")


@pytest.mark.parametrize(
    ("flag", "place", "rule"),
    [
        ({"kind": "odd", "effect": "x", "links": []}, "flags[batch].kind", "is one of"),
        ({"kind": "edge", "effect": "", "links": []}, "flags[batch].effect", "is a text"),
        ({"kind": "edge", "effect": "x", "links": "y"}, "flags[batch].links", "is a list"),
        ({"kind": "edge", "effect": "x"}, "flags[batch]", "exactly the keys"),
    ],
)
def test_flags_of_another_form(flag: Any, place: str, rule: str) -> None:
    with pytest.raises(FixtureError) as caught:
        documents.flags_of({"format": "eagle-conformance/fixtures/1", "flags": {"batch": flag}})
    assert (caught.value.place, rule in caught.value.rule) == (place, True), caught.value


def test_a_file_of_another_contract(folder: Path) -> None:
    shutil.copy(OWN / "tree" / "tree_visibility.json", folder / FILE)
    indexed(folder)
    refused(folder, FILE, "", "holds tree/tree_visibility")


def test_nothing_is_left_of_a_write_that_fails(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    with pytest.raises(IsADirectoryError):
        build.write(folder, {"a/b.json": "x", "a": "y"})
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before
    assert [path.name for path in folder.parent.iterdir()] == ["fixtures"]
