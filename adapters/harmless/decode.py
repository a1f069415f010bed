"""Right engines that look different: other drafters, other acceptance, batches cut to the shortest, no margins."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.decoding import VOCABULARY, Decoder, Draft, Member, Tokens, choose, law, softened
from adapters.interface import NotApplicable
from oracle.types import GenerateCase, Generation


class NeverRight(Decoder):
    """Has a drafter whose tokens are the least likely ones, so that nearly all of them are rejected."""

    @classmethod
    def draft(cls, member: Member) -> Draft:
        found = Draft([], [])
        for _ in range(member.drafts):
            row = law((*member.context, *found.tokens), 1.0)
            worst = row.index(min(row))
            found.laws.append([float(v == worst) for v in range(VOCABULARY)])
            found.tokens.append(worst)
        return found


class AlwaysRight(Decoder):
    """Has the target for a drafter, so that every draft is accepted and every run meets a limit or a stop token."""

    @classmethod
    def draft(cls, member: Member) -> Draft:
        found = Draft([], [])
        for _ in range(member.drafts):
            row = law((*member.context, *found.tokens), member.temperature)
            found.laws.append(list(row))
            found.tokens.append(choose(row, member.coins))
        return found


class SampleAndMatch(Decoder):
    """Draws from the target and goes on while the draft is what was drawn."""

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        for i, row in enumerate(cls.rows(member, draft)):
            token = choose(row, member.coins)
            if draft.tokens[i : i + 1] != [token]:
                return i, token
        raise RuntimeError("the row behind the last draft ends every walk")


class AcceptsHalfAsOften(Decoder):
    """Throws away every second draft that it could accept, and draws the rest of the target's law for it."""

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        accepted, token = super().verify(member, draft)
        kept = accepted // 2
        return (kept, draft.tokens[kept]) if kept < accepted else (accepted, token)


class ShortestForAll(Decoder, promises=("seed",)):
    """Publishes as many tokens for each request of a batch as for the one that accepted least."""

    @classmethod
    def round(cls, active: list[Member], members: list[Member]) -> None:
        drafts = [cls.draft(member) for member in active]
        decisions = [cls.verify(member, draft) for member, draft in zip(active, drafts)]
        least = min(accepted for accepted, _ in decisions)
        for member, draft, (accepted, token) in zip(active, drafts, decisions):
            cls.commit(member, draft, least, token if accepted == least else draft.tokens[least])


class DraftsLessNearTheLimit(Decoder):
    """Never drafts more than the limit has room for."""

    @classmethod
    def draft(cls, member: Member) -> Draft:
        room = member.limit - len(member.output) - 1
        drafts, member.drafts = member.drafts, min(member.drafts, room)
        found = super().draft(member)
        member.drafts = drafts
        return found


class WithoutMargins(Decoder):
    """Shows no margins."""

    @classmethod
    def answer(cls, member: Member) -> Any:
        return Generation(np.array(member.output, dtype=np.int64))


class MarginsInSingles(Decoder):
    """Shows margins in float32, and tokens in int32."""

    @classmethod
    def answer(cls, member: Member) -> Any:
        return Generation(np.array(member.output, dtype=np.int32), np.array(cls.margins(member), dtype=np.float32))


class FreshRandomness(Decoder, promises=()):
    """Promises nothing of seeds, and draws afresh each time."""

    @classmethod
    def members(cls, case: GenerateCase) -> list[Member]:
        made = super().members(case)
        for member in made:
            member.coins = random.Random()
        return made


class OneGenerator(Decoder, promises=("seed",)):
    """Draws for a whole call from one generator, and promises no more than that a call can be repeated."""

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        for member in members:
            member.coins = members[0].coins
        super().loop(members)


class OneNumberOfDrafts(Decoder):
    """Knows its own number of drafts alone, and hides its law."""

    next_law = None  # type: ignore[assignment]

    @classmethod
    def members(cls, case: GenerateCase) -> list[Member]:
        if case.draft_length is not None:
            raise NotApplicable("the number of drafts is the engine's")
        return super().members(case)


class OneRequestAtATime(Decoder):
    """Decodes the requests of a batch one after the other, the last one first."""

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        for member in reversed(members):
            super().loop([member])


class HalfTheDraftersTemperature(Decoder):
    """Drafts colder than it verifies, and says so in the laws of its drafts."""

    @classmethod
    def draft(cls, member: Member) -> Draft:
        found = Draft([], [])
        for _ in range(member.drafts):
            row = cls.colder((*member.context, *found.tokens), member.temperature / 2)
            found.laws.append(list(row))
            found.tokens.append(choose(row, member.coins))
        return found

    @classmethod
    def colder(cls, tokens: Tokens, temperature: float) -> Sequence[float]:
        return softened(law(tokens, 1.0), temperature)
