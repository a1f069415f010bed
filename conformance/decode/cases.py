"""What the checks of decode run on, and cases worth keeping by name.

A case names no token: prompts are drawn from a seed when the vocabulary is known, so one case asks every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapters.interface import Engine
from conformance.casefile import storable
from conformance.verdicts import Inapplicable
from oracle.errors import BadInput
from oracle.types import GenerateCase, Ids


@storable
@dataclass(frozen=True, eq=False)
class Requests:
    """A batch of requests.

    seed: prompts are drawn from it. lengths: of the prompts, one a request. limits, drafts, temperatures: one for all,
    or one a request; no drafts is the engine's own number, no temperatures is greedy. stops: (request, place) of a
    token in the plain greedy output that is a stop token. twins: all requests have the first one's prompt, cut to
    their lengths.
    """

    seed: int
    lengths: tuple[int, ...]
    limits: tuple[int, ...]
    drafts: tuple[int, ...] = ()
    temperatures: tuple[float, ...] = ()
    stops: tuple[tuple[int, int], ...] = ()
    twins: bool = False

    def limit(self, i: int) -> int:
        return self.limits[i if len(self.limits) > 1 else 0]

    def temperature(self, i: int) -> float:
        return self.temperatures[i if len(self.temperatures) > 1 else 0] if self.temperatures else 0.0

    @property
    def greedy(self) -> list[int]:
        """The members that are greedy."""
        return [i for i in range(len(self.lengths)) if self.temperature(i) == 0]

    def drawn(self) -> str:
        rows = []
        for i, length in enumerate(self.lengths):
            drafts = self.drafts[i if len(self.drafts) > 1 else 0] if self.drafts else "its own"
            kind = f"temperature {self.temperature(i):g}" if self.temperature(i) else "greedy"
            rows.append(f"request {i}: {length} tokens, at most {self.limit(i)} new, {kind}, drafts a round: {drafts}")
        rows += [f"a stop token: number {place} of request {i}, decoded plainly" for i, place in self.stops]
        return "\n".join(rows)


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if not isinstance(case, Requests):
        return
    count = len(case.lengths)
    if not count or min(case.lengths) < 1 or case.seed < 0:
        raise BadInput("lengths", (), "there are requests, and every prompt has a token", case.lengths)
    for name, values, empty in (
        ("limits", case.limits, False),
        ("drafts", case.drafts, True),
        ("temperatures", case.temperatures, True),
    ):
        if len(values) not in (1, count) and not (empty and not values):
            raise BadInput(name, (), f"is one for all, or one for each of {count} requests", len(values))
    for i, (member, place) in enumerate(case.stops):
        if not 0 <= member < count or place < 0:
            raise BadInput("stops", (i,), "is a request and a place in its output", member)


def prompts(requests: Requests, engine: Engine) -> list[Ids]:
    """The prompts, each drawn by itself, so that it is the same in any batch."""
    longest = max(n + requests.limit(i) for i, n in enumerate(requests.lengths))
    if longest > engine.longest:
        raise Inapplicable(f"it needs {longest} tokens of prompt and output, and the engine has {engine.longest}")
    place = [0 if requests.twins else i for i in range(len(requests.lengths))]
    size = max(requests.lengths) if requests.twins else 0
    return [
        np.random.default_rng([requests.seed, place[i]]).integers(0, engine.vocabulary, max(n, size))[:n]
        for i, n in enumerate(requests.lengths)
    ]


def made(
    requests: Requests,
    engine: Engine,
    speculative: bool,
    stop_tokens: Sequence[int] = (),
    order: Sequence[int] | None = None,
) -> GenerateCase:
    """The case that an engine is handed: of the members in `order`, all of them where it is None."""
    order = range(len(requests.lengths)) if order is None else order
    drawn = prompts(requests, engine)

    def each(values: Sequence[float], kind: type) -> int | float | np.ndarray | None:
        if len(values) < 2:
            found: int | float | None = kind(values[0]) if values else None
            return found
        return np.array([values[i] for i in order], dtype=np.int64 if kind is int else np.float64)

    return GenerateCase(
        [drawn[i] for i in order],
        each(requests.limits, int),  # type: ignore[arg-type]
        each(requests.temperatures or (0.0,), float),  # type: ignore[arg-type]
        speculative,
        np.array([1000 * requests.seed + i for i in order], dtype=np.int64),
        tuple(stop_tokens),
        each(requests.drafts, int),  # type: ignore[arg-type]
    )


ALONE = Requests(1, (6,), (24,))
ONE_TOKEN = Requests(2, (1,), (12,))
"""A prompt that leaves EAGLE no row to prefill its drafter with."""
PAGES = Requests(3, (19,), (40,))
"""Prompt and output cross the pages of a cache, of 16 tokens or of another number, in the middle of runs."""
RAGGED = Requests(4, (5, 1, 17, 8), (16,))
RAGGED_LIMITS = Requests(5, (9, 2, 5), (7, 1, 12))
TWINS = Requests(6, (7, 7, 3, 7), (10,), twins=True)
"""Requests with one prompt, and one with a part of it."""
CUTS = Requests(7, (4,) * 9, (1, 2, 3, 4, 5, 6, 7, 8, 13), twins=True)
"""One prompt and every limit up to eight: some fall inside a run, on its last draft and on its frontier."""
SAMPLED = Requests(8, (5, 1, 9, 3), (9, 6, 11, 2), temperatures=(1.0, 0.7, 0.3, 2.0))
MIXED = Requests(9, (5, 3, 9, 1, 6), (12,), temperatures=(0.0, 1.0, 0.0, 0.7, 0.0))
SAMPLED_FIRST = Requests(10, (4, 8, 2, 6), (10, 12, 7, 12), temperatures=(1.5, 0.0, 0.5, 0.0))
DRAFTS = tuple(Requests(1, (6,), (24,), drafts=(k,)) for k in (0, 1, 2, 3, 7))
MIXED_DRAFTS = Requests(11, (5, 1, 9, 4, 3), (12,), drafts=(0, 3, 1, 0, 5))
ONE_DRAFTS = Requests(12, (4, 6, 2), (9, 11, 10), drafts=(0, 0, 2))
LONG_PROMPTS = Requests(13, (9, 12, 8), (13, 14, 12))
"""Limits above the lengths of the prompts, so that an output could begin with its prompt."""
STOPS = (
    Requests(14, (5, 2, 8), (20,), stops=((0, 1),)),
    Requests(14, (5, 2, 8), (20,), stops=((0, 4),)),
    Requests(14, (5, 2, 8), (20,), stops=((1, 0),)),
    Requests(14, (5, 2, 8), (20,), stops=((2, 9),)),
    Requests(14, (5, 2, 8), (20, 9, 4), stops=((2, 3),)),
)
"""A stop token at the first place, inside a run, late; and where it is the last token allowed as well."""
SEVERAL_STOPS = (
    Requests(14, (5, 2, 8), (20,), stops=((0, 6), (1, 3), (2, 8))),
    Requests(14, (5, 2, 8), (20,), stops=((2, 7), (1, 5), (0, 2))),
    Requests(14, (5, 2, 8), (3, 20, 4), stops=((0, 2), (2, 3))),
)

WITNESSES = {
    "alone": ALONE,
    "one_token": ONE_TOKEN,
    "pages": PAGES,
    "ragged": RAGGED,
    "ragged_limits": RAGGED_LIMITS,
    "twins": TWINS,
    "cuts": CUTS,
    "sampled": SAMPLED,
    "mixed": MIXED,
    "sampled_first": SAMPLED_FIRST,
    "mixed_drafts": MIXED_DRAFTS,
    "one_drafts": ONE_DRAFTS,
    **{f"drafts_{case.drafts[0]}": case for case in DRAFTS},
    **{f"stop_{i}": case for i, case in enumerate(STOPS)},
    **{f"stops_{i}": case for i, case in enumerate(SEVERAL_STOPS)},
}
"""Cases that a declared deviation may name."""
