"""Joint law: the whole published run, with rows that depend on its prefix, follows the target's."""

from __future__ import annotations

import itertools

import pytest

from conformance.acceptance import laws, models, sampling
from conformance.acceptance.calls import need_coins
from conformance.acceptance.cases import Prefix, TableModel
from conformance.check import Check
from conformance.verdicts import ClauseViolation

STEPS = 30
PROPOSALS = [
    pytest.param("iid", marks=pytest.mark.clauses("ACCEPTANCE-501"), id="sampled"),
    pytest.param("point", marks=pytest.mark.clauses("ACCEPTANCE-502"), id="point"),
]


@pytest.mark.parametrize("proposal", PROPOSALS)
def test_by_coins(check: Check, proposal: str) -> None:
    need_coins(check, frontier=True)
    check.for_each(models.law_models(proposal), lambda model: laws.joint_by_coins(check, model, STEPS))


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", PROPOSALS)
def test_by_evidence(check: Check, proposal: str) -> None:
    check.require("verify_random")
    check.for_each(models.law_models(proposal), lambda model: laws.joint_by_evidence(check, model, "a chain"))


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-503")
def test_members_are_independent(check: Check) -> None:
    """Neighbours in a call: the pair of their first tokens against the product of their rows."""
    check.require("verify_random")

    def body(model: TableModel) -> None:
        row = [float(p) for p in model.target[()]]
        pairs: list[Prefix] = list(itertools.product(range(model.vocabulary), repeat=2))

        def sample(trials: int, seed: int) -> list[int]:
            counts = dict.fromkeys(pairs, 0)
            first = [tokens[0] for tokens in sampling.published(check, model, 2 * trials, seed)]
            for pair in zip(first[::2], first[1::2]):
                counts[pair] += 1
            return [counts[pair] for pair in pairs]

        process = check.weigh(
            "the first tokens of two neighbours in a batch are independent",
            [row[a] * row[b] for a, b in pairs],
            sample,
            check.trials("verify_random", 0.5),
        )
        if process.alarmed:
            seen = {pair: c / process.observations for pair, c in zip(pairs, process.counts)}
            expected: dict[Prefix, float] = {(a, b): row[a] * row[b] for a, b in pairs}
            raise ClauseViolation(
                f"over {process.observations} pairs of neighbours, the pair {laws.worst_sequences(seen, expected)}"
            )

    check.for_each(models.law_models("iid"), body)
