"""First-token law: what is published first is distributed as the target's row at the root."""

from __future__ import annotations

import pytest

from conformance import draw
from conformance.acceptance import laws, models, sampling
from conformance.acceptance.calls import need_coins
from conformance.acceptance.cases import RaggedModels
from conformance.check import CHUNKS, LEAST_TRIALS, Check
from conformance.evidence import EProcess
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
    check.for_each(models.law_models(proposal), lambda model: laws.first_token_by_coins(check, model, STEPS))


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", PROPOSALS)
def test_by_evidence(check: Check, proposal: str) -> None:
    check.require("verify_random")
    check.for_each(models.law_models(proposal), lambda model: laws.first_token_by_evidence(check, model, "a chain"))


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-403")
def test_every_member_of_a_ragged_batch(check: Check) -> None:
    """One e-process a member; they share the α of the check, and every call."""
    check.require("verify_random")

    def body(case: RaggedModels) -> None:
        rows = [[float(p) for p in model.target[()]] for model in case.models]
        weighed = [EProcess(row, ALPHA_OF_A_CHECK / len(rows)) for row in rows]
        rounds = check.trials("verify_random", 1 / len(rows), LEAST_TRIALS // 2)
        for chunk in range(CHUNKS):
            published = sampling.published_together(check, case, max(1, rounds // CHUNKS), check.seed * 1_000 + chunk)
            for process, row, found in zip(weighed, rows, published):
                first = [tokens[0] for tokens in found]
                process.update([first.count(v) for v in range(len(row))])
            if any(process.alarmed for process in weighed):
                break
        worst = max(range(len(rows)), key=lambda m: weighed[m].largest)
        check.state(
            f"the first token of member {worst} of {len(rows)} follows its own target row (the one with most evidence "
            "against it)",
            weighed[worst],
            weighed[worst].observations,
        )
        if weighed[worst].alarmed:
            process, row = weighed[worst], rows[worst]
            raise ClauseViolation(
                f"member {worst}: {process.observations} first tokens fell {list(process.counts)}; its target row "
                f"{draw.row(row)} expects {draw.row([p * process.observations for p in row])}"
            )

    check.for_each([RaggedModels(models.ragged_models())], body)
