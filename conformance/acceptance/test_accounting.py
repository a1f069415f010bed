"""Accounting: how often drafts are accepted, which the law of what is published does not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from conformance import draw
from conformance.acceptance import models, sampling
from conformance.acceptance.cases import Batch, copy
from conformance.check import CHUNKS, LEAST_TRIALS, Check
from conformance.evidence import EProcess
from conformance.profiles import ALPHA_OF_A_CHECK
from conformance.roads import schemes
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import Decision, VerifyCase


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-701")
@pytest.mark.parametrize("proposal", ["iid", "point"])
def test_drafts_are_accepted_as_often_as_the_formula_says(check: Check, proposal: str) -> None:
    scheme = scheme_of(check)
    check.for_each([Batch(tuple(models.accounting_members(proposal)))], lambda batch: account(check, batch, scheme))


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-702")
@pytest.mark.parametrize("proposal", ["iid", "point", "without_replacement"])
def test_siblings_are_accepted_as_often_as_the_formula_says(check: Check, proposal: str) -> None:
    scheme = scheme_of(check)
    check.for_each([Batch(tuple(models.accounting_trees(proposal)))], lambda batch: account(check, batch, scheme))


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-703")
@pytest.mark.parametrize("proposal", ["iid", "point"])
def test_blocks_are_accepted_as_often_as_their_formula_says(check: Check, proposal: str) -> None:
    if check.convention("coin_scheme", "per_node") != "block":
        raise Inapplicable("it does not verify by blocks; 701 judges it")

    def body(batch: Batch) -> None:
        share = {
            (m, i): float(chance)
            for m, case in enumerate(batch.cases)
            for i, chance in enumerate(schemes.block_prefixes(case))
        }

        def seen(case: VerifyCase, decision: Decision) -> list[tuple[int, bool]]:
            return [(i, len(decision.path) > i) for i in range(len(case.parent))]

        weigh(check, batch, share, seen, "a prefix of {node} drafts")

    check.for_each([Batch(tuple(models.accounting_members(proposal)))], body)


def scheme_of(check: Check) -> str:
    """The declared scheme, unless it judges whole prefixes."""
    scheme = check.convention("coin_scheme", "per_node")
    if scheme == "block":
        raise Inapplicable("block verification accepts by whole prefixes; 703 judges it")
    return scheme


def account(check: Check, batch: Batch, scheme: str) -> None:
    """How often each node is accepted when it is tested, against the formula of `scheme`."""
    share = {
        (m, node): float(schemes.accepted_when_tested(case, node, scheme))
        for m, case in enumerate(batch.cases)
        for node in range(len(case.parent))
    }

    def seen(case: VerifyCase, decision: Decision) -> list[tuple[int, bool]]:
        return [(node, node in decision.path) for node in schemes.tested(case, decision.path)]

    weigh(check, batch, share, seen, "node {node}, when tested,")
    if scheme != "per_node" and batch.cases[0].proposal != "point":
        check.observe("accounting", f"{scheme}: lossless, and accepts less than min(1, p/q) of what is drawn from q")


def weigh(
    check: Check,
    batch: Batch,
    share: Mapping[tuple[int, int], float],
    seen: Callable[[VerifyCase, Decision], list[tuple[int, bool]]],
    what: str,
) -> None:
    """One e-process for each node of each member; they share the α of the check."""
    check.require("verify_random")
    cells = list(share)
    weighed = {c: EProcess([share[c], 1 - share[c]], ALPHA_OF_A_CHECK / len(cells)) for c in cells}
    rounds = check.trials("verify_random", 1.5 / len(batch.cases), LEAST_TRIALS // len(batch.cases))
    for chunk in range(CHUNKS):
        count = max(1, rounds // CHUNKS)
        # each round has arrays of its own, so that a callee that writes into one spoils no other
        asked = [copy(case) for _ in range(count) for case in batch.cases]
        tallies = {cell: [0, 0] for cell in cells}
        for i, decision in enumerate(sampling.verify(check, asked, check.seed * 1_000 + chunk)):
            m = i % len(batch.cases)
            for node, accepted in seen(batch.cases[m], decision):
                tallies[m, node][not accepted] += 1
        for cell, counts in tallies.items():
            weighed[cell].update(counts)
        if any(process.alarmed for process in weighed.values()):
            break
    worst = max(cells, key=lambda cell: weighed[cell].largest)
    process = weighed[worst]
    check.state(
        f"{what.format(node=worst[1])} of member {worst[0]} is accepted by the formula's share (the one of "
        f"{len(cells)} with most evidence against it)",
        process,
        process.observations,
    )
    if process.alarmed:
        taken, left = process.counts
        raise ClauseViolation(
            f"member {worst[0]}, {what.format(node=worst[1])} accepted {taken} times of {taken + left}, a "
            f"share of {draw.number(taken / (taken + left))}; the formula gives "
            f"{draw.number(share[worst])} (e-value 10^{process.largest / 2.302585:.1f} against α = "
            f"{process.alpha:.0e})"
        )
