"""The tiny models of whole engines: seeded, of the right shapes, and their vocabulary map one of both directions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import tiny_models
from adapters.interface import AdapterError

SHAPE = tiny_models.Shape(vocabulary=20, hidden=8, intermediate=12, draft_vocabulary=15)


@pytest.mark.parametrize("make", [tiny_models.target, tiny_models.eagle, tiny_models.eagle3, tiny_models.assistant])
def test_weights_come_from_the_seed(make: object) -> None:
    assert callable(make)
    one, again = make(SHAPE), make(SHAPE)
    assert list(one) == list(again)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert all(value.dtype == np.float32 for name, value in one.items() if name not in ("d2t", "t2d"))


def test_drafters_share_the_embedding_and_the_head() -> None:
    target, eagle, eagle3 = (make(SHAPE) for make in (tiny_models.target, tiny_models.eagle, tiny_models.eagle3))
    for drafter in (eagle, eagle3):
        assert np.array_equal(drafter["embed_tokens.weight"], target["model.embed_tokens.weight"])
    assert np.array_equal(eagle3["lm_head.weight"], target["lm_head.weight"][tiny_models.draft_ids(SHAPE)])


def test_the_vocabulary_map_agrees_in_both_directions() -> None:
    weights = tiny_models.eagle3(SHAPE)
    ids = np.arange(SHAPE.draft_vocabulary) + weights["d2t"]
    assert np.all(np.diff(ids) > 0)
    assert np.flatnonzero(weights["t2d"]).tolist() == ids.tolist()
    assert np.any(weights["d2t"] != 0)


def test_eagle3_reads_three_different_layers() -> None:
    assert len(set(tiny_models.Shape().aux_layers)) == 3


def test_the_scale_bounds_every_logit() -> None:
    head = tiny_models.target(SHAPE)["lm_head.weight"]
    states = np.random.default_rng(0).standard_normal((100, SHAPE.hidden))
    states *= np.sqrt(SHAPE.hidden) / np.linalg.norm(states, axis=1, keepdims=True)
    assert (np.abs(states) @ np.abs(head.T)).max() <= tiny_models.scale(SHAPE) * (1 + 1e-6)


def test_roundings_count_every_layer() -> None:
    one, two = (tiny_models.roundings(tiny_models.Shape(layers=n)) for n in (1, 2))
    three = tiny_models.roundings(tiny_models.Shape(layers=3))
    assert three - two == two - one > 0


def test_a_folder_is_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[Path] = []

    def fill(folder: Path, described: dict[str, Any], weights: tiny_models.Weights) -> None:
        made.append(folder)
        (folder / "file").write_text("whole", encoding="utf-8")
        if described.get("breaks"):
            raise RuntimeError("midway")

    weights = tiny_models.target(SHAPE)
    one, again = (tiny_models.stored("kind", {"a": 1}, weights, fill) for _ in range(2))
    assert one == again and len(made) == 1 and (one / "file").is_file()
    other = tiny_models.stored("kind", {"a": 1}, tiny_models.assistant(SHAPE), fill)
    assert other != one
    before = set(one.parent.glob("kind-*"))
    with pytest.raises(RuntimeError, match="midway"):
        tiny_models.stored("kind", {"breaks": True}, weights, fill)
    assert set(one.parent.glob("kind-*")) == before


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def ask() -> Path:
        return tiny_models.stored("kind", {}, {}, lambda folder, *_: (folder / "file").touch())

    home = ask().parent
    home.chmod(0o777)
    with pytest.raises(AdapterError, match="you alone can write to"):
        ask()
    elsewhere = home.rename(tmp_path / "elsewhere")
    elsewhere.chmod(0o700)
    home.symlink_to(elsewhere)
    with pytest.raises(AdapterError, match="you alone can write to"):
        ask()
