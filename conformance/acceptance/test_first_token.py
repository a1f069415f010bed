"""First-token law: what is published first is distributed as the target's row at the root."""

from __future__ import annotations

import pytest

from conformance import draw
from conformance.acceptance import measure, models, sampling
from conformance.acceptance.calls import need_coins
from conformance.acceptance.cases import RaggedModels, TableModel
from conformance.check import Check
from conformance.profiles import ALPHA_OF_A_CHECK
from conformance.verdicts import ClauseViolation

STEPS = 30
PROPOSALS = [
    pytest.param("iid", marks=pytest.mark.clauses("ACCEPTANCE-401"), id="sampled"),
    pytest.param("point", marks=pytest.mark.clauses("ACCEPTANCE-402"), id="point"),
]


@pytest.mark.parametrize("proposal", PROPOSALS)
def test_by_coins(check: Check, proposal: str) -> None:
    need_coins(check, frontier=True)

    def body(model: TableModel) -> None:
        emitted = measure.emitted_law(check, model, STEPS)
        target = [float(p) for p in model.target[()]]
        found = [sum(m for tokens, m in emitted.items() if tokens[0] == v) for v in range(model.vocabulary)]
        allowed = measure.bound(check, model, STEPS)
        worst = max(abs(a - b) for a, b in zip(found, target))
        if worst > allowed:
            raise ClauseViolation(
                f"integrated over its coins, the first token has the law {draw.row(found)}; the target row is "
                f"{draw.row(target)}: off by {worst:.3g}, more than the {allowed:.2g} of its arithmetic"
            )

    check.for_each(models.law_models(proposal), body)


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", PROPOSALS)
def test_by_evidence(check: Check, proposal: str) -> None:
    check.require("verify_random")

    def body(model: TableModel) -> None:
        target = [float(p) for p in model.target[()]]

        def sample(trials: int, seed: int) -> list[int]:
            counts = [0] * model.vocabulary
            for tokens in sampling.published(check, model, trials, seed):
                counts[tokens[0]] += 1
            return counts

        process = check.weigh(
            "the first published token follows the target row at the root",
            target,
            sample,
            check.trials("verify_random"),
        )
        if process.alarmed:
            raise ClauseViolation(
                f"{process.observations} first tokens fell {list(process.counts)}; the target row {draw.row(target)} "
                f"expects {draw.row([p * process.observations for p in target])} (e-value 10^"
                f"{process.largest / 2.302585:.1f} against α = {process.alpha:.0e})"
            )

    check.for_each(models.law_models(proposal), body)


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-403")
def test_every_member_of_a_ragged_batch(check: Check) -> None:
    check.require("verify_random")
    members = models.ragged_models()

    def body(case: RaggedModels) -> None:
        model = case.models[case.member]
        target = [float(p) for p in model.target[()]]

        def sample(rounds: int, seed: int) -> list[int]:
            counts = [0] * model.vocabulary
            for tokens in sampling.published_together(check, case, rounds, seed):
                counts[tokens[0]] += 1
            return counts

        process = check.weigh(
            f"the first token of member {case.member} of {len(case.models)} follows its own target row",
            target,
            sample,
            check.trials("verify_random", 1 / len(members) ** 2),
            ALPHA_OF_A_CHECK / len(members),
        )
        if process.alarmed:
            raise ClauseViolation(
                f"member {case.member}: {process.observations} first tokens fell {list(process.counts)}; its target "
                f"row {draw.row(target)} expects {draw.row([p * process.observations for p in target])}"
            )

    check.for_each([RaggedModels(members, i) for i in range(len(members))], body)
