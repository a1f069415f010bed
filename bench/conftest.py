"""pytest-benchmark's JSON without whose machine it was, and a table of ratios at the end of a run."""

from __future__ import annotations

from typing import Any

import pytest

from bench import table


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Neither host name nor paths."""
    kept = {"machine", "processor", "system", "python_version", "python_implementation"}
    cpu = {name: machine_info.get("cpu", {}).get(name) for name in ("brand_raw", "count")}
    for name in set(machine_info) - kept:
        del machine_info[name]
    machine_info["cpu"] = cpu


def pytest_benchmark_update_commit_info(config: pytest.Config, commit_info: dict[str, Any]) -> None:
    """The commit and no more."""
    for name in set(commit_info) - {"id", "dirty"}:
        del commit_info[name]


def pytest_benchmark_update_json(config: pytest.Config, benchmarks: Any, output_json: dict[str, Any]) -> None:
    """What a round of all contestants took together says nothing that a race does not."""
    for one in output_json["benchmarks"]:
        if "race" in one["extra_info"]:
            del one["stats"]["data"], one["options"]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What the races found."""
    session = getattr(config, "_benchmarksession", None)
    races = [one.extra_info["race"] for one in getattr(session, "benchmarks", ()) if "race" in one.extra_info]
    for found in races:
        terminalreporter.write_line("")
        for line in table.lines(found):
            terminalreporter.write_line(line)
