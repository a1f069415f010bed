"""Engines with one fault each: laws of sampled requests, seeds, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.decoding import VOCABULARY, Decoder, Draft, Member, Tokens, choose, drafted, law
from oracle.types import GenerateCase

# ---- laws


class FirstTokenIsGreedy(Decoder):
    """Takes the best token of the prefill, whatever the temperature."""

    refutes = "DECODE-701"

    @classmethod
    def prefill(cls, member: Member) -> None:
        member.held = list(member.prompt)
        member.output.append(choose(law(tuple(member.held), 0.0), member.coins))
        cls.finish(member)


class AcceptsEveryDraft(Decoder):
    """Accepts every draft of a sampled request."""

    refutes = "DECODE-702"

    @classmethod
    def accepts(cls, member: Member, i: int, token: int, p: Sequence[float], q: Sequence[float]) -> bool:
        return bool(member.temperature) or super().accepts(member, i, token, p, q)


class RowOfTheWrongPlace(Decoder):
    """Tests a sampled draft against the law after it, not before it."""

    refutes = "DECODE-702"

    @classmethod
    def rows(cls, member: Member, draft: Draft) -> list[Sequence[float]]:
        rows = super().rows(member, draft)
        return [*rows[1:], rows[-1]] if member.temperature else rows


class SampledIsGreedy(Decoder):
    """Verifies sampled requests greedily, and samples their first token alone."""

    refutes = "DECODE-702"

    @classmethod
    def target(cls, tokens: Tokens, member: Member) -> Sequence[float]:
        return law(tokens, 0.0)


class OneDraftIsVerified(Decoder):
    """Tests the first draft of a sampled round, and accepts the others with it."""

    refutes = "DECODE-703"

    @classmethod
    def accepts(cls, member: Member, i: int, token: int, p: Sequence[float], q: Sequence[float]) -> bool:
        return (i > 0 and member.temperature > 0) or super().accepts(member, i, token, p, q)


class RejectedRowStaysWhereSampled(Decoder):
    """Leaves the row of a rejected draft in the cache of a sampled request."""

    refutes = "DECODE-703"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        super().commit(member, draft, accepted, token)
        if accepted < len(draft.tokens) and member.temperature:
            member.held.append(draft.tokens[accepted])


class HottestForAllSampled(Decoder):
    """Verifies all sampled requests of a batch at the highest of their temperatures."""

    refutes = "DECODE-704"

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        hottest = max(member.temperature for member in members)
        for member in members:
            member.temperature = hottest if member.temperature else 0.0
        super().loop(members)


class ShowsTheDraftersLaw(Decoder):
    """Shows the law of its drafter for that of its target."""

    refutes = "DECODE-705"

    @classmethod
    def shown(cls, tokens: Tokens, temperature: float) -> Sequence[float]:
        return drafted((*tokens, 1), temperature)


# ---- seeds


class OwnEntropy(Decoder):
    """Draws from a generator that nobody seeds, and promises otherwise."""

    refutes = "DECODE-801"

    @classmethod
    def members(cls, case: GenerateCase) -> list[Member]:
        made = super().members(case)
        for member in made:
            member.coins = random.Random()
        return made


class NeighboursShareCoins(Decoder):
    """Seeds two requests that stand side by side with the seed of the first of them."""

    refutes = "DECODE-802"

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        for one, other in zip(members[::2], members[1::2]):
            other.coins = random.Random(one.seed)
        super().loop(members)


class SeedsOfSlots(Decoder):
    """Seeds a request with its place in the batch, whatever seed it has."""

    refutes = "DECODE-802"

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        for member in members:
            member.coins = random.Random(member.place)
        super().loop(members)


class OneGeneratorForABatch(Decoder):
    """Lets all requests of a batch draw from one generator in turns, seeded by the first of them."""

    refutes = "DECODE-803"

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        for member in members:
            member.coins = members[0].coins
        super().loop(members)


# ---- refusals


class ForeignIdsAreClamped(Decoder):
    """Takes an id outside of the vocabulary for the last one."""

    refutes = "DECODE-901"

    @classmethod
    def validate(cls, case: GenerateCase) -> None:
        for prompt in case.prompts:
            prompt[:] = np.clip(prompt, 0, VOCABULARY - 1)
        super().validate(case)


class NothingIsAZero(Decoder):
    """Answers a prompt without tokens as if it were a zero."""

    refutes = "DECODE-901"

    @classmethod
    def members(cls, case: GenerateCase) -> list[Member]:
        made = super().members(case)
        for member in made:
            member.prompt = member.prompt or (0,)
        return made

    @classmethod
    def check_prompt(cls, prompt: Any) -> None:
        if len(prompt):
            super().check_prompt(prompt)


class OneTokenAtLeast(Decoder):
    """Decodes one token where the limit allows none."""

    refutes = "DECODE-902"

    @classmethod
    def validate(cls, case: GenerateCase) -> None:
        for prompt in case.prompts:
            cls.check_prompt(prompt)
        if np.min(case.temperature) < 0:
            raise ValueError("temperature is at least 0")


class ColderThanGreedy(Decoder):
    """Takes a temperature below zero for zero."""

    refutes = "DECODE-902"

    @classmethod
    def validate(cls, case: GenerateCase) -> None:
        for prompt in case.prompts:
            cls.check_prompt(prompt)
        if np.min(case.max_new_tokens) < 1:
            raise ValueError("max_new_tokens is at least 1")

    @classmethod
    def members(cls, case: GenerateCase) -> list[Member]:
        made = super().members(case)
        for member in made:
            member.temperature = max(member.temperature, 0.0)
        return made
