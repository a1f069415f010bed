"""How time and memory grow: a plot for each test function whose races say where they stand, as SVG on log axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from bench.table import plot_name

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "eagle-conformance"  # the same data, the same file
matplotlib.rcParams["svg.fonttype"] = "none"  # letters stay letters

from matplotlib import pyplot  # noqa: E402 (the backend is chosen first)

_KINDS = {"ours": "-", "peer": "--", "bound": ":"}


def draw(races: Sequence[tuple[str, str, dict[str, Any]]], folder: Path) -> list[Path]:
    """Write `CONTRACT-TEST.svg` files; returns them."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for file, test, race in races:
        if race["growth"] is not None:
            grouped.setdefault((file, test), []).append(race)
    folder.mkdir(parents=True, exist_ok=True)
    return [_plot(file, test, found, folder) for (file, test), found in grouped.items()]


def _plot(file: str, test: str, found: Sequence[dict[str, Any]], folder: Path) -> Path:
    fields = [("seconds", "time [s]", 1), ("peak_bytes", "memory [MiB]", 2**20)]
    if sum(any(row["peak_bytes"] for row in race["contestants"]) for race in found) < 2:
        del fields[1]
    names = dict.fromkeys(_name(row) for race in found for row in race["contestants"])
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    figure, axes = pyplot.subplots(1, len(fields), figsize=(5.2 * len(fields), 3.6), squeeze=False)
    for axis, (field, label, unit) in zip(axes[0], fields):
        lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for race in found:
            for row in race["contestants"]:
                if row[field]:
                    lines.setdefault((_name(row), row["kind"]), []).append((race["growth"]["at"], row[field] / unit))
        for (name, kind), points in lines.items():
            axis.plot(*zip(*sorted(points)), _KINDS[kind], marker=".", color=colours[name], label=name)
        axis.set(xscale="log", yscale="log", xlabel=found[0]["growth"]["axis"], ylabel=label)
        places = sorted({race["growth"]["at"] for race in found})
        axis.set_xticks(places, [f"{place:g}" for place in places])
        axis.set_xticks([], minor=True)
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    figure.suptitle(f"{file.rpartition('bench_')[2].removesuffix('.py')}: {test.removeprefix('test_')}", fontsize=9)
    figure.tight_layout()
    path = folder / plot_name(file, test)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return path


def _name(row: dict[str, Any]) -> str:
    return str(row["name"]).partition(":")[0]
