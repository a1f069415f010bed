"""The machine of many rounds: its model is right, it finds what rounds show, and what it finds replays without it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.faulty import publish as faulty
from adapters.interface import load
from conformance import casefile, draw
from conformance.casefile import CaseFile
from conformance.check import Check
from conformance.journal import Journal
from conformance.profiles import PROFILES
from conformance.publish import asking, histories, long_runs, model
from conformance.publish.history import GoBack, History, Join, Keep, Leave, Preempt, Resume, Together, Turn
from conformance.publish.long_runs import judged
from conformance.publish.model import TOKENS, Model, decoded
from conformance.roads import publish as road
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle import publish as flat
from oracle.errors import BadInput

NAMED = {name: value for name, value in vars(histories).items() if isinstance(value, History)}
RUNS = {
    "PUBLISH-1101": long_runs.SEQUENTIAL,
    "PUBLISH-1102": long_runs.BELONGING,
    "PUBLISH-1103": long_runs.ACCOUNTED,
    "PUBLISH-1104": long_runs.KEPT,
    "PUBLISH-1105": long_runs.PREEMPTED,
    "PUBLISH-1106": long_runs.TOGETHER,
    "PUBLISH-1107": long_runs.ENDING,
}
STATEFUL = sorted(name for name, kind in vars(faulty).items() if getattr(kind, "refutes", "") in RUNS)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Check]:
    """A check of an implementation, by itself."""

    def made(spec: str, clause: str = "PUBLISH-1101", shrink: float = 0, seed: int = 1) -> Check:
        profile = dataclasses.replace(PROFILES["quick"], shrink_seconds=shrink)
        journal = Journal(tmp_path, clause)
        journal.begin()
        return Check("publish/test_rounds.py::mine", "publish", (clause,), load(spec), profile, seed, journal)

    return made


# ---- the model


@pytest.mark.parametrize("draft_kv", ["recomputed", "kept"])
@pytest.mark.parametrize("name", NAMED)
def test_the_model_goes_the_way_of_the_oracle_and_of_the_second_road(name: str, draft_kv: str) -> None:
    served = Model(draft_kv)
    for step in NAMED[name].steps:
        cases = served.take(step)
        ours = flat.publish(cases, draft_kv)
        for i, case in enumerate(cases):
            assert isinstance(step, Together)
            truth = served.requests[step.turns[i].request].state()
            for field in asking.FIELDS:
                assert asking.same(getattr(truth, field), getattr(ours[i], field)), field
                assert asking.same(getattr(truth, field), getattr(road.published(case, draft_kv), field)), field


@pytest.mark.parametrize("name", NAMED)
def test_the_output_of_the_model_is_that_of_sequential_decoding(name: str) -> None:
    served = Model()
    for step in NAMED[name].steps:
        served.take(step)
        for truth in served.requests.values():
            assert truth.output == decoded(truth.join, len(truth.output))
            assert len(truth.kv) + truth.waits == len(truth.sequence) or truth.preempted


def test_the_named_histories_hold_what_they_say() -> None:
    kinds = {type(step) for history in NAMED.values() for step in history.steps}
    assert kinds == {Join, Together, Keep, GoBack, Preempt, Resume, Leave}
    served = Model()
    for step in histories.ENDS.steps:
        served.take(step)
    reasons = {truth.ended for truth in served.requests.values()}
    assert {"stop", "length"} <= reasons
    drafts = [len(turn.parent) for step in histories.CHAINS.steps if isinstance(step, Together) for turn in step.turns]
    assert 0 in drafts and max(drafts) >= 5


JOIN = Join(0, (TOKENS[0], TOKENS[1]))
NOTHING_DRAFTED = Turn(0, (), (), (-1,))


@pytest.mark.parametrize(
    "steps, field",
    [
        ((Leave(0),), "request"),
        ((JOIN, JOIN), "request"),
        ((JOIN, GoBack(0, 0)), "to"),
        ((JOIN, Keep(0), GoBack(0, 1)), "to"),
        ((JOIN, Together((NOTHING_DRAFTED, NOTHING_DRAFTED))), "turns"),
        ((JOIN, Together((Turn(0, (), (), ()),))), "order"),
        ((JOIN, Together((Turn(0, (-1,), (3,), (-1, 0, 0)),))), "order"),
        ((JOIN, Together((Turn(0, (-1,), (), (-1, 0)),))), "token"),
        ((JOIN, Preempt(0), Together((NOTHING_DRAFTED,))), "request"),
        ((JOIN, Join(1, (TOKENS[2],), shares=0, rows=1)), "rows"),
    ],
)
def test_a_history_that_cannot_be_is_bad_input(steps: tuple[object, ...], field: str) -> None:
    with pytest.raises(BadInput) as error:
        model.validate(History(steps))  # type: ignore[arg-type]
    assert error.value.field == field


@pytest.mark.parametrize("name", NAMED)
def test_a_history_is_a_case_file(name: str, tmp_path: Path) -> None:
    content = CaseFile("publish", "publish/test_rounds.py::mine", ("PUBLISH-1101",), NAMED[name])
    assert casefile.load(casefile.save(content, tmp_path)) == content
    model.validate(NAMED[name])


def test_a_history_is_drawn_step_by_step() -> None:
    lines = draw.drawn(History(histories.SHARED.steps[:6])).splitlines()
    assert lines[0] == "step 0: request 0 joins with the prompt 3 5 8 13 70001, its last token pending"
    assert lines[2].startswith("  request 0: drafts 0: token ")
    assert "its first 6 rows are those of request 0" in "\n".join(lines)
    assert [line.split(":")[0] for line in lines if line.startswith("step")] == [f"step {i}" for i in range(6)]


# ---- the machine


@pytest.mark.parametrize("spec", ["adapters.reference", "adapters.reference:paged_4"])
def test_a_right_implementation_takes_every_step(spec: str, make: Callable[..., Check]) -> None:
    for clause, run in RUNS.items():
        check = make(spec, clause)
        judged(check, run)
        assert check.compared > 100 and not check.skipped


@pytest.mark.parametrize("name", STATEFUL)
def test_the_machine_alone_finds_a_fault_and_the_case_replays(name: str, make: Callable[..., Check]) -> None:
    """Without the histories that are named; what it ends on shows the fault again, from its file."""
    fault = getattr(faulty, name)
    spec, alone = f"adapters.faulty.publish:{name}", dataclasses.replace(RUNS[fault.refutes], first=())
    for seed in range(6):  # a run of the quick profile is short
        check = make(spec, fault.refutes, seed=seed)
        try:
            judged(check, alone)
        except ClauseViolation as violation:
            found = violation
            break
    else:
        pytest.fail("no run of the machine finds it")
    assert isinstance(found.case, History)
    assert found.reason.startswith(f"step {len(found.case.steps) - 1}: ")
    again = make(spec, fault.refutes)
    again.replay = found.case
    with pytest.raises(ClauseViolation) as replayed:
        judged(again, alone)
    assert replayed.value.reason == found.reason


def test_a_failing_history_is_made_smaller(make: Callable[..., Check]) -> None:
    check = make("adapters.faulty.publish:StaleToken", shrink=20)
    with pytest.raises(ClauseViolation) as error:
        judged(check, dataclasses.replace(long_runs.SEQUENTIAL, first=()))
    assert len(error.value.case.steps) <= 4  # type: ignore[attr-defined]


def test_the_search_for_a_smaller_history_ends_in_time(make: Callable[..., Check]) -> None:
    check = make("adapters.faulty.publish:StaleToken", shrink=0.01)
    start = time.monotonic()
    with pytest.raises(ClauseViolation) as error:
        judged(check, dataclasses.replace(long_runs.SEQUENTIAL, first=()))
    assert time.monotonic() - start < 20
    assert error.value.reason.startswith("step ")


def test_what_is_not_shown_comes_from_the_model(make: Callable[..., Check]) -> None:
    check = make("adapters.harmless.publish:OutputsAlone")
    judged(check, long_runs.SEQUENTIAL)
    assert check.compared > 100
    with pytest.raises(Inapplicable, match="shows no rows"):
        judged(make("adapters.harmless.publish:OutputsAlone"), long_runs.BELONGING)


def test_a_round_that_it_has_no_notion_of_is_passed_over(make: Callable[..., Check]) -> None:
    """One request at a time, no ends, no padding: the others go on from the model's state."""
    check = make("adapters.harmless.publish:RowsAlone", "PUBLISH-1102")
    judged(check, long_runs.BELONGING)
    assert check.compared > 100  # whether a whole batch is passed over depends on what is drawn
