"""Joint law: the whole published run, with rows that depend on its prefix, follows the target's."""

from __future__ import annotations

import itertools

import pytest

from conformance import draw
from conformance.acceptance import measure, models, sampling
from conformance.acceptance.calls import need_coins
from conformance.acceptance.cases import Prefix, TableModel
from conformance.check import Check
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation

STEPS = 30
PROPOSALS = [
    pytest.param("iid", marks=pytest.mark.clauses("ACCEPTANCE-501"), id="sampled"),
    pytest.param("point", marks=pytest.mark.clauses("ACCEPTANCE-502"), id="point"),
]


def target_law(model: TableModel) -> dict[Prefix, float]:
    law = road.sequence_law(model.target, model.depth + 1)
    return {tokens: float(weight) for tokens, weight in law.items()}


def worst_sequences(found: dict[Prefix, float], target: dict[Prefix, float], count: int = 3) -> str:
    ranked = sorted(target, key=lambda k: -abs(found.get(k, 0.0) - target[k]))[:count]
    return "; ".join(
        f"{'→'.join(map(str, k))} has {draw.number(found.get(k, 0.0))}, the target {draw.number(target[k])}"
        for k in ranked
    )


@pytest.mark.parametrize("proposal", PROPOSALS)
def test_by_coins(check: Check, proposal: str) -> None:
    need_coins(check, frontier=True)

    def body(model: TableModel) -> None:
        emitted = measure.emitted_law(check, model, STEPS)
        found = measure.completed(emitted, model, model.depth + 1)
        target = target_law(model)
        allowed = measure.bound(check, model, STEPS)
        if max(abs(found.get(k, 0.0) - m) for k, m in target.items()) > allowed:
            raise ClauseViolation(
                f"integrated over its coins, the sequence {worst_sequences(found, target)}: more than the "
                f"{allowed:.2g} of its arithmetic"
            )

    check.for_each(models.law_models(proposal), body)


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", PROPOSALS)
def test_by_evidence(check: Check, proposal: str) -> None:
    check.require("verify_random")

    def body(model: TableModel) -> None:
        target = target_law(model)
        order = sorted(target)

        def sample(trials: int, seed: int) -> list[int]:
            counts = dict.fromkeys(order, 0)
            for tokens in sampling.published(check, model, trials, seed):
                if tokens not in counts:
                    raise ClauseViolation(f"the sequence {'→'.join(map(str, tokens))} is impossible for the target")
                counts[tokens] += 1
            return [counts[k] for k in order]

        process = check.weigh(
            f"the {model.depth + 1} published tokens, continued from the target, follow its joint law",
            [target[k] for k in order],
            sample,
            check.trials("verify_random"),
        )
        if process.alarmed:
            seen = {k: c / process.observations for k, c in zip(order, process.counts)}
            raise ClauseViolation(
                f"after {process.observations} rounds the sequence {worst_sequences(seen, target)} "
                f"(e-value 10^{process.largest / 2.302585:.1f} against α = {process.alpha:.0e})"
            )

    check.for_each(models.law_models(proposal), body)


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
                f"over {process.observations} pairs of neighbours, the pair {worst_sequences(seen, expected)}"
            )

    check.for_each(models.law_models("iid"), body)
