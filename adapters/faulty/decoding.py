"""A right engine over a small made-up model, cut into small steps: a fault is a subclass that overrides one of them.

Written apart from the oracle, so that a fault is read in full beside it. Drafts are chains. The target reads `held`,
the tokens whose KV is there, and the pending token after them; the drafter reads the same.
"""

from __future__ import annotations

import functools
import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from adapters.interface import Declaration, Engine
from oracle.types import GenerateCase, Generation, LawCase

Tokens = tuple[int, ...]
VOCABULARY = 10
LONGEST = 128
DRAFT_LENGTH = 4


@dataclass
class Member:
    """A request on its way. place: in its batch. held: tokens that the cache holds, all but the pending one."""

    place: int
    prompt: Tokens
    limit: int
    temperature: float
    seed: int
    drafts: int
    stops: Tokens
    coins: random.Random
    held: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    done: bool = False

    @property
    def context(self) -> Tokens:
        """What the target sees: the rows held, then the pending token."""
        return (*self.held, *self.output[-1:])


@dataclass
class Draft:
    """A drafted chain, and the laws that its tokens were drawn from."""

    tokens: list[int]
    laws: list[list[float]]


class Decoder:
    """A right engine; every step is a method that a fault may override."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    """In a fault: the clause that it breaks, the lowest one that the suite refutes."""

    def __init_subclass__(cls, promises: tuple[str, ...] = ("seed", "request_independent")) -> None:
        cls.DECLARATION = Declaration(
            cls.__name__,
            "1.0",
            cost={"generate": 1e-4, "next_law": 1e-4},
            promises=promises,
            engine=Engine(VOCABULARY, LONGEST, DRAFT_LENGTH, roundings=1, scale=10.0),
        )

    # ---- operations

    @classmethod
    def generate(cls, case: GenerateCase) -> Any:
        cls.validate(case)
        members = cls.members(case)
        if case.speculative:
            cls.loop(members)
        else:
            for member in members:
                cls.plain(member)
        return cls.answers(members, case)

    @classmethod
    def next_law(cls, cases: Sequence[LawCase]) -> list[Any]:
        return [np.array(cls.shown(tuple(case.tokens.tolist()), float(case.temperature))) for case in cases]

    # ---- the case

    @classmethod
    def validate(cls, case: GenerateCase) -> None:
        for prompt in case.prompts:
            cls.check_prompt(prompt)
        if np.min(case.max_new_tokens) < 1:
            raise ValueError("max_new_tokens is at least 1")
        if np.min(case.temperature) < 0:
            raise ValueError("temperature is at least 0")

    @classmethod
    def check_prompt(cls, prompt: Any) -> None:
        if not len(prompt) or min(prompt) < 0 or max(prompt) >= VOCABULARY:
            raise ValueError(f"prompt {prompt}")

    @classmethod
    def members(cls, case: GenerateCase) -> list[Member]:
        count = len(case.prompts)
        drafts = DRAFT_LENGTH if case.draft_length is None else case.draft_length
        each = [np.broadcast_to(v, count).tolist() for v in (case.max_new_tokens, case.temperature, case.seed, drafts)]
        made = []
        for i, (prompt, limit, temperature, seed, k) in enumerate(zip(case.prompts, *each)):
            tokens = tuple(int(token) for token in prompt)
            coins = random.Random(seed)
            made.append(Member(i, tokens, limit, temperature, seed, k, tuple(case.stop_tokens), coins))
        return made

    @classmethod
    def answers(cls, members: list[Member], case: GenerateCase) -> Any:
        return [cls.answer(member) for member in members]

    @classmethod
    def answer(cls, member: Member) -> Any:
        return Generation(np.array(member.output, dtype=np.int64), np.array(cls.margins(member), dtype=np.float64))

    @classmethod
    def margins(cls, member: Member) -> list[float]:
        ranked = [sorted(logits((*member.prompt, *member.output[:i])), reverse=True) for i in range(len(member.output))]
        return [row[0] - row[1] for row in ranked]

    # ---- decoding

    @classmethod
    def plain(cls, member: Member) -> None:
        """One token after the other."""
        member.held = list(member.prompt)
        while not member.done:
            tokens = (*member.prompt, *member.output)
            member.output.append(choose(law(tokens, member.temperature), member.coins))
            cls.finish(member)

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        """Prefill, then rounds of all that are not done."""
        for member in members:
            cls.prefill(member)
        while active := [member for member in members if not member.done]:
            cls.round(active, members)

    @classmethod
    def prefill(cls, member: Member) -> None:
        member.held = list(member.prompt)
        member.output.append(choose(law(tuple(member.held), member.temperature), member.coins))
        cls.finish(member)

    @classmethod
    def round(cls, active: list[Member], members: list[Member]) -> None:
        drafts = [cls.draft(member) for member in active]
        decisions = [cls.verify(member, draft) for member, draft in zip(active, drafts)]
        for member, draft, (accepted, token) in zip(active, drafts, decisions):
            cls.commit(member, draft, accepted, token)

    @classmethod
    def draft(cls, member: Member) -> Draft:
        found = Draft([], [])
        for _ in range(member.drafts):
            row = drafted((*member.context, *found.tokens), member.temperature)
            found.laws.append(list(row))
            found.tokens.append(choose(row, member.coins))
        return found

    @classmethod
    def rows(cls, member: Member, draft: Draft) -> list[Sequence[float]]:
        """The target's laws: after the pending token, then after each draft."""
        return [cls.target((*member.context, *draft.tokens[:i]), member) for i in range(len(draft.tokens) + 1)]

    @classmethod
    def target(cls, tokens: Tokens, member: Member) -> Sequence[float]:
        return law(tokens, member.temperature)

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        """How many drafts are accepted, and the token after them."""
        rows = cls.rows(member, draft)
        for i, token in enumerate(draft.tokens):
            if not cls.accepts(member, i, token, rows[i], draft.laws[i]):
                return i, cls.recovered(member, rows[i], draft.laws[i])
        return len(draft.tokens), choose(rows[-1], member.coins)

    @classmethod
    def accepts(cls, member: Member, i: int, token: int, p: Sequence[float], q: Sequence[float]) -> bool:
        return member.coins.random() * q[token] < p[token]

    @classmethod
    def recovered(cls, member: Member, p: Sequence[float], q: Sequence[float]) -> int:
        left = [max(a - b, 0.0) for a, b in zip(p, q)]
        return choose([v / sum(left) for v in left] if sum(left) > 0 else p, member.coins)

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        """Output up to the first end; the cache holds the pending token of before, and what was accepted."""
        run = [*draft.tokens[:accepted], token]
        member.held += [member.output[-1], *draft.tokens[:accepted]]
        for new in run:
            member.output.append(new)
            cls.finish(member)
            if member.done:
                break

    @classmethod
    def finish(cls, member: Member) -> None:
        """Whether the last token is one."""
        member.done = len(member.output) >= member.limit or member.output[-1] in member.stops

    @classmethod
    def shown(cls, tokens: Tokens, temperature: float) -> Sequence[float]:
        return law(tokens, temperature)


# ---- the model


@functools.lru_cache(maxsize=2**15)
def logits(tokens: Tokens, kind: int = 0) -> tuple[float, ...]:
    """The target's logits after `tokens`; other kinds are noise."""
    coins = random.Random(zlib.crc32(bytes(tokens)) * 8 + kind)
    return tuple(coins.uniform(-4, 4) for _ in range(VOCABULARY))


@functools.lru_cache(maxsize=2**16)
def law(tokens: Tokens, temperature: float) -> tuple[float, ...]:
    """The target's law."""
    return softened(logits(tokens), temperature)


@functools.lru_cache(maxsize=2**16)
def drafted(tokens: Tokens, temperature: float) -> tuple[float, ...]:
    """The drafter's law: right every other time."""
    wrong = zlib.crc32(bytes(tokens)) % 2 == 0
    return softened(logits(tokens, 1 if wrong else 0), temperature)


def softened(row: Sequence[float], temperature: float) -> tuple[float, ...]:
    best = max(row)
    if temperature == 0:
        return tuple(float(v == row.index(best)) for v in range(len(row)))
    weights = [math.exp((value - best) / temperature) for value in row]
    return tuple(weight / sum(weights) for weight in weights)


def choose(row: Sequence[float], coins: random.Random) -> int:
    """A token of a law; the only one of a one-hot costs a coin, too."""
    u, below = coins.random(), 0.0
    for v, probability in enumerate(row):
        below += probability
        if u < below:
            return v
    return max(range(len(row)), key=lambda v: row[v])
