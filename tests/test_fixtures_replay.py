"""Golden cases as a group of the suite: what a run says of them, and what a deviation covers."""

from __future__ import annotations

import dataclasses
import json
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from adapters.encoding import encode
from adapters.interface import Arithmetic, Declaration, load
from conformance.fixtures import killing, laws, reading
from conformance.fixtures.comparing import differs
from conformance.fixtures.replay import unconcerned
from conformance.verdicts import Inapplicable
from oracle.types import NOT_SHOWN, CandidateTree, Decision, FlatTree, LossResult, Metrics
from tests.running import SUITE, Finished, Suite

TARGET = str(SUITE / "fixtures")
VECTORS = {vector.name: vector for vector in reading.own()}
CHAIN = next(v for v in VECTORS.values() if v.operation == "tree_visibility" and v.description.startswith("A chain"))
"""The case that the adapter below gets wrong."""
ADAPTER = f"""
import os
import numpy as np
from adapters.interface import Declaration, Deviation
from oracle.tree import tree_visibility as seen

DECLARATION = Declaration("mine", "1.0", cost={{"tree_visibility": 1e-4}}, deviations=(DEVIATIONS))

def tree_visibility(parent):
    if np.array_equal(parent, {CHAIN.input["parent"]["data"]}):
        FAULT
    return seen(parent)
"""
WRONG = "return np.eye(len(parent), dtype=bool)"


def judged(suite: Suite, fault: str, deviation: str = "", *options: str, workers: int = 0) -> tuple[Finished, Any]:
    suite.write("mine.py", ADAPTER.replace("FAULT", fault).replace("DEVIATIONS", deviation))
    report = suite.folder / "report.json"
    chosen = (f"--conformance-report={report}", "-k", "tree_visibility", *options)
    done = suite("--impl=mine", *chosen, target=TARGET, workers=workers)
    return done, json.loads(report.read_text(encoding="utf-8"))


def deviation(clause: str, **fields: Any) -> str:
    return f"Deviation('{clause}', 'it is as it is', **{fields!r}),"


def test_a_failure_shows_the_case_and_the_command_that_replays_it(suite: Suite) -> None:
    done, report = judged(suite, WRONG)
    assert (done.code, done.count("failed")) == (1, 1), done.output
    assert f"{CHAIN.name}: {CHAIN.description}" in done.output
    assert done.reason == "the answer[1, 0] is False; expected True"
    assert f"fixtures of tree: passed {done.count('passed')}; failed 1 (tree_visibility/{CHAIN.id})" in done.output
    assert done.command.endswith(f" -k {CHAIN.id}")
    (failed,) = (outcome for outcome in report["outcomes"] if outcome["verdict"] == "failed")
    assert (failed["fixture"], failed["contract"], failed["clauses"]) == (CHAIN.name, "tree", list(CHAIN.clauses))
    assert (report["refuted"], report["lowest_refuted"]) == ([], {}), "it stands beside the ladder"
    again = suite.again(done)
    assert (again.code, again.count("failed"), again.count("passed")) == (1, 1, 0), again.output


def test_a_crash_is_told_with_the_case(suite: Suite) -> None:
    done, report = judged(suite, "os._exit(3)", workers=1)
    assert (done.code, done.count("failed"), done.count("harness error")) == (1, 1, 0), done.output
    assert "the implementation killed its process" in done.output
    (failed,) = (outcome for outcome in report["outcomes"] if outcome["verdict"] == "failed")
    assert (failed["fixture"], failed["clauses"]) == (CHAIN.name, list(CHAIN.clauses))
    assert failed["command"].endswith(f" -k {CHAIN.id}")


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        (deviation("TREE-502", link="https://example.org/1"), 1),
        (deviation("TREE-501", link="https://example.org/1"), 0),
        (deviation("TREE-501", link="https://example.org/1", fixtures=(CHAIN.id,)), 1),
        (deviation("TREE-501", fixtures=(CHAIN.id,)), 1),
        (deviation("TREE-502", witness="worked"), 0),
    ],
    ids=["its clause, by a link", "another clause", "its id and another clause", "its id", "its clause, by a witness"],
)
def test_what_a_deviation_covers(suite: Suite, declared: str, known: int) -> None:
    done, _ = judged(suite, WRONG, declared)
    assert (done.count("known deviation"), done.count("failed")) == (known, 1 - known), done.output
    assert done.code == 1 - known
    assert ("known deviation TREE-50" in done.output) == bool(known)


def run(fixtures: tuple[str, ...], verdict: str) -> list[str]:
    """What is stale after a complete run in which the chain had this verdict."""
    from conformance.report import model
    from conformance.verdicts import Outcome

    outcome = Outcome("fixtures/test_replay.py::x", "tree", ["TREE-502"], verdict, fixture=CHAIN.name)
    check = Outcome("tree/test_masks.py::x", "tree", ["TREE-502"], "known deviation")
    declared = {"clause": "TREE-502", "link": "", "witness": "", "reason": "x", "fixtures": fixtures}
    found = model.Run.collect(
        spec="mine",
        profile="quick",
        seed=0,
        declaration={"name": "mine", "version": "1", "deviations": [declared], "conventions": {}},
        operations=["tree_visibility"],
        outcomes=[outcome, check],
        complete=True,
        required=[],
    )
    return found.stale


def test_an_id_that_no_longer_shows_a_deviation_is_stale() -> None:
    assert run((CHAIN.id,), "known deviation") == []
    assert run((CHAIN.id,), "passed") == [f"TREE-502: fixture {CHAIN.id} is passed"]
    assert run(("0" * 12,), "passed") == ["TREE-502: fixture 000000000000 is none that ran"]


def test_an_id_of_another_form_is_refused(suite: Suite) -> None:
    declared = deviation("TREE-502", fixtures=("x",))
    suite.write("mine.py", ADAPTER.replace("FAULT", "pass").replace("DEVIATIONS", declared))
    done = suite("--impl=mine", target=TARGET)
    assert (done.code, "fixtures are ids of golden cases" in done.output) == (2, True)


@pytest.mark.parametrize("upto", ["TREE-103", "TREE-502"])
def test_golden_cases_of_higher_clauses_are_left_out(suite: Suite, upto: str) -> None:
    done, _ = judged(suite, WRONG, "", f"--conformance-upto={upto}")
    assert done.count("failed") == (upto == "TREE-502"), done.output


def test_the_reference_answers_all_of_them_within_five_seconds() -> None:
    """Of processor time, so that what else the machine does is left out."""
    reference = load("adapters.reference")
    began = time.process_time()
    assert [vector.name for vector in VECTORS.values() if killing.fails(reference, vector)] == []
    assert time.process_time() - began < 5


# ---- whom a case concerns


def declaring(dtype: str = "float64", **conventions: str) -> Declaration:
    return Declaration("theirs", "1", conventions=conventions, arithmetic=Arithmetic(dtype))


@pytest.mark.parametrize(
    ("flags", "declaration", "concerned"),
    [
        ((), declaring("float32"), True),
        (("float64",), declaring(), True),
        (("float64",), declaring("float32"), False),
        (("last_row=drop",), declaring(), True),
        (("last_row=drop",), declaring(last_row="pad"), False),
        (("position_base=0",), declaring(position_base="1"), False),
        (("draft_kv=kept",), declaring(), False),
        (("draft_kv=kept",), declaring(draft_kv="kept"), True),
    ],
)
def test_whom_a_case_concerns(flags: tuple[str, ...], declaration: Declaration, concerned: bool) -> None:

    assert (unconcerned(dataclasses.replace(CHAIN, flags=flags), declaration) == "") == concerned


# ---- comparing

THIRD = np.array([Fraction(1, 3)], dtype=object)


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        (Decision((0, 2), 5), Decision((0, 2), 5), None),
        (Decision((0, 2), 5), Decision((0,), 5), "path has 1 entries; expected 2"),
        (Decision((0, 2), 5), Decision((0, 2), 6), "frontier is 6; expected 5"),
        (Decision((0,), 1), Decision(np.array([0]), np.int64(1)), None),  # type: ignore[arg-type]
        (Decision((0,), 1), (0, 1), "the answer is a tuple, which has no path"),
        ([1, 2], [1], "the answer has 1 entries; expected 2"),
        ([1], 1, "the answer is a int; expected 1 entries"),
        (True, 1, "the answer is 1; expected True"),
        (np.array([1, 2]), np.array([1, 3]), "the answer[1] is 3; expected 2"),
        (np.array([1, 2]), np.array([1.0, 2.0]), "the answer is float64; its entries are integers"),
        (np.array([1, 2]), np.array([[1, 2]]), "the answer has the shape [1, 2]; expected [2]"),
        (np.array([0.5]), np.array([0.5 + 2**-53]), "off by 1.11e-16 > 0"),
        (np.array([np.inf]), np.array([np.inf]), None),
        (np.array([-np.inf]), np.array([0.0]), "expected -inf"),
        (np.array([0.5]), np.array([np.nan]), "the answer[0] is nan; expected 0.5"),
        (np.array([np.nan]), np.array([7.0]), None),
        (THIRD, np.array([1 / 3]), None),
        (THIRD, np.array([0.3333]), "expected 1/3"),
        ("stop", "length", "the answer is 'length'; expected 'stop'"),
        (None, 0, "the answer is 0; expected None"),
        (LossResult(0.5, {"a": np.ones(1)}), LossResult(0.5, {"a": np.ones(1)}), None),
        (LossResult(0.5, {"a": np.ones(1)}), LossResult(0.5, {}), "grad has the keys [];"),
        (LossResult(0.5, {"a": np.ones(1)}), LossResult(0.5, {"a": np.zeros(1)}), "grad['a'][0] is 0.0"),
    ],
)
def test_an_answer_is_compared_field_by_field(expected: Any, found: Any, words: str | None) -> None:
    wrong = differs(encode(expected), found)
    assert wrong is None if words is None else wrong is not None and words in wrong, wrong


def test_what_is_not_shown_is_passed_over() -> None:
    one, eye = np.array([0]), np.ones((1, 1), dtype=bool)
    right = FlatTree(one, one - 1, one, one + 1, eye, one[None], one - 1, one - 1, np.array([3, 4]))
    bare = FlatTree(None, one - 1, one, None, None, None, None, None)
    assert differs(encode(right), bare) is None
    assert differs(encode(right.visible), NOT_SHOWN) is not None
    with pytest.raises(Inapplicable):
        differs("poison", 7)
    tree = CandidateTree(one - 1, one, np.array([0.5]), np.array([-0.5]), one + 1)
    assert differs(encode(tree), FlatTree(*[None] * 8)) is not None  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("tolerance", "dtype", "off", "within"),
    [
        ({"class": "exact"}, "float32", 2.0**-25, True),
        ({"class": "exact"}, "float32", 2.0**-23, False),
        ({"class": "rounding", "roundings": 4, "scale": 2.0}, "float64", 2.0**-50, True),
        ({"class": "rounding", "roundings": 4, "scale": 2.0}, "float64", 2.0**-49, False),
        ({"class": "rounding", "roundings": 4, "scale": 2.0}, "bfloat16", 2.0**-5, True),
    ],
)
def test_a_number_may_be_off_by_its_roundings(tolerance: Any, dtype: str, off: float, within: bool) -> None:
    wrong = differs(encode(np.array([0.75])), np.array([0.75 + off]), tolerance, dtype)
    assert (wrong is None) == within, wrong


def test_a_law_that_does_not_hold_is_seen_at_its_distance() -> None:
    law = {0: Fraction(1, 4), 1: Fraction(3, 4)}
    distance = laws.distance(law, 2_000, 1e-9)
    off = round(2_000 * (0.25 + distance))
    assert laws.misfit({0: 500, 1: 1_500}, law, 1e-9) is None
    assert laws.misfit({0: off, 1: 2_000 - off}, law, 1e-9)
    assert laws.misfit({2: 1}, law, 1e-9) == "2 came 1 times of 1, and cannot come"


def test_an_operation_that_is_not_provided_says_so_once(suite: Suite) -> None:
    suite.write("mine.py", ADAPTER.replace("FAULT", "pass").replace("DEVIATIONS", ""))
    report = suite.folder / "report.json"
    done = suite("--impl=mine", f"--conformance-report={report}", target=TARGET)
    outcomes = json.loads(report.read_text(encoding="utf-8"))["outcomes"]
    lacking = [one["fixture"].rpartition("/")[0] for one in outcomes if one["verdict"] == "not provided"]
    operations = {name.rpartition("/")[0] for name in VECTORS}
    assert sorted(lacking) == sorted(operations - {"tree/tree_visibility"}), done.output
    seen = {one["fixture"] for one in outcomes} - {
        one["fixture"] for one in outcomes if one["verdict"] == "not provided"
    }
    assert seen == {name for name, vector in VECTORS.items() if vector.operation == "tree_visibility"}


def test_an_operation_that_is_required_and_not_provided_fails(suite: Suite) -> None:
    suite.write("mine.py", ADAPTER.replace("FAULT", "pass").replace("DEVIATIONS", ""))
    done = suite("--impl=mine", "--require=grow_tree", target=TARGET)
    assert (done.code, done.count("failed")) == (1, 1), done.output


def test_what_is_not_shown_is_passed_over_only_where_that_may_be() -> None:
    exact = {"class": "exact"}
    decision = encode(Decision((0, 1), 2))
    assert differs(decision, Decision((0, 1), 2), exact, "float64") is None
    for wrong in (Decision((0, 1), NOT_SHOWN), Decision(NOT_SHOWN, 2), NOT_SHOWN):
        assert differs(decision, wrong, exact, "float64")
    counted = encode(Metrics(1, 2, 1, 2, 2.0, 1.0, 0.5, (1.0, 0.0)))
    assert differs(counted, Metrics(1, 2, 1, 2, 2.0, NOT_SHOWN, 0.5, (1.0, 0.0)), exact, "float64") is None
    assert differs(counted, Metrics(1, 2, 1, NOT_SHOWN, 2.0, 1.0, 0.5, (1.0, 0.0)), exact, "float64")
