"""What known mistakes of a rollout give, where the implementation's own states are fed back.

A rollout row is the last row of a longer prefix, and what it is shown and where it stands is changed there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from conformance.drafter.asking import Answer, known
from conformance.drafter.making import epsilon_of, weight
from conformance.drafter.mistakes import Mistakes, normed
from conformance.drafter.shapes import first_rows
from oracle.types import DrafterCase, Rows


def other_state(case: DrafterCase, states: Rows) -> Mistakes:
    """What follows from feeding back something else than `states`."""
    after = normed(states, 1.0 if case.variant == "eagle1" else weight(case, "norm"), epsilon_of(case))
    return {
        "a state that is normed before it is fed back": partial(known, case, after),
        "the first state, fed back again and again": partial(known, case, np.tile(states[:1], (len(states), 1))),
    }


def fused_state(case: DrafterCase, states: Rows) -> Mistakes:
    through = np.tile(states, (1, 3)) @ weight(case, "fc").T + case.weights.get("fc.bias", 0.0)
    return {"a state that passes the fusion again": partial(known, case, through)}


def unseen_prefix(case: DrafterCase, states: Rows) -> Mistakes:
    """Every rollout row on its own: it is moved to the end of a prefix, of which rows are left out."""
    rows = len(case.tokens)
    return {
        "a row that sees itself alone": partial(_each, case, states, lambda i: [i]),
        "a row that sees the prefix and itself": partial(_each, case, states, lambda i: [*range(rows), i]),
        "a row that sees the rollout alone": partial(_each, case, states, lambda i: list(range(rows, i + 1))),
    }


def other_position(case: DrafterCase, states: Rows) -> Mistakes:
    last, rows = int(case.positions[-1]), len(case.tokens)
    ahead = range(1, len(states))
    found = {
        "positions that stay at the last": [last] * len(states),
        "positions by the number of the row": [last, *(rows - 1 + i for i in ahead)],
        "positions that start one late": [last, *(last + 1 + i for i in ahead)],
    }
    return {name: partial(as_prefixes, case, states, positions) for name, positions in found.items()}


def other_rollout_token(case: DrafterCase, states: Rows) -> Mistakes:
    rollout = case.rollout_tokens
    lagging = np.concatenate([case.tokens[-1:], rollout])[: len(rollout)]
    return {
        "tokens one step late": partial(known, dataclasses.replace(case, rollout_tokens=lagging), states),
        "the first token at every step": partial(
            known, dataclasses.replace(case, rollout_tokens=np.resize(rollout[:1], rollout.shape)), states
        ),
    }


def as_prefixes(case: DrafterCase, states: Rows, positions: Sequence[int]) -> Answer:
    """Each step as the last row of a prefix, at these positions from the prefix's last row on."""
    whole = _extended(case, states)
    where = np.array([*case.positions[:-1].tolist(), *positions], dtype=np.int64)
    return _answers(
        [first_rows(dataclasses.replace(whole, positions=where), len(case.tokens) + i) for i in range(len(states))]
    )


def _each(case: DrafterCase, states: Rows, kept: Callable[[int], list[int]]) -> Answer:
    """Each step as the last row of a prefix of which the rows `kept(i)` stay, i the step's row."""
    whole, rows = _extended(case, states), len(case.tokens)
    found = []
    for i in range(len(states)):
        at = kept(rows - 1 + i) if i else list(range(rows))
        found.append(
            dataclasses.replace(
                whole, features=whole.features[at], tokens=whole.tokens[at], positions=whole.positions[at]
            )
        )
    return _answers(found)


def _answers(cases: Sequence[DrafterCase]) -> Answer:
    answers = [known(case) for case in cases]
    return Answer(np.concatenate([a.logits for a in answers]), np.concatenate([a.states for a in answers]))


def _extended(case: DrafterCase, states: Rows) -> DrafterCase:
    """The rollout as rows of the prefix, fed with `states`; EAGLE-3 fuses the rows before, and passes them through."""
    features, weights, rollout = case.features, dict(case.weights), case.rollout_tokens
    if case.variant != "eagle1":
        d = states.shape[1]
        fused = features @ weight(case, "fc").T + case.weights.get("fc.bias", 0.0)
        features = np.concatenate([fused, states[:-1]]) if len(rollout) else fused
        features = np.concatenate([features, np.zeros((len(features), 2 * d))], axis=1)
        weights["fc.weight"] = np.eye(d, 3 * d)
        weights.pop("fc.bias", None)
    elif len(rollout):
        features = np.concatenate([features, states[:-1]])
    positions = int(case.positions[-1]) + 1 + np.arange(len(rollout))
    return dataclasses.replace(
        case,
        weights=weights,
        features=features,
        tokens=np.concatenate([case.tokens, rollout]),
        positions=np.concatenate([case.positions, positions]),
        rollout_tokens=rollout[:0],
    )
