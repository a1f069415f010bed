"""A run as text: what stands at the end of the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from conformance import clauses
from conformance.report.model import Run, clause_verdicts
from conformance.verdicts import Outcome, Verdict

WIDTH = 110


def judged_operations() -> list[str]:
    """The operations that this version of the suite has checks for."""
    from conformance.smoke import OPERATIONS

    return list(OPERATIONS)


def crash(outcome: Outcome, drawn: str) -> str:
    """What a person reads of a check that took its process down."""
    lines = [f"{i} ({clauses.clause(i).group}): {clauses.clause(i).sentence}" for i in outcome.clauses]
    if drawn:
        lines += ["", textwrap.indent(drawn, "    ")]
    lines += ["", f"  → {outcome.reason}"]
    if outcome.command:
        lines += ["", f"  reproduce: {outcome.command}"]
    return "\n".join(lines)


def summary(run: Run) -> Iterator[str]:
    """The verdict: rungs, deviations, what could not be seen, and the count of every word."""
    yield from _rungs(run)
    yield from _fixtures(run)
    for deviation in run.declaration["deviations"]:
        known = Verdict.KNOWN_DEVIATION.value
        ids = deviation.get("fixtures", ())
        seen = [
            o
            for o in sorted(run.outcomes, key=lambda o: bool(o.fixture))
            if o.verdict == known and (deviation["clause"] in o.clauses or o.fixture.rpartition("/")[2] in ids)
        ]
        if seen:
            witness = deviation["witness"] or f"fixture {seen[0].fixture}"
            evidence = deviation["link"] or f"witness {witness}"
            yield from _wrapped(f"known deviation {deviation['clause']}: {deviation['reason']} ({evidence})")
            first, _, _ = seen[0].reason.partition("\n")  # what follows draws the case
            yield from _wrapped(f"  seen: {first}")
    for line in run.stale:
        yield from _wrapped(f"STALE deviation {line}")
    for line in run.missing:
        yield f"MISSING, required: {line}"
    for outcome in run.checks:
        for statistic in outcome.statistics:
            yield from _wrapped(f"{', '.join(outcome.clauses)}: {statistic['sentence']}")
    declared = run.declaration["conventions"]
    for name, value in run.observed.items():
        yield f"observed {name} {value} (declared {declared.get(name, 'nothing')})"
    undecided = sum(outcome.undecided for outcome in run.outcomes)
    if undecided:
        yield f"{undecided} comparisons within rounding of a tie were left undecided"
    passed = [outcome for outcome in run.outcomes if outcome.verdict == Verdict.PASSED.value and outcome.passed_over]
    if passed:
        over, compared = (sum(getattr(o, name) for o in passed) for name in ("passed_over", "compared"))
        yield f"{len(passed)} checks passed on {compared} cases and passed over {over} that were not applicable"
    yield f"α spent: {run.alpha:.1g}"
    yield ", ".join(f"{run.counts[word.value]} {word.value}" for word in Verdict) + f" → exit {run.exit_code}"


def _rungs(run: Run) -> Iterator[str]:
    """One line a group of each contract: how its clauses fared."""
    verdicts = clause_verdicts(run)
    for contract in dict.fromkeys(outcome.contract for outcome in run.checks):
        by_group: dict[str, list[tuple[str, list[Outcome]]]] = {}
        for identity, checks in verdicts.items():
            if clauses.clause(identity).contract == contract:
                by_group.setdefault(clauses.clause(identity).group, []).append((identity, checks))
        words = {outcome.verdict for outcome in run.checks if outcome.contract == contract}
        if _LACKING in words and words <= {_LACKING, Verdict.NOT_APPLICABLE.value}:
            yield f"{contract}: {_LACKING}"
            continue
        if len(run.contracts) > 1:
            yield f"{contract}:"
        yield from (f"{group:16} {_fared(members)}" for group, members in by_group.items())
        lowest = run.lowest_refuted.get(contract, "")
        yield f"rung reached: {run.rungs_reached.get(contract, 'none')}" + (
            f"; lowest clause refuted: {lowest}" if lowest else ""
        )
        if run.rungs_beside.get(contract):
            yield from _wrapped(f"beside it: {'; '.join(run.rungs_beside[contract])}")


def _fixtures(run: Run) -> Iterator[str]:
    """One line a contract: how its golden cases fared; those that failed by name."""
    for contract, words in run.fixtures.items():
        told = [
            f"{word} {_fixtures_of(word, names)}"
            for word, names in sorted(words.items(), key=lambda item: item[0] != Verdict.PASSED.value)
        ]
        yield from _wrapped(f"fixtures of {contract}: {'; '.join(told)}")
    laws = [statistic for outcome in run.outcomes if outcome.fixture for statistic in outcome.statistics]
    if laws:
        alpha, distance = (max(law[name] for law in laws) for name in ("alpha", "distance"))
        yield from _wrapped(
            f"{len(laws)} fixtures are laws: α ≤ {alpha:g} each; a deviation of {distance:.2g} in any would have "
            f"been seen with power ≥ {laws[0]['power']:g}"
        )


def _fixtures_of(word: str, names: list[str]) -> str:
    """Operations that are not provided, and how many cases, or which, ended in any other word."""
    if word == _LACKING:
        return ", ".join(dict.fromkeys(name.partition("/")[0] for name in names))
    return f"{len(names)}" + ("" if word in _COUNTED else f" ({', '.join(names)})")


_COUNTED = {v.value for v in (Verdict.PASSED, Verdict.NOT_APPLICABLE, Verdict.UNDECIDABLE)}
_LACKING = Verdict.NOT_PROVIDED.value


def _fared(members: list[tuple[str, list[Outcome]]]) -> str:
    """The clauses of a group by word, those that passed counted."""
    words: dict[str, list[str]] = {}
    for identity, checks in members:
        words.setdefault(worst(checks), []).append(identity.partition("-")[2])
    return "; ".join(
        f"{word} {', '.join(ids)}" if word != Verdict.PASSED.value else f"passed {len(ids)}"
        for word, ids in sorted(words.items(), key=lambda item: item[0] != Verdict.PASSED.value)
    )


def worst(checks: list[Outcome]) -> str:
    """The word that speaks for a clause: the gravest of its checks."""
    order = [
        Verdict.HARNESS_ERROR,
        Verdict.FAILED,
        Verdict.KNOWN_DEVIATION,
        Verdict.UNDECIDABLE,
        Verdict.PASSED,
        Verdict.NOT_APPLICABLE,
        Verdict.NOT_PROVIDED,
    ]
    found = {outcome.verdict for outcome in checks}
    return next((word.value for word in order if word.value in found), Verdict.EXCLUDED.value)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
