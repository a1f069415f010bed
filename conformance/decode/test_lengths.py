"""Where an output ends: at its limit, or at a stop token."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.decode import asking, strategies
from conformance.decode.cases import (
    ALONE,
    CUTS,
    MIXED,
    ONE_TOKEN,
    RAGGED,
    RAGGED_LIMITS,
    SAMPLED,
    SAMPLED_FIRST,
    SEVERAL_STOPS,
    STOPS,
    Requests,
)
from conformance.decode.test_structure import SPECULATIVE
from conformance.verdicts import ClauseViolation

ONE_LIMIT = (ALONE, ONE_TOKEN, RAGGED, MIXED, *(Requests(20, (4, 7), (limit,)) for limit in (1, 2, 3, 5)))
OWN_LIMITS = (RAGGED_LIMITS, CUTS, SAMPLED, SAMPLED_FIRST)


@pytest.mark.clauses("DECODE-201")
@SPECULATIVE
def test_no_output_is_longer_than_its_limit(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        for i, found in enumerate(asking.outputs(check, requests, speculative)):
            if len(found.tokens) > requests.limit(i):
                raise ClauseViolation(
                    f"request {i} has {len(found.tokens)} tokens: {found.tokens}; its limit is {requests.limit(i)}"
                )

    asking.run(check, strategies.batches(sampled=True, one_limit=True, shortest=1), body, ONE_LIMIT)


@pytest.mark.clauses("DECODE-202")
@SPECULATIVE
def test_no_output_ends_before_its_limit(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        for i, found in enumerate(asking.outputs(check, requests, speculative)):
            if len(found.tokens) < requests.limit(i):
                raise ClauseViolation(
                    f"request {i} ends after {len(found.tokens)} tokens: {found.tokens}; nothing stops it before "
                    f"{requests.limit(i)}"
                )

    asking.run(check, strategies.batches(sampled=True, one_limit=True, shortest=1), body, ONE_LIMIT)


@pytest.mark.clauses("DECODE-203")
@SPECULATIVE
def test_every_request_has_a_limit_of_its_own(check: Check, speculative: bool) -> None:
    def body(requests: Requests) -> None:
        lengths = [len(found.tokens) for found in asking.outputs(check, requests, speculative)]
        right = [requests.limit(i) for i in range(len(lengths))]
        if lengths != right:
            raise ClauseViolation(f"outputs have {lengths} tokens, and the limits are {right}")

    asking.run(check, strategies.batches(2, sampled=True, shortest=1), body, OWN_LIMITS)


@pytest.mark.clauses("DECODE-301")
@SPECULATIVE
def test_nothing_follows_a_stop_token(check: Check, speculative: bool) -> None:
    asking.run(check, strategies.stopped(), lambda case: stops(check, case, speculative), STOPS)


@pytest.mark.clauses("DECODE-302")
@SPECULATIVE
def test_each_of_several_stop_tokens_ends_an_output(check: Check, speculative: bool) -> None:
    asking.run(check, strategies.stopped(3), lambda case: stops(check, case, speculative), SEVERAL_STOPS)


def stops(check: Check, requests: Requests, speculative: bool) -> None:
    """`ClauseViolation` where a stop token is not the last, or where an output ends without one or its limit."""
    ending = asking.stop_tokens(check, requests)
    for i, found in enumerate(asking.outputs(check, requests, speculative)):
        places = [step for step, token in enumerate(found.tokens) if token in ending]
        if places and places[0] != len(found.tokens) - 1:
            raise ClauseViolation(
                f"request {i}: token {places[0]} is the stop token {found.tokens[places[0]]}, and after it stand "
                f"{found.tokens[places[0] + 1 :]}"
            )
        if not places and len(found.tokens) < requests.limit(i):
            raise ClauseViolation(
                f"request {i} ends after {len(found.tokens)} of {requests.limit(i)} tokens, and none of them is a stop "
                f"token: {found.tokens}; these are {list(ending)}"
            )
