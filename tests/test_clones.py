"""Adapters of clones: what is missing is named, and what runs is the clone's own text."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from adapters import eagle, hass
from adapters.clones import Clone, Namespace, Standing
from adapters.interface import AdapterError
from oracle.types import DraftMapCase, GatherCase, NoiseCase, TokenBatch

SCRIPT = """
import something_that_is_not_installed

parser = something_that_is_not_installed.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.5)
args = parser.parse_args()
settings = {"rate": args.rate}
if settings["rate"] > 1:
    noise = "much"
else:
    noise = "little"

def double(x):
    return 2 * x

class Model:
    def choose(self, wide):
        if wide:
            kept = "all"
        else:
            kept = "some"
        return kept

for epoch in range(start()):
    for batch in loader:
        predicted = model(batch)
        loss = double(predicted) * settings["rate"]
        step(loss)
"""


class Quiet(argparse.ArgumentParser):
    """Reads an empty command line."""

    def parse_args(self, *_: object, **__: object) -> argparse.Namespace:  # type: ignore[override]
        return super().parse_args([])


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.setenv("SOME_CLONE", str(tmp_path))
    return Clone("SOME_CLONE", "https://example.org/some", "train.py")


def test_chosen_parts_run_and_nothing_else(clone: Clone) -> None:
    source = clone.source("train.py")
    names: Namespace = {"something_that_is_not_installed": Standing(argparse, ArgumentParser=Quiet)}
    source.command_line(names)
    source.assign(names, "settings", "noise")
    source.define(names, "double")
    assert names["noise"] == "little" and "Model" not in names
    names |= {"model": lambda batch: batch + 1, "batch": 3}
    source.between("predicted", "loss")(names)
    assert names["loss"] == 4.0
    chosen: Namespace = {"wide": False}
    source.conditional("kept", within="choose")(chosen)
    assert chosen["kept"] == "some"


def test_what_a_file_lacks_is_named(clone: Clone) -> None:
    source = clone.source("train.py")
    for lacking in (
        lambda: source.define({}, "triple"),
        lambda: source.assign({}, "momentum"),
        lambda: source.between("predicted", "gradient"),
        lambda: source.between("loss", "predicted"),
        lambda: source.conditional("kept", within="elsewhere"),
    ):
        with pytest.raises(AdapterError, match=r"train\.py has no .*of another revision"):
            lacking()


ONE = np.ones((1, 2), dtype=np.int64)
GATHER = GatherCase(TokenBatch(ONE, ONE > 0, 0 * ONE, np.array([[0, 1]]), ONE > 0), np.zeros((1, 2, 2)))
NOISE = NoiseCase(np.zeros(2), 2, "length_scaled")
CALLS = [
    pytest.param("EAGLE_CLONE", lambda: eagle.gather_rows(GATHER), id="eagle rows"),
    pytest.param("EAGLE_CLONE", lambda: eagle.feature_noise(NOISE), id="eagle noise"),
    pytest.param("EAGLE_CLONE", lambda: eagle.eagle3.gather_rows(GATHER), id="eagle3 rows"),
    pytest.param(
        "EAGLE_CLONE",
        lambda: eagle.eagle3.draft_to_target(DraftMapCase(np.array([1]), None, "offset")),
        id="eagle3 map",
    ),
    pytest.param("HASS_CLONE", lambda: hass.gather_rows(GATHER), id="hass rows"),
    pytest.param("HASS_CLONE", lambda: hass.feature_noise(NOISE), id="hass noise"),
]


@pytest.mark.parametrize(("variable", "call"), CALLS)
def test_a_missing_clone_is_named(variable: str, call: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(call)
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(AdapterError, match=f"^{variable} .*not set"):
        call()
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(AdapterError, match=f"^{variable} .*has no file"):
        call()
