"""The loop over table models: its law is the target's, in rationals; its state is what was accepted; the engine."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.roads import decode as road
from oracle import decode
from oracle.enumeration import Run, branches
from oracle.errors import BadInput
from oracle.loop import Growth, LoopRequest, NextLaw, Round
from oracle.types import GenerateCase, LawCase, Limits
from oracle.walks import WALKS

PROMPT = (1, 0)
SEEDS = st.integers(0, 2**16)
SHAPES: dict[str, tuple[int, ...]] = {
    "no drafts": (),
    "one draft": (-1,),
    "chain of two": (-1, 0),
    "chain of three": (-1, 0, 1),
    "two siblings": (-1, -1),
    "fork with a deeper branch": (-1, -1, 1),
}


def laws(seed: int, vocabulary: int, zeros: bool = True) -> NextLaw:
    """A table without end: small rationals, a row for every prefix, zeros and one-hot rows among them."""
    known: dict[tuple[int, ...], tuple[Fraction, ...]] = {}

    def row(prefix: tuple[int, ...]) -> tuple[Fraction, ...]:
        if prefix not in known:
            generator = np.random.default_rng([seed, len(prefix), *prefix])
            weights = generator.integers(0 if zeros else 1, 5, vocabulary).tolist()
            weights[int(generator.integers(vocabulary))] += 0 if any(weights) else 1
            known[prefix] = tuple(Fraction(w, sum(weights)) for w in weights)
        return known[prefix]

    return row


def output(rounds: Sequence[Round]) -> tuple[int, ...]:
    return tuple(rounds[-1].state.output.tolist())


def emitted(*requests: LoopRequest) -> dict[tuple[tuple[int, ...], ...], Fraction]:
    """The law of the outputs of requests that are decoded side by side, every branch of every choice followed."""
    law: dict[tuple[tuple[int, ...], ...], Fraction] = {}

    def program(run: Run) -> tuple[tuple[int, ...], ...]:
        return tuple(output(rounds) for rounds in decode.decode(requests, [run] * len(requests)))

    for weight, outputs in branches(program):
        law[outputs] = law.get(outputs, Fraction(0)) + weight
    assert sum(law.values()) == 1
    return law


def own(target: NextLaw, limit: int, stops: Sequence[int] = ()) -> dict[tuple[int, ...], Fraction]:
    """The target's own law of whole outputs."""
    assert callable(target)
    return road.sequence_law(target, PROMPT, limit, stops)


def request(target: NextLaw, draft: NextLaw, limit: int, stops: Sequence[int] = (), **changed: Any) -> LoopRequest:
    return LoopRequest(np.array(PROMPT), target, draft, limits=Limits(tuple(stops), limit), **changed)


def alone(law: dict[tuple[tuple[int, ...], ...], Fraction]) -> dict[tuple[int, ...], Fraction]:
    return {outputs[0]: weight for outputs, weight in law.items()}


# ---- the law


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_outputs_have_the_law_of_the_target(shape: str, proposal: str, data: st.DataObject) -> None:
    """Three or four tokens over several rounds; the last run meets the limit wherever it falls."""
    parent = SHAPES[shape]
    crowded = proposal != "iid" and parent.count(-1) > 1
    vocabulary = data.draw(st.integers(2, 3))
    limit = data.draw(st.integers(2, 4 if vocabulary == 2 else 3))
    target, draft = laws(data.draw(SEEDS), vocabulary), laws(data.draw(SEEDS), vocabulary, zeros=not crowded)
    found = emitted(request(target, draft, limit, drafting=parent, proposal=proposal))
    assert alone(found) == own(target, limit)


@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_stop_tokens_end_the_same_sequences(proposal: str, data: st.DataObject) -> None:
    target, draft = laws(data.draw(SEEDS), 3), laws(data.draw(SEEDS), 3, zeros=proposal == "iid")
    stops = data.draw(st.sampled_from([(0,), (2,), (0, 1), (0, 1, 2)]))
    parent = data.draw(st.sampled_from([(-1, 0), (-1, -1, 0)]))
    found = emitted(request(target, draft, 3, stops, drafting=parent, proposal=proposal))
    assert alone(found) == own(target, 3, stops)
    for tokens in alone(found):
        assert not set(tokens[:-1]) & set(stops) and (len(tokens) == 3 or tokens[-1] in stops)


@pytest.mark.parametrize("scheme", WALKS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_every_coin_scheme_decodes_the_target_law(scheme: str, data: st.DataObject) -> None:
    target, draft = laws(data.draw(SEEDS), 2), laws(data.draw(SEEDS), 2, zeros=False)
    parent = (-1, 0, 1) if scheme == "block" else (-1, -1, 1)
    proposal = data.draw(st.sampled_from(["point", "iid"]))
    found = emitted(request(target, draft, 4, drafting=parent, proposal=proposal, scheme=scheme))
    assert alone(found) == own(target, 4)


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_grown_trees_decode_the_target_law(data: st.DataObject) -> None:
    target, draft = laws(data.draw(SEEDS), 3), laws(data.draw(SEEDS), 3)
    growth = Growth(2, 2, 2, data.draw(st.integers(0, 5)))
    assert alone(emitted(request(target, draft, 3, drafting=growth))) == own(target, 3)


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_requests_side_by_side_are_independent(data: st.DataObject) -> None:
    """One with drafts, one without any, of different limits: the joint law is the product."""
    target, draft, other = (laws(data.draw(SEEDS), 2) for _ in range(3))
    found = emitted(request(target, draft, 3, drafting=(-1, 0)), request(other, draft, 2, (1,)))
    one, two = own(target, 3), own(other, 2, (1,))
    assert found == {(a, b): one[a] * two[b] for a, b in itertools.product(one, two)}


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_greedy_outputs_are_those_of_the_target(shape: str, data: st.DataObject) -> None:
    target, draft = laws(data.draw(SEEDS), 3), laws(data.draw(SEEDS), 3, zeros=False)
    proposal = data.draw(st.sampled_from(["point", "iid"]))
    limit = 4 if proposal == "point" else 3
    stops = data.draw(st.sampled_from([(), (1,)]))
    found = emitted(request(target, draft, limit, stops, drafting=SHAPES[shape], proposal=proposal, greedy=True))
    assert callable(target)
    right = road.greedy(target, PROMPT, limit, stops)
    assert alone(found) == {tuple(right): 1}


def test_a_lenient_chance_is_noticed() -> None:
    """A chance that accepts whatever is possible makes another law, and the equality says so."""

    class Lenient(Run):
        def accepts(self, node: int, p: Fraction, q: Fraction) -> bool:
            return p > 0

    target = constant(Fraction(1, 4), Fraction(3, 4))
    law: dict[tuple[int, ...], Fraction] = {}
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        run = Lenient(scripts.pop())
        (rounds,) = decode.decode([request(target, HALF, 2, drafting=(-1,))], [run])
        scripts.extend(run.left_for_later)
        law[output(rounds)] = law.get(output(rounds), Fraction(0)) + run.weight
    assert law == {(0, 0): Fraction(1, 8), (0, 1): Fraction(1, 8), (1, 0): Fraction(3, 8), (1, 1): Fraction(3, 8)}
    assert law != own(target, 2)


# ---- the rounds


def constant(*row: Fraction) -> NextLaw:
    return lambda prefix: row


HALF = constant(Fraction(1, 2), Fraction(1, 2))
FIRST = constant(Fraction(1), Fraction(0))
SECOND = constant(Fraction(0), Fraction(1))


def test_rounds_that_accept_everything_and_nothing() -> None:
    """Four zeros: the prefill's, two drafts and the token after them. Drafts of ones: a zero a round."""
    (right,) = decode.decode([request(FIRST, FIRST, 4, drafting=(-1, 0), proposal="point", greedy=True)], [Run(())])
    assert [(r.decision.path, r.decision.frontier) for r in right] == [((), 0), ((0, 1), 0)]
    (wrong,) = decode.decode([request(FIRST, SECOND, 3, drafting=(-1, 0), proposal="point", greedy=True)], [Run(())])
    assert [(r.decision.path, r.decision.frontier) for r in wrong] == [((), 0), ((), 0), ((), 0)]
    assert [r.verified.token.tolist() for r in wrong] == [[], [1, 1], [1, 1]]
    assert [len(r.state.freed) for r in wrong] == [0, 2, 2]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), shape=st.sampled_from(sorted(SHAPES)))
def test_what_is_held_is_what_was_output(seed: int, shape: str) -> None:
    """|KV| and one pending token make up the sequence, equal prefixes spell equal rows, the seed is the last row."""
    target, draft = HALF, HALF
    (rounds,) = decode.decode([request(target, draft, 4, drafting=SHAPES[shape])], [decode.Drawn(seed)])
    for one in rounds:
        state = one.state
        sequence = [*state.prompt.tolist(), *state.output.tolist()]
        assert len(state.kv) + (state.pending is not None) == len(sequence)
        assert len(set(state.kv.tolist())) == len(state.kv)
        assert state.seed is None or state.seed == state.features[-1]
        assert rounds[-1].state.kv[: len(state.kv)].tolist() == state.kv.tolist()
        assert len(one.decision.path) <= len(one.verified.token)


# ---- the engine


PROMPTS = [np.array([3, 1, 4, 1, 5]), np.array([9]), np.array([2, 6, 5])]


def tokens_of(**changed: Any) -> list[list[int]]:
    fields: dict[str, Any] = {"max_new_tokens": 9, "temperature": 0.0, "speculative": True, "seed": 3}
    return [g.tokens.tolist() for g in decode.generate(GenerateCase(PROMPTS, **fields | changed))]


def test_greedy_generation_is_what_the_laws_say() -> None:
    def law(tokens: tuple[int, ...]) -> list[Fraction]:
        return road.exact(decode.next_law([LawCase(np.array(tokens), 0.0)])[0].tolist())

    right = [road.greedy(law, tuple(prompt.tolist()), 9) for prompt in PROMPTS]
    assert tokens_of() == tokens_of(speculative=False) == right
    assert tokens_of(draft_length=np.array([0, 5, 1])) == right
    stopped = [road.cut(tokens, 9, (right[0][3],)) for tokens in right]
    assert tokens_of(stop_tokens=(right[0][3],)) == stopped


def test_the_drafter_is_right_at_times() -> None:
    case = LoopRequest(
        PROMPTS[0],
        lambda prefix: decode.law_after(prefix, 0.0),
        lambda prefix: decode.draft_after(prefix, 0.0),
        (-1, 0, 1),
        "point",
        greedy=True,
        limits=Limits((), 60),
    )
    (rounds,) = decode.decode([case], [Run(())])
    depths = [len(one.decision.path) for one in rounds[1:]]
    assert {0, 1, 3} <= set(depths)


def test_margins_are_gaps_of_logits() -> None:
    (found, *_) = decode.generate(GenerateCase(PROMPTS, 4, 0.0, True, 0))
    assert found.margins is not None
    for i, margin in enumerate(found.margins):
        row = decode.logits_after((*PROMPTS[0].tolist(), *found.tokens[:i].tolist()))
        assert margin == pytest.approx(row[found.tokens[i]] - np.delete(row, found.tokens[i]).max())


def test_a_request_draws_by_itself() -> None:
    seeds = np.array([7, 8, 9])
    whole = tokens_of(temperature=1.0, seed=seeds)
    assert whole == tokens_of(temperature=1.0, seed=seeds)
    for i, prompt in enumerate(PROMPTS):
        (one,) = decode.generate(GenerateCase([prompt], 9, 1.0, True, int(seeds[i])))
        assert one.tokens.tolist() == whole[i]
    assert decode.generate(GenerateCase([], 3, 0.0, True, 0)) == []


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no case": (lambda: decode.generate([1]), "case = 'list': a case is an oracle.types.GenerateCase"),  # type: ignore[arg-type]
    "no prompt": (lambda: decode.generate(asked([[]])), "prompts[0] = 0: has at least one token"),
    "an id": (lambda: decode.generate(asked([[0], [3, 12]])), "prompts[1][1] = 12: a token id lies in [0, 12)"),
    "a limit": (
        lambda: decode.generate(asked([[0], [1]], max_new_tokens=np.array([2, 0]))),
        "max_new_tokens[1] = 0: is a whole number of at least 1",
    ),
    "limits": (
        lambda: decode.generate(asked([[0], [1]], max_new_tokens=np.array([2, 2, 2]))),
        "max_new_tokens = (3,): is one value, or one for each of 2 requests",
    ),
    "too long": (
        lambda: decode.generate(asked([[0] * 250], max_new_tokens=7)),
        "prompts[0] = 257: prompt and output have at most 256 tokens",
    ),
    "a temperature": (
        lambda: decode.generate(asked([[0]], temperature=-0.5)),
        "temperature = -0.5: a temperature is at least 0",
    ),
    "a seed": (lambda: decode.generate(asked([[0]], seed=-1)), "seed = -1: a seed is a non-negative integer"),
    "drafts": (
        lambda: decode.generate(asked([[0]], draft_length=-1)),
        "draft_length = -1: is a whole number of at least 0",
    ),
    "a flag": (lambda: decode.generate(asked([[0]], speculative=1)), "speculative = 1: is a boolean"),
    "a law": (lambda: decode.next_law([LawCase(np.array([13]), 1.0)]), "cases[0].tokens[0] = 13: a token id lies in"),
    "no end": (
        lambda: decode.decode([LoopRequest(np.array([0]), HALF, HALF)], [Run(())]),
        "requests[0].limits = Limits(stop_tokens=(), max_new_tokens=None): has a limit",
    ),
    "chances": (lambda: decode.decode([request(HALF, HALF, 2)], []), "chances = 0: there is one for each of 1"),
    "no row": (
        lambda: decode.decode([request({PROMPT: (Fraction(1), Fraction(0))}, HALF, 3)], [Run(())]),
        "requests[0].target: a table has a row for each prefix that is reached, here (1, 0, 0)",
    ),
    "no model": (
        lambda: decode.decode([LoopRequest(np.array([0]), HALF, 3)], [Run(())]),  # type: ignore[arg-type]
        "requests[0].draft = 'int': is a mapping from prefixes to rows, or a function",
    ),
    "siblings": (
        lambda: decode.decode([request(HALF, FIRST, 3, drafting=(-1, -1), proposal="point")], [Run(())]),
        "requests[0].drafting[1]: siblings of a 'point' proposal stay within the support",
    ),
}


def asked(prompts: Sequence[Sequence[int]], **changed: Any) -> GenerateCase:
    fields: dict[str, Any] = {"max_new_tokens": 3, "temperature": 0.0, "speculative": True, "seed": 0}
    return GenerateCase([np.array(prompt, dtype=np.int64) for prompt in prompts], **fields | changed)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        call()
