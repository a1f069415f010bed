"""What the checks of decode rest on: prompts that no batch changes, near ties, categories, what an engine declares."""

from __future__ import annotations

import types
from collections import Counter
from typing import Any

import pytest

from adapters import reference
from adapters.interface import AdapterError, Declaration, Engine, load
from conformance.decode import sampling
from conformance.decode.asking import Output
from conformance.decode.cases import CUTS, MIXED, RAGGED, TWINS, WITNESSES, Requests, made, prompts, validate
from conformance.decode.ties import bound, compare
from conformance.roads import decode as road
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.errors import BadInput

ENGINE = Engine(vocabulary=50, longest=64, draft_length=3, roundings=100, scale=8.0)


class Weighing:
    """As much of a check as near ties need."""

    def __init__(self, dtype: str = "float32") -> None:
        declaration = Declaration("x", "1", engine=ENGINE)
        self.implementation = types.SimpleNamespace(declaration=declaration)
        self.arithmetic = types.SimpleNamespace(dtype=dtype)
        self.told: list[bool] = []

    def decided(self, decidable: bool) -> None:
        self.told.append(decidable)


# ---- cases


def test_a_prompt_is_the_same_in_any_batch() -> None:
    whole = prompts(RAGGED, ENGINE)
    assert [len(p) for p in whole] == [5, 1, 17, 8]
    turned = made(RAGGED, ENGINE, True, order=[3, 0])
    assert [p.tolist() for p in turned.prompts] == [whole[3].tolist(), whole[0].tolist()]
    assert turned.seed.tolist() == [4003, 4000]  # type: ignore[union-attr]
    assert len({tuple(p.tolist()) for p in prompts(CUTS, ENGINE)}) == 1
    first, *_, part, last = (p.tolist() for p in prompts(TWINS, ENGINE))
    assert first == last and part == first[:3]


def test_what_is_one_for_all_stays_one() -> None:
    case = made(RAGGED, ENGINE, False)
    assert (case.max_new_tokens, case.temperature, case.draft_length) == (16, 0.0, None)
    mixed = made(MIXED, ENGINE, True, (7,), order=[1, 2])
    assert mixed.temperature.tolist() == [1.0, 0.0]  # type: ignore[union-attr]
    assert MIXED.greedy == [0, 2, 4] and mixed.stop_tokens == (7,)


def test_a_case_that_is_too_long_for_the_engine_is_not_asked() -> None:
    with pytest.raises(Inapplicable, match="needs 70 tokens"):
        prompts(Requests(1, (30,), (40,)), ENGINE)


def test_named_cases_are_cases() -> None:
    for case in WITNESSES.values():
        validate(case)
        assert case.drawn()
    for wrong in (
        Requests(1, (), (4,)),
        Requests(1, (3, 0), (4,)),
        Requests(1, (3, 2), (4, 4, 4)),
        Requests(1, (3,), (4,), stops=((1, 0),)),
    ):
        with pytest.raises(BadInput):
            validate(wrong)


# ---- near ties


def test_the_bound_is_four_times_what_a_logit_strays() -> None:
    strayed = 100 * 2.0**-24
    assert bound(Weighing()) == pytest.approx(4 * strayed / (1 - strayed) * 8)  # type: ignore[arg-type]
    assert bound(Weighing("bfloat16")) == pytest.approx(4 * (100 / 156) * 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("margins", "verdict"),
    [([0.5, 1e-4, 0.5], [False]), ([1e-4, 0.5, 1e-4], "token 1: 9, and decoded plainly 4"), (None, "no margins")],
)
def test_a_difference_is_a_near_tie_or_a_violation(margins: list[float] | None, verdict: Any) -> None:
    check: Any = Weighing()
    plain = Output([3, 4, 5], margins)
    compare(check, "request 0", [3, 4], plain)
    assert check.told == [True]
    if isinstance(verdict, str):
        with pytest.raises(ClauseViolation, match=verdict):
            compare(check, "request 0", [3, 9, 5], plain)
    else:
        compare(check, "request 0", [3, 9, 5], plain)
        assert check.told[1:] == verdict


# ---- samples


def test_categories_are_the_frequent_outcomes_and_a_few_others() -> None:
    pilot = [(0, 1)] * 5 + [(0, 2)] * 3 + [(1, 1)]
    found = sampling.Categories(pilot, 2)
    assert found.names == [(0, 1), (0, 2)] and found.count == 6
    assert [found.of(outcome) for outcome in pilot[::4]] == [0, 0, found.of((1, 1))]
    assert {found.of((a, b)) for a in range(9) for b in range(9)} == set(range(6))
    assert found.word(1) == "[0, 2]" and found.word(5) == "others, kind 3"


# ---- the second road


def test_the_second_road_by_hand() -> None:
    def law(tokens: road.Tokens) -> list[Any]:
        return road.exact([1, 3] if tokens[-1] else [1, 1])

    assert road.greedy(law, (1,), 3) == [1, 1, 1] and road.greedy(law, (0,), 3) == [0, 0, 0]
    assert road.greedy(law, (1,), 3, (1,)) == [1]
    assert road.cut([5, 6, 7, 6], 4, (6,)) == [5, 6] and road.cut([5, 6, 7], 2) == [5, 6]
    whole = road.sequence_law(law, (1,), 2, (0,))
    assert {tokens: float(p) for tokens, p in whole.items()} == {(0,): 0.25, (1, 0): 0.1875, (1, 1): 0.5625}
    assert set(road.likely(law, (1,), 2, 0.2)) == {(1, 1)}
    counts = Counter(len(tokens) for tokens in road.likely(law, (1,), 3, 0.0))
    assert counts == {3: 8}


# ---- declarations


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Engine(1, 64, 3, 1, 1.0), "engine.vocabulary"),
        (Engine(9, 64, 0, 1, 1.0), "engine.draft_length"),
        (Engine(9, 64, 3, True, 1.0), "engine.roundings"),
        (Engine(9, 64, 3, 1, float("inf")), "engine.scale"),
        ({"vocabulary": 9}, "is an adapters.interface.Engine"),
        (None, "DECLARATION.engine says what generate serves, and is missing"),
    ],
)
def test_an_engine_that_cannot_be_read_is_refused(engine: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Declaration("x", "1", engine=engine)
    monkeypatch.setattr(reference, "made_up", types.SimpleNamespace(DECLARATION=declared, generate=len), raising=False)
    with pytest.raises(AdapterError, match=words):
        load("adapters.reference:made_up")
