"""What a program may say: the schema of its messages and what reads them agree about every one."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from adapters.interface import AdapterError, Broken, NotApplicable
from adapters.process import Failure, Refusal, read_answer, read_ready
from tests.running import ROOT

SCHEMA = json.loads((ROOT / "adapters" / "process_schema" / "messages.json").read_text(encoding="utf-8"))


def accepts(kind: str, message: Any) -> bool:
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]}).is_valid(message)


ERROR = {"kind": "bad_input", "message": "no", "field": "case", "index": [1]}


@pytest.mark.parametrize(
    "content",
    [
        {"value": None},
        {"value": [0, 1.5, True, "text", None, [[]]]},
        {"value": {"type": "Decision", "path": [], "frontier": 0}},
        {"value": {"dtype": "int64", "shape": [0], "data": []}},
        {"value": {"dtype": "float64", "shape": [2], "data": [1, "poison"]}},
        {"error": ERROR},
        {"error": {"kind": "failure", "message": ""}},
        {"error": {"kind": "not_applicable", "message": "", "field": None, "index": None}},
        {},
        {"value": 1, "error": ERROR},
        {"value": 1, "more": 1},
        {"value": {"free": 1}},
        {"value": {"dtype": "complex128", "shape": [0], "data": []}},
        {"value": {"dtype": "int64", "shape": [-1], "data": []}},
        {"value": {"dtype": "int64", "shape": [0], "data": [], "order": "F"}},
        {"error": "no"},
        {"error": {"kind": "failure"}},
        {"error": {"kind": "crash", "message": ""}},
        {"error": {"kind": "failure", "message": 1}},
        {"error": {"kind": "failure", "message": "", "index": 1}},
        {"error": {"kind": "failure", "message": "", "index": [True]}},
        {"error": {"kind": "failure", "message": "", "why": ""}},
    ],
)
def test_the_schema_and_the_reader_agree_about_answers(content: dict[str, Any]) -> None:
    message = {"id": 1, **content}
    try:
        read_answer(message, "select_nodes")
        read = True
    except (Refusal, Failure, NotApplicable):
        read = True
    except Broken:
        read = False
    assert read == accepts("answer", message)


READY = {"name": "tiny", "version": "1", "operations": ["warp"], "conventions": {}, "dtype": "float64"}


@pytest.mark.parametrize(
    "content",
    [
        {"value": READY},
        {"value": READY | {"promises": ["seed"], "cost": {"warp": 1e-3}, "links": ["https://example.org/"]}},
        {"value": READY | {"deviations": [{"clause": "TREE-101", "reason": "so", "link": "https://example.org/"}]}},
        {"value": READY | {"deviations": [{"clause": "TREE-101"}]}},
        {"value": {}},
        {"value": READY | {"operations": ["warp", "warp"]}},
        {"value": READY | {"operations": "warp"}},
        {"value": READY | {"conventions": {"coin_scheme": None}}},
        {"value": READY | {"more": 1}},
        {"value": READY | {"engine": {"vocabulary": 3, "longest": 9, "draft_length": 1, "roundings": 1, "scale": 2.5}}},
        {"value": READY | {"engine": {"vocabulary": 3}}},
        {},
        {"value": READY, "error": ERROR},
    ],
)
def test_the_schema_and_the_reader_agree_about_declarations(content: dict[str, Any]) -> None:
    message = {"id": 0, **content}
    try:
        read_ready(message)
        read = True
    except AdapterError:
        read = False
    assert read == accepts("ready", message)
