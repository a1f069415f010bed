"""Case files: what a failure leaves behind, what `--case` reads, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance import casefile
from conformance.acceptance.cases import WITNESSES
from conformance.casefile import CaseFile
from conformance.drafter.cases import WITNESSES as DRAFTERS_AT_WORK
from tests.mine import TWO_CHECKS, adapter, one_sentence
from tests.running import ROOT, Suite


def test_the_printed_command_shows_the_failure_again(suite: Suite) -> None:
    fault = "return [Decision((), 7) for _ in cases]"
    first = suite(adapter(suite, fault), *TWO_CHECKS)
    again = suite.again(first)
    assert (again.code, again.count("failed"), again.count("passed")) == (1, 1, 0), again.output
    assert again.reason == first.reason
    assert first.reason.startswith("a case without drafts was decided ")
    adapter(suite, "pass")
    assert suite.again(first).code == 0


def test_the_case_of_a_crash_shows_the_failure_again(suite: Suite) -> None:
    first = suite(adapter(suite, "os._exit(0)"), *TWO_CHECKS, workers=1)
    adapter(suite, "sys.exit(4)")
    assert suite.again(first).reason == "verify_greedy left by sys.exit(4)"


CHECK = "acceptance/test_structure.py::test_no_drafts_publish_the_frontier_alone[verify_greedy]"


def document() -> dict[str, Any]:
    """A sound case file, for the tests below to spoil."""
    content = CaseFile("acceptance", CHECK, ("ACCEPTANCE-103",), WITNESSES["padded_sampled_draft"])
    found: dict[str, Any] = json.loads(casefile.dumps(content))
    return found


def spoil(place: str, value: object) -> str:
    """The text of a case file in which `place`, such as `case.cases.0.token`, is `value`."""
    found = document()
    inner: Any = found
    *above, last = place.split(".")
    for key in above:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[last] = value
    return json.dumps(found)


def vector(dtype: str, *values: object) -> dict[str, object]:
    return {"$array": dtype, "shape": [len(values)], "data": list(values)}


HOSTILE = {
    "": "not JSON",
    "nonsense": "not JSON",
    "\ufeff{}": "not JSON",
    "[" * 100_000: "not JSON",
    "1" * 10_000: "not JSON",
    "[]": "an object with exactly the keys",
    '{"format": 1, "format": 2}': "'format' stands twice",
    '{"format": NaN}': "NaN is not a number of JSON",
    spoil("format", "eagle-conformance/case/2"): "format = ",
    spoil("contract", ["acceptance"]): "contract = ",
    spoil("contract", "../../etc"): "contract = ",
    spoil("check", None): "check is a string",
    spoil("clauses", [1]): "clauses a list of strings",
    spoil("more", 1): "exactly the keys",
    spoil("case", None): "case: an object with a $type",
    spoil("case.$type", "Popen"): "case: $type is one of",
    spoil("case.$type", ["Batch"]): "case: $type is one of",
    spoil("case.more", 1): "case: a Batch has exactly the fields",
    spoil("case.seed", "x"): "case.seed: is no int | None",
    spoil("case.seed", True): "case.seed: is no int | None",
    spoil("case.cases", 5): "case.cases: is no tuple[",
    spoil("case.cases.0.token", [1, -1]): "case.cases[0].token: is no ",
    spoil("case.cases.0.token", vector("float64", 1.0, 2.0)): "case.cases[0].token: is no ",
    spoil("case.cases.0.token", vector("int64", 1)): "case.cases[0].parent: holds 1 nodes",
    spoil("case.cases.0.parent", vector("int64", -1, 1)): "case.cases[0].parent: holds 2 nodes, each above the next",
    spoil("case.cases.0.target_probs", vector("float64", 1.0)): "case.cases[0].target_probs: has 3 rows",
    spoil("case.cases.0.draft_probs", None): "case.cases[0].draft_probs: is given",
    spoil("case.cases.0.proposal", "guess"): "case.cases[0].proposal: is one of",
    spoil("case.coins", []): "case.coins: are [2] accept coins",
    spoil("case.coins.0.accept", vector("float64", 0.5)): "case.coins: are [2] accept coins",
    spoil("case.coins.0.frontier", "0.5"): "case.coins[0].frontier: is no float",
    spoil("case.coins.0.accept.$array", "object"): "case.coins[0].accept: an array is one of",
    spoil("case.coins.0.accept.shape", [2**40]): "case.coins[0].accept: a shape is",
    spoil("case.coins.0.accept.shape", [3]): "case.coins[0].accept: shape [3] holds 3 values, found 2",
    spoil("case.coins.0.accept.data", [0, {"$float": []}]): "case.coins[0].accept.data[1]: a float64 array holds",
    spoil("case.cases.0.token.data", [0, 2**70]): "case.cases[0].token: an integer beyond 64 bits",
    spoil("case.seed", {"$float": {}}): "case.seed: an object of none of the known forms",
    spoil("case.seed", {"$ratio": "1e999999999"}): "case.seed: a ratio is a string such as '3/7'",
    spoil("case.seed", {"$ratio": "1/0"}): "case.seed: a ratio is a string such as '3/7'",
    spoil("case.seed", {"$ratio": 3}): "case.seed: a ratio is a string such as '3/7'",
    spoil("case.seed", {"$table": [[[{"$table": []}], 1]]}): "case.seed[0]: a table is a list of",
    spoil("case.seed", {"$table": 1}): "case.seed: an object of none of the known forms",
    spoil("case.seed", eval("[" * 40 + "]" * 40)): "nested deeper than",
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.items(), ids=lambda value: value[-40:])
def test_hostile_case_files_are_refused_at_their_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "case.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(casefile.CaseFileError) as refused:
        casefile.load(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert len(str(refused.value).splitlines()) == 1


def test_a_sound_case_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(document()), encoding="utf-8")
    assert casefile.dumps(casefile.load(path)) == casefile.dumps(
        CaseFile("acceptance", CHECK, ("ACCEPTANCE-103",), WITNESSES["padded_sampled_draft"])
    )


def test_weights_and_settings_keep_their_names(tmp_path: Path) -> None:
    content = CaseFile("drafter", "a check", ("DRAFTER-905",), DRAFTERS_AT_WORK["rollout_eagle3"])
    found = casefile.load(casefile.save(content, tmp_path)).case
    assert found.config == content.case.config
    assert {k: v.tolist() for k, v in found.weights.items()} == {k: v.tolist() for k, v in content.case.weights.items()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "a case file is UTF-8 text"),
        (b" " * (casefile.LIMIT_BYTES + 1), f"a case file has at most {casefile.LIMIT_BYTES} bytes"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice in one object"),
    ],
    ids=["not text", "huge", "duplicate key"],
)
def test_a_case_file_that_cannot_be_read_exits_2_with_one_line(suite: Suite, content: bytes, message: str) -> None:
    path = suite.folder / "case.json"
    path.write_bytes(content)
    done = suite(f"--case={path}")
    assert done.code == 2
    assert one_sentence(done) == f"--case: {path}: {message}"


def test_a_case_file_that_is_not_there_exits_2(suite: Suite) -> None:
    done = suite("--case=no_such_file")
    assert done.code == 2
    assert one_sentence(done) == f"--case: {ROOT / 'no_such_file'}: No such file or directory"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_case_of_an_unknown_check_exits_2(suite: Suite, workers: int) -> None:
    path = suite.write("case.json", spoil("check", "acceptance/test_structure.py::test_gone"))
    done = suite(f"--case={path}", workers=workers)
    assert done.code == 2, done.output
    assert f"--case: {path}: check = 'acceptance/test_structure.py::test_gone': no such check was run" in done.output


def test_a_case_of_another_check_is_not_held_against_the_implementation(suite: Suite) -> None:
    path = suite.write("case.json", spoil("case", document()["case"]["cases"][0]))
    done = suite(f"--case={path}")
    assert (done.code, done.count("failed"), done.count("harness error")) == (2, 0, 1), done.output
    assert done.reason.endswith(f"(or {path} holds no case of this check)")
