"""Releases as data: what is laid out is what was taken, and nothing lies outside of the folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from conformance.manifest.files import MOST_FILES, ReleaseFiles, contents, laid, taken
from oracle.errors import BadInput

RELEASE = ReleaseFiles(
    "manifest.toml",
    "drafter",
    "target",
    {"manifest.toml": "a = 1\n", "drafter/model.safetensors": b"\xff\x00", "target/config.json": '{"é": 1}'},
    {"target/weights": "../drafter/model.safetensors"},
)


def test_what_is_laid_out_is_what_was_taken(tmp_path: Path) -> None:
    case = laid(RELEASE, tmp_path)
    assert case.manifest == tmp_path / "manifest.toml"
    assert contents(tmp_path)["drafter/model.safetensors"] == b"\xff\x00"
    assert (tmp_path / "target" / "weights").read_bytes() == b"\xff\x00"
    assert dataclasses.astuple(taken(case, tmp_path)) == dataclasses.astuple(RELEASE)


def test_control_characters_are_no_text(tmp_path: Path) -> None:
    case = laid(dataclasses.replace(RELEASE, files={"drafter/a": "a\tb\x00"}, links={}), tmp_path)
    assert taken(case, tmp_path).files == {"drafter/a": b"a\tb\x00"}


@pytest.mark.parametrize(
    "name", ["../a", "/a", "drafter/../../a", "a//b", "", ".", "drafter/.ssh", "a\\b", "a\x00", "a/b/c/d/e"]
)
def test_a_file_lies_below_the_folder(tmp_path: Path, name: str) -> None:
    changes: dict[str, Any] = {"files": {name: "a"}, "links": {name: "a"}}
    changes |= dict.fromkeys(("manifest", "drafter", "target"), name)
    for field, value in changes.items():
        with pytest.raises(BadInput, match=f"^{field}"):
            laid(dataclasses.replace(RELEASE, **{field: value}), tmp_path / field)
    assert not (tmp_path / "a").exists() and not Path("/a").exists()


@pytest.mark.parametrize("leads", ["../../a", "/etc/passwd", "../..", "../drafter/../../a"])
def test_a_link_leads_nowhere_else(tmp_path: Path, leads: str) -> None:
    with pytest.raises(BadInput, match=r"^links"):
        laid(dataclasses.replace(RELEASE, links={"target/weights": leads}), tmp_path)


def test_a_release_has_few_files(tmp_path: Path) -> None:
    many = {f"drafter/{i}": "" for i in range(MOST_FILES)}
    with pytest.raises(BadInput, match="at most"):
        laid(dataclasses.replace(RELEASE, files=many), tmp_path)
