"""Pages made from reports: `python -m conformance.report.table PAGE FILE…` fills in each part that the page has.

The README has a table of implementations, contract by contract, and two of conventions side by side, those of trainers
and those of tree builders. `docs/findings.md` has what the runs showed to be wrong, implementation by implementation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conformance import clauses
from conformance.report.model import ReportError, Run, clause_verdicts, read
from conformance.report.text import worst
from conformance.verdicts import Outcome, Verdict

_QUIET = {Verdict.NOT_PROVIDED.value: "–", Verdict.NOT_APPLICABLE.value: "·", Verdict.UNDECIDABLE.value: "?"}
_TRAINING = ("rows", "losses", "noise")


def implementations(runs: Sequence[Run]) -> str:
    """Contract by contract one row a run and one column a rung."""
    lines = []
    for contract in clauses.contracts():
        known = [run for run in runs if speaks(run, contract)]
        if not known:
            continue
        groups = list(dict.fromkeys(c.group for c in clauses.clauses(contract).values() if not c.excluded))
        replayed = any(contract in run.fixtures for run in known)
        columns = [*groups, *(["fixtures"] if replayed else [])]
        lines += [
            f"### {contract}",
            "",
            f"| implementation | version | {' | '.join(columns)} |",
            f"|---|---|{'---|' * len(columns)}",
        ]
        for run in known:
            cells = [cell(run, contract, group) for group in groups] + [golden(run, contract)] * replayed
            lines.append(f"| `{run.spec}` | {run.declaration['version']} | {' | '.join(cells)} |")
        lines.append("")
    lines.append(
        "✓ every clause of the rung holds; – not provided; · not applicable; otherwise the numbers of the clauses that "
        "the released code breaks, which [docs/findings.md](docs/findings.md) tells with their evidence. "
        "Under fixtures: how many golden cases passed or, where some show a known deviation, how many those are."
    )
    return "\n".join(lines)


def findings(runs: Sequence[Run]) -> str:
    """Run by run what it showed to be wrong, with the evidence, and the conventions that it observed."""
    lines = []
    for run in runs:
        told: dict[str, list[str]] = {}
        for deviation in run.declaration["deviations"]:
            told.setdefault(f"{deviation['reason']} ({evidence(run, deviation)})", []).append(deviation["clause"])
        said = [f"- {', '.join(ids)}: {text}." for text, ids in told.items()]
        if run.observed:
            said.append(f"- observed at work: {', '.join(f'{k} `{v}`' for k, v in run.observed.items())}.")
        if said and not (run.declaration.get("is_oracle") or _fast(run)):
            lines += [f"### `{run.spec}` {run.declaration['version']}", "", *said, ""]
    return "\n".join(lines).rstrip()


def conventions(runs: Sequence[Run]) -> str:
    """A column a trainer, a row a convention: what the run observed, or what is declared where nothing shows it."""
    trainers = [run for run in runs if trains(run) and not _fast(run)]
    said = {name for run in trainers for name in (*run.observed, *run.declaration["conventions"])}
    return _side_by_side(trainers, sorted(said - _UNRELATED))


def tree_conventions(runs: Sequence[Run]) -> str:
    """A column a tree builder, a row a convention."""
    return _side_by_side([run for run in runs if speaks(run, "tree") and not _fast(run)], _OF_TREES)


def _fast(run: Run) -> bool:
    """Whether it is one of the fast paths, which follow the reference in all that a caller does not say."""
    return run.spec.partition(":")[0] == "adapters.fast"


def _side_by_side(runs: Sequence[Run], names: Sequence[str]) -> str:
    lines = [
        f"| convention | {' | '.join(f'`{run.spec}`' for run in runs)} |",
        f"|---|{'---|' * len(runs)}",
    ]
    for name in names:
        lines.append(f"| {name} | {' | '.join(_seen(run, name) for run in runs)} |")
    return "\n".join([*lines, "", "*In italics: declared, and not observable by the suite. – has no notion of it.*"])


_OF_TREES = ("draft_map", "mask_form", "position_base", "root_in_verification", "selection_order")
_UNRELATED = {"coin_scheme", "frontier_coin", "accept_operator", "filter_order", "top_k_ties"} | (
    set(_OF_TREES) - {"draft_map", "position_base"}
)
"""Conventions of acceptance, and of trees alone."""


def _seen(run: Run, name: str) -> str:
    if name in run.observed:
        return run.observed[name]
    declared = run.declaration["conventions"].get(name)
    return "–" if declared is None else f"*{declared}*"


def speaks(run: Run, contract: str) -> bool:
    """Whether the run says anything about the contract."""
    return any(o.contract == contract and o.verdict not in _QUIET for o in run.checks)


def trains(run: Run) -> bool:
    """Whether the run is of a trainer, and of someone else's."""
    return any(speaks(run, contract) for contract in _TRAINING) and not run.declaration.get("is_oracle")


def cell(run: Run, contract: str, group: str) -> str:
    """How one rung fared: a tick, or the clauses that do not hold."""
    found: dict[str, list[str]] = {}
    for identity, checks in clause_verdicts(run).items():
        if (clauses.clause(identity).contract, clauses.clause(identity).group) == (contract, group):
            found.setdefault(worst(checks), []).append(identity.partition("-")[2])
    broken = [n for word in (Verdict.KNOWN_DEVIATION, Verdict.FAILED) for n in found.get(word.value, [])]
    if broken:
        return " ".join(sorted(broken))
    if Verdict.HARNESS_ERROR.value in found:
        return "harness error"
    if Verdict.PASSED.value in found:
        return "✓"
    return " ".join(sorted({_QUIET.get(word, word) for word in found})) or "–"


def golden(run: Run, contract: str) -> str:
    """How the golden cases fared: a tick where all that say something passed, and the number of every other word."""
    words = run.fixtures.get(contract, {})
    told = {word: len(names) for word, names in words.items() if word not in _QUIET}
    others = [f"{count} {word}" for word, count in told.items() if word != Verdict.PASSED.value]
    if others or not told:
        return ", ".join(others) or " ".join(sorted({_QUIET[word] for word in words})) or "–"
    return f"✓ {told[Verdict.PASSED.value]}"


def evidence(run: Run, deviation: dict[str, str]) -> str:
    """Where the deviation can be seen: its public report, or the witness and what happened on it."""
    if deviation["link"]:
        return deviation["link"]
    seen = next((o for o in run.outcomes if _shows(o, deviation["clause"])), None)
    return f"witness `{deviation['witness']}`" + (f": {seen.reason.splitlines()[0]}" if seen else "")


def _shows(outcome: Outcome, clause: str) -> bool:
    return clause in outcome.clauses and not outcome.fixture and outcome.verdict == Verdict.KNOWN_DEVIATION.value


def replace(page: str, part: str, content: str) -> str:
    """The page with `content` between the markers of `part`. Raises `ReportError` where there are none."""
    begin, end = f"<!-- {part}:begin -->", f"<!-- {part}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ReportError(f"the page has {begin} and {end} once each")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


PARTS: Mapping[str, Callable[[Sequence[Run]], str]] = {
    "implementations": implementations,
    "conventions": conventions,
    "tree-conventions": tree_conventions,
    "findings": findings,
}


def written(page: str, runs: Sequence[Run]) -> str:
    """The page with every part that it has. Raises `ReportError` where it has none."""
    parts = [part for part in PARTS if f"<!-- {part}:begin -->" in page]
    if not parts:
        raise ReportError(f"the page has a part <!-- NAME:begin -->, of {', '.join(PARTS)}")
    for part in parts:
        page = replace(page, part, PARTS[part](runs))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    chosen = parser.parse_args()
    runs = [read(path) for path in chosen.reports]
    chosen.page.write_text(written(chosen.page.read_text(encoding="utf-8"), runs), encoding="utf-8")


if __name__ == "__main__":
    main()
