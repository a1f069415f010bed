"""Taking fixtures along: export, verify, diff and keep, through the tool."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from conformance import casefile
from conformance.cli.app import app
from conformance.fixtures import build, exporting, kept, reading
from conformance.fixtures.documents import FixtureError
from conformance.tree.cases import WORKED, WORKED_TREE, Flattenings, Parents
from oracle.types import Coins, FlattenCase, SelectionCase, TokenBatch
from tests.running import ROOT

OWN = ROOT / "fixtures" / "v1"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["fixtures", *map(str, arguments)])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixtures of noise and metrics."""
    folder = tmp_path_factory.mktemp("two") / "fixtures"
    exporting.export(folder, ["noise", "metrics"])
    return folder


# ---- export and verify


def test_a_part_is_exported_and_verified(tmp_path: Path) -> None:
    folder = tmp_path / "their" / "fixtures"
    done = run("export", folder, "--contracts", "noise, metrics")
    assert done.exit_code == 0, done.output
    assert re.search(r"version 1\.\d+\.\d+: \d+ cases of metrics, noise in ", done.output)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.json")}
    schemas = {f"schema/{name}.json" for name in ("cases", "flags", "index")}
    own = {path.relative_to(OWN).as_posix() for name in ("noise", "metrics") for path in (OWN / name).iterdir()}
    assert names == {"index.json", "flags.json", *schemas, *own}
    assert all((folder / name).read_bytes() == (OWN / name).read_bytes() for name in names - {"index.json"})
    done = run("verify", folder)
    assert done.exit_code == 0, done.output
    assert re.match(r"verified: version 1\.\d+\.\d+, \d+ cases of metrics, noise\n", done.output)


def test_all_of_them_are_what_this_checkout_has(tmp_path: Path) -> None:
    assert run("export", tmp_path / "all").exit_code == 0
    files = {path.relative_to(OWN): path.read_bytes() for path in OWN.rglob("*.json")}
    assert {p.relative_to(tmp_path / "all"): p.read_bytes() for p in (tmp_path / "all").rglob("*.json")} == files


def test_a_newer_part_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    folder = tmp_path / "fixtures"
    for contract in ("noise", "metrics"):
        assert run("export", folder, "--contracts", contract).exit_code == 0
    assert not (folder / "noise").exists()
    assert run("verify", folder).exit_code == 0


def test_what_is_refused_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    done = run("export", tmp_path, "--contracts", "noise")
    assert (done.exit_code, "holds something else than fixtures" in done.output) == (2, True)
    done = run("export", tmp_path / "new", "--contracts", "noise,forest")
    assert (done.exit_code, "there are no fixtures of forest" in done.output) == (2, True)
    done = run("export", tmp_path / "new", "--contracts", "noise", "--max-size", "1000")
    assert done.exit_code == 2
    assert re.search(r"\d+ bytes are more than 1000: choose contracts; they have noise \d+", done.output)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_size_that_is_enough_is_enough(tmp_path: Path) -> None:
    assert run("export", tmp_path / "new", "--contracts", "noise", "--max-size", "200000").exit_code == 0


def test_what_was_altered_with_its_index_is_not_this_version(two: Path, tmp_path: Path) -> None:
    """Whoever changes a file can change its digest as well; the version says what the digest is."""
    files = {path.relative_to(two).as_posix(): path.read_text(encoding="utf-8") for path in two.rglob("*.json")}
    name = "noise/feature_noise.json"
    files[name] = files[name].replace('"roundings":', '"roundings":1', 1)
    index = json.loads(files.pop("index.json"))
    folder = tmp_path / "fixtures"
    for version, code in ((index["version"], 1), ("1.999.0", 0)):
        text = build.index_text(version, files, index["counts"], index["untouched"])
        build.write(folder, {**files, "index.json": text})
        done = run("verify", folder)
        assert done.exit_code == code, done.output
    with pytest.raises(FixtureError, match=rf"{name}: is not that of version .*: it was altered"):
        build.write(folder, {**files, "index.json": build.index_text(index["version"], files, index["counts"], {})})
        exporting.verify(folder)


def test_a_folder_that_is_none_is_not_verified(tmp_path: Path) -> None:
    done = run("verify", tmp_path)
    assert (done.exit_code, done.output) == (1, "not verified: index.json: No such file or directory\n")


# ---- diff


def versioned(folder: Path, version: str, change: Any) -> Path:
    """The fixtures of noise, their cases changed, as another version."""
    source = exporting.export(folder, ["noise"])
    cases = json.loads((folder / "noise" / "feature_noise.json").read_text(encoding="utf-8"))["cases"]
    change(cases)
    files = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.json")}
    files["noise/feature_noise.json"] = build.file_text("noise", "feature_noise", cases)
    counts: dict[str, dict[str, int]] = {"noise": {"feature_noise": len(cases)}}
    for vector in source.vectors:
        if vector.operation != "feature_noise":
            counts["noise"][vector.operation] = counts["noise"].get(vector.operation, 0) + 1
    del files["index.json"]
    build.write(folder, {**files, "index.json": build.index_text(version, files, counts, {})})
    return folder


def one_less(cases: list[Any]) -> None:
    del cases[0]


def another_answer(cases: list[Any]) -> None:
    cases[0]["tolerance"]["roundings"] = 77


def other_words(cases: list[Any]) -> None:
    cases[0]["description"] = "The same in other words"


@pytest.mark.parametrize(
    ("change", "version", "step", "line"),
    [
        (lambda cases: None, "1.0.0", "none", None),
        (another_answer, "1.0.1", "patch", "mended   noise/feature_noise/"),
        (other_words, "1.0.1", "patch", "reworded noise/feature_noise/"),
        (one_less, "1.0.1", "patch", "removed  noise/feature_noise/"),
        (another_answer, "1.1.0", "patch", "the version takes a minor step, and the cases a patch one"),
        (another_answer, "1.0.0", "patch", "the version takes a none step, and the cases a patch one"),
    ],
)
def test_the_step_of_a_version(tmp_path: Path, change: Any, version: str, step: str, line: str | None) -> None:
    old = versioned(tmp_path / "old", "1.0.0", lambda cases: None)
    new = versioned(tmp_path / "new", version, change)
    done = run("diff", old, new)
    assert done.exit_code == 0, done.output
    first, *rest = done.output.splitlines()
    assert first == f"1.0.0 → {version}: {step}"
    assert any(told.startswith(line) for told in rest) if line else rest == []


def test_more_cases_are_a_minor_step(tmp_path: Path) -> None:
    old = versioned(tmp_path / "old", "1.0.0", one_less)
    new = versioned(tmp_path / "new", "1.1.0", lambda cases: None)
    assert run("diff", old, new).output.splitlines()[0] == "1.0.0 → 1.1.0: minor"
    done = run("diff", old, tmp_path)
    assert (done.exit_code, "index.json: No such file" in done.output) == (2, True)


# ---- keep


def stored(tmp_path: Path, contract: str, case: Any, clauses: tuple[str, ...]) -> Path:
    return casefile.save(casefile.CaseFile(contract, f"{contract}/test_x.py::test_x", clauses, case), tmp_path)


def test_a_failing_case_is_kept_and_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(tmp_path, "tree", Parents(np.array([-1, 0, 0, 2, 1])), ("TREE-502",))
    done = run("keep", path, "--into", tmp_path / "kept", "--description", "Two chains below one node")
    assert done.exit_code == 0, done.output
    assert "eagle-conformance fixtures build writes it" in done.output
    monkeypatch.setattr(kept, "folder", lambda contract: tmp_path / "tree" / "kept")
    (tmp_path / "tree").mkdir()
    (tmp_path / "kept").rename(tmp_path / "tree" / "kept")
    (golden,) = kept.goldens("tree")
    assert (golden.operation, golden.clauses, golden.flags) == ("tree_visibility", ("TREE-502",), ("kept",))
    assert golden.arguments["parent"].tolist() == [-1, 0, 0, 2, 1]
    source = build.module("tree")
    monkeypatch.setattr(source, "GOLDEN", ())
    ((case,),) = build.built("tree").values()
    assert case["description"] == "Two chains below one node"
    assert case["expected"]["value"]["shape"] == [5, 5]


@pytest.mark.parametrize(
    ("contract", "case", "clause", "operation"),
    [
        ("tree", WORKED, "TREE-202", "grow_tree"),
        ("tree", SelectionCase(WORKED_TREE, 2), "TREE-302", "select_nodes"),
        ("tree", Flattenings((FlattenCase(WORKED_TREE, np.arange(5)),)), "TREE-402", "flatten_tree"),
    ],
)
def test_the_operation_is_that_of_the_case(
    tmp_path: Path, contract: str, case: Any, clause: str, operation: str
) -> None:
    made = kept.keep(stored(tmp_path, contract, case, (clause,)), into=tmp_path / "kept")
    document = json.loads(made.read_text(encoding="utf-8"))
    assert (document["operation"], document["clauses"]) == (operation, [clause])
    assert document["description"].startswith("An implementation failed here: ")


def test_what_cannot_be_kept_is_told(tmp_path: Path) -> None:
    flags = np.ones((1, 2), dtype=bool)
    numbers = np.arange(2).reshape(1, 2)
    batch = TokenBatch(numbers, flags, numbers * 0, numbers, flags)
    path = stored(tmp_path, "rows", batch, ("ROWS-201",))
    done = run("keep", path, "--into", tmp_path)
    assert (done.exit_code, "it may be one of soft_rows, hard_rows: say which" in done.output) == (2, True)
    assert run("keep", path, "--into", tmp_path / "kept", "--operation", "hard_rows").exit_code == 0
    done = run("keep", stored(tmp_path, "rows", Coins(np.zeros(1), 0.5), ("ROWS-201",)), "--into", tmp_path)
    assert (done.exit_code, "no operation takes such a case" in done.output) == (2, True)
    done = run("keep", stored(tmp_path, "tree", WORKED, ("ROWS-201",)), "--into", tmp_path)
    assert (done.exit_code, "names none of tree" in done.output) == (2, True)
    done = run("keep", tmp_path / "nothing.json", "--into", tmp_path)
    assert (done.exit_code, "No such file" in done.output) == (2, True)


# ---- build and kills, through the tool


def test_build_writes_a_part_to_a_folder_of_its_own(tmp_path: Path) -> None:
    done = run("build", "--contracts", "noise")
    assert (done.exit_code, "say --into DIR" in done.output) == (2, True)
    done = run("build", "--contracts", "noise", "--into", tmp_path / "v1")
    assert done.exit_code == 0, done.output
    assert {vector.contract for vector in reading.read(tmp_path / "v1").vectors} == {"noise"}


def test_kills_prints_the_table() -> None:
    done = run("kills", "noise")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].endswith("faulty implementations fail")
    assert (run("kills", "forest").exit_code, run("nothing").exit_code) == (2, 2)
