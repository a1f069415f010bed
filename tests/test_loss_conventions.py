"""Every two values of a convention of losses are told apart by a case of the suite, in float32."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.losses.conventions import VALUES
from conformance.losses.separating import CONVENTIONS, alternatives, apart, candidates, separating
from conformance.roads import losses as road
from oracle.types import GRADIENTS, StateGradientCase
from tests.running import ROOT, environment, run

SURROUNDINGS = [dict(zip(VALUES, values)) for values in itertools.product(*VALUES.values())]


def equivalent(name: str, one: Any, other: Any, given: dict[str, Any]) -> bool:
    """Without a gate every supervised row counts, so the rows that count are the rows of the mask."""
    return name == "denominator" and given["gate"] == "none" and {one, other} == {"supervised", "mask"}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_values_are_told_apart(name: str) -> None:
    for settled in SURROUNDINGS:
        for value in candidates(name):
            given = {**settled, name: value}
            for case in separating(name, value, given):
                for other, asked in alternatives(case, name, given):
                    same = other == value or equivalent(name, value, other, given)
                    assert apart(case, asked, "float32") != same, (given, other)


def test_gradients_to_states_are_told_apart() -> None:
    flows, detached = (road.state_gradient(StateGradientCase(2, gradient)) for gradient in GRADIENTS)
    assert flows != detached


@pytest.mark.parametrize(
    ("implementation", "seen"),
    [
        ("PlainLosses", {"denominator": "argument", "gate": "argument", "step_decay": "argument"}),
        ("OnlyBehindTheGate", {"denominator": "argument", "gate": "argmax", "step_decay": "argument"}),
        ("Settled", {"denominator": "mask or supervised", "denominator_epsilon": "1e-05", "step_decay": "0.9"}),
    ],
)
def test_a_convention_is_observed_from_the_answers(tmp_path: Path, implementation: str, seen: dict[str, str]) -> None:
    """Without a gate every supervised row counts, and no answer tells the mask from the rows that count."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pytest", "conformance/losses/test_conventions.py", "-n0"]
    command += [f"--impl=adapters.harmless.losses:{implementation}", f"--conformance-report={report}"]
    done = run([*command, "--conformance-profile=quick"], ROOT, environment())
    assert done.code == 0, done.output
    observed = json.loads(report.read_text())["observed"]
    assert {name: observed[name] for name in seen} == seen
