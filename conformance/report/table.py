"""The README's table of implementations, made from reports: `python -m conformance.report.table README.md FILE…`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from conformance import clauses
from conformance.report.model import ReportError, Run, clause_verdicts, read
from conformance.report.text import worst
from conformance.verdicts import Outcome, Verdict

BEGIN, END = "<!-- implementations:begin -->", "<!-- implementations:end -->"
_QUIET = {Verdict.NOT_PROVIDED.value: "–", Verdict.NOT_APPLICABLE.value: "·", Verdict.UNDECIDABLE.value: "?"}


def table(runs: Sequence[Run]) -> str:
    """One row a run and one column a rung, then what the runs showed to be wrong."""
    contract = "acceptance"
    groups = list(dict.fromkeys(c.group for c in clauses.clauses(contract).values() if not c.excluded))
    lines = [
        f"| implementation | version | {' | '.join(groups)} |",
        f"|---|---|{'---|' * len(groups)}",
    ]
    for run in runs:
        cells = [cell(run, group) for group in groups]
        lines.append(f"| `{run.spec}` | {run.declaration['version']} | {' | '.join(cells)} |")
    lines += [
        "",
        "✓ every clause of the rung holds; – not provided; · not applicable; otherwise the numbers of the clauses that "
        "the released code breaks:",
        "",
    ]
    for run in runs:
        told: dict[str, list[str]] = {}
        for deviation in run.declaration["deviations"]:
            told.setdefault(f"{deviation['reason']} ({evidence(run, deviation)})", []).append(deviation["clause"])
        lines += [f"- `{run.spec}` {', '.join(ids)}: {text}." for text, ids in told.items()]
        observed = ", ".join(f"{k} `{v}`" for k, v in run.observed.items())
        if observed:
            lines.append(f"- `{run.spec}` observed at work: {observed}.")
    return "\n".join(lines)


def cell(run: Run, group: str) -> str:
    """How one rung fared: a tick, or the clauses that do not hold."""
    found: dict[str, list[str]] = {}
    for identity, checks in clause_verdicts(run).items():
        if clauses.clause(identity).group == group:
            found.setdefault(worst(checks), []).append(identity.partition("-")[2])
    broken = [n for word in (Verdict.KNOWN_DEVIATION, Verdict.FAILED) for n in found.get(word.value, [])]
    if broken:
        return " ".join(sorted(broken))
    if Verdict.HARNESS_ERROR.value in found:
        return "harness error"
    if Verdict.PASSED.value in found:
        return "✓"
    return " ".join(sorted({_QUIET.get(word, word) for word in found})) or "–"


def evidence(run: Run, deviation: dict[str, str]) -> str:
    """Where the deviation can be seen: its public report, or the witness and what happened on it."""
    if deviation["link"]:
        return deviation["link"]
    seen = next((o for o in run.outcomes if _shows(o, deviation["clause"])), None)
    return f"witness `{deviation['witness']}`" + (f": {seen.reason}" if seen else "")


def _shows(outcome: Outcome, clause: str) -> bool:
    return clause in outcome.clauses and outcome.verdict == Verdict.KNOWN_DEVIATION.value


def replace(page: str, content: str) -> str:
    """The page with `content` between its markers. Raises `ReportError` where there are none."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ReportError(f"the page has {BEGIN} and {END} once each")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{content}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    chosen = parser.parse_args()
    runs = [read(path) for path in chosen.reports]
    chosen.page.write_text(replace(chosen.page.read_text(encoding="utf-8"), table(runs)), encoding="utf-8")


if __name__ == "__main__":
    main()
