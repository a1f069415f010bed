"""The oracle of noise and of the training step: worked numbers, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.rows.cases import batch
from oracle import noise, training
from oracle.errors import BadInput
from oracle.types import NoiseCase, Provenance, SampleCase, StateGradientCase, TrainingCase

UNIT = np.array([[0.0, 0.5], [0.75, 0.25]])
GIVEN = batch([[3, 7, 1, 9], [2, 8, 5, 11]])


@pytest.mark.parametrize(
    ("law", "length", "first"), [("paper", 64, -0.1), ("length_scaled", 512, -0.1), ("length_scaled", 64, -0.8)]
)
def test_the_two_laws_of_noise(law: str, length: int, first: float) -> None:
    found = noise.feature_noise(NoiseCase(UNIT, length, law))
    assert found[0].tolist() == pytest.approx([first, 0.0]) and found[1].tolist() == pytest.approx(
        [-first / 2, first / 2]
    )


def test_the_gradient_of_the_step_is_that_of_its_loss() -> None:
    """Central differences of the loss, weight by weight."""
    rng = np.random.default_rng(3)
    target, drafter = training.models(rng)
    exact = training.Forward(GIVEN, target, drafter).gradient()
    step = 1e-6
    for name, value in drafter.items():
        for index in np.ndindex(value.shape):
            losses = []
            for sign in (1, -1):
                value[index] += sign * step
                losses.append(training.Forward(GIVEN, target, drafter).loss)
                value[index] -= sign * step
            above, below = losses
            assert above is not None and below is not None
            assert (above - below) / (2 * step) == pytest.approx(exact[name][index], abs=1e-7)


def test_a_step_moves_the_drafter_and_its_moments_alone() -> None:
    found = training.training_step(TrainingCase(GIVEN, 3))
    assert all(not np.array_equal(a, b) for a, b in (*found.drafter.values(), *found.optimizer.values()))
    assert all(np.array_equal(a, b) for a, b in found.target.values()) and set(found.target_grad.values()) == {None}


@pytest.mark.parametrize(("gradient", "rows"), [("flows", [[1, 0, 0], [1, 1, 0], [1, 1, 1]]), ("detached", np.eye(3))])
def test_which_states_a_loss_reaches(gradient: str, rows: Any) -> None:
    assert np.array_equal(training.state_gradient(StateGradientCase(3, gradient)), np.array(rows, dtype=bool))


MADE = Provenance("b3f1", "output of layer 11", "tokenizer-7")
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "unit": (
        lambda: noise.feature_noise(NoiseCase(np.array([0.5, 1.0]), 4, "paper")),
        "unit[1] = 1.0: a uniform lies in [0, 1)",
    ),
    "length": (lambda: noise.feature_noise(NoiseCase(UNIT, 0, "paper")), "length = 0: is a whole number of at least 1"),
    "law": (
        lambda: noise.feature_noise(NoiseCase(UNIT, 4, "normal")),
        "law = 'normal': is one of paper, length_",
    ),
    "no row": (
        lambda: noise.noisy_sample(SampleCase(np.ones((0, 2)), np.ones((0, 2)), 1)),
        "features = (0, 2): a sample has at least one row",
    ),
    "token": (
        lambda: training.training_step(TrainingCase(batch([[3, 16, 1]]), 3)),
        "batch.tokens[0][1] = 16: a token id lies in [0, 16)",
    ),
    "stale": (
        lambda: training.training_step(
            TrainingCase(GIVEN, 3, cached_for=Provenance("b3f1", "output of layer 10", "tokenizer-7"), trained_for=MADE)
        ),
        "cached_for.layer = 'output of layer 10': cached features are of the layer that is trained for",
    ),
    "gradient": (
        lambda: training.state_gradient(StateGradientCase(2, "some")),
        "gradient = 'some': is one of flows, detached",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        call()
