"""Asking an engine for outputs, and reading them. What was answered once is kept: several clauses judge one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from adapters.interface import Engine
from conformance import casefile, compare
from conformance.check import Check
from conformance.decode.cases import Requests, made, prompts
from conformance.handout import copy
from conformance.roads import decode as road
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle.types import GenerateCase, Ids, LawCase

REQUESTS_A_CASE = 40
"""About how many short requests the runs of a drawn case cost."""


@dataclass
class Output:
    """One request's tokens, and the margin at each of them where the engine shows it."""

    tokens: list[int]
    margins: list[float] | None


_ANSWERS: dict[tuple[str, str], list[Output]] = {}
_PLAIN: dict[tuple[str, bytes], Output] = {}


def engine(check: Check) -> Engine:
    """What the engine serves."""
    found = check.implementation.declaration.engine
    if found is None:
        raise HarnessError("an adapter with generate declares an engine")
    return found


def run(
    check: Check,
    drawn: st.SearchStrategy[Requests],
    body: Callable[[Requests], object],
    first: Sequence[Requests],
    examples: int = 25,
) -> None:
    """Run `body` on the cases of `first`, and on drawn ones where the engine is fast enough for these."""
    check.require("generate")
    affordable = int(check.profile.seconds / (REQUESTS_A_CASE * check.cost("generate")))
    wanted = min(examples, check.profile.examples, affordable)
    if wanted < 1:
        return check.for_each(first, body)
    return check.for_all(drawn, body, examples=wanted, first=first)


# ---- outputs


def answer(check: Check, case: GenerateCase, again: bool = False) -> list[Output]:
    """What the engine says, its form judged; asked `again`, whatever it said before."""
    key = check.implementation.spec, casefile.dumps(casefile.CaseFile("decode", "", (), case))
    if again or key not in _ANSWERS:
        found = compare.members(check.call("generate", copy(case)), len(case.prompts))
        _ANSWERS[key] = [read(one, f"generation {i}") for i, one in enumerate(found)]
    return _ANSWERS[key]


def outputs(
    check: Check,
    requests: Requests,
    speculative: bool = True,
    order: Sequence[int] | None = None,
    again: bool = False,
) -> list[Output]:
    """The outputs of the members in `order`, all of them where it is None."""
    stops = stop_tokens(check, requests)
    return answer(check, made(requests, engine(check), speculative, stops, order), again)


def plain(check: Check, requests: Requests, i: int) -> Output:
    """Member i decoded plainly, alone and greedily, without stop tokens."""
    return decoded(check, prompts(requests, engine(check))[i], requests.limit(i))


def decoded(check: Check, prompt: Ids, limit: int) -> Output:
    """A prompt decoded plainly, alone and greedily; a shorter output is the beginning of a longer one."""
    key = check.implementation.spec, prompt.tobytes()
    if key not in _PLAIN or len(_PLAIN[key].tokens) < limit:
        (_PLAIN[key],) = answer(check, GenerateCase([prompt], limit, 0.0, False, 0))
        if check.is_oracle:
            _agree(check, prompt, _PLAIN[key])
    found = _PLAIN[key]
    return Output(found.tokens[:limit], None if found.margins is None else found.margins[:limit])


def stop_tokens(check: Check, requests: Requests) -> tuple[int, ...]:
    """The tokens of the plain outputs that end a request."""
    found = []
    for i, place in requests.stops:
        tokens = plain(check, requests, i).tokens
        if place < len(tokens):
            found.append(tokens[place])
    return tuple(dict.fromkeys(found))


def raw(check: Check, case: GenerateCase) -> list[Any]:
    """The generations as they are."""
    return compare.members(check.call("generate", case), len(case.prompts))


# ---- laws


def law(check: Check, temperature: float) -> road.Law:
    """The engine's law after any tokens, as it shows it."""
    check.require("next_law")
    known: dict[road.Tokens, list[Any]] = {}
    vocabulary = engine(check).vocabulary

    def after(tokens: road.Tokens) -> list[Any]:
        if tokens not in known:
            case = LawCase(np.array(tokens, dtype=np.int64), temperature)
            (row,) = compare.members(check.call("next_law", [case]), 1)
            values = compare.vector(row, "a law", "f", vocabulary, "token")
            if not (np.all(values >= 0) and abs(values.sum() - 1) < 1e-3):
                raise ClauseViolation(f"after {list(tokens)} it shows {values}, which is no law")
            known[tokens] = road.exact(values.tolist())
        return known[tokens]

    return after


def _agree(check: Check, prompt: Ids, found: Output) -> None:
    """The reference decodes plainly what its laws say."""
    right = road.greedy(law(check, 0.0), tuple(prompt.tolist()), len(found.tokens))
    if right != found.tokens:
        raise HarnessError(f"the reference decodes {found.tokens}, and its laws say {right}")


def promised(check: Check, *promises: str) -> None:
    """End as "not applicable" where the adapter does not promise it."""
    check.require("generate")
    for promise in promises:
        if promise not in check.implementation.declaration.promises:
            raise Inapplicable(f"the adapter does not promise {promise!r}")


def read(found: Any, where: str) -> Output:
    """A generation, its form judged."""
    if not hasattr(found, "tokens"):
        raise ClauseViolation(f"{where} is a {type(found).__name__}, not a Generation with tokens")
    tokens = compare.vector(found.tokens, f"{where}.tokens", entry="token")
    margins = getattr(found, "margins", None)
    if margins is None:
        return Output(tokens.tolist(), None)
    shown = compare.plain(margins, f"{where}.margins")
    fits = shown.shape == tokens.shape and shown.dtype.kind == "f"
    return Output(tokens.tolist(), shown.astype(np.float64).tolist() if fits else None)
