"""Tables and plots of what races found: `python -m bench.table RESULT… [--page PAGE] [--plots FOLDER]`.

A RESULT is pytest-benchmark's JSON; several are those of one machine. Of a page two parts are written: every race, from
`<!-- bench:begin -->` to `<!-- bench:end -->`, and targets alone, from `<!-- asked:begin -->` to its end.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def together(results: Sequence[Path]) -> dict[str, Any]:
    """The benchmarks of all files, file by file of the bench."""
    document, *more = [json.loads(path.read_text(encoding="utf-8")) for path in results]
    document["benchmarks"] += [one for other in more for one in other["benchmarks"]]
    document["benchmarks"].sort(key=lambda one: one["fullname"].partition("::")[0])
    return dict(document)


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


def plot_name(file: str, test: str) -> str:
    """Of the plot of a test function whose races grow."""
    return f"{Path(file).stem.removeprefix('bench_')}-{test.removeprefix('test_')}.svg"


def page(document: dict[str, Any]) -> str:
    """All tables, file by file, under which conditions they came about, and the plots that lie in `bench/`."""
    cpu = document["machine_info"]["cpu"]
    found = races(document)
    out = [f"Measured on {cpu['count']} cores of {cpu['brand_raw']}, one thread a contestant.", ""]
    last = ""
    for file, _, race in found:
        contract = Path(file).stem.removeprefix("bench_")
        if contract != last:
            grows = dict.fromkeys(test for other, test, one in found if other == file and one["growth"])
            plotted = [f"![{test.removeprefix('test_')}](bench/{plot_name(file, test)})" for test in grows]
            out += [f"### {contract}", "", *plotted, *([""] if plotted else [])]
            last = contract
        level = min(row["level"] for row in race["contestants"])
        out += [*lines(race), "", f"{race['rounds']} rounds; intervals hold the median with {level:.1%} or more.", ""]
    return "\n".join(out).rstrip()


def asked(document: dict[str, Any]) -> str:
    """What was to be reached, and whether it was: a row a target."""
    head = ["contract", "race", "beside", "asked of the fast path", "measured", ""]
    out = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for file, _, race in races(document):
        for target in race["targets"]:
            found = [row for row in race["contestants"] if row["name"].startswith(target["other"])]
            cells = [Path(file).stem.removeprefix("bench_"), race["title"], target["other"], _words(target["asks"])]
            cells += [_measured(target["asks"], found[0]) if found else "", target["verdict"]]
            out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def _words(asks: str) -> str:
    return (
        f"{asks.removeprefix('≥ ')} as fast at least" if asks.startswith("≥") else f"{asks.removeprefix('≤ ')} at most"
    )


def _measured(asks: str, row: dict[str, Any]) -> str:
    """As the target is put: how many times as fast the fast path is, or how many times as long it takes."""
    low, high = row["interval"]
    if asks.startswith("≥"):
        return f"{row['ratio']:.3g}× [{low:.3g}, {high:.3g}]"
    return f"{1 / row['ratio']:.3g}× [{1 / high:.3g}, {1 / low:.3g}]"


PARTS = {"bench": page, "asked": asked}
"""Name of a page's part → what stands in it."""


def filled(text: str, document: dict[str, Any]) -> str:
    """A page with the parts that it has."""
    for name, make in PARTS.items():
        if f"<!-- {name}:begin -->" in text:
            text = written(text, name, make(document))
    return text


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
    parser.add_argument("result", type=Path, nargs="+")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--plots", type=Path)
    given = parser.parse_args(arguments)
    document = together(given.result)
    if given.page is None:
        print(page(document))
    else:
        given.page.write_text(filled(given.page.read_text(encoding="utf-8"), document), encoding="utf-8")
    if given.plots is not None:
        from bench import plots

        for path in plots.draw(races(document), given.plots):
            print(path)


if __name__ == "__main__":
    main()
