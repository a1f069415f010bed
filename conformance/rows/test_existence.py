"""Existence and supervision: which rows there are, which of them count, and whose flag decides."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.check import Check
from conformance.roads import rows as road
from conformance.rows import asking, strategies
from conformance.rows.asking import VIA
from conformance.rows.cases import (
    ANSWER,
    EDGES,
    HOLE,
    LEFT,
    PACKED,
    RAGGED,
    REUSED,
    WIDE,
    WORKED,
    batch,
    ids_of_their_own,
)
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import OWNERS, RolloutRowsCase, RowPlan, SupervisionCase, TokenBatch

EXISTENCE = [
    pytest.param("full", marks=pytest.mark.clauses("ROWS-201")),
    pytest.param("padded", marks=pytest.mark.clauses("ROWS-202")),
    pytest.param("packed", marks=pytest.mark.clauses("ROWS-203")),
    pytest.param("repeated", marks=pytest.mark.clauses("ROWS-204")),
]
BATCHES: dict[str, st.SearchStrategy[TokenBatch]] = {
    "full": strategies.full(flags=False),
    "padded": strategies.padded(flags=False),
    "packed": strategies.packed(flags=False),
    "repeated": strategies.repeated(flags=False),
}
FIRST = {
    "full": [batch([[11, 12, 13, 14, 15]])],
    "padded": [ids_of_their_own(case) for case in (WORKED, RAGGED, LEFT, HOLE)],
    "packed": [PACKED],
    "repeated": [REUSED],
}
EVERYTHING = (ANSWER, *EDGES)


@pytest.mark.parametrize("kind", EXISTENCE)
@pytest.mark.parametrize("via", VIA)
def test_which_rows_exist(check: Check, via: str, kind: str) -> None:
    check.require(via)

    def body(case: TokenBatch) -> None:
        found, right = asking.ask(check, via, case).keys, keys(asking.expected(check, case))
        if kind == "packed":
            check.observe("packing", "segments")
            if check.convention("packing", "segments") == "none":
                raise ClauseViolation("it declares that it packs no segments, and answers for a batch that does")
        for b, t in right:
            if (b, t) not in found:
                raise ClauseViolation(
                    f"batch row {b}: addresses {t} and {t + 1} hold tokens of segment {int(case.segment[b, t])}, so "
                    f"{{clause}} has a row with source {t}; the answer has none"
                )
        for b, t in found:
            if (b, t) not in right:
                raise ClauseViolation(f"batch row {b}: there is a row with source {t}, and {why_not(case, b, t)}")

    if kind == "packed":
        check.observe("packing", "none")  # until it answers
    wide = [WIDE] if kind == "packed" and via == "soft_rows" else []  # traced tokens are small
    check.for_all(BATCHES[kind], body, first=[flagged(case) for case in (*FIRST[kind], *wide)])


@pytest.mark.clauses("ROWS-205")
@pytest.mark.parametrize("via", VIA)
def test_the_next_token_and_the_next_feature(check: Check, via: str) -> None:
    check.require(via)

    def body(case: TokenBatch) -> None:
        found, right = asking.ask(check, via, case), keys(asking.expected(check, case))
        for (b, t), advanced, target in zip(found.keys, found.advanced, found.target):
            if (b, t) not in right:
                continue  # which rows there are, the clauses below judge
            for name, address in (("advanced token", advanced), ("target feature", target)):
                if address != t + 1:
                    raise ClauseViolation(
                        f"batch row {b}, source {t}: the {name} is that of address {address}, and not of {t + 1}"
                    )

    check.for_all(strategies.anything(flags=False), body, first=[flagged(case) for case in EDGES])


@pytest.mark.clauses("ROWS-301")
@pytest.mark.parametrize("via", ["soft_rows"])
def test_the_flag_of_the_source_supervises(check: Check, via: str) -> None:
    check.require(via)
    check.for_all(strategies.anything(), lambda case: supervision(check, case), first=EVERYTHING)


@pytest.mark.clauses("ROWS-302")
def test_rows_without_supervision_stay(check: Check) -> None:
    check.require("soft_rows")

    def body(case: TokenBatch) -> None:
        found, right = asking.ask(check, "soft_rows", case).keys, keys(asking.expected(check, case))
        missing = sorted(set(right) - set(found))
        if missing:
            b, t = missing[0]
            raise ClauseViolation(f"batch row {b}: the row with source {t} is gone, and only its flag is not set")

    check.for_all(strategies.anything(), body, first=EVERYTHING)


@pytest.mark.clauses("ROWS-303")
def test_a_soft_row_has_no_label(check: Check) -> None:
    check.require("soft_rows")

    def body(case: TokenBatch) -> None:
        found = asking.plan(check, "soft_rows", case)
        for t, label in zip(found.source, found.label):
            if label != -1:
                raise ClauseViolation(f"the soft row with source {t} has the label {label}, and not −1")

    check.for_all(strategies.full(), body)


@pytest.mark.clauses("ROWS-304")
def test_the_hard_rows_are_the_soft_rows(check: Check) -> None:
    check.require("hard_rows")

    def body(case: TokenBatch) -> None:
        found, right = asking.plan(check, "hard_rows", case), asking.expected(check, case)
        if "soft_rows" in check.implementation.operations:  # whether these are right, other clauses judge
            right = asking.plan(check, "soft_rows", case)
        if keys(found) != keys(right):
            raise ClauseViolation(f"the sources of the hard rows are {keys(found)}, those of the soft {keys(right)}")
        for name in ("advanced", "target", "position", "visible"):
            if not np.array_equal(getattr(found, name), getattr(right, name)):
                raise ClauseViolation(f"{name} of the hard rows is not that of the soft rows")

    check.for_all(strategies.anything(), body, first=EDGES)


@pytest.mark.clauses("ROWS-305")
def test_a_hard_row_counts_where_its_label_is_observed(check: Check) -> None:
    check.require("hard_rows")

    def body(case: TokenBatch) -> None:
        found, right = asking.plan(check, "hard_rows", case), asking.expected(check, case, hard=True)
        answered = dict(zip(keys(found), found.supervise.tolist()))
        for (b, t), counts in zip(keys(right), right.supervise.tolist()):
            if answered.get((b, t)) != counts:
                flag = int(case.supervise[b, t])
                raise ClauseViolation(
                    f"batch row {b}, source {t}: its flag is {flag} and its label at {t + 2} "
                    f"{'exists' if right.label[keys(right).index((b, t))] >= 0 else 'does not'}, so {{clause}} "
                    f"{'supervises' if counts else 'does not supervise'} it; the answer does{' not' if counts else ''}"
                )

    check.for_all(strategies.anything(), body, first=EDGES)


@pytest.mark.clauses("ROWS-306")
def test_the_label_is_the_token_after_the_next(check: Check) -> None:
    check.require("hard_rows")

    def body(case: TokenBatch) -> None:
        found, right = asking.plan(check, "hard_rows", case), asking.expected(check, case, hard=True)
        answered = dict(zip(keys(found), found.label.tolist()))
        for (b, t), label in zip(keys(right), right.label.tolist()):
            if answered.get((b, t)) != label:
                raise ClauseViolation(
                    f"batch row {b}, source {t}: the label is {label}, and not {answered.get((b, t))}"
                )

    check.for_all(strategies.anything(flags=False), body, first=[*EDGES, WIDE])


@pytest.mark.clauses("ROWS-307")
def test_one_flag_supervises_a_source(check: Check) -> None:
    check.require("supervision_at_source")

    def body(case: SupervisionCase) -> None:
        found = asking.sources(check, case)
        right = [asking.expected_sources(check, case, ahead) for ahead in range(3)]
        if not any(agrees(case, found, one) for one in right):
            listed = "; ".join(f"of the {owner} {shown(one)}" for owner, one in zip(OWNERS, right))
            raise ClauseViolation(f"the answer is {shown(found)}, by no token's flags: {listed}")

    check.for_all(strategies.masks(strategies.full()), body)


@pytest.mark.clauses("ROWS-308")
def test_a_mask_supervises_nothing_across_a_border(check: Check) -> None:
    check.require("supervision_at_source")

    def body(case: SupervisionCase) -> None:
        found = asking.sources(check, case)
        right = [asking.expected_sources(check, case, ahead) for ahead in range(3)]
        if not any(agrees(case, found, one) for one in right):  # which owner it is, the next clause asks
            one = right[OWNERS.index(case.owner)]
            raise ClauseViolation(f"the answer is {shown(found)}, and {{clause}} says {shown(one)}")

    check.for_all(strategies.masks(strategies.anything()), body)


@pytest.mark.clauses("ROWS-309")
def test_the_owner_is_the_declared_one(check: Check) -> None:
    check.require("supervision_at_source")
    tokens = batch([[4, 2, 6, 1, 5, 3]])
    mask = np.array([[True, False, False, True, True, False]])  # its shifts differ from it and from each other
    owners: dict[str, str] = {}

    def body(case: SupervisionCase) -> None:
        found = asking.sources(check, case)
        shifts = [asking.expected_sources(check, case, ahead) for ahead in range(3)]
        seen = [owner for owner, one in zip(OWNERS, shifts) if agrees(case, found, one)]
        if seen != [case.owner]:
            raise ClauseViolation(
                f"asked for the owner {case.owner!r}, the answer is {shown(found)}: its flags are those of the "
                f"{seen[0] if seen else 'nothing that is known'}"
            )
        owners[case.owner] = seen[0]

    check.for_each([SupervisionCase(tokens, mask, owner) for owner in OWNERS], body)
    check.observe("mask_owner", next(iter(owners)) if len(owners) == 1 else "argument")
    declared = check.implementation.declaration.conventions.get("mask_owner")
    if declared is not None and declared not in owners:
        raise ClauseViolation(f"declared is the owner {declared!r}, at work {', '.join(owners)}")


@pytest.mark.clauses("ROWS-310")
def test_a_row_kept_as_padding_is_not_supervised(check: Check) -> None:
    check.require("gather_rows")
    declared = check.convention("last_row", "drop")
    seen: set[str] = set()

    def body(case: TokenBatch) -> None:
        kept = asking.ask(check, "gather_rows", case).padding
        seen.add("pad" if kept else "drop")
        for b, t, supervised in kept:
            if supervised:
                raise ClauseViolation(
                    f"batch row {b}: the row with source {t} has no next token or no target, and is supervised"
                )

    try:
        check.for_all(strategies.padded(), body, first=[ANSWER, RAGGED, LEFT])
    finally:
        if seen:
            check.observe("last_row", "pad" if "pad" in seen else "drop")
    if declared == "drop":
        raise Inapplicable("it keeps no row as padding")
    rolls_out = "rollout_rows" in check.implementation.operations
    if "pad" not in seen and rolls_out and asking.nodes(check, RolloutRowsCase(RAGGED, 2))[1]:
        raise Inapplicable("its rollouts alone keep padding; ROWS-609 judges it")
    if "pad" not in seen:
        raise ClauseViolation("last_row is declared 'pad', and no batch came back with a row that is kept as padding")


# ---- what these checks share


def supervision(check: Check, case: TokenBatch) -> None:
    found, right = asking.ask(check, "soft_rows", case), asking.expected(check, case)
    answered = dict(zip(found.keys, found.supervise))
    for (b, t), flag in zip(keys(right), right.supervise.tolist()):
        if (b, t) in answered and answered[b, t] != flag:
            raise ClauseViolation(
                f"batch row {b}, source {t}: its flag is {int(flag)}, and the row is {'not ' if flag else ''}supervised"
            )


def why_not(case: TokenBatch, b: int, t: int) -> str:
    """Why source t of batch row b has no row."""
    if t + 1 >= case.valid.shape[1]:
        return "its batch row ends there"
    if not (case.valid[b, t] and case.valid[b, t + 1]):
        return f"address {t + int(case.valid[b, t])} is invalid"
    return f"the next token is of segment {int(case.segment[b, t + 1])}, and not of {int(case.segment[b, t])}"


def agrees(case: SupervisionCase, found: np.ndarray, right: np.ndarray) -> bool:
    """Whether the sources are those; one that has no row, as at the end of a sequence, is free not to be told."""
    plan = road.plan(case.batch)
    rows = np.zeros(found.shape, dtype=bool)
    rows[plan.batch, plan.source] = True
    return bool(np.all(np.where(rows, found == right, ~found | right)))


def keys(plan: RowPlan) -> list[tuple[int, int]]:
    return list(zip(plan.batch.tolist(), plan.source.tolist()))


def flagged(case: TokenBatch) -> TokenBatch:
    """The batch with every flag set."""
    return dataclasses.replace(case, supervise=np.ones(case.valid.shape, dtype=bool))


def shown(flags: np.ndarray) -> str:
    return " / ".join("".join(str(int(v)) for v in row) for row in flags)
