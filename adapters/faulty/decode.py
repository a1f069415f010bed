"""Engines with one fault each: structure, lengths, stops and greedy outputs alone; `decode_batches` and
`decode_sampled` hold the others.

`--impl=adapters.faulty.decode:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from adapters.faulty.decode_batches import *  # noqa: F403 - one address for every fault
from adapters.faulty.decode_sampled import *  # noqa: F403
from adapters.faulty.decoding import VOCABULARY, Decoder, Draft, Member, Tokens, law
from oracle.types import GenerateCase, Generation

# ---- structure


class DoneInPrefillIsForgotten(Decoder):
    """Answers for no request that ends with its first token, since it never enters a round."""

    refutes = "DECODE-101"

    @classmethod
    def answers(cls, members: list[Member], case: GenerateCase) -> Any:
        return [cls.answer(member) for member in members if len(member.output) > 1]


class TokensInFloats(Decoder):
    """Hands out token ids as floating-point numbers."""

    refutes = "DECODE-101"

    @classmethod
    def answer(cls, member: Member) -> Any:
        return Generation(np.array(member.output, dtype=np.float64), np.array(cls.margins(member)))


class PlaceholderForTheFrontier(Decoder):
    """Outputs the placeholder −1 where no draft was accepted (vllm-project/vllm#46899)."""

    refutes = "DECODE-102"
    replaced: ClassVar[dict[int, list[int]]] = {}

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        if not accepted and draft.tokens:
            cls.replaced.setdefault(id(member), []).append(len(member.output))
        super().commit(member, draft, accepted, token)

    @classmethod
    def answer(cls, member: Member) -> Any:
        found = super().answer(member)
        found.tokens[cls.replaced.pop(id(member), [])] = -1
        return found


class PromptComesFirst(Decoder):
    """Returns the prompt and what follows it, as many tokens as the limit allows."""

    refutes = "DECODE-103"

    @classmethod
    def answer(cls, member: Member) -> Any:
        member.output = [*member.prompt, *member.output][: member.limit]
        return super().answer(member)


class MarginsOfRounds(Decoder):
    """Keeps the margin of every second token, as of rounds."""

    refutes = "DECODE-104"

    @classmethod
    def margins(cls, member: Member) -> list[float]:
        return super().margins(member)[::2]


class MarginsTheOtherWayRound(Decoder):
    """Takes the best logit from the second best."""

    refutes = "DECODE-104"

    @classmethod
    def margins(cls, member: Member) -> list[float]:
        return [-margin for margin in super().margins(member)]


class PromptsCutInPlace(Decoder):
    """Writes a zero over the first token of each prompt that it has read."""

    refutes = "DECODE-105"

    @classmethod
    def answers(cls, members: list[Member], case: GenerateCase) -> Any:
        for prompt in case.prompts:
            prompt[0] = (prompt[0] + 1) % VOCABULARY
        return super().answers(members, case)


# ---- lengths


class LimitAfterTheRun(Decoder):
    """Looks for the limit when a run is out, and lets it overshoot."""

    refutes = "DECODE-201"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        member.held += [member.output[-1], *draft.tokens[:accepted]]
        for new in (*draft.tokens[:accepted], token):
            member.output.append(new)
            if new in member.stops:
                break
        cls.finish(member)


class RunThatMeetsTheLimitIsLost(Decoder):
    """Drops a whole run that does not fit below the limit."""

    refutes = "DECODE-202"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        if len(member.output) + accepted + 1 > member.limit:
            member.done = True
            return
        super().commit(member, draft, accepted, token)


class EndsWithTheFirst(Decoder):
    """Ends a batch as soon as one of its requests is at its end."""

    refutes = "DECODE-202"

    @classmethod
    def round(cls, active: list[Member], members: list[Member]) -> None:
        super().round(active, members)
        if any(member.done for member in members) and members[0].limit == members[-1].limit:
            for member in members:
                member.done = True


class LimitOfTheFirst(Decoder):
    """Gives every request of a batch the limit of the first one."""

    refutes = "DECODE-203"

    @classmethod
    def members(cls, case: GenerateCase) -> list[Member]:
        made = super().members(case)
        for member in made:
            member.limit = made[0].limit
        return made


# ---- stops


class StopsAtTheEndOfARun(Decoder):
    """Looks for a stop token in the last place of a run alone (huggingface/transformers#47912)."""

    refutes = "DECODE-301"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        run = [*draft.tokens[:accepted], token][: member.limit - len(member.output)]
        member.held += [member.output[-1], *draft.tokens[:accepted]]
        member.output += run
        cls.finish(member)


class StopTokenIsSwallowed(Decoder):
    """Takes the stop token off the end of an output."""

    refutes = "DECODE-301"

    @classmethod
    def answer(cls, member: Member) -> Any:
        if member.output[-1] in member.stops:
            member.output.pop()
        return super().answer(member)


class StopTokenTwice(Decoder):
    """Outputs a stop token once as a draft and once more as the frontier that it is not."""

    refutes = "DECODE-301"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        super().commit(member, draft, accepted, token)
        if member.output[-1] in draft.tokens[:accepted] and member.output[-1] in member.stops:
            member.output.append(member.output[-1])


class OneStopTokenAlone(Decoder):
    """Knows the first of several stop tokens."""

    refutes = "DECODE-302"

    @classmethod
    def finish(cls, member: Member) -> None:
        member.done = len(member.output) >= member.limit or member.output[-1] in member.stops[:1]


# ---- greedy


class AcceptsAnyOfTheBestTwo(Decoder):
    """Accepts a greedy draft that is the target's second choice."""

    refutes = "DECODE-401"

    @classmethod
    def accepts(cls, member: Member, i: int, token: int, p: Sequence[float], q: Sequence[float]) -> bool:
        if member.temperature == 0:
            return token in sorted(range(VOCABULARY), key=lambda v: -cls.warm(member, i)[v])[:2]
        return super().accepts(member, i, token, p, q)

    @classmethod
    def rows(cls, member: Member, draft: Draft) -> list[Sequence[float]]:
        cls.seen = [law((*member.context, *draft.tokens[:i]), 1.0) for i in range(len(draft.tokens) + 1)]
        return super().rows(member, draft)

    seen: ClassVar[list[Sequence[float]]] = []

    @classmethod
    def warm(cls, member: Member, i: int) -> Sequence[float]:
        return cls.seen[i]


class TokenAfterFullAcceptanceIsLost(Decoder):
    """Where all drafts are accepted, puts the token after them into the cache and not into the output."""

    refutes = "DECODE-401"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        if accepted < len(draft.tokens) or not accepted or member.temperature:
            return super().commit(member, draft, accepted, token)
        super().commit(member, draft, accepted - 1, draft.tokens[-1])
        member.held.append(token)


class RejectedRowStays(Decoder):
    """Leaves the row of the first rejected draft in the cache, so that the next laws follow it."""

    refutes = "DECODE-401"

    @classmethod
    def commit(cls, member: Member, draft: Draft, accepted: int, token: int) -> None:
        super().commit(member, draft, accepted, token)
        if accepted < len(draft.tokens) and member.temperature == 0:
            member.held.append(draft.tokens[accepted])


class AcceptsAcrossAGap(Decoder):
    """Goes on behind a rejected draft and publishes the later ones that match, too."""

    refutes = "DECODE-401"

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        accepted, token = super().verify(member, draft)
        if member.temperature == 0 and accepted < len(draft.tokens):
            rows = cls.rows(member, draft)
            kept = [t for i, t in enumerate(draft.tokens) if i < accepted or rows[i][t] == 1]
            draft.tokens[:] = kept
            return len(kept), token
        return accepted, token


class GreedyIsSampled(Decoder):
    """Verifies greedy requests as if their temperature were one."""

    refutes = "DECODE-401"

    @classmethod
    def target(cls, tokens: Tokens, member: Member) -> Sequence[float]:
        return law(tokens, member.temperature or 1.0)


class DraftsOfTheLastTime(Decoder):
    """Keeps the last drafts of a prompt, and publishes the first of them unverified when the prompt comes back."""

    refutes = "DECODE-402"
    kept: ClassVar[dict[Tokens, list[int]]] = {}

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        accepted, token = super().verify(member, draft)
        if member.temperature == 0:
            stale = cls.kept.get(member.prompt)
            if stale and len(member.output) == 1:
                draft.tokens[:1] = stale[:1]
                return 1, token
            if accepted < len(draft.tokens):
                cls.kept[member.prompt] = draft.tokens[accepted:]
        return accepted, token


class NoDraftsNoToken(Decoder):
    """Where a greedy request has no drafts, publishes the pending token once more."""

    refutes = "DECODE-403"

    @classmethod
    def verify(cls, member: Member, draft: Draft) -> tuple[int, int]:
        if not draft.tokens and member.temperature == 0:
            return 0, member.output[-1]
        return super().verify(member, draft)


class FourRowsAtMost(Decoder):
    """Verifies the first four drafts of a round, and takes those behind them as they are."""

    refutes = "DECODE-403"

    @classmethod
    def accepts(cls, member: Member, i: int, token: int, p: Sequence[float], q: Sequence[float]) -> bool:
        return i >= 4 or super().accepts(member, i, token, p, q)
