"""Decoding: a whole engine's output, with speculation and without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.types.acceptance import Decision, VerifyCase
from oracle.types.arrays import Ids, Rows
from oracle.types.publish import CommittedState, Limits


@dataclass(frozen=True, eq=False)
class GenerateCase:
    """A batch of requests.

    prompts: one int64 vector a request, at least one token each. max_new_tokens: the whole output's limit, the stop
    token counted. temperature: 0 is greedy. speculative: whether drafts are used. stop_tokens: end a request, and are
    output. draft_length: drafts a round; 0 is a round without drafts, None the engine's own. max_new_tokens,
    temperature, seed and draft_length are one value for all, or one a request.
    """

    prompts: Sequence[Ids]
    max_new_tokens: int | Ids
    temperature: float | Rows
    speculative: bool
    seed: int | Ids
    stop_tokens: tuple[int, ...] = ()
    draft_length: int | Ids | None = None


@dataclass(frozen=True, eq=False)
class Generation:
    """One request's output. tokens: int64 [T], without the prompt. margins: float64 [T], the gap of the two best
    target logits at each token; None where the engine shows none."""

    tokens: Ids
    margins: Rows | None = None


@dataclass(frozen=True, eq=False)
class LawCase:
    """What a law is asked for: tokens so far (prompt and output, int64 [n]), and a temperature; 0 is greedy."""

    tokens: Ids
    temperature: float


NextLaw = Mapping[tuple[int, ...], Sequence[Any]] | Callable[[tuple[int, ...]], Sequence[Any]]
"""A model as a table: all tokens so far → the law of the next one, in floats or in Fractions."""


@dataclass(frozen=True)
class Growth:
    """How a tree grows each round: see `GrowthCase`; `budget` of its nodes are verified."""

    expand_width: int
    branch_width: int
    max_depth: int
    budget: int


@dataclass(frozen=True, eq=False)
class LoopRequest:
    """A request for the loop over table models.

    prompt: int64, at least one token. drafting: the shape of its tree, parent[i] < i, −1 = child of the pending token,
    or a `Growth`, whose proposals are points; () drafts nothing. proposal: as in `VerifyCase`. greedy: whether the
    target's argmax decides. scheme: the coin scheme of a sampled request. target, draft: the models.
    """

    prompt: Ids
    target: NextLaw
    draft: NextLaw
    drafting: tuple[int, ...] | Growth = ()
    proposal: str = "iid"
    greedy: bool = False
    scheme: str = "per_node"
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, eq=False)
class Round:
    """What happened to one request in one round: what was verified, what was decided, what it holds afterwards.

    The first is the prefill: a verification without drafts, whose frontier is the first token.
    """

    verified: VerifyCase
    decision: Decision
    state: CommittedState
