"""Decoding: a whole engine's output, with speculation and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.types.arrays import Ids, Rows


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
