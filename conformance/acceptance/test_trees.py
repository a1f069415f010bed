"""Trees: siblings in draw order, each against what the earlier ones left; every rung of the ladder again.

Verifiers of chains answer a tree with `NotApplicable`, and are not judged by these clauses.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from conformance import compare, draw
from conformance.acceptance import laws, measure, models, strategies
from conformance.acceptance.calls import decide, determined, need_coins
from conformance.acceptance.cases import Batch
from conformance.acceptance.test_coins import against_the_rule
from conformance.check import Check
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation
from oracle.types import Decision, VerifyCase

STEPS = 22
BY_INPUTS = ("verify_greedy", "verify_sampled")
LAWS = ("iid", "point", "without_replacement")


FIRST = [
    pytest.param("iid", marks=pytest.mark.clauses("ACCEPTANCE-404"), id="iid"),
    pytest.param("point", marks=pytest.mark.clauses("ACCEPTANCE-405"), id="point"),
    pytest.param("without_replacement", marks=pytest.mark.clauses("ACCEPTANCE-406"), id="without_replacement"),
]
JOINT = [
    pytest.param("iid", marks=pytest.mark.clauses("ACCEPTANCE-504"), id="iid"),
    pytest.param("point", marks=pytest.mark.clauses("ACCEPTANCE-505"), id="point"),
    pytest.param("without_replacement", marks=pytest.mark.clauses("ACCEPTANCE-506"), id="without_replacement"),
]


@pytest.mark.clauses("ACCEPTANCE-111")
@pytest.mark.parametrize("operation", BY_INPUTS)
def test_trees_and_chains_share_a_call(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        together = decide(check, operation, batch)
        for i, found in enumerate(together):
            compare.check_structure(batch.cases[i], found, batch)
            alone = Batch((batch.cases[i],), None if batch.coins is None else (batch.coins[i],))
            (expected,) = decide(check, operation, alone)
            left, right = (determined(check, operation, d) for d in (expected, found))
            if left != right:
                raise ClauseViolation(
                    f"member {i} alone: {draw.decision(left)}; among trees and chains: {draw.decision(right)}"
                )

    check.for_all(strategies.mixed(peaked=operation == "verify_greedy"), body)


@pytest.mark.clauses("ACCEPTANCE-205")
def test_greedy_steps_into_the_child_that_carries_the_argmax(check: Check) -> None:
    check.require("verify_greedy")

    def body(case: VerifyCase) -> None:
        (found,) = decide(check, "verify_greedy", Batch((case,)))
        compare.check_greedy(case, Decision(found.path, road.greedy(case).frontier), check.is_oracle, case)

    check.for_all(strategies.trees(peaked=True) | strategies.twins(peaked=True), body)


@pytest.mark.clauses("ACCEPTANCE-206")
def test_greedy_stops_at_a_leaf_or_where_no_child_matches(check: Check) -> None:
    check.require("verify_greedy")

    def body(case: VerifyCase) -> None:
        (found,) = decide(check, "verify_greedy", Batch((case,)))
        compare.check_greedy(case, found, check.is_oracle, case)

    check.for_all(strategies.trees(peaked=True), body)


@pytest.mark.clauses("ACCEPTANCE-305")
@pytest.mark.parametrize("operation", ["verify_sampled", "verify_random"])
def test_trees_publish_no_impossible_token(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        (case,) = batch.cases
        crowd = Batch(batch.cases * 20, None, check.seed) if operation == "verify_random" else batch
        for found in decide(check, operation, crowd):
            compare.check_structure(case, found, batch)
            above = -1
            for node, token in [*((n, int(case.token[n])) for n in found.path), (-2, found.frontier)]:
                row = case.target_probs[above + 1]
                if not row[token] > 0:
                    raise ClauseViolation(
                        f"after {draw.node(above)} the row is p = {draw.row(row)}; the implementation published token "
                        f"{token}, which has no mass there"
                    )
                above = node

    check.for_all(strategies.with_coins(strategies.trees(), strategies.inner_coin), body)


@pytest.mark.parametrize("proposal", FIRST)
def test_first_token_law_by_coins(check: Check, proposal: str) -> None:
    need_coins(check, frontier=True)
    # of the second one two tokens are owed something, so that subtracting twice is not subtracting once
    forks = [models.fork_model(proposal), models.model(models.LAW_SEED, proposal, parent=(-1, -1))]
    check.for_each(forks, lambda model: laws.first_token_by_coins(check, model, STEPS))


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", FIRST)
def test_first_token_law_by_evidence(check: Check, proposal: str) -> None:
    check.require("verify_random")
    what = f"a tree ({proposal})"
    check.for_each(
        [models.fork_model(proposal)], lambda model: laws.first_token_by_evidence(check, model, what, share=0.5)
    )


@pytest.mark.parametrize("proposal", JOINT)
def test_joint_law_by_coins(check: Check, proposal: str) -> None:
    need_coins(check, frontier=True)
    check.for_each(models.tree_models(proposal), lambda model: laws.joint_by_coins(check, model, STEPS))


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", JOINT)
def test_joint_law_by_evidence(check: Check, proposal: str) -> None:
    check.require("verify_random")
    what = f"a tree ({proposal})"
    check.for_each(models.tree_models(proposal), lambda model: laws.joint_by_evidence(check, model, what, share=0.5))


@pytest.mark.clauses("ACCEPTANCE-608")
@pytest.mark.parametrize("proposal", LAWS)
def test_a_sibling_is_tested_against_what_is_left(check: Check, proposal: str) -> None:
    need_coins(check)

    def body(batch: Batch) -> None:
        ((case,), (spent,)) = batch.cases, batch.coins or ()
        test = road.decide(case, spent).tests[-1]
        allowed = compare.slack(check.arithmetic, case.target_probs.shape[1])
        (interval,) = measure.accept_intervals(check, [case], test.node, [spent.accept.tolist()], 40)
        threshold, found = test.p / test.q, Fraction(interval.share)
        # one residual more than 601: its masses and its normalisation stray, too
        owed = min(Fraction(1, 4), test.p)
        near = allowed.accept(test.p, test.q) + (2 * allowed.mass(Fraction(1), Fraction(1)) + allowed.cdf) / owed
        if abs(found - threshold) > near + Fraction(2) ** -40:
            raise ClauseViolation(
                f"node {test.node} (token {test.token}), after its first sibling was rejected: what is left gives p = "
                f"{draw.number(test.p)} and q = {draw.number(test.q)}, so {{clause}} accepts below "
                f"{draw.number(threshold)}; bisection finds {draw.number(found)}"
            )

    wanted = max(5, min(check.profile.examples, check.trials("verify_sampled") // 100))
    check.for_all(strategies.second_siblings(proposal), body, examples=wanted)


@pytest.mark.clauses("ACCEPTANCE-609")
@pytest.mark.parametrize("nodes", [pytest.param((2, 4), id="small"), pytest.param((6, 12), id="deep")])
def test_any_tree_coin_by_coin(check: Check, nodes: tuple[int, int]) -> None:
    need_coins(check)
    check.for_all(
        strategies.with_coins(strategies.trees(nodes), strategies.inner_coin),
        lambda batch: against_the_rule(check, batch),
    )
