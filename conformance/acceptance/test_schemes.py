"""Coin schemes: which one is at work, and coin by coin the decisions of those that are not per node."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from adapters.interface import COIN_SCHEMES, Arithmetic
from conformance import compare, draw
from conformance.acceptance import strategies
from conformance.acceptance.calls import decide
from conformance.acceptance.cases import Batch, chain
from conformance.acceptance.scheme_cases import SCHEME_BATCHES
from conformance.check import Check
from conformance.roads import acceptance as road
from conformance.roads import schemes
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle.acceptance import verify_sampled
from oracle.types import Decision, VerifyCase


def by_scheme(check: Check, batch: Batch, scheme: str) -> list[Decision]:
    """What `scheme` admits at the declared precision, the exact decision first."""
    ((case,), (spent,)) = batch.cases, batch.coins or ()
    slack = compare.slack(check.arithmetic, case.target_probs.shape[1])
    if scheme == "per_node":
        return [trace.decision for trace in road.admissible(case, spent, slack)]
    return [outcome.decision for outcome in schemes.admissible(case, spent, scheme, slack)]


@st.composite
def falling_and_growing(draw_: st.DrawFn) -> VerifyCase:
    """A chain whose ratios p/q are below and above one in turn, so that the weight of its prefixes falls and grows."""
    size, count = draw_(st.integers(3, 4)), draw_(st.integers(2, 4))
    tokens = draw_(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
    falls = draw_(st.booleans())
    proposal = draw_(st.sampled_from(["iid", "iid", "point"]))
    target, draft = [], []
    for i in range(count + 1):
        weights = [draw_(st.integers(1, 9)) for _ in range(size)]
        plain = [w / sum(weights) for w in weights]
        share = draw_(st.integers(2, 6)) / 8
        token = tokens[min(i, count - 1)]
        heavy = [p * (1 - share) + share * (v == token) for v, p in enumerate(plain)]
        fewer = [w + 1 + v for v, w in enumerate(reversed(weights))]
        other = [w / sum(fewer) for w in fewer]
        target.append(other if falls == (i % 2 == 0) else heavy)
        draft.append(heavy if falls == (i % 2 == 0) else other)
    return chain(tokens, target, None if proposal == "point" else draft, proposal)


@pytest.mark.clauses("ACCEPTANCE-610")
def test_the_declared_scheme_is_the_observed_one(check: Check) -> None:
    check.require("verify_sampled")
    declared = check.convention("coin_scheme", "per_node")
    own = check.convention("frontier_coin", "inverse_cdf") == "own"
    open_to = set(COIN_SCHEMES)

    def body(batch: Batch) -> None:
        (found,) = decide(check, "verify_sampled", batch)
        for scheme in list(open_to):
            if scheme == "block" and not schemes.is_chain(batch.cases[0]):
                open_to.discard(scheme)  # it has no notion of siblings, and this implementation decided some
                continue
            admitted = by_scheme(check, batch, scheme)
            if found not in admitted and not (own and found.path in [d.path for d in admitted]):
                open_to.discard(scheme)
        if open_to and declared not in open_to:
            right = by_scheme(check, batch, declared)[0]
            raise ClauseViolation(
                f"declared is coin_scheme {declared!r}, which decides {draw.decision(right)}; the "
                f"implementation decides {draw.decision(found)}, as {' or '.join(sorted(open_to))} does"
            )

    check.for_each(SCHEME_BATCHES, body)
    check.observe("coin_scheme", " or ".join(sorted(open_to)) or "none that the suite knows")


@pytest.mark.clauses("ACCEPTANCE-611")
@pytest.mark.parametrize("shape", ["chains", "trees"])
def test_coin_by_coin_as_the_scheme_says(check: Check, shape: str) -> None:
    check.require("verify_sampled")
    scheme = check.convention("coin_scheme", "per_node")
    if scheme == "per_node":
        raise Inapplicable("its coins are per node; 601 to 609 judge them")
    if shape == "trees" and scheme == "block":
        raise Inapplicable("block verification decides chains")
    own = check.convention("frontier_coin", "inverse_cdf") == "own"

    def body(batch: Batch) -> None:
        ((case,), (spent,)) = batch.cases, batch.coins or ()
        (found,) = decide(check, "verify_sampled", batch)
        slack = compare.slack(check.arithmetic, case.target_probs.shape[1])
        admitted = schemes.admissible(case, spent, scheme, slack)
        if not check.is_oracle:
            exact = compare.slack(Arithmetic(), case.target_probs.shape[1])
            ours = verify_sampled([case], [spent], scheme)[0]
            if ours not in [outcome.decision for outcome in schemes.admissible(case, spent, scheme, exact)]:
                raise HarnessError(
                    f"the oracle decides {draw.decision(ours)}, the second road {draw.decision(admitted[0].decision)}"
                )
        check.decided(len(admitted) == 1)
        allowed = [outcome.decision for outcome in admitted]
        if found in allowed or (own and found.path in [decision.path for decision in allowed]):
            return
        raise ClauseViolation(
            f"{{clause}}, scheme {scheme}: {'; '.join(admitted[0].told)}; so {draw.decision(allowed[0])}. The "
            f"implementation decided {draw.decision(found)}"
        )

    chains = falling_and_growing() if scheme == "block" else strategies.chains((1, 4))
    cases = chains if shape == "chains" else strategies.trees() | strategies.twins()
    check.for_all(strategies.with_coins(cases, strategies.inner_coin), body)
