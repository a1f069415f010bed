"""Coin by coin: thresholds, residuals and inverse CDFs, to the last place that the dtype allows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from adapters.interface import DTYPES
from conformance import compare, draw
from conformance.acceptance import measure, strategies
from conformance.acceptance.calls import decide, need_coins
from conformance.acceptance.cases import LAST_COIN, WITNESSES, Batch, chain, one
from conformance.acceptance.scheme_cases import OPERATOR_TIES
from conformance.acceptance.test_support import without_residual
from conformance.check import Check
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation, Undecidable
from oracle.types import VerifyCase

FRONTIER_COINS = (0.125, 0.4375, 0.8125)


def against_the_rule(check: Check, batch: Batch) -> None:
    """Compare a decision with the accept rule and, where its coin means the same, the inverse CDF."""
    check.decided(agrees(check, batch))


def at_more_coins(check: Check, batch: Batch) -> None:
    """Compare decisions at the frontier coin drawn, and at others spread over [0, 1)."""
    ((case,), (spent,)) = batch.cases, batch.coins or ()
    check.decided(any([agrees(check, one(case, spent.accept.tolist(), u)) for u in (spent.frontier, *FRONTIER_COINS)]))


def agrees(check: Check, batch: Batch) -> bool:
    """Whether the decision is right; False where this precision cannot tell."""
    ((case,), (spent,)) = batch.cases, batch.coins or ()
    (found,) = decide(check, "verify_sampled", batch)
    if check.convention("frontier_coin", "inverse_cdf") == "own":
        # its frontier coin is its own: only the path is compared, at any frontier
        allowed = compare.slack(check.arithmetic, case.target_probs.shape[1])
        traces = road.admissible(case, spent, allowed)
        if found.path not in [trace.decision.path for trace in traces]:
            raise ClauseViolation(compare.divergence(traces[0], found))
        return len({trace.decision.path for trace in traces}) == 1
    return compare.check_sampled(case, spent, found, check.arithmetic, check.is_oracle, batch)


@st.composite
def partly_accepted(draw_: st.DrawFn) -> VerifyCase:
    """A chain in which each draft has p < q, both positive, so that every threshold lies inside (0, 1)."""
    size, count = draw_(st.integers(2, 5)), draw_(st.integers(1, 3))
    tokens = draw_(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
    proposal = draw_(st.sampled_from(strategies.SAMPLED_AND_POINT))
    target, draft = [], []
    for i in range(count + 1):
        weights = [draw_(st.integers(1, 9)) for _ in range(size)]
        p = [w / sum(weights) for w in weights]
        q = list(p)
        if i < count:  # move draft mass onto the token, by a share of what the others have
            share = draw_(st.integers(1, 7)) / 8
            q = [v * (1 - share) for v in p]
            q[tokens[i]] = p[tokens[i]] + share * (1 - p[tokens[i]])
        target.append(p)
        draft.append(q)
    return chain(tokens, target, None if proposal == "point" else draft, proposal)


@pytest.mark.clauses("ACCEPTANCE-601")
def test_the_threshold_is_the_ratio(check: Check) -> None:
    need_coins(check)
    steps = min(60, 2 + math.ceil(-math.log2(DTYPES[check.arithmetic.coin_dtype])))
    calls = 3 * (steps + 2)
    examples = max(3, min(check.profile.examples, check.trials("verify_sampled") // calls))

    def body(case: VerifyCase) -> None:
        allowed = compare.slack(check.arithmetic, case.target_probs.shape[1])
        spent: list[float] = []
        for node in range(len(case.parent)):
            token = int(case.token[node])
            p = Fraction(float(case.target_probs[node][token]))
            q = Fraction(float(case.draft_probs[node][token])) if case.draft_probs is not None else Fraction(1)
            threshold = min(Fraction(1), p / q)
            coins = [*spent, *[0.5] * (len(case.parent) - node)]
            (interval,) = measure.accept_intervals(check, [case], node, [coins], steps)
            found = Fraction(interval.share)
            if abs(found - threshold) > allowed.accept(p, q) * threshold + Fraction(2) ** -steps:
                raise ClauseViolation(
                    f"{draw.node(node)} (token {token}): min(1, p/q) = {draw.number(p)} / {draw.number(q)} = "
                    f"{draw.number(threshold)}, so {{clause}} accepts below that coin; bisection finds "
                    f"{draw.number(found)}, a factor {draw.number(found / threshold)}"
                )
            spent.append(float(threshold) / 2)

    check.for_all(partly_accepted(), body, examples=examples)


@pytest.mark.clauses("ACCEPTANCE-602")
def test_equal_laws_accept(check: Check) -> None:
    need_coins(check)
    rows = [[0.125, 0.625, 0.25], [0.25, 0.25, 0.5], [0.3, 0.1, 0.6], [0.0, 1.0, 0.0]]
    batches = []
    for i, row in enumerate(rows):
        for token in range(3):
            if row[token] > 0:
                p, q = Fraction(row[token]), Fraction(row[token])
                margin = compare.slack(check.arithmetic, 3).accept(p, q)
                last = min(LAST_COIN, math.floor((1 - margin) * 2**24 - 1) / 2**24)
                for coin in (0.0, 0.5, last):
                    case = chain([token], [row, rows[(i + 1) % 4]], [row, rows[(i + 2) % 4]], "iid")
                    batches.append(one(case, [coin], 0.5))

    def body(batch: Batch) -> None:
        ((case,), (spent,)) = batch.cases, batch.coins or ()
        (found,) = decide(check, "verify_sampled", batch)
        if found.path != (0,):
            p = case.target_probs[0][case.token[0]]
            u = spent.accept[0]
            raise ClauseViolation(
                f"node 0: p = q = {draw.number(p)}, so u·q = {draw.number(u * p)} < p at u = {draw.number(u)} and "
                "{clause} accepts; the implementation rejected"
            )

    check.for_each(batches, body)


@pytest.mark.clauses("ACCEPTANCE-603")
def test_a_draft_without_draft_mass_is_accepted(check: Check) -> None:
    need_coins(check)
    first = WITNESSES["draft_of_no_draft_mass"]
    rows = [[0.5, 0.125, 0.375], [0.25, 0.5, 0.25], [0.125, 0.25, 0.625]]
    laws = [[0.25, 0.5, 0.25], [0.75, 0.0, 0.25], [0.5, 0.25, 0.25]]
    second = one(chain([0, 1], rows, laws, "iid"), [0.25, 0.75], 0.5)

    def body(batch: Batch) -> None:
        (found,) = decide(check, "verify_sampled", batch)
        (case,) = batch.cases
        node = len(case.parent) - 1
        if node not in found.path:
            p = case.target_probs[node][case.token[node]]
            raise ClauseViolation(
                f"node {node}: q = 0, so u·q = 0 < p = {draw.number(p)} and {{clause}} accepts; the implementation "
                "rejected"
            )

    check.for_each([first, second], body)


@st.composite
def ended(draw_: st.DrawFn, rejected: bool) -> Batch:
    """Chains whose outcome no rounding can change: all drafts accepted, or the last one rejected."""
    size, count = draw_(st.integers(3, 6)), draw_(st.integers(1, 3))
    tokens = draw_(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
    target = draw_(strategies.rows(count + 1, size, tokens))
    proposal = draw_(st.sampled_from(strategies.SAMPLED_AND_POINT))
    draft = None if proposal == "point" else draw_(strategies.rows(count + 1, size, tokens))
    spent = [0.0] * count
    if rejected:
        # p is 0 or 1/4 and q at least 1/2, so the coin 3/4 is far from the threshold
        p, token = target[count - 1], tokens[-1]
        p[token] = 0.0
        if sum(p) == 0:
            p[(token + 1) % size] = 1.0
        p[token] = draw_(st.sampled_from([0, 1])) * sum(p) / 3
        target[count - 1] = [v / sum(p) for v in p]
        if draft is not None:
            q = draft[count - 1]
            q[token] += sum(q)
            draft[count - 1] = [v / sum(q) for v in q]
        spent[-1] = 0.75
    return one(chain(tokens, target, draft, proposal), spent, draw_(strategies.coin))


@pytest.mark.clauses("ACCEPTANCE-604")
def test_the_frontier_after_a_rejection(check: Check) -> None:
    need_coins(check, frontier=True)
    check.for_all(ended(rejected=True), lambda batch: at_more_coins(check, batch))


@pytest.mark.clauses("ACCEPTANCE-605")
def test_the_frontier_after_full_acceptance(check: Check) -> None:
    need_coins(check, frontier=True)
    check.for_all(ended(rejected=False), lambda batch: at_more_coins(check, batch))


@pytest.mark.clauses("ACCEPTANCE-606")
@pytest.mark.parametrize(
    ("drafts", "vocabulary"),
    [
        pytest.param((0, 3), (2, 4), id="small"),
        pytest.param((4, 8), (5, 9), id="long"),
        pytest.param((1, 2), (40, 300), id="wide"),
    ],
)
def test_any_chain_coin_by_coin(check: Check, drafts: tuple[int, int], vocabulary: tuple[int, int]) -> None:
    need_coins(check)
    if drafts[0] == 0:
        cases = strategies.with_coins(strategies.chains(drafts, vocabulary), strategies.inner_coin)
        check.for_all(cases, lambda batch: against_the_rule(check, batch))
        check.for_each(without_residual(check), lambda batch: against_the_rule(check, batch))
    else:
        ways = [seeded(drafts, vocabulary, coin) for coin in (strategies.inner_coin, strategies.small_coin)]
        examples = check.profile.examples if drafts[0] > 1 else min(20, check.profile.examples)
        check.for_all(st.one_of(ways), lambda batch: against_the_rule(check, batch), examples)


@st.composite
def seeded(
    draw_: st.DrawFn, drafts: tuple[int, int], vocabulary: tuple[int, int], coin: st.SearchStrategy[float]
) -> Batch:
    """Rows from a drawn seed, which is quick to shrink however many there are; the last token id takes part."""
    size, count, seed = draw_(st.integers(*vocabulary)), draw_(st.integers(*drafts)), draw_(strategies.seeds)
    generator = np.random.default_rng(seed)
    weights = generator.integers(0, 50, (2, count + 1, size))
    weights[0, :, 0] += 1
    weights[1] += 1
    laws = weights / weights.sum(axis=2, keepdims=True)
    tokens = [size - 1, *generator.integers(0, size, count)][:count]
    proposal = draw_(st.sampled_from(strategies.SAMPLED_AND_POINT))
    case = chain(tokens, laws[0], None if proposal == "point" else laws[1], proposal)
    return one(case, draw_(st.lists(coin, min_size=count, max_size=count)), draw_(strategies.coin))


@pytest.mark.clauses("ACCEPTANCE-607")
def test_the_accept_operator_is_the_declared_one(check: Check) -> None:
    need_coins(check)
    declared = check.convention("accept_operator", "<")
    accepted: list[bool] = []
    check.for_each(OPERATOR_TIES, lambda batch: accepted.append(0 in decide(check, "verify_sampled", batch)[0].path))
    if len(set(accepted)) == 2:
        raise Undecidable("rounding decides some of the exact ties one way and some the other")
    seen = "<=" if accepted[0] else "<"
    check.observe("accept_operator", seen)
    if seen != declared:
        raise ClauseViolation(
            f"where u·q = p exactly, the implementation {'accepts' if accepted[0] else 'rejects'}: it uses u·q {seen} "
            f"p and declares {declared!r}",
            OPERATOR_TIES[0],
        )
