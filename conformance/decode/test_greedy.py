"""Greedy outputs: token by token those of the plain engine, alone and in a batch, whole and cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from conformance.check import Check
from conformance.decode import asking, strategies, ties
from conformance.decode.cases import (
    ALONE,
    CUTS,
    DRAFTS,
    MIXED,
    MIXED_DRAFTS,
    ONE_DRAFTS,
    ONE_TOKEN,
    PAGES,
    RAGGED,
    RAGGED_LIMITS,
    SAMPLED,
    SAMPLED_FIRST,
    SEVERAL_STOPS,
    STOPS,
    TWINS,
    Requests,
    prompts,
)
from conformance.roads import decode as road
from conformance.verdicts import ClauseViolation
from oracle.types import GenerateCase


@pytest.mark.clauses("DECODE-401")
def test_a_request_alone(check: Check) -> None:
    def body(requests: Requests) -> None:
        compare_all(check, requests)

    asking.run(check, strategies.batches(1, 1), body, (ALONE, ONE_TOKEN, PAGES))


@pytest.mark.clauses("DECODE-402")
def test_a_request_that_is_asked_again(check: Check) -> None:
    """In between the engine serves others, and a prompt that begins with all that it has just decoded."""

    def body(requests: Requests) -> None:
        (prompt,) = prompts(requests, asking.engine(check))
        limit = requests.limit(0)
        right = asking.decoded(check, prompt, limit)
        for turn in range(2):
            (found,) = asking.outputs(check, requests, again=True)
            ties.compare(check, f"the request, asked for the {('first', 'second')[turn]} time", found.tokens, right)
            longer = np.concatenate([prompt, np.array(right.tokens[: limit // 2], dtype=np.int64)])
            rest = max(8, limit // 2)
            (more,) = asking.answer(check, GenerateCase([longer], rest, 0.0, True, 0), again=True)
            words = f"a prompt of {len(longer)} tokens that goes on from it"
            ties.compare(check, words, more.tokens, asking.decoded(check, longer, rest))
            asking.outputs(check, SAMPLED, again=True)

    asking.run(check, strategies.batches(1, 1, one_limit=True), body, (ALONE, PAGES), examples=5)


@pytest.mark.clauses("DECODE-403")
def test_any_number_of_drafts(check: Check) -> None:
    def body(requests: Requests) -> None:
        compare_all(check, requests)

    asking.run(check, strategies.batches(1, 1, drafts=True), body, DRAFTS)


@pytest.mark.clauses("DECODE-501")
def test_a_ragged_batch(check: Check) -> None:
    def body(requests: Requests) -> None:
        compare_all(check, requests)

    asking.run(check, strategies.batches(2), body, (RAGGED, RAGGED_LIMITS, TWINS))


@pytest.mark.clauses("DECODE-502")
def test_different_numbers_of_drafts(check: Check) -> None:
    def body(requests: Requests) -> None:
        compare_all(check, requests)

    asking.run(check, strategies.batches(2, drafts=True), body, (MIXED_DRAFTS, ONE_DRAFTS))


@pytest.mark.clauses("DECODE-503")
def test_a_batch_that_is_turned_round(check: Check) -> None:
    def body(requests: Requests) -> None:
        asking.outputs(check, requests, again=True)
        compare_all(check, requests, order=list(reversed(range(len(requests.lengths)))))

    asking.run(check, strategies.batches(2), body, (RAGGED_LIMITS, RAGGED))


@pytest.mark.clauses("DECODE-504")
def test_beside_sampled_requests(check: Check) -> None:
    def body(requests: Requests) -> None:
        compare_all(check, requests)

    asking.run(check, strategies.batches(2, sampled=True), body, (MIXED, SAMPLED_FIRST))


@pytest.mark.clauses("DECODE-601")
def test_a_limit_cuts(check: Check) -> None:
    asking.run(check, strategies.batches(2, 6, shortest=1), lambda case: cut(check, case), (CUTS, RAGGED_LIMITS))


@pytest.mark.clauses("DECODE-602")
def test_a_stop_token_cuts(check: Check) -> None:
    asking.run(check, strategies.stopped(2), lambda case: cut(check, case), (*STOPS, *SEVERAL_STOPS))


def compare_all(check: Check, requests: Requests, order: Sequence[int] | None = None) -> None:
    """Every greedy member of a batch against the plain engine."""
    order = range(len(requests.lengths)) if order is None else order
    found = asking.outputs(check, requests, order=order)
    for place, i in enumerate(order):
        if i in requests.greedy:
            where = f"request {i}" if place == i else f"request {i}, number {place} of the batch"
            ties.compare(check, where, found[place].tokens, asking.plain(check, requests, i))


def cut(check: Check, requests: Requests) -> None:
    """Every member against the plain output, cut where it ends."""
    ending = asking.stop_tokens(check, requests)
    for i, found in enumerate(asking.outputs(check, requests)):
        plain = asking.plain(check, requests, i)
        right = road.cut(plain.tokens, requests.limit(i), ending)
        before = check.undecided
        ties.compare(check, f"request {i}", found.tokens, asking.Output(right, plain.margins))
        if check.undecided == before and len(found.tokens) != len(right):
            raise ClauseViolation(f"request {i} is {found.tokens}; the plain output, cut where it ends, is {right}")
