"""Decoding: the engine that the loop makes of a fixed model, with speculation and without.

The model is a table without end: the logits after a prefix are drawn from a generator that the prefix seeds, so every
prefix has a law of its own and none costs memory before it is read. The drafter sees the target's logits through noise:
it is right more often than not, and never certain.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from oracle.discrete import Row, inverse_cdf
from oracle.errors import BadInput
from oracle.loop import Growth, LoopRequest
from oracle.loop import decode as decode
from oracle.tensors import finite, listed, member, whole
from oracle.types import GenerateCase, Generation, LawCase, Limits, Rows, WarpCase
from oracle.validation import as_array, integers, seed_of
from oracle.warping import warp

VOCABULARY = 12
DRAFT_LENGTH = 4
LONGEST = 256
SPREAD, NOISE = 2.0, 1.2
"""Standard deviations of the target's logits, and of what the drafter adds to them."""
SAMPLED_TREE = (-1, -1, 0, 2)
GREEDY_TREE = Growth(expand_width=2, branch_width=2, max_depth=DRAFT_LENGTH, budget=6)

Prefix = tuple[int, ...]
Value = TypeVar("Value")


def generate(case: GenerateCase) -> list[Generation]:
    """Decode a batch (DECODE 1xx–8xx): through the loop, or token by token where `speculative` is off.

    Every request draws from a generator of its own, seeded with its seed, so its output is the same whatever stands
    beside it. Drafts are a chain of `draft_length`; by default a grown tree where the request is greedy, and a tree
    drawn without replacement where it is sampled. Margins are always shown. Raises `BadInput`.
    """
    requests = _read(case)
    if case.speculative:
        rounds = decode([r.looped() for r in requests], [Drawn(r.seed) for r in requests])
        outputs = [tuple(one[-1].state.output.tolist()) for one in rounds]
    else:
        outputs = [r.plain() for r in requests]
    return [
        Generation(np.array(output, dtype=np.int64), _margins(request.prompt, output))
        for request, output in zip(requests, outputs)
    ]


def next_law(cases: Sequence[LawCase]) -> list[Rows]:
    """The target's law of the next token, float64 [V] a case (DECODE-705). Raises `BadInput`."""
    listed(cases, "cases", LawCase)
    found = []
    for i, case in enumerate(cases):
        if not isinstance(case, LawCase):
            raise BadInput(f"cases[{i}]", (), "a case is an oracle.types.LawCase", type(case).__name__)
        tokens = _prompt(case.tokens, f"cases[{i}].tokens", ())
        found.append(np.array(law_after(tokens, _temperature(case.temperature, f"cases[{i}].temperature", ()))))
    return found


class Drawn:
    """Answers of a generator: the chance of one request."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def accepts(self, node: int, p: float, q: float) -> bool:
        """Whether u·q < p for a fresh u."""
        return bool(self._generator.random() * q < p)

    def draw(self, law: Row, node: int | None = None) -> int:
        """A token of `law`."""
        return inverse_cdf(law, self._generator.random())


# ---- the model


@lru_cache(maxsize=2**16)
def logits_after(prefix: Prefix) -> Rows:
    """The target's logits, float64 [V], read-only."""
    row = _noise(prefix, 0) * SPREAD
    row.setflags(write=False)
    return row


@lru_cache(maxsize=2**16)
def law_after(prefix: Prefix, temperature: float) -> tuple[float, ...]:
    """The target's law at a temperature."""
    return tuple(warp(WarpCase(logits_after(prefix), temperature)).tolist())


@lru_cache(maxsize=2**16)
def draft_after(prefix: Prefix, temperature: float) -> tuple[float, ...]:
    """The drafter's law; it is never one-hot, for trees of different siblings are drawn from it."""
    seen = logits_after(prefix) + _noise(prefix, 1) * NOISE
    return tuple(warp(WarpCase(seen, max(temperature, 0.25))).tolist())


def _noise(prefix: Prefix, kind: int) -> Rows:
    code = zlib.crc32(np.array(prefix, dtype=np.int64).tobytes())
    return np.random.default_rng([code, len(prefix), kind]).standard_normal(VOCABULARY)


def _margins(prompt: Prefix, output: Prefix) -> Rows:
    """The gap of the two best target logits at each token."""
    gaps = []
    for i in range(len(output)):
        best = np.sort(logits_after((*prompt, *output[:i])))
        gaps.append(best[-1] - best[-2])
    return np.array(gaps, dtype=np.float64)


# ---- reading


class _Request:
    """One member of a case, validated."""

    def __init__(
        self, prompt: Prefix, limits: Limits, most: int, temperature: float, seed: int, drafts: int | None
    ) -> None:
        self.prompt, self.limits, self.most = prompt, limits, most
        self.temperature, self.seed, self.drafts = temperature, seed, drafts

    def target(self, prefix: Prefix) -> Row:
        return list(law_after(prefix, self.temperature))

    def looped(self) -> LoopRequest:
        drafting: tuple[int, ...] | Growth = GREEDY_TREE if self.temperature == 0 else SAMPLED_TREE
        proposal = "without_replacement"
        if self.drafts is not None:
            drafting, proposal = tuple(range(-1, self.drafts - 1)), "iid"
        return LoopRequest(
            np.array(self.prompt, dtype=np.int64),
            self.target,
            lambda prefix: list(draft_after(prefix, self.temperature)),
            drafting,
            proposal,
            greedy=self.temperature == 0,
            limits=self.limits,
        )

    def plain(self) -> Prefix:
        """Token by token."""
        chance = Drawn(self.seed)
        output: Prefix = ()
        while len(output) < self.most and not (output and output[-1] in self.limits.stop_tokens):
            output = (*output, chance.draw(self.target((*self.prompt, *output))))
        return output


def _read(case: GenerateCase) -> list[_Request]:
    member(case, GenerateCase)
    listed(case.prompts, "prompts", list)
    count = len(case.prompts)
    prompts = [_prompt(prompt, "prompts", (i,)) for i, prompt in enumerate(case.prompts)]
    if not isinstance(case.speculative, (bool, np.bool_)):
        raise BadInput("speculative", (), "is a boolean", case.speculative)
    stops = integers(tuple(case.stop_tokens) or np.array([], dtype=np.int64), "stop_tokens")
    limits = _each(case.max_new_tokens, "max_new_tokens", count, lambda v, f, i: _whole(v, f, i, 1))
    temperatures = _each(case.temperature, "temperature", count, _temperature)
    seeds = _each(case.seed, "seed", count, lambda v, f, i: seed_of(v))
    drafts: list[int | None] = [None] * count
    if case.draft_length is not None:
        drafts = list(_each(case.draft_length, "draft_length", count, lambda v, f, i: _whole(v, f, i, 0)))
    for i, (prompt, most) in enumerate(zip(prompts, limits)):
        if len(prompt) + most > LONGEST:
            raise BadInput("prompts", (i,), f"prompt and output have at most {LONGEST} tokens", len(prompt) + most)
    return [
        _Request(prompts[i], Limits(tuple(stops), limits[i]), limits[i], temperatures[i], seeds[i], drafts[i])
        for i in range(count)
    ]


def _each(value: object, field: str, count: int, read: Callable[[object, str, tuple[int, ...]], Value]) -> list[Value]:
    """One value for all, or one a request."""
    array = as_array(value, field)
    if array.ndim == 0:
        return [read(value.item() if isinstance(value, (np.ndarray, np.generic)) else value, field, ())] * count
    if array.shape != (count,):
        raise BadInput(field, (), f"is one value, or one for each of {count} requests", array.shape)
    return [read(one, field, (i,)) for i, one in enumerate(array.tolist())]


def _whole(value: object, field: str, index: tuple[int, ...], least: int) -> int:
    return whole(value, field + "".join(f"[{i}]" for i in index), least)


def _temperature(value: object, field: str, index: tuple[int, ...]) -> float:
    number = finite(value, field, index=index)
    if number < 0:
        raise BadInput(field, index, "a temperature is at least 0", number)
    return number


def _prompt(values: object, field: str, index: tuple[int, ...]) -> Prefix:
    name = field + "".join(f"[{i}]" for i in index)
    tokens = integers(values, name)
    if not tokens:
        raise BadInput(name, (), "has at least one token", 0)
    for i, token in enumerate(tokens):
        if not 0 <= token < VOCABULARY:
            raise BadInput(name, (i,), f"a token id lies in [0, {VOCABULARY})", token)
    return tuple(tokens)
