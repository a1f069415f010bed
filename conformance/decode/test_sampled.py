"""Sampled outputs: the law of the plain engine, token by token; and the law that the engine shows, where it does."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from conformance.check import Check
from conformance.decode import asking, sampling
from conformance.decode.sampling import CASES, LENGTH, Samples, Tokens
from conformance.roads import decode as road
from conformance.verdicts import ClauseViolation

VIEWS: dict[str, tuple[str, sampling.View]] = {
    "first": ("the first token", lambda prompt, output: (prompt, *output[:1])),
    "first two": ("the first two tokens", lambda prompt, output: (prompt, *output[:2])),
    "second and third": ("the second and third token", lambda prompt, output: (prompt, *output[1:3])),
}
LAWS = [
    pytest.param("first", marks=pytest.mark.clauses("DECODE-701")),
    pytest.param("first two", marks=pytest.mark.clauses("DECODE-702")),
    pytest.param("second and third", marks=pytest.mark.clauses("DECODE-703")),
]


@pytest.mark.statistical
@pytest.mark.parametrize("view", LAWS)
def test_the_law_is_that_of_the_plain_engine(check: Check, view: str) -> None:
    check.require("generate")

    def body(case: Samples) -> None:
        temperature, count = sampling.telling(check, case), sampling.pairs(check, case)
        both = [sampling.shared(check, case, temperature, count, 2 - on, bool(on)) for on in (1, 0)]
        what, look = VIEWS[view]
        first, second = ([look(i % len(case.lengths), output) for i, output in enumerate(one)] for one in both)
        null = f"at temperature {temperature:g} the law of {what} is one with speculation and without"
        sampling.weigh(check, null, first, second, ("with speculation", "without"))

    check.for_each(CASES, body)


@pytest.mark.statistical
@pytest.mark.clauses("DECODE-704")
def test_a_request_has_the_law_of_its_own_temperature(check: Check) -> None:
    """Between hotter and greedy requests, and among its own kind."""
    check.require("generate")

    def body(case: Samples) -> None:
        temperature, count = sampling.telling(check, case), sampling.pairs(check, case)
        beside = (min(4 * temperature, asking.engine(check).hottest), 0.0)
        mixed = sampling.draw(check, case, temperature, count, 3, beside=beside)
        uniform = sampling.shared(check, case, temperature, count, 2, False)
        first, second = ([(i % len(case.lengths), *output) for i, output in enumerate(s)] for s in (mixed, uniform))
        null = (
            f"beside requests of temperatures {beside[0]:g} and 0, one of {temperature:g} follows the law it has alone"
        )
        sampling.weigh(check, null, first, second, ("beside others", "among its kind"))

    check.for_each([Samples(22, (4, 2), 0.25)], body)


FLOOR = 2e-3
NAMED = 24


@pytest.mark.statistical
@pytest.mark.clauses("DECODE-705")
def test_the_law_is_that_which_is_shown(check: Check) -> None:
    check.require("generate", "next_law")

    def body(case: Samples) -> None:
        temperature = sampling.telling(check, case)
        (prompt,) = sampling.prompts(check, case)
        shown = asking.law(check, temperature)
        mass = road.likely(shown, tuple(prompt.tolist()), LENGTH, FLOOR)
        names: list[Tokens] = sorted(mass, key=lambda tokens: -mass[tokens])[:NAMED]
        law = [float(mass[tokens]) for tokens in names]
        law.append(max(0.0, 1 - math.fsum(law)))

        def sample(trials: int, seed: int) -> list[int]:
            seen = Counter(sampling.draw(check, case, temperature, trials, 16 + seed % 1000))
            counts = [seen[tokens] for tokens in names]
            return [*counts, trials - sum(counts)]

        null = f"at temperature {temperature:g} the first {LENGTH} tokens follow the law that the engine shows"
        process = check.weigh(null, law, sample, check.trials("generate", case.share))
        if process.alarmed:
            shares = [count / process.observations for count in process.counts]
            worst = max(range(len(law)), key=lambda i: abs(shares[i] - law[i]))
            what = str(list(names[worst])) if worst < len(names) else "any other output"
            raise ClauseViolation(
                f"over {process.observations} outputs {what} has a share of {shares[worst]:.3f}, and by the law of "
                f"{law[worst]:.3f}"
            )

    check.for_each([Samples(23, (3,), 0.5)], body)
