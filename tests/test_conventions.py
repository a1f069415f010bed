"""Every two conventions that concern acceptance are told apart by a case of the suite, in any usual precision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from adapters.interface import COIN_SCHEMES, TOP_K_TIES, Arithmetic
from conformance import compare, smoke
from conformance.acceptance import warped
from conformance.acceptance.cases import Batch
from conformance.acceptance.scheme_cases import OPERATOR_TIES, SCHEME_BATCHES
from conformance.acceptance.warp_cases import ORDER_ROWS, TIES_OF_THE_KTH
from conformance.roads import acceptance as road
from conformance.roads import schemes
from oracle.acceptance import verify_sampled
from oracle.types import Decision, WarpCase
from oracle.warping import STAGES

NARROW = Arithmetic("float32", "float32", via_logits=True, draft_via_logits=True)


def rows(case: WarpCase, order: str, ties: str) -> list[float]:
    return [float(p) for p in warped.by_road(case, order, ties)[0].law]


def tell_apart(case: WarpCase, one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether float32 can tell the two conventions apart on `case`."""
    for a, b in ((one, other), (other, one)):
        judge = warped.Judge(case, 0, warped.by_road(case, *a)[0], "float32")
        if judge.decidable and judge.differs(np.array(rows(case, *b))):
            return True
    return False


def differ_somewhere(one: str, other: str) -> bool:
    """Whether two orders ever differ: top-k and min-p commute, so it is what top-p and min-p look at."""

    def seen(order: str) -> tuple[object, ...]:
        place = {name: i for i, stage in enumerate(order.split(",")) for name in stage.split("+")}
        before = [name for name in place if "top_p" in place and place[name] < place["top_p"]]
        cold = place.get("min_p", 9) < place.get("temperature", -1)
        return frozenset(before), cold

    return seen(one) != seen(other)


@pytest.mark.parametrize("names", [STAGES, STAGES[:3]], ids=["all filters", "without min-p"])
def test_filter_orders(names: tuple[str, ...]) -> None:
    cases = [case for case in ORDER_ROWS if "min_p" in names or case.min_p == 0]
    assert cases
    pairs = list(itertools.combinations(warped.orders(names), 2))
    assert len(pairs) in (28, 946)
    for one, other in pairs:
        apart = any(tell_apart(case, (one, "exact"), (other, "exact")) for case in cases)
        assert apart == differ_somewhere(one, other), (one, other)


def test_ties_of_the_kth() -> None:
    one, other = TOP_K_TIES
    assert all(tell_apart(case, ("top_k", one), ("top_k", other)) for case in TIES_OF_THE_KTH)


def by_scheme(batch: Batch, scheme: str) -> list[Decision]:
    ((case,), (spent,)) = batch.cases, batch.coins or ()
    slack = compare.slack(NARROW, case.target_probs.shape[1])
    if scheme == "per_node":
        return [trace.decision for trace in road.admissible(case, spent, slack)]
    return [outcome.decision for outcome in schemes.admissible(case, spent, scheme, slack)]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(COIN_SCHEMES, 2)))
def test_coin_schemes(one: str, other: str) -> None:
    apart = []
    for batch in SCHEME_BATCHES:
        if schemes.is_chain(batch.cases[0]) or "block" not in (one, other):
            left, right = by_scheme(batch, one), by_scheme(batch, other)
            # the paths alone, since some implementations have a frontier coin of their own
            apart.append(not {d.path for d in left} & {d.path for d in right})
    assert any(apart)


@pytest.mark.parametrize("scheme", COIN_SCHEMES)
def test_the_oracle_decides_the_scheme_batches(scheme: str) -> None:
    for batch in SCHEME_BATCHES:
        if scheme != "block" or schemes.is_chain(batch.cases[0]):
            assert verify_sampled(batch.cases, batch.coins or (), scheme) == by_scheme(batch, scheme)[:1]


def test_accept_operators() -> None:
    """u·q = p without rounding: < rejects, ≤ accepts."""
    for batch in OPERATOR_TIES:
        ((case,), (spent,)) = batch.cases, batch.coins or ()
        test = road.decide(case, spent).tests[0]
        assert test.u * test.q == test.p and not test.accepted


def test_accepted_counts() -> None:
    """Nothing is accepted: the path is empty where drafts are counted, and is not where the frontier is, too."""
    case = smoke.reject_everything("point")
    assert verify_sampled([case], [compare.Coins(np.array([0.25, 0.375]), 0.625)])[0].path == ()
