"""Support: a token that the target rules out is never published, whatever the coin."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import strategies as st

from adapters.interface import DTYPES
from conformance import compare, draw
from conformance.acceptance import strategies
from conformance.acceptance.calls import decide, need_coins
from conformance.acceptance.cases import LAST_COIN, WITNESSES, Batch, chain, coins, one
from conformance.check import Check
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation, Inapplicable
from oracle.types import Coins, VerifyCase

CROWD = 40
"""Members of a batch in which an implementation with its own coins is asked the same question again."""


@st.composite
def impossible_drafts(draw_: st.DrawFn, coin: st.SearchStrategy[float]) -> Batch:
    """A chain whose last draft has zero target probability and is reached for certain."""
    size = draw_(st.integers(2, 5))
    tokens = draw_(st.lists(st.integers(0, size - 1), min_size=1, max_size=3))
    last = len(tokens) - 1
    if last and draw_(st.booleans()):  # the row before is certain of the very token
        tokens[last - 1] = tokens[last]
    target = draw_(strategies.rows(len(tokens) + 1, size, tokens[:last]))
    for i in range(last):  # nothing but the draft is possible, so every coin accepts it
        target[i] = [float(v == tokens[i]) for v in range(size)]
    weights = [0 if v == tokens[last] else 1 + (v * 5) % 7 for v in range(size)]
    target[last] = [w / sum(weights) for w in weights]
    proposal = draw_(st.sampled_from(strategies.SAMPLED_AND_POINT))
    draft = None if proposal == "point" else draw_(strategies.rows(len(tokens) + 1, size, tokens))
    spent = [draw_(strategies.inner_coin) for _ in tokens[:-1]] + [draw_(coin)]
    return one(chain(tokens, target, draft, proposal), spent, draw_(strategies.coin))


def refuse_last(check: Check, operation: str, batch: Batch) -> None:
    for found in decide(check, operation, batch):
        case = batch.cases[0]
        last = len(case.parent) - 1
        if last in found.path:
            coin = "" if batch.coins is None else f" with u = {draw.number(batch.coins[0].accept[last])}"
            raise ClauseViolation(
                f"node {last}{coin}: p(token {int(case.token[last])}) = 0, so u·q < p is false for every u and "
                f"{{clause}} rejects it; the implementation accepted it"
            )


@pytest.mark.clauses("ACCEPTANCE-301")
@pytest.mark.parametrize("operation", ["verify_sampled", "verify_random"])
def test_an_impossible_draft_is_rejected(check: Check, operation: str) -> None:
    check.require(operation)
    coin = st.one_of(st.sampled_from([2.0**-24, 2.0**-20, LAST_COIN]), strategies.inner_coin)

    def body(batch: Batch) -> None:
        crowd = Batch(batch.cases * CROWD, None, check.seed) if operation == "verify_random" else batch
        refuse_last(check, operation, crowd)

    check.for_all(impossible_drafts(coin), body, examples=min(check.profile.examples, 40))


@pytest.mark.clauses("ACCEPTANCE-302")
def test_an_impossible_draft_is_rejected_by_the_coin_zero(check: Check) -> None:
    need_coins(check)

    def body(batch: Batch) -> None:
        refuse_last(check, "verify_sampled", batch)

    check.for_each([WITNESSES["impossible_draft_at_coin_zero"]], body)
    check.for_all(impossible_drafts(st.just(0.0)), body)


@st.composite
def gapped(draw_: st.DrawFn) -> Batch:
    """Chains whose target rows have gaps, the first and the last token often among them."""
    size = draw_(st.integers(3, 6))
    count = draw_(st.integers(1, 3))
    tokens = draw_(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
    target = []
    for i in range(count + 1):
        weights = draw_(st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), min_size=size, max_size=size))
        weights[draw_(st.integers(1, size - 2))] += 1 + i
        target.append([w / sum(weights) for w in weights])
    proposal = draw_(st.sampled_from(strategies.SAMPLED_AND_POINT))
    draft = None if proposal == "point" else draw_(strategies.rows(count + 1, size, tokens))
    accept = draw_(st.lists(strategies.inner_coin, min_size=count, max_size=count))
    frontier = draw_(st.one_of(st.sampled_from([0.0, LAST_COIN]), strategies.coin))
    return one(chain(tokens, target, draft, proposal), accept, frontier)


@pytest.mark.clauses("ACCEPTANCE-303")
@pytest.mark.parametrize("operation", ["verify_sampled", "verify_random"])
def test_the_frontier_has_target_mass(check: Check, operation: str) -> None:
    check.require(operation)

    def body(batch: Batch) -> None:
        crowd = Batch(batch.cases * CROWD, None, check.seed) if operation == "verify_random" else batch
        for found in decide(check, operation, crowd):
            row = batch.cases[0].target_probs[len(found.path)]
            if not 0 <= found.frontier < len(row) or not row[found.frontier] > 0:
                raise ClauseViolation(
                    f"the walk stops at {draw.node(len(found.path) - 1)}, whose row is p = {draw.row(row)}; "
                    f"the frontier {found.frontier} has no mass there"
                )

    check.for_all(gapped(), body, examples=min(check.profile.examples, 60))


def without_residual(check: Check) -> list[Batch]:
    """Drafts with p = q up to rounding, and the last coin, which only rounding lets reject them."""
    batches = [WITNESSES[name] for name in WITNESSES if name.startswith("no_residual_left")]
    last = 1 - 2 * DTYPES[check.arithmetic.coin_dtype]
    for token, other, frontier in ((0, 1, 0.0), (2, 0, 0.625)):
        # one unit in the last place too much, then a difference that narrower dtypes cannot see
        for step, balance in ((2.0**-53, 0.0), (2.0**-40, 2.0**-40)):
            p = [0.25, 0.125, 0.625, 0.0]
            q = list(p)
            q[token] += step
            q[other] -= balance
            case = chain([token], [p, [0.125, 0.5, 0.25, 0.125]], [q, [0.5, 0.25, 0.125, 0.125]], "iid")
            batches.append(Batch((case,), (coins([last], frontier),)))
    return batches


def leaves_a_residual(case: VerifyCase, allowed: road.Slack) -> bool:
    """Whether (p − q)+ at the root weighs more than rounding may."""
    assert case.draft_probs is not None
    pairs = [(Fraction(float(p)), Fraction(float(q))) for p, q in zip(case.target_probs[0], case.draft_probs[0])]
    return sum(max(p - q, Fraction(0)) for p, q in pairs) > sum(allowed.mass(p, q) for p, q in pairs)


@pytest.mark.clauses("ACCEPTANCE-304")
def test_the_frontier_without_a_residual_comes_from_the_target_row(check: Check) -> None:
    """Which coins reject, and in which direction the row is read, are matters of 606."""
    need_coins(check)
    frontier_counts = check.convention("frontier_coin", "inverse_cdf") == "inverse_cdf"

    def body(batch: Batch) -> None:
        ((case,), (spent,)) = batch.cases, batch.coins or ()
        (found,) = decide(check, "verify_sampled", batch)
        compare.check_structure(case, found, batch)
        if found.path:
            raise Inapplicable("nothing was rejected, so nothing had to be left")
        if leaves_a_residual(case, allowed := compare.slack(check.arithmetic, case.target_probs.shape[1])):
            raise Inapplicable("this arithmetic is fine enough to see a residual")
        row = case.target_probs[len(found.path)]
        if not row[found.frontier] > 0:
            raise ClauseViolation(
                f"p and q are equal up to rounding, so the frontier comes from p = {draw.row(row)}; "
                f"the implementation published {found.frontier}, which has no mass there"
            )
        if frontier_counts:
            mirrored = Coins(spent.accept, min(1 - spent.frontier, LAST_COIN))
            ways = [t for c in (spent, mirrored) for t in road.admissible(case, c, allowed) if not t.decision.path]
            if ways and found.frontier not in [trace.decision.frontier for trace in ways]:
                raise ClauseViolation(compare.divergence(ways[0], found))
            check.decided(len({trace.decision.frontier for trace in ways}) <= 2)

    check.for_each(without_residual(check), body)
