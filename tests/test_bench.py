"""The bench: what a race compares and tells, its intervals, its tables and plots, and when a ratio got worse."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bench import gpu, plots, table
from bench.contestants import Missing, PeerFailure, moved, peer
from bench.measuring import grown
from bench.side_by_side import Contestant, Differs, Target, interval, race
from conformance.cli.app import app
from conformance.report import races


class Driver:
    """What a race asks of pytest-benchmark."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}

    def pedantic(self, call: Any, rounds: int, iterations: int, warmup_rounds: int) -> None:
        for _ in range(rounds * iterations + warmup_rounds):
            call()


def equal(expected: Any, found: Any) -> None:
    np.testing.assert_array_equal(expected, found)


def work(size: int) -> Any:
    held = np.arange(float(size))
    return lambda: np.sqrt(held).sum() * 0 + 7


def toy(**more: Any) -> dict[str, Any]:
    """A race between little and some ten times as much."""
    contestants = [Contestant("fast", work(20_000)), Contestant("dense", work(400_000)), moved(2**20)]
    targets = [Target("dense", times=2), Target("memory", within=1e9)]
    return race(Driver(), "toy, little and much", contestants, same=equal, rounds=9, targets=targets, **more)


def document(*found: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Races as pytest-benchmark stores them."""
    cpu = {"count": 2, "brand_raw": "a CPU"}
    each = [{"fullname": f"bench/bench_toy.py::{name}", "extra_info": {"race": one}} for name, one in found]
    return {"machine_info": {"cpu": cpu}, "benchmarks": each}


def test_a_race_tells_ratios_intervals_and_targets() -> None:
    found = toy(growth=("size", 20_000))
    fast, dense, memory = found["contestants"]
    assert [row["kind"] for row in found["contestants"]] == ["ours", "ours", "bound"]
    assert fast["ratio"] == 1 and dense["ratio"] > 2 and dense["interval"][0] <= dense["interval"][1]
    assert dense["ratio"] == pytest.approx(dense["seconds"] / fast["seconds"])
    assert [(target["asks"], target["verdict"]) for target in found["targets"]] == [
        ("≥ 2×", "reached"),
        ("≤ 1e+09×", "reached"),
    ]
    assert found["threads"] == 1 and found["rounds"] == 9 and memory["peak_bytes"] is None


def test_who_answers_otherwise_is_not_timed() -> None:
    wrong = Contestant("wrong", lambda: 8)
    with pytest.raises(Differs, match=r"toy: wrong answers otherwise than fast"):
        race(Driver(), "toy", [Contestant("fast", lambda: 7), wrong], same=equal)
    apart = Contestant("apart", lambda: 8, compared=False)
    assert len(race(Driver(), "toy", [Contestant("fast", lambda: 7), apart], same=equal, rounds=1)["contestants"]) == 2


def test_a_target_that_nobody_stands_for_is_an_error_and_a_missing_one_is_told() -> None:
    fast = Contestant("fast", lambda: 7)
    with pytest.raises(ValueError, match="targets: peer takes no part"):
        race(Driver(), "toy", [fast], same=equal, rounds=1, targets=[Target("peer", times=2)])
    found = race(
        Driver(), "toy", [fast, Missing("peer", "left out")], same=equal, rounds=1, targets=[Target("peer", times=2)]
    )
    assert found["targets"][0]["verdict"] == "not run"
    assert "| peer | not run: left out |" in "\n".join(table.lines(found))


@pytest.mark.parametrize("ratios, verdict", [((3, 4), "reached"), ((1, 2), "missed"), ((1, 4), "undecided")])
def test_a_target_is_decided_by_the_whole_interval(ratios: tuple[float, float], verdict: str) -> None:
    from bench.side_by_side import _reached

    row = {"name": "other 1.0", "interval": list(ratios)}
    assert _reached(Target("other", times=2.5), [row], [])["verdict"] == verdict


def test_intervals_are_order_statistics_of_a_stated_level() -> None:
    low, high, level = interval([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (low, high) == (1.0, 5.0) and level == pytest.approx(1 - 2 / 2**5)
    values = [float(v) for v in range(15)]
    low, high, level = interval(values)
    # fifteen rounds: P(B < 3) = (1 + 15 + 105) / 2¹⁵, so the third from each end; the fourth would hold less than 99 %
    assert (low, high) == (2.0, 12.0) and level == pytest.approx(1 - 2 * 121 / 2**15)
    assert 1 - 2 * sum(math.comb(15, k) for k in range(4)) / 2**15 < 0.99


def test_an_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    found = [interval(list(rng.exponential(size=11))) for _ in range(2000)]
    held = [low <= math.log(2) <= high for low, high, _ in found]
    level = interval([0.0] * 11)[2]
    # 2000 draws: six standard deviations of a binomial share below the level
    assert np.mean(held) >= level - 6 * math.sqrt(level * (1 - level) / 2000)


@pytest.mark.skipif(grown(lambda: None) is None, reason="the kernel tells no high-water mark")
def test_memory_is_what_a_call_grows_by() -> None:
    found = grown(lambda: np.ones(2**24))
    assert found is not None and 2**27 * 0.9 < found < 2**27 * 1.2


def test_a_peer_is_a_process_that_answers_by_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"x": np.arange(6.0)}
    one = peer("default", "tests.racing:doubled", inputs)
    assert not isinstance(one, Missing)
    assert one.name.startswith("numpy ") and one.kind == "peer"
    np.testing.assert_array_equal(one.answer()["y"], inputs["x"] * 2)
    assert one.time(3).cpu >= 0
    with pytest.raises(PeerFailure, match="no attribute 'tripled'"):
        peer("default", "tests.racing:tripled", inputs)
    monkeypatch.setenv("BENCH_PEERS", "none")
    assert peer("default", "tests.racing:doubled", inputs) == Missing("racing", "left out by BENCH_PEERS=none")


def test_tables_and_plots(tmp_path: Path) -> None:
    found = document(("test_a[1]", toy(growth=("size", 1), memory=True)), ("test_a[2]", toy(growth=("size", 2))))
    text = table.page(found)
    assert "### toy" in text and "one thread a contestant" in text and "(bound)" in text and "≥ 2×: reached" in text
    assert "intervals hold the median with 99.6% or more" in text
    (path,) = plots.draw(table.races(found), tmp_path)
    assert path.name == "toy-a.svg" and path.read_text(encoding="utf-8").startswith("<?xml")


def compare(folder: Path, old: object, new: object) -> tuple[int, str]:
    files = [folder / "old.json", folder / "new.json"]
    for file, value in zip(files, (old, new)):
        file.write_text(json.dumps(value), encoding="utf-8")
    done = CliRunner().invoke(app, ["bench", "compare", *map(str, files)], catch_exceptions=False)
    return done.exit_code, done.output


def measured(low: float, high: float, name: str = "peer 1.0") -> dict[str, Any]:
    rows = [{"name": "fast"}, {"name": name, "ratio": (low + high) / 2, "interval": [low, high]}]
    return document(("test_a", {"format": 1, "contestants": rows}))


@pytest.mark.parametrize(
    "new, code, word",
    [((9, 11), 0, "same"), ((7, 9), 0, "same"), ((4, 7), 1, "worse"), ((13, 15), 0, "better")],
)
def test_a_ratio_that_got_worse_fails(tmp_path: Path, new: tuple[float, float], code: int, word: str) -> None:
    found, output = compare(tmp_path, measured(8, 12), measured(*new))
    assert found == code and output.startswith(word) and "bench/bench_toy.py::test_a  peer 1.0: 10× [8, 12] →" in output


def test_what_is_gone_is_no_pass(tmp_path: Path) -> None:
    code, output = compare(tmp_path, measured(8, 12), measured(8, 12, "peer 2.0"))
    assert code == 2 and "gone" in output and "new" in output
    assert compare(tmp_path, document(), document())[0] == 2


@pytest.mark.parametrize(
    "spoil, told",
    [
        (lambda d: d.pop("benchmarks"), "benchmarks: a list is read here"),
        (lambda d: d["benchmarks"].__setitem__(0, 3), r"benchmarks\[0\]: extra_info"),
        (lambda d: d["benchmarks"][0]["extra_info"]["race"].update(format=2), "race.format: this version reads 1"),
        (
            lambda d: d["benchmarks"][0]["extra_info"]["race"]["contestants"][1].update(ratio="x"),
            r"race.contestants\[1\]: ratio, interval: three positive numbers",
        ),
        (
            lambda d: d["benchmarks"][0]["extra_info"]["race"]["contestants"][1].update(interval=[3, 2]),
            "interval: the lower end first",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_no_verdict(tmp_path: Path, spoil: Any, told: str) -> None:
    spoilt = copy.deepcopy(measured(8, 12))
    spoil(spoilt)
    code, output = compare(tmp_path, measured(8, 12), spoilt)
    assert code == 2 and re.search(told, output), output
    with pytest.raises(races.RaceError):
        races.read(tmp_path / "new.json")


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "LARGEST", 10)
    assert "at most 10 are read" in compare(tmp_path, measured(8, 12), measured(8, 12))[1]
    with pytest.raises(races.RaceError, match="No such file"):
        races.read(tmp_path / os.devnull.strip("/"))


def test_the_script_for_a_gpu_runs_dry_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, stored = tmp_path / "page.md", tmp_path / "gpu.json"
    page.write_text("before\n<!-- gpu:begin -->\nold\n<!-- gpu:end -->\nafter\n", encoding="utf-8")
    dry = ["--device", "cpu", "--small", "--no-suite"]
    assert gpu.main([*dry, "--json", str(stored), "--page", str(page)]) == 0
    found = json.loads(stored.read_text(encoding="utf-8"))
    assert {"rollout_loss, float32", "keep_best", "move_rows"} <= {row["name"] for row in found["rows"]}
    assert all(row["seconds"] > 0 and row["bound"] > 0 for row in found["rows"])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "a CPU, dry run" in text and "old" not in text
    assert table.written(text, "gpu", "\n".join(gpu.lines(found))) == text
    with pytest.raises(ValueError, match="one part <!-- bench:begin -->"):
        table.written(text, "bench", "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_script_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([]) == 2 and "torch finds no GPU" in capsys.readouterr().err


def test_pages_hold_what_was_measured() -> None:
    stored = sorted((table.ROOT / "docs" / "bench").glob("cpu*.json"))
    assert stored
    for name, part in (("fast.md", "asked"), ("bench.md", "bench")):
        text = (table.ROOT / "docs" / name).read_text(encoding="utf-8")
        assert f"<!-- {part}:begin -->" in text
        assert table.filled(text, table.together(stored)) == text, "make tables writes it"


def test_what_was_asked_is_told_in_the_terms_of_the_target() -> None:
    text = table.asked(document(("test_a", toy())))
    assert re.search(
        r"\| toy \| toy, little and much \| dense \| 2× as fast at least \| [\d.]+× \[.+\] \| reached \|", text
    )
    assert "| memory | 1e+09× at most |" in text
