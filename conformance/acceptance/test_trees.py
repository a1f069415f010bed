"""Trees: siblings in draw order, each against what the earlier ones left; every rung of the ladder again.

Verifiers of chains answer a tree with `NotApplicable`, and are not judged by these clauses.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from conformance import compare, draw
from conformance.acceptance import measure, models, sampling, strategies
from conformance.acceptance.calls import decide, determined, need_coins
from conformance.acceptance.cases import Batch, TableModel
from conformance.acceptance.test_coins import against_the_rule
from conformance.acceptance.test_joint import target_law, worst_sequences
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

    def body(model: TableModel) -> None:
        emitted = measure.emitted_law(check, model, STEPS)
        found = [sum(m for tokens, m in emitted.items() if tokens[0] == v) for v in range(model.vocabulary)]
        target = [float(p) for p in model.target[()]]
        allowed = measure.bound(check, model, STEPS)
        if max(abs(a - b) for a, b in zip(found, target)) > allowed:
            raise ClauseViolation(
                f"integrated over its coins, the first token has the law {draw.row(found)}; the target row is "
                f"{draw.row(target)}, and its arithmetic allows {allowed:.2g}"
            )

    # of the second one two tokens are owed something, so that subtracting twice is not subtracting once
    check.for_each([models.fork_model(proposal), models.model(models.LAW_SEED, proposal, parent=(-1, -1))], body)


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", FIRST)
def test_first_token_law_by_evidence(check: Check, proposal: str) -> None:
    check.require("verify_random")

    def body(model: TableModel) -> None:
        target = [float(p) for p in model.target[()]]

        def sample(trials: int, seed: int) -> list[int]:
            counts = [0] * model.vocabulary
            for tokens in sampling.published(check, model, trials, seed):
                counts[tokens[0]] += 1
            return counts

        process = check.weigh(
            f"the first token published by a tree ({proposal}) follows the target row at the root",
            target,
            sample,
            check.trials("verify_random", 0.5),
        )
        if process.alarmed:
            raise ClauseViolation(
                f"{process.observations} first tokens fell {list(process.counts)}; the target row {draw.row(target)} "
                f"expects {draw.row([p * process.observations for p in target])}"
            )

    check.for_each([models.fork_model(proposal)], body)


@pytest.mark.parametrize("proposal", JOINT)
def test_joint_law_by_coins(check: Check, proposal: str) -> None:
    need_coins(check, frontier=True)

    def body(model: TableModel) -> None:
        found = measure.completed(measure.emitted_law(check, model, STEPS), model, model.depth + 1)
        target = target_law(model)
        allowed = measure.bound(check, model, STEPS)
        if max(abs(found.get(k, 0.0) - m) for k, m in target.items()) > allowed:
            raise ClauseViolation(
                f"integrated over its coins, the sequence {worst_sequences(found, target)}: more than the "
                f"{allowed:.2g} of its arithmetic"
            )

    check.for_each(models.tree_models(proposal), body)


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", JOINT)
def test_joint_law_by_evidence(check: Check, proposal: str) -> None:
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
            f"what a tree ({proposal}) publishes, continued from the target, follows the target's joint law",
            [target[k] for k in order],
            sample,
            check.trials("verify_random", 0.5),
        )
        if process.alarmed:
            seen = {k: c / process.observations for k, c in zip(order, process.counts)}
            raise ClauseViolation(f"after {process.observations} rounds the sequence {worst_sequences(seen, target)}")

    check.for_each(models.tree_models(proposal), body)


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
