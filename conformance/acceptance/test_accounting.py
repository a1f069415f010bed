"""Accounting: how often drafts are accepted, which the law of what is published does not see."""

from __future__ import annotations

import pytest

from conformance import draw
from conformance.acceptance import models, sampling
from conformance.acceptance.cases import Batch, copy
from conformance.check import Check
from conformance.evidence import EProcess
from conformance.profiles import ALPHA_OF_A_CHECK
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import VerifyCase

CHUNKS = 20


def formula(check: Check, case: VerifyCase, node: int) -> float:
    """P(accepted | tested) of a chain's node under the declared scheme."""
    token = int(case.token[node])
    p = float(case.target_probs[node][token])
    scheme = check.convention("coin_scheme", "per_node")
    if scheme == "block":
        raise Inapplicable("block verification accepts by whole prefixes; its formula has a clause of its own")
    if scheme == "sample_and_match" or case.draft_probs is None:
        return p
    return min(1.0, p / float(case.draft_probs[node][token]))


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-701")
@pytest.mark.parametrize("proposal", ["iid", "point"])
def test_drafts_are_accepted_as_often_as_the_formula_says(check: Check, proposal: str) -> None:
    """One e-process for each node of each member; they share the α of the check."""
    check.require("verify_random")

    def body(batch: Batch) -> None:
        cells = [(m, node) for m, case in enumerate(batch.cases) for node in range(len(case.parent))]
        share = {cell: formula(check, batch.cases[cell[0]], cell[1]) for cell in cells}
        weighed = {c: EProcess([share[c], 1 - share[c]], ALPHA_OF_A_CHECK / len(cells)) for c in cells}
        rounds = check.trials("verify_random", 1.5 / len(batch.cases))
        for chunk in range(CHUNKS):
            count = max(1, rounds // CHUNKS)
            seed = check.seed * 1_000 + chunk
            # each round has arrays of its own, so that a callee that writes into one spoils no other
            rounds_of = [copy(case) for _ in range(count) for case in batch.cases]
            found = sampling.verify(check, rounds_of, seed)
            for m, node in cells:
                depths = [len(decision.path) for decision in found[m :: len(batch.cases)]]
                passed, tested = sum(d > node for d in depths), sum(d >= node for d in depths)
                weighed[m, node].update([passed, tested - passed])
            if any(process.alarmed for process in weighed.values()):
                break
        worst = max(cells, key=lambda cell: weighed[cell].largest)
        check.state(
            f"node {worst[1]} of member {worst[0]}, when tested, is accepted by the formula's share "
            f"(the one of {len(cells)} nodes with most evidence against it)",
            weighed[worst],
            weighed[worst].observations,
        )
        if weighed[worst].alarmed:
            accepted, rejected = weighed[worst].counts
            seen = accepted / (accepted + rejected)
            raise ClauseViolation(
                f"member {worst[0]}, node {worst[1]}: accepted {accepted} times of {accepted + rejected}, a share of "
                f"{draw.number(seen)}; the formula gives {draw.number(share[worst])} (e-value "
                f"10^{weighed[worst].largest / 2.302585:.1f} against α = {weighed[worst].alpha:.0e})"
            )

    check.for_each([Batch(tuple(models.accounting_members(proposal)))], body)
