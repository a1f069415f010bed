"""Many rounds, clause by clause: what is asked of a request after each of them, and of which histories."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.check import Check
from conformance.compare import is_shown
from conformance.publish import asking, drawing, histories
from conformance.publish.history import History
from conformance.publish.machine import Machine
from conformance.publish.model import following
from conformance.publish.serving import Clause, Seen, replayed
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import PADDING_ROW

STEPS = 30
"""Rules of a run of the machine."""
CASES_A_STEP = 2.5
TOKENS = ("prompt", "output")
ROWS = ("kv", "features", "draft_kv")


@dataclass(frozen=True)
class Run:
    """What a clause is judged on: named histories, and those of the machine with these rules beside rounds.

    times: how many runs of the machine, as a multiple of the others'.
    """

    clause: Clause
    first: Sequence[History]
    rules: tuple[str, ...] = ()
    times: int = 1


def judged(check: Check, run: Run) -> None:
    """Judge the clause; `Inapplicable` where no round showed anything."""
    check.require("publish")
    seen: list[int] = []

    def judge(one: Seen) -> None:
        run.clause.judge(one)
        seen.append(one.request)

    clause = dataclasses.replace(run.clause, judge=judge)
    wanted = run.times * max(check.profile.examples // 4, 6)
    cases = STEPS * CASES_A_STEP / 12  # a run hands out as many cases as this many of the examples of other checks
    check.drive(
        lambda search: Machine(check, clause, run.rules, search),
        lambda history: replayed(check, clause, history),
        runs=max(1, int(check.examples(int(wanted * cases)) / cases)),
        steps=STEPS,
        first=run.first,
    )
    if not seen:  # steps were taken, and none of them showed anything
        raise Inapplicable(check.skipped[-1])


# ---- what a clause asks of a request after a round


def outputs(seen: Seen) -> None:
    """Token after token is what the model gives after all before it."""
    found, right = seen.found.output.tolist(), seen.right.output.tolist()
    sequence = seen.right.prompt.tolist()
    for place, token in enumerate(found[: len(right)]):
        if token != (wanted := following(sequence)):
            after = " ".join(map(str, sequence[-8:]))
            raise ClauseViolation(f"token {place} of the output is {token}; after … {after} comes {wanted}")
        sequence.append(token)
    if len(found) != len(right):
        words = "as many drafts as are right, and the token after them, are published in each round"
        raise ClauseViolation(f"the output has {len(found)} tokens; by {{clause}} {len(right)}: {words}")


def rows(seen: Seen) -> None:
    """Row for row belongs to its token, and as many rows are there."""
    shown = [name for name in ROWS if is_shown(getattr(seen.found, name))]
    if not shown:
        raise Inapplicable("the implementation shows no rows")
    for name in shown:
        if getattr(seen.right, name) is not None:
            asking.rows(seen.case, seen.right, seen.found, name, exact=True)
    asking.value(seen.right, seen.found, "pending", "its KV is not there yet")


def accounts(seen: Seen) -> None:
    """What was held and what was handed out is now held or given back, once; and nothing rejected is left."""
    verified = seen.case.verified
    handed = [kv for kv, node in zip(verified.kv.tolist(), verified.row_node.tolist()) if node != PADDING_ROW]
    kept = set(seen.right.kv.tolist())
    rejected = [kv for kv in verified.kv.tolist() if kv not in kept]
    shown = [name for name in (*ROWS, "seed", "freed") if is_shown(getattr(seen.found, name))]
    freed = list(seen.found.freed) if "freed" in shown else []
    if not set(shown) - {"seed"}:
        raise Inapplicable("the implementation shows neither rows nor what it gives back")
    if {"kv", "freed"} <= set(shown):
        before = Counter([*seen.case.state.kv.tolist(), *handed])
        after = Counter([*seen.found.kv.tolist(), *freed])
        for kv in [*before, *after]:
            if before[kv] != after[kv]:
                words = f"row {drawing.number(kv)} was handed out {_times(before[kv])}; it is now held or given back "
                raise ClauseViolation(f"{words}{_times(after[kv])}")
    elif "freed" in shown and Counter(freed) != Counter(kv for kv in handed if kv not in kept):
        raise ClauseViolation(f"rows {freed} are given back; rejected were {rejected}")
    for name, made in (("kv", 0.0), ("features", 0.5), ("draft_kv", 0.0), ("seed", 0.5)):
        value = getattr(seen.found, name)
        if name not in shown or value is None:
            continue
        held = {abs(one) for one in ([value] if name == "seed" else value.tolist())}
        for kv in rejected:
            if kv + made in held or (name == "draft_kv" and kv + 0.5 in held):
                raise ClauseViolation(f"{name} still holds what row {drawing.number(kv)} had, which was not accepted")


def everything(seen: Seen) -> None:
    """Every field that is shown."""
    asking.whole(seen.case, seen.right, seen.found)


def _times(count: int) -> str:
    return {0: "nowhere", 1: "once"}.get(count, f"{count} times")


SEQUENTIAL = Run(Clause(outputs, TOKENS), histories.BASIC)
BELONGING = Run(Clause(rows, (*TOKENS, *ROWS, "pending")), histories.BASIC)
ACCOUNTED = Run(Clause(accounts, (*TOKENS, *ROWS, "pending")), histories.BASIC)
KEPT = Run(Clause(everything, keeps=True), (histories.BACK,), ("keep",))
PREEMPTED = Run(Clause(everything), (histories.PREEMPTED,), ("preempt",))
TOGETHER = Run(
    Clause(everything, keeps=True),
    (histories.SHARED, histories.MIXED),
    ("keep", "preempt", "share", "move"),
    times=2,
)
ENDING = Run(
    Clause(everything, keeps=True),
    (histories.ENDS, histories.CUT, histories.MIXED_WITH_AN_END),
    ("end", "keep", "preempt", "share", "move"),
    times=2,
)
"""The only histories in which requests end, so that what goes wrong at an end hides nothing of the other clauses."""
