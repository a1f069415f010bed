"""The fixtures that are committed are what the build writes, byte for byte, and follow their own schemas."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from adapters.interface import CONTRACTS
from conformance.fixtures import VERSION, build, documents, reading, schemas
from conformance.fixtures.golden import Flag
from conformance.fixtures.killing import LEAST_CASES
from tests.running import ROOT

SET = ROOT / "fixtures" / "v1"
MOST_BYTES = 3 * 10**6
OF_DESIGN = {
    **{"rows": {"soft_rows", "hard_rows", "supervision_at_source", "rollout_rows"}, "noise": {"feature_noise"}},
    "losses": {
        *("feature_regression", "soft_cross_entropy", "eagle1_loss", "topk_distillation", "hass_loss"),
        *("rollout_loss", "draft_to_target"),
    },
    **{"tree": {"grow_tree", "select_nodes", "flatten_tree", "tree_visibility"}, "visibility": {"rollout_visibility"}},
    **{"acceptance": set(CONTRACTS["acceptance"]), "publish": {"publish"}, "drafter": {"draft_logits"}},
    **{"metrics": {"summarise_rounds"}, "manifest": {"check_release"}, "decode": {"generate"}},
}
"""The operations whose names do not change."""


def committed(name: str) -> str:
    return (SET / name).read_text(encoding="utf-8")


def encoded(contract: str) -> dict[str, list[dict[str, Any]]]:
    """The cases of a contract as their files hold them."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))["cases"] for path in _files(contract)}


def _files(contract: str) -> list[Path]:
    return [path for name in CONTRACTS[contract] if (path := SET / contract / f"{name}.json").exists()]


@pytest.mark.parametrize("contract", build.contracts())
def test_the_cases_are_what_the_build_writes(contract: str) -> None:
    made = build.case_files({contract: build.built(contract)})
    assert sorted(made) == sorted(path.relative_to(SET).as_posix() for path in (SET / contract).iterdir())
    for name, text in made.items():
        assert committed(name) == text, f"{name}: eagle-conformance fixtures build writes another one"


def test_what_goes_with_the_cases_is_what_the_build_writes() -> None:
    made = build.assembled({contract: encoded(contract) for contract in build.contracts()})
    for name, text in made.items():
        assert committed(name) == text, f"{name}: eagle-conformance fixtures build writes another one"
    assert sorted(made) == sorted(path.relative_to(SET).as_posix() for path in SET.rglob("*.json"))


def test_every_operation_of_the_design_has_its_cases_and_all_are_small() -> None:
    counts = json.loads(committed("index.json"))["counts"]
    for contract, operations in OF_DESIGN.items():
        assert {name for name in operations if counts[contract].get(name, 0) < LEAST_CASES} == set()
    assert sum(path.stat().st_size for path in SET.rglob("*")) < MOST_BYTES
    assert {path.suffix for path in (ROOT / "fixtures").rglob("*") if path.is_file()} == {".json", ".md"}


def test_the_changelog_begins_with_the_version() -> None:
    text = (ROOT / "fixtures" / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert versions[0] == VERSION == json.loads(committed("index.json"))["version"]
    assert versions == sorted(versions, key=lambda v: [int(n) for n in v.split(".")], reverse=True)


def test_a_flag_is_defined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.module("tree"), "FLAGS", {"ties": Flag("edge", "Something else.")})
    with pytest.raises(build.BuildError, match="tree: the flag 'ties' is defined otherwise elsewhere"):
        build.defined_flags(["tree"])


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("operation", "warp", "tree has the operations"),
        ("clauses", ("TREE-999",), "no clause TREE-999"),
        ("clauses", ("ACCEPTANCE-101",), "is no clause of tree"),
        ("arguments", {"tree": 1}, "the operation takes case"),
    ],
)
def test_a_case_that_does_not_fit_is_not_built(
    field: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = build.module("tree")
    bad = dataclasses.replace(source.GOLDEN[0], **{field: value})
    monkeypatch.setattr(source, "GOLDEN", (bad,))
    with pytest.raises((build.BuildError, KeyError), match=words):
        build.built("tree")


def test_an_answer_of_one_road_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    source = build.module("tree")
    right = source.answer
    monkeypatch.setattr(source, "GOLDEN", source.GOLDEN[:1])
    monkeypatch.setattr(source, "answer", lambda golden: dataclasses.replace(right(golden), roads=("oracle",)))
    with pytest.raises(build.BuildError, match="an answer two roads"):
        build.built("tree")


# ---- schemas


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(schemas.texts()[f"{name}.json"])
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("contract", build.contracts())
def test_the_cases_follow_their_schema(contract: str) -> None:
    judge = validator("cases")
    for path in _files(contract):
        judge.validate(json.loads(path.read_text(encoding="utf-8")))


def test_index_and_flags_follow_their_schemas() -> None:
    for name in ("index", "flags"):
        validator(name).validate(json.loads(committed(f"{name}.json")))


SMALL: Mapping[str, Any] = {
    "cases": [
        {
            "id": "5e0f6bd17cee",
            "clauses": ["TREE-502"],
            "flags": [],
            "description": "A chain",
            "input": {"parent": {"dtype": "int64", "shape": [2], "data": [-1, 0]}},
            "expected": {"value": {"dtype": "bool", "shape": [2, 2], "data": [True, False, True, True]}},
            "tolerance": {"class": "exact"},
            "roads": ["oracle", "networkx"],
        }
    ],
    "contract": "tree",
    "format": "eagle-conformance/fixtures/1",
    "operation": "tree_visibility",
}


def small(**changes: Any) -> dict[str, Any]:
    """A file of one case, some fields of which are others; None takes one away."""
    case = {**SMALL["cases"][0], **{k: v for k, v in changes.items() if k not in SMALL}}
    case = {k: v for k, v in case.items() if v is not None}
    found = {**SMALL, "cases": [case], **{k: v for k, v in changes.items() if k in SMALL}}
    if "input" in changes and isinstance(changes["input"], dict):
        case["id"] = build.identity("tree", "tree_visibility", case["input"])
    return {k: v for k, v in found.items() if v is not None}


def array(**changes: Any) -> dict[str, Any]:
    return {"parent": {"dtype": "int64", "shape": [2], "data": [-1, 0], **changes}}


WRONG = {
    "a field that nobody knows": small(author="me"),
    "no clauses": small(clauses=[]),
    "a clause twice": small(clauses=["TREE-502", "TREE-502"]),
    "no such clause": small(clauses=["tree 502"]),
    "one road": small(roads=["oracle"]),
    "no description": small(description=""),
    "no tolerance": small(tolerance=None),
    "another tolerance": small(tolerance={"class": "close"}),
    "a tolerance with more": small(tolerance={"class": "exact", "roundings": 3}),
    "a tolerance with less": small(tolerance={"class": "rounding", "roundings": 3}),
    "an id that is none": small(id="0x1"),
    "another format": small(format="eagle-conformance/fixtures/2"),
    "another contract": small(contract="forest"),
    "another operation": small(operation="grow"),
    "no cases": small(cases=[]),
    "no input": small(input={}),
    "two answers": small(expected={"value": 1, "refused": {"field": "parent"}}),
    "an answer of another name": small(expected={"values": 0}),
    "an object without a type": small(input={"parent": {"data": [1]}}),
    "another dtype": small(input=array(dtype="float16")),
    "an array of texts": small(input=array(data=["-1", "0"])),
    "an integer out of range": small(input=array(data=[-1, 2**53 + 1])),
    "a negative size": small(input=array(shape=[-2])),
    "an array with more": small(input=array(unit="m")),
}


@pytest.mark.parametrize("name", WRONG)
def test_schema_and_reader_refuse_the_same(name: str) -> None:
    assert not validator("cases").is_valid(WRONG[name])
    with pytest.raises(documents.FixtureError):
        documents.vectors_of(WRONG[name], "tree/tree_visibility.json")


def test_schema_and_reader_take_a_right_one() -> None:
    right = small(input=array())
    validator("cases").validate(right)
    (vector,) = documents.vectors_of(right, "tree/tree_visibility.json")
    assert vector.arguments()["parent"].tolist() == [-1, 0]


def test_the_set_of_this_checkout_is_read() -> None:
    found = reading.read(SET)
    assert len(found.vectors) == len({vector.id for vector in found.vectors}) > 500
