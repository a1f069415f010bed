"""The relations of golden requests: what they judge, what they leave undecided, and what does not concern an engine."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from adapters.faulty.decode import DraftsOfTheLastTime, LimitOfTheFirst, OneStopTokenAlone
from adapters.faulty.decoding import Decoder
from adapters.interface import Declaration, Engine
from conformance.decode.golden import RELATED
from conformance.decode.replaying import RELATIONS, broken
from conformance.verdicts import HarnessError, Inapplicable
from oracle.types import GenerateCase, Generation

PROMPT = np.array([3, 1, 4])
CASE = GenerateCase([PROMPT], 3, 0.0, True, np.array([1]))
RIGHT = [5, 2, 7]


class Right(Decoder):
    """A right engine."""


def engine(margin: float | None = 1.0, **changed: Any) -> Declaration:
    fields = {"vocabulary": 10, "longest": 64, "draft_length": 4, "roundings": 2, "scale": 1.0} | changed
    return Declaration("by hand", "1", engine=Engine(**fields))


def answered(speculative: list[int], plain: list[int], margin: float | None = 1.0) -> Any:
    """An engine that gives one output where it drafts, and one where it does not."""

    def call(operation: str, case: GenerateCase) -> list[Generation]:
        tokens = speculative if case.speculative else plain
        margins = None if margin is None else np.full(len(tokens), margin)
        return [Generation(np.array(tokens), margins) for _ in case.prompts]

    return call


def judged(call: Any, declaration: Declaration | None = None, name: str = "plain") -> str | None:
    return broken({"relation": name}, "generate", {"case": CASE}, call, declaration or engine())


def test_every_relation_is_asked_of_a_case() -> None:
    assert {relation["relation"] for relation in RELATED.values()} == set(RELATIONS)


def test_another_token_is_told_with_its_place() -> None:
    assert judged(answered(RIGHT, RIGHT)) is None
    assert judged(answered([5, 3, 7], RIGHT)) == "request 0, token 1: 3, and decoded plainly 2"


def test_a_near_tie_decides_nothing_and_other_margins_do() -> None:
    near = 4 * 2 * 2.0**-53  # 4 · γ(2) · 1
    assert judged(answered([5, 3, 7], RIGHT, near)) is None
    assert judged(answered([5, 3, 7], RIGHT, 2 * near)) is not None
    assert judged(answered([5, 3, 7], RIGHT, None)) is not None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([5, 2], "ends after 2 of 3 tokens"),
        ([5, 2, 7, 1], "has 4 tokens and ends after 3"),
        ([5, 10, 7], "token 1 is 10"),
        ([5.0, 2.0, 7.0], "integers"),
    ],
)
def test_the_form_of_an_output(found: list[int], words: str) -> None:
    assert words in str(judged(answered(found, RIGHT)))


def test_margins_are_numbers_of_at_least_0() -> None:
    assert "margins" in str(judged(answered(RIGHT, RIGHT, -1.0)))
    assert "margins" in str(judged(answered(RIGHT, RIGHT, float("nan"))))


def test_an_engine_that_is_too_small_is_not_concerned() -> None:
    for changed in ({"vocabulary": 4}, {"longest": 5}):
        with pytest.raises(Inapplicable, match="the engine has"):
            judged(answered(RIGHT, RIGHT), engine(**changed))


def test_who_promises_nothing_is_not_asked_for_own_draws() -> None:
    with pytest.raises(Inapplicable, match="'seed'"):
        judged(answered(RIGHT, RIGHT), name="own_draws")
    promising = dataclasses.replace(engine(), promises=("seed",))
    assert judged(answered(RIGHT, RIGHT), promising, "own_draws") is None


@pytest.mark.parametrize(
    "relation", [{"relation": "likely"}, {"relation": "plain", "stops": []}, {"relation": "stop_tokens"}]
)
def test_relations_are_a_closed_set(relation: dict[str, Any]) -> None:
    with pytest.raises(HarnessError, match="no relation"):
        broken(relation, "generate", {"case": CASE}, answered(RIGHT, RIGHT), engine())


@pytest.mark.parametrize("kind", [Right, DraftsOfTheLastTime, LimitOfTheFirst, OneStopTokenAlone])
def test_engines_with_a_fault_break_a_relation(kind: type[Decoder]) -> None:
    def call(operation: str, case: GenerateCase) -> Any:
        return kind.generate(case)

    wrong = {
        relation["relation"]
        for golden, relation in RELATED.items()
        if broken(relation, "generate", golden.arguments, call, kind.DECLARATION)
    }
    wanted = {
        DraftsOfTheLastTime: {"asked_again"},
        LimitOfTheFirst: {"plain", "own_draws", "turned_round"},
    }
    assert wrong == wanted.get(kind, {"stop_tokens"} if kind is OneStopTokenAlone else set())
