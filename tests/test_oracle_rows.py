"""The oracle of rows: the worked example, and what it refuses, by field, index and rule."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.rows.cases import ANSWER, PACKED, WORKED, batch
from oracle import rows
from oracle.errors import BadInput
from oracle.types import GatherCase, RolloutRowsCase, SupervisionCase, TokenBatch


def test_five_valid_tokens_of_six() -> None:
    soft, hard = rows.soft_rows(WORKED), rows.hard_rows(WORKED)
    assert soft.source.tolist() == [0, 1, 2, 3] and soft.supervise.tolist() == [True] * 4
    assert hard.source.tolist() == [0, 1, 2, 3] and hard.supervise.tolist() == [True, True, True, False]
    assert hard.label.tolist() == [13, 14, 15, -1] and soft.label.tolist() == [-1] * 4
    assert soft.advanced.tolist() == soft.target.tolist() == [1, 2, 3, 4]
    assert soft.visible.tolist() == np.tril(np.ones((4, 4), dtype=bool)).tolist()


@pytest.mark.parametrize("length", range(7))
def test_a_full_segment_of_s_tokens(length: int) -> None:
    case = batch([list(range(1, length + 1))])
    assert len(rows.soft_rows(case).source) == max(0, length - 1)
    assert int(rows.hard_rows(case).supervise.sum()) == max(0, length - 2)


@pytest.mark.parametrize(
    ("owner", "sources"),
    [("source", [2, 3, 4]), ("advanced", [1, 2, 3]), ("label", [0, 1, 2])],
)
def test_an_answer_of_three_tokens_by_owner(owner: str, sources: list[int]) -> None:
    found = rows.supervision_at_source(SupervisionCase(ANSWER, ANSWER.supervise, owner))
    assert np.flatnonzero(found[0]).tolist() == sources


def test_a_rollout_of_two_steps() -> None:
    found = rows.rollout_rows(RolloutRowsCase(PACKED, 2))
    assert found.step.tolist() == [0] * 5 + [1] * 3
    assert found.anchor.tolist() == [0, 1, 3, 4, 5, 0, 3, 4]
    assert found.consumed.tolist() == found.target.tolist() == [1, 2, 4, 5, 6, 2, 5, 6]
    assert found.supervise.tolist() == [True, False, True, True, False, False, True, False]
    assert found.position.tolist() == [0, 1, 0, 1, 2, 1, 1, 2]
    assert found.state_from.tolist() == [-1] * 5 + [0, 2, 3]


def test_positions_that_skip_are_carried() -> None:
    case = batch([[3, 1, 4, 2]], position=[[0, 2, 3, 7]])
    assert rows.soft_rows(case).position.tolist() == [0, 2, 3]
    assert rows.rollout_rows(RolloutRowsCase(case, 2)).position.tolist() == [0, 2, 3, 1, 3]


def test_what_is_not_read_is_ignored() -> None:
    case = batch([[3, 1, -9]], valid=[[1, 1, 0]], position=[[0, 4, -2]])
    features = np.array([[[1.0], [2.0], [np.nan]]])
    found = rows.gather_rows(GatherCase(case, features))
    assert found.token.tolist() == [1] and found.feature.tolist() == [[1.0]] and found.target.tolist() == [[2.0]]
    assert rows.hard_rows(case).label.tolist() == [-1]


def changed(**fields: Any) -> TokenBatch:
    return dataclasses.replace(batch([[3, 1, 2], [6, 4, 5]]), **fields)


RIGHT = changed()
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no batch": (lambda: rows.soft_rows([[1, 2]]), "batch = 'list': a batch is an oracle.types.TokenBatch"),
    "no case": (lambda: rows.rollout_rows(RIGHT), "case = 'TokenBatch': a case is an oracle.types.RolloutRowsCase"),
    "shape": (lambda: rows.soft_rows(changed(valid=np.ones((2, 2), bool))), "batch.valid = (2, 2): has shape [2, 3]"),
    "vector": (lambda: rows.soft_rows(changed(tokens=np.arange(3))), "batch.tokens = (3,): has shape [B, S]"),
    "flags": (lambda: rows.soft_rows(changed(valid=np.ones((2, 3)))), "batch.valid = 'float64': holds booleans"),
    "ids": (lambda: rows.soft_rows(changed(tokens=np.ones((2, 3)))), "batch.tokens = 'float64': holds integers"),
    "positions": (
        lambda: rows.hard_rows(changed(position=np.array([[0, 1, 2], [0, 3, 3]]))),
        "batch.position[1][2] = 3: positions of segment 0 increase strictly",
    ),
    "label": (
        lambda: rows.hard_rows(changed(tokens=np.array([[3, 1, -2], [6, 4, 5]]))),
        "batch.tokens[0][2] = -2: a token that is read has an id of at least 0",
    ),
    "steps": (lambda: rows.rollout_rows(RolloutRowsCase(RIGHT, 0)), "steps = 0: is a whole number of at least 1"),
    "steps as a flag": (lambda: rows.rollout_rows(RolloutRowsCase(RIGHT, True)), "steps = True: is a whole number"),
    "owner": (
        lambda: rows.supervision_at_source(SupervisionCase(RIGHT, RIGHT.valid, "target")),
        "owner = 'target': is one of source, advanced, label",
    ),
    "mask": (
        lambda: rows.supervision_at_source(SupervisionCase(RIGHT, RIGHT.valid[:1], "source")),
        "token_mask = (1, 3): has shape [2, 3]",
    ),
    "features": (
        lambda: rows.gather_rows(GatherCase(RIGHT, np.full((2, 3, 2), np.inf))),
        "features[0][0][0] = inf: a feature that is read is finite",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        call()
