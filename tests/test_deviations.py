"""Known deviations: what a declaration covers, and when it is stale."""

from __future__ import annotations

import pytest

from tests.mine import TWO_CHECKS, adapter, deviation
from tests.running import SUITE, Suite


def test_a_known_deviation_that_is_seen_exits_0(suite: Suite) -> None:
    fault = "raise RuntimeError('no drafts, no answer')"
    done = suite(adapter(suite, fault, deviation("ACCEPTANCE-103")), *TWO_CHECKS)
    assert (done.code, done.count("known deviation"), done.count("passed")) == (0, 1, 1), done.output
    assert "known deviation ACCEPTANCE-103: it is as it is (https://example.org/1)" in done.output


def test_a_deviation_of_another_clause_excuses_nothing(suite: Suite) -> None:
    done = suite(adapter(suite, "raise RuntimeError", deviation("ACCEPTANCE-102")), *TWO_CHECKS)
    assert (done.code, done.count("failed"), done.count("known deviation")) == (1, 1, 0), done.output


@pytest.mark.parametrize(
    ("clause", "why"),
    [
        ("ACCEPTANCE-103", "it passes now"),
        ("ACCEPTANCE-302", "no check that ran is about it"),
        ("ACCEPTANCE-999", "no check that ran is about it"),
    ],
)
def test_a_deviation_that_is_not_seen_exits_1(suite: Suite, clause: str, why: str) -> None:
    done = suite(adapter(suite, deviations=deviation(clause)), workers=1)
    assert (done.code, done.count("failed")) == (1, 0), done.output
    assert f"STALE deviation {clause}: {why}" in done.output


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("part", ["-k=is_a_walk", "--deselect=conformance/acceptance/test_joint.py", "path", "plugin"])
def test_a_part_of_the_suite_says_nothing_about_deviations(suite: Suite, part: str, workers: int) -> None:
    suite.write(
        "leaves_out.py",
        "def pytest_collection_modifyitems(config, items):\n"
        "    kept = [item for item in items if 'greedy' in item.name]\n"
        "    config.hook.pytest_deselected(items=[item for item in items if item not in kept])\n"
        "    items[:] = kept\n",
    )
    options = {"path": [], "plugin": ["-p", "leaves_out"]}.get(part, [part])
    target = str(SUITE / "acceptance" / "test_greedy.py") if part == "path" else str(SUITE)
    declared = adapter(suite, deviations=deviation("ACCEPTANCE-103"))
    done = suite(declared, *options, target=target, workers=workers)
    assert done.code == 0, done.output
    assert "STALE" not in done.output
