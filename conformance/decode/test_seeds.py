"""Seeds: what a request draws is its own affair."""

from __future__ import annotations

import pytest

from conformance.check import Check
from conformance.decode import asking, sampling, strategies
from conformance.decode.cases import MIXED, SAMPLED, SAMPLED_FIRST, Requests
from conformance.decode.sampling import Samples, Tokens
from conformance.verdicts import ClauseViolation

HOT = 30.0
HOT_OUTPUTS = 64
"""So many outputs of three tokens, all equal: where no token has nine tenths of the mass, once in 10⁸ runs or less."""


@pytest.mark.clauses("DECODE-801")
def test_the_same_seeds_give_the_same_outputs(check: Check) -> None:
    asking.promised(check, "seed")

    def body(requests: Requests) -> None:
        one, other = (asking.outputs(check, requests, again=True) for _ in range(2))
        for i, (a, b) in enumerate(zip(one, other)):
            if a.tokens != b.tokens:
                raise ClauseViolation(f"request {i} is {a.tokens}, and asked again with its seed {b.tokens}")

    asking.run(check, strategies.batches(sampled=True), body, (SAMPLED, MIXED, SAMPLED_FIRST), examples=10)


@pytest.mark.statistical
@pytest.mark.clauses("DECODE-802")
def test_different_seeds_draw_independently(check: Check) -> None:
    """Neighbours in one call against members of two calls: were one of both dependent, their laws would differ."""
    check.require("generate")

    def body(case: Samples) -> None:
        heat = min(HOT, asking.engine(check).hottest)
        hot = sampling.draw(check, case, heat, HOT_OUTPUTS, 7)
        if len(set(hot)) == 1:
            raise ClauseViolation(
                f"at temperature {heat:g} {HOT_OUTPUTS} requests with different seeds have one output, {list(hot[0])}"
            )
        temperature, count = sampling.telling(check, case), sampling.pairs(check, case)
        calls = [
            sampling.draw(check, case, temperature, size, 8 + i) for i, size in enumerate((2 * count, count, count))
        ]
        coarse = sampling.Categories(calls[0][: max(1, count // sampling.PILOT)], 3)
        kinds: list[list[Tokens]] = [[(coarse.of(output[:3]),) for output in call] for call in calls]
        together = [(*a, *b) for a, b in zip(kinds[0][::2], kinds[0][1::2])]
        apart = [(*a, *b) for a, b in zip(kinds[1], kinds[2])]
        null = "two neighbours in a call are as independent as two members of different calls"
        sampling.weigh(check, null, together, apart, ("side by side", "in two calls"))

    check.for_each([Samples(24, (4,), 0.25)], body)


@pytest.mark.clauses("DECODE-803")
def test_a_sampled_request_does_not_depend_on_those_beside_it(check: Check) -> None:
    asking.promised(check, "seed", "request_independent")

    def body(requests: Requests) -> None:
        count = len(requests.lengths)
        whole = asking.outputs(check, requests)
        turned = asking.outputs(check, requests, order=list(reversed(range(count))))[::-1]
        for i in range(count):
            (alone,) = asking.outputs(check, requests, order=[i])
            for words, other in (("alone", alone), ("in the batch turned round", turned[i])):
                if whole[i].tokens != other.tokens:
                    raise ClauseViolation(f"request {i} is {whole[i].tokens} in its batch, and {words} {other.tokens}")

    asking.run(check, strategies.batches(2, sampled=True), body, (SAMPLED, MIXED, SAMPLED_FIRST), examples=10)
