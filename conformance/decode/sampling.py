"""Sampled outputs by the hundred: drawn once, looked at through several views, each weighed as two samples.

One sample comes from the engine with speculation, the other without. Nothing is known of the law, so the temperature is
looked for at which a few outputs come up again and again; there a sample says most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.casefile import storable
from conformance.check import Check
from conformance.decode import asking
from conformance.evidence import Statement
from conformance.profiles import ALPHA_OF_A_CHECK
from conformance.two_samples import POWER, TwoSamples, detectable_distance, sizes
from conformance.verdicts import ClauseViolation, Inapplicable, Undecidable
from oracle.types import GenerateCase, Ids, Rows

LENGTH = 3
"""Tokens of a sampled output: prefill gives the first, the first round of drafts the others."""
NAMED = 8
"""Outcomes that are categories of their own: the most frequent ones of the pilot."""
OTHERS = 4
"""Categories of all other outcomes."""
LEAST_PAIRS = 400
PILOT = 10
"""A sample's first tenth names the categories; the evidence begins behind it."""
TEMPERATURES = (30.0, 10.0, 3.0, 1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.01)
TRIED = 24
"""Outputs that are looked at for each temperature."""
COMING_AGAIN = 0.12
"""How often two outputs at the temperature that is looked for are the same, at least."""

Tokens = tuple[int, ...]
View = Callable[[int, Tokens], Tokens]
"""Which prompt an output has, and its tokens → what of it is looked at."""


@storable
@dataclass(frozen=True, eq=False)
class Samples:
    """Many short requests of a few prompts. seed: prompts are drawn from it, and the requests' seeds. lengths: of the
    prompts, which take turns. share: of the trials that a profile has time for."""

    seed: int
    lengths: tuple[int, ...]
    share: float = 1.0

    def drawn(self) -> str:
        lengths = ", ".join(map(str, self.lengths))
        return f"requests of {LENGTH} tokens in turns for prompts of {lengths} tokens, drawn from seed {self.seed}"


PROMPTS = Samples(21, (4, 2))
CASES = (PROMPTS,)


def prompts(check: Check, case: Samples) -> list[Ids]:
    vocabulary = asking.engine(check).vocabulary
    return [np.random.default_rng([case.seed, i]).integers(0, vocabulary, n) for i, n in enumerate(case.lengths)]


def pairs(check: Check, case: Samples) -> int:
    """How many pairs of requests the profile has time for."""
    return check.trials("generate", case.share / 2, LEAST_PAIRS)


_DRAWN: dict[tuple[str, object], list[Tokens]] = {}


def draw(
    check: Check,
    case: Samples,
    temperature: float,
    count: int,
    stream: int,
    speculative: bool = True,
    beside: Sequence[float] = (),
    least: int = LENGTH,
) -> list[Tokens]:
    """`count` outputs, the prompts in turns, each with a seed of its own, all in one call.

    stream: seeds of different streams differ. beside: temperatures of requests that stand between them. least: tokens
    that an output has to have.
    """
    found = prompts(check, case)
    width = len(beside) + 1
    size = count * width
    laid: list[float] = [*beside, temperature] * count
    salt = 0 if check.profile.repeatable else check.seed
    seeds = np.random.default_rng([case.seed, stream, salt]).permutation(size) + stream * 2**20 + salt
    asked = GenerateCase(
        [found[(i // width) % len(found)] for i in range(size)],
        LENGTH,
        np.array(laid) if beside else temperature,
        speculative,
        seeds.astype(np.int64),
    )
    generations = asking.raw(check, asked)
    outputs = [tuple(asking.read(one, f"generation {i}").tokens) for i, one in enumerate(generations)]
    own = outputs[width - 1 :: width]
    for output in own:
        if len(output) < least:
            raise ClauseViolation(f"an output has {len(output)} tokens, and {LENGTH} were asked for")
    return [output[:LENGTH] for output in own]


def shared(check: Check, case: Samples, temperature: float, count: int, stream: int, speculative: bool) -> list[Tokens]:
    """As `draw`, kept for the other checks that look at the same outputs."""
    key = check.implementation.spec, (case.seed, case.lengths, temperature, count, stream, speculative)
    if key not in _DRAWN:
        _DRAWN[key] = draw(check, case, temperature, count, stream, speculative)
    return _DRAWN[key]


_TEMPERATURE: dict[tuple[str, int], float] = {}


def telling(check: Check, case: Samples) -> float:
    """The highest temperature at which outputs come again often enough, decoded plainly."""
    key = check.implementation.spec, case.seed
    if key in _TEMPERATURE:
        return _TEMPERATURE[key]
    found = prompts(check, case)[0]
    tried = [t for t in TEMPERATURES if t <= asking.engine(check).hottest]
    laid = [t for t in tried for _ in range(TRIED)]
    seeds = np.arange(len(laid), dtype=np.int64) + 2**30

    def ask(part: slice, temperature: float | Rows) -> list[Tokens]:
        asked = GenerateCase([found] * len(laid[part]), LENGTH, temperature, False, seeds[part])
        return [tuple(asking.read(one, f"generation {i}").tokens) for i, one in enumerate(asking.raw(check, asked))]

    try:
        outputs = ask(slice(None), np.array(laid))
    except Inapplicable:  # one temperature a call
        parts = [slice(i, i + TRIED) for i in range(0, len(laid), TRIED)]
        outputs = [output for part, t in zip(parts, tried) for output in ask(part, t)]
    chosen = TEMPERATURES[-1]
    for i, temperature in enumerate(tried):
        seen = Counter(outputs[i * TRIED : (i + 1) * TRIED]).values()
        if sum(n * (n - 1) for n in seen) >= COMING_AGAIN * TRIED * (TRIED - 1):
            chosen = temperature
            break
    _TEMPERATURE[key] = chosen
    return chosen


# ---- weighing


class Categories:
    """What outcomes are counted as: the most frequent ones of a pilot by themselves, the others by a few."""

    def __init__(self, pilot: Sequence[Tokens], named: int = NAMED) -> None:
        ranked = sorted(Counter(pilot).items(), key=lambda one: (-one[1], one[0]))
        self.names = [outcome for outcome, _ in ranked[:named]]
        self._place = {outcome: i for i, outcome in enumerate(self.names)}
        self.count = len(self.names) + OTHERS

    def of(self, outcome: Tokens) -> int:
        other = sum((2 * i + 1) * token for i, token in enumerate(outcome)) % OTHERS
        return self._place.get(outcome, len(self.names) + other)

    def word(self, category: int) -> str:
        if category < len(self.names):
            return str(list(self.names[category]))
        return f"others, kind {category - len(self.names)}"


def weigh(check: Check, null: str, first: Sequence[Tokens], second: Sequence[Tokens], words: tuple[str, str]) -> None:
    """`ClauseViolation` where the outcomes of both samples do not come from one law.

    The samples are paired as they come. What the test could see joins the report.
    """
    pilot = max(1, len(first) // PILOT)
    categories = Categories([*first[:pilot], *second[:pilot]])
    test = TwoSamples(categories.count, ALPHA_OF_A_CHECK)
    labels = [[categories.of(outcome) for outcome in sample[pilot:]] for sample in (first, second)]
    start = 0
    for size in sizes(len(labels[0])):
        test.update(labels[0][start : start + size], labels[1][start : start + size])
        start += size
        if test.alarmed:
            break
    distance = detectable_distance(test.common, ALPHA_OF_A_CHECK, len(labels[0]))
    check.statistics.append(
        Statement(
            null=null,
            alpha=test.alpha,
            trials=test.pairs,
            categories=test.categories,
            distance=distance,
            power=POWER,
            alarmed=test.alarmed,
            log_evidence=test.largest,
        )
    )
    if test.alarmed:
        one, other = test.shares
        worst = max(range(test.categories), key=lambda v: abs(one[v] - other[v]))
        raise ClauseViolation(
            f"{null}: not so after {test.pairs} pairs (log evidence {test.largest:.1f}). {categories.word(worst)} has "
            f"a share of {one[worst]:.3f} {words[0]}, and of {other[worst]:.3f} {words[1]}"
        )
    if distance >= 1:
        raise Undecidable(f"{len(labels[0])} pairs are too few to see any distance with power ≥ {POWER}")
