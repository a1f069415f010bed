"""Golden vectors of decoding: the engine brings its own model, so what is expected is a relation between its outputs.

The relations, by name; each asks an engine for more than one output and compares them:

- "plain": every greedy output is that of its request decoded plainly and alone, as far as its own limit.
- "any_number_of_drafts": so it is for each of `draft_lengths`.
- "turned_round": so it is, and stays so when the batch is asked in the reverse order.
- "asked_again": so it is; then prompts that go on from the outputs are asked, and the same batch once more.
- "stop_tokens": some tokens of the plain outputs become stop tokens, `stops` says them as [request, place]. A greedy
  output ends behind the first stop token of the plain one; in a sampled output nothing follows a stop token.
- "own_draws": a sampled output is the same when the batch is asked again, turned round, or request by request; where
  the engine promises that.

Under each of them there is an output for each request, of ids of the vocabulary, none beginning with a prompt of eight
tokens or more; it has as many tokens as its limit says unless a stop token ends it; margins, where they are shown, are
one number of at least 0 a token; and the case is left as it was. A plain margin within the near tie of `spec.md`
leaves a request undecided from there on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adapters.interface import DTYPES, Declaration
from conformance import compare
from conformance.decode.asking import Output, read
from conformance.handout import copy, written
from conformance.roads import decode as road
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle.types import GenerateCase, Ids

RELATIONS: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "any_number_of_drafts": ("draft_lengths",),
    "turned_round": (),
    "asked_again": (),
    "stop_tokens": ("stops",),
    "own_draws": (),
}
"""Relation → what stands beside its name."""
LONG_PROMPT = 8
GOES_ON = 6
"""Tokens that follow a prompt which goes on from an output."""


def broken(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    """What is wrong with an engine under a relation, in words, or None. Raises `Inapplicable`."""
    name = relation["relation"]
    if name not in RELATIONS or set(relation) != {"relation", *RELATIONS[name]}:
        raise HarnessError(f"{name!r} is no relation of {operation}, or has other fields")
    asking = _Asking(arguments["case"], lambda case: call(operation, case), declaration)
    try:
        _JUDGES[name](asking, relation)
    except ClauseViolation as violation:
        return violation.reason
    return None


class _Asking:
    """One case, and the engine that is asked about it."""

    def __init__(self, case: GenerateCase, call: Callable[[GenerateCase], Any], declaration: Declaration) -> None:
        if declaration.engine is None:
            raise HarnessError("an adapter with generate declares an engine")
        self.case, self.call, self.declaration, self.engine = case, call, declaration, declaration.engine
        self.count = len(case.prompts)
        self.limits: list[int] = self._each(case.max_new_tokens)
        self.greedy = [temperature == 0 for temperature in self._each(case.temperature)]
        self._known: dict[int, Output] = {}
        self._fits(case.prompts, max(self.limits))

    def _each(self, values: Any) -> list[Any]:
        found: list[Any] = np.broadcast_to(values, self.count).tolist()
        return found

    def _fits(self, prompts: Sequence[Ids], limit: int) -> None:
        most = max(max(prompt.tolist()) for prompt in prompts)
        if most >= self.engine.vocabulary:
            raise Inapplicable(f"it needs the token {most}, and the engine has {self.engine.vocabulary} tokens")
        longest = max(map(len, prompts)) + limit
        if longest > self.engine.longest:
            raise Inapplicable(
                f"it needs {longest} tokens of prompt and output, and the engine has {self.engine.longest}"
            )

    # ---- asking

    def outputs(self, case: GenerateCase) -> list[Output]:
        """What the engine says, its form judged."""
        mine = copy(case)
        found = compare.members(self.call(mine), len(case.prompts))
        if names := written(case, mine):
            raise ClauseViolation(f"generate wrote into {', '.join(names)}")
        read_ones = [read(one, f"generation {i}") for i, one in enumerate(found)]
        limits = np.broadcast_to(case.max_new_tokens, len(found)).tolist()
        for i, (one, prompt, limit) in enumerate(zip(read_ones, case.prompts, limits)):
            self._form(f"request {i}", one, getattr(found[i], "margins", None), prompt.tolist())
            self._length(f"request {i}", one, limit, case.stop_tokens)
        return read_ones

    def _form(self, who: str, found: Output, margins: Any, prompt: list[int]) -> None:
        for step, token in enumerate(found.tokens):
            if not 0 <= token < self.engine.vocabulary:
                raise ClauseViolation(f"{who}, token {step} is {token}; ids lie in [0, {self.engine.vocabulary})")
        if len(prompt) >= LONG_PROMPT and found.tokens[: len(prompt)] == prompt:
            raise ClauseViolation(f"{who} begins with its prompt")
        if margins is not None and (found.margins is None or not all(margin >= 0 for margin in found.margins)):
            raise ClauseViolation(f"{who} has the margins {margins}; they are one number of at least 0 a token")

    def _length(self, who: str, found: Output, limit: int, stops: Sequence[int]) -> None:
        right = len(road.cut(found.tokens, limit, stops))
        if len(found.tokens) != right:
            raise ClauseViolation(f"{who} has {len(found.tokens)} tokens and ends after {right}: {found.tokens}")
        if right < limit and (not right or found.tokens[-1] not in stops):
            raise ClauseViolation(f"{who} ends after {right} of {limit} tokens, and not with a stop token")

    def plain(self, i: int) -> Output:
        """Request i decoded plainly and alone, greedily, without stop tokens."""
        if i not in self._known:
            self._known[i] = self.decoded(self.case.prompts[i], self.limits[i])
        return self._known[i]

    def decoded(self, prompt: Ids, limit: int) -> Output:
        (found,) = self.outputs(GenerateCase([prompt], limit, 0.0, False, 0))
        return found

    def ordered(self, order: Sequence[int]) -> GenerateCase:
        """The case of some members, in this order."""
        changed: dict[str, Any] = {"prompts": [self.case.prompts[i] for i in order]}
        for name in ("max_new_tokens", "temperature", "seed", "draft_length"):
            value = getattr(self.case, name)
            changed[name] = value[list(order)] if isinstance(value, np.ndarray) else value
        return dataclasses.replace(self.case, **changed)

    # ---- judging

    def same(self, who: str, found: list[int], plain: Output) -> None:
        """`ClauseViolation` at the first token that is not the plain one, unless it is a near tie."""
        for step, (token, right) in enumerate(zip(found, plain.tokens)):
            if token != right:
                near = plain.margins is not None and plain.margins[step] <= self.near()
                if near:
                    return
                raise ClauseViolation(f"{who}, token {step}: {token}, and decoded plainly {right}")
        if len(found) != len(plain.tokens):
            raise ClauseViolation(f"{who} is {found}, and decoded plainly {plain.tokens}")

    def near(self) -> float:
        """The margin up to which two runs of one engine may disagree, as `spec.md` derives it."""
        strayed = self.engine.roundings * DTYPES[self.declaration.arithmetic.dtype]
        return 4 * strayed / (1 - strayed) * self.engine.scale if strayed < 1 else float("inf")

    def as_plain(self, case: GenerateCase, words: str = "", order: Sequence[int] | None = None) -> list[Output]:
        """Every greedy member against the plain engine; the outputs of the members by their own number."""
        order = range(self.count) if order is None else order
        found = self.outputs(case)
        for place, i in enumerate(order):
            if self.greedy[i]:
                self.same(f"request {i}{words}", found[place].tokens, self.plain(i))
        return [found[place] for place in np.argsort(list(order)).tolist()]


def _plain(asking: _Asking, relation: Mapping[str, Any]) -> None:
    asking.as_plain(asking.case)


def _drafts(asking: _Asking, relation: Mapping[str, Any]) -> None:
    for drafts in relation["draft_lengths"]:
        asking.as_plain(dataclasses.replace(asking.case, draft_length=drafts), f" with {drafts} drafts a round")


def _turned(asking: _Asking, relation: Mapping[str, Any]) -> None:
    asking.as_plain(asking.case)
    order = list(reversed(range(asking.count)))
    asking.as_plain(asking.ordered(order), " in the batch turned round", order)


def _again(asking: _Asking, relation: Mapping[str, Any]) -> None:
    found = asking.as_plain(asking.case)
    for i, output in enumerate(found):
        longer = np.concatenate([asking.case.prompts[i], np.array(output.tokens[: len(output.tokens) // 2])])
        asking._fits([longer], GOES_ON)
        (more,) = asking.outputs(GenerateCase([longer], GOES_ON, 0.0, True, 0))
        asking.same(f"the prompt that goes on from request {i}", more.tokens, asking.decoded(longer, GOES_ON))
    asking.as_plain(asking.case, ", asked again")


def _stops(asking: _Asking, relation: Mapping[str, Any]) -> None:
    tokens = [asking.plain(i).tokens[place] for i, place in relation["stops"]]
    stops = tuple(dict.fromkeys(tokens))
    found = asking.outputs(dataclasses.replace(asking.case, stop_tokens=stops))
    for i, output in enumerate(found):
        if asking.greedy[i]:
            plain = asking.plain(i)
            right = road.cut(plain.tokens, asking.limits[i], stops)
            asking.same(f"request {i}, with the stop tokens {list(stops)}", output.tokens, Output(right, plain.margins))


def _own(asking: _Asking, relation: Mapping[str, Any]) -> None:
    promises = asking.declaration.promises
    if "seed" not in promises:
        raise Inapplicable("the adapter does not promise 'seed'")
    whole = asking.outputs(asking.case)
    others = {"asked again": asking.outputs(asking.case)}
    if "request_independent" in promises:
        order = list(reversed(range(asking.count)))
        others["in the batch turned round"] = asking.outputs(asking.ordered(order))[::-1]
        others["alone"] = [asking.outputs(asking.ordered([i]))[0] for i in range(asking.count)]
    for words, found in others.items():
        for i, (one, other) in enumerate(zip(whole, found)):
            if one.tokens != other.tokens:
                raise ClauseViolation(f"request {i} is {one.tokens} in its batch, and {words} {other.tokens}")


_JUDGES: Mapping[str, Callable[[_Asking, Mapping[str, Any]], None]] = {
    "plain": _plain,
    "any_number_of_drafts": _drafts,
    "turned_round": _turned,
    "asked_again": _again,
    "stop_tokens": _stops,
    "own_draws": _own,
}
