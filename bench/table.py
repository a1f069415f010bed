"""Tables and plots of what races found: `python -m bench.table RESULT.json [--page PAGE] [--plots FOLDER]`.

RESULT is pytest-benchmark's JSON. Of a page the part from `<!-- bench:begin -->` to `<!-- bench:end -->` is written.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def races(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """File, test function and race of each benchmark that was one."""
    found = []
    for one in document["benchmarks"]:
        if "race" in one["extra_info"]:
            file, _, test = one["fullname"].partition("::")
            found.append((file, test.partition("[")[0], one["extra_info"]["race"]))
    return found


def lines(race: dict[str, Any]) -> list[str]:
    """A race as a table in Markdown: one row a contestant, with what was to be reached."""
    asked = {target["other"]: target for target in race["targets"]}
    memory = any(row["peak_bytes"] is not None for row in race["contestants"])
    head = ["", "time", "range", "times the fast path", *(["grows by"] if memory else []), "asked"]
    out = [f"**{race['title']}**", "", f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 2) + "---|"]
    for row in race["contestants"]:
        target = next((asked[name] for name in asked if row["name"].startswith(name)), None)
        cells = [
            row["name"] + (" (bound)" if row["kind"] == "bound" else ""),
            seconds(row["seconds"]),
            f"{seconds(row['least'])} – {seconds(row['most'])}",
            f"{row['ratio']:.3g} [{row['interval'][0]:.3g}, {row['interval'][1]:.3g}]",
        ]
        if memory:
            cells.append("" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.1f} MiB")
        cells.append("" if target is None else f"{target['asks']}: {target['verdict']}")
        out.append(f"| {' | '.join(cells)} |")
    out += [f"| {one['name']} | not run: {one['why']} |{' |' * (len(head) - 2)}" for one in race["missing"]]
    return out


def seconds(value: float) -> str:
    """With a unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def page(document: dict[str, Any]) -> str:
    """All tables, file by file, and under which conditions they came about."""
    cpu = document["machine_info"]["cpu"]
    found = races(document)
    out = [f"Measured on {cpu['count']} cores of {cpu['brand_raw']}, one thread a contestant.", ""]
    last = ""
    for file, _, race in found:
        contract = Path(file).stem.removeprefix("bench_")
        if contract != last:
            out += [f"### {contract}", ""]
            last = contract
        level = min(row["level"] for row in race["contestants"])
        out += [*lines(race), "", f"{race['rounds']} rounds; intervals hold the median with {level:.1%} or more.", ""]
    return "\n".join(out).rstrip()


def written(page: str, part: str, text: str) -> str:
    """The page with a part of it anew. `ValueError` where it has no such part."""
    begin, end = f"<!-- {part}:begin -->\n", f"\n<!-- {part}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page has one part {begin.strip()} … {end.strip()}")
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, or write them into a page; draw plots where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--plots", type=Path)
    asked = parser.parse_args(arguments)
    document = json.loads(asked.result.read_text(encoding="utf-8"))
    text = page(document)
    if asked.page is None:
        print(text)
    else:
        asked.page.write_text(written(asked.page.read_text(encoding="utf-8"), "bench", text), encoding="utf-8")
    if asked.plots is not None:
        from bench import plots

        for path in plots.draw(races(document), asked.plots):
            print(path)


if __name__ == "__main__":
    main()
