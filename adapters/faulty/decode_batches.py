"""Engines with one fault each: batches, and what limits and stop tokens cut."""

from __future__ import annotations

from typing import Any, ClassVar

from adapters.faulty.decoding import DRAFT_LENGTH, Decoder, Draft, Member, choose, law
from oracle.types import GenerateCase

# ---- batches


class PaddingIsRead(Decoder):
    """Fills short prompts up to the longest of the batch with zeros, and lets greedy requests read them."""

    refutes = "DECODE-501"

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        longest = max(len(member.prompt) for member in members)
        for member in members:
            if member.temperature == 0:
                member.prompt = (*[0] * (longest - len(member.prompt)), *member.prompt)
        super().loop(members)


class AcceptedCountOfTheNeighbour(Decoder):
    """Cuts the run of a request after as many drafts as the one before it accepted (sgl-project/sglang#15790)."""

    refutes = "DECODE-501"

    @classmethod
    def round(cls, active: list[Member], members: list[Member]) -> None:
        drafts = [cls.draft(member) for member in active]
        decisions = [cls.verify(member, draft) for member, draft in zip(active, drafts)]
        counts = [accepted for accepted, _ in decisions]
        for i, (member, draft, (accepted, token)) in enumerate(zip(active, drafts, decisions)):
            greedy = member.temperature == 0 and active[i - 1].temperature == 0
            cls.commit(member, draft, min(accepted, counts[i - 1]) if greedy else accepted, token)


class NoDraftsIsPassedOver(Decoder):
    """Where others have drafts, a request without any is given the token of the request before it."""

    refutes = "DECODE-502"

    @classmethod
    def round(cls, active: list[Member], members: list[Member]) -> None:
        drafts = [cls.draft(member) for member in active]
        decisions = [cls.verify(member, draft) for member, draft in zip(active, drafts)]
        for i, (member, draft, (accepted, token)) in enumerate(zip(active, drafts, decisions)):
            mixed = not draft.tokens and len({len(d.tokens) for d in drafts}) > 1
            cls.commit(member, draft, accepted, decisions[i - 1][1] if mixed else token)


class AnswersOfTheSameSet(Decoder):
    """Keeps the answers to a set of greedy requests, and hands them out in the order in which they were asked first."""

    refutes = "DECODE-503"
    kept: ClassVar[dict[Any, list[list[int]]]] = {}

    @classmethod
    def answers(cls, members: list[Member], case: GenerateCase) -> Any:
        if case.speculative and len(members) > 1 and not any(member.temperature for member in members):
            key = tuple(sorted((m.prompt, m.limit, m.drafts, m.stops) for m in members))
            kept = cls.kept.setdefault(key, [list(member.output) for member in members])
            for member, output in zip(members, kept):
                member.output = output[: member.limit]
        return super().answers(members, case)


class TemperatureOfTheFirst(Decoder):
    """Verifies a whole batch at the temperature of its first request."""

    refutes = "DECODE-504"

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        for member in members:
            member.temperature = members[0].temperature
        super().loop(members)


class OneSampledAllSampled(Decoder):
    """Samples greedy requests, too, as soon as one of the batch is sampled."""

    refutes = "DECODE-504"

    @classmethod
    def loop(cls, members: list[Member]) -> None:
        if any(member.temperature for member in members):
            for member in members:
                member.temperature = member.temperature or 1.0
        super().loop(members)


# ---- cuts


class ShortRequestsGoUnverified(Decoder):
    """Lets the drafter answer a greedy request that ends within one round."""

    refutes = "DECODE-601"

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        if member.temperature == 0 and 1 < member.limit <= DRAFT_LENGTH and len(draft.tokens) == DRAFT_LENGTH:
            return len(draft.tokens), choose(law(member.context, 0.0), member.coins)
        return super().verify(member, draft)


class StopLosesItsRun(Decoder):
    """Where a stop token is inside a run, publishes it without the drafts before it."""

    refutes = "DECODE-602"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        stopping = [t for t in (*draft.tokens[:accepted], token) if t in member.stops]
        if stopping:
            member.output.append(stopping[0])
            return cls.finish(member)
        return super().commit(member, draft, accepted, token)


class DraftedStopIsAStop(Decoder):
    """Ends a greedy request with a stop token that was drafted, whether or not it is accepted."""

    refutes = "DECODE-602"

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        accepted, token = super().verify(member, draft)
        rejected = draft.tokens[accepted : accepted + 1]
        if member.temperature == 0 and rejected and rejected[0] in member.stops:
            return accepted, rejected[0]
        return accepted, token
