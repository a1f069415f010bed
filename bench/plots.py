"""How time and memory grow: a plot for each test function whose races say where they stand, as SVG on log axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "eagle-conformance"  # the same data, the same file

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
    remembers = any(row["peak_bytes"] for race in found for row in race["contestants"])
    figure, axes = pyplot.subplots(1, 1 + remembers, figsize=(5.2 * (1 + remembers), 3.6), squeeze=False)
    for axis, field, label, unit in zip(axes[0], ("seconds", "peak_bytes"), ("time [s]", "memory [MiB]"), (1, 2**20)):
        lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for race in found:
            for row in race["contestants"]:
                if row[field]:
                    key = (row["name"].partition(":")[0], row["kind"])
                    lines.setdefault(key, []).append((race["growth"]["at"], row[field] / unit))
        for (name, kind), points in lines.items():
            axis.plot(*zip(*sorted(points)), _KINDS[kind], marker=".", label=name)
        axis.set(xscale="log", yscale="log", xlabel=found[0]["growth"]["axis"], ylabel=label)
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    figure.suptitle(found[0]["title"].partition(",")[0], fontsize=9)
    figure.tight_layout()
    path = folder / f"{Path(file).stem.removeprefix('bench_')}-{test.removeprefix('test_')}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return path
