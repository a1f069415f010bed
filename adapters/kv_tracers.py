"""Driving one round of a real decoding loop, EAGLE's or one made after it, and reading what it leaves behind.

The loop itself, its `update_inference_inputs` and the drafter's `topK_genrate` are the implementation's own. At their
edges stand, for one request at a time:
- the target: where a model would write KV and give hidden states, prefill and verification write the case's numbers,
  float64, one entry a row, behind the length that the cache says it has;
- the verifier: its answer is the case's path and frontier. The leaf table has a row for the path, which goes on with a
  node that is not accepted where there is one, and a row for each other node; parents of these a case does not tell;
- the drafter's layers: a row of its KV is the feature that was fed for it, NaN where it came from drafting; its head
  takes down the first state it gets, the seed. The tree that is verified next is the case's, whatever it drafted;
- the round before: output that was there already is published by an earlier round of the same loop.

What is converted, and nothing else:
- the loop's ids hold no pending token: while the loop goes on, `output` is what it published and the token that it
  sampled last; once it has ended, that token is dropped, as the loop drops it, and so is the seed;
- `finished` says that the loop ended, rather than asked for a verification more;
- `features` are the rows that the drafter was handed, one call after the other. No list of them is kept;
- `draft_kv` is the drafter's stable cache; where the case has none, it is not shown. Why a request ended, and the rows
  of the cache behind its length, nobody keeps.

Not applicable: states without a pending token, or whose pending token is of the prompt, finished states, and states or
rows that no round of the loop makes (a root row that holds another token, a node without a row or with two, twice in a
path).
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from adapters.interface import Deviation, NotApplicable
from adapters.leaf_posterior import Standing
from oracle.types import NOT_SHOWN, PADDING_ROW, ROOT_ROW, CommittedState, PublishCase, Rows

PADDING = -1
"""A token that no row holds: the loops pad with it."""
SMALL = 16
"""Vocabulary and width of the drafter, which drafts what nobody looks at."""
SPARE = 64
"""Tokens that a loop has room for behind those of the case."""


class GoesOn(Exception):
    """The loop asks for a verification that no case describes."""


@dataclass(frozen=True)
class Round:
    """One verification. leaves: the leaf table, padded with −1; its row `best` is the path."""

    tokens: list[int]
    kv: Rows
    features: Rows
    leaves: list[list[int]]
    best: int
    accepted: int
    frontier: int


class Loop:
    """The edges of one request's loop: its cache, what it verifies, and what its drafter saw."""

    def __init__(self, torch: Any, case: PublishCase, drafter: Any, more: tuple[Any, ...] = ()) -> None:
        """drafter: the implementation's own; its layers are put aside. more: what its forward returns besides."""
        self.torch, self.drafter, self.more = torch, drafter, more
        self.prompt, output = _sequence(case)
        self.rounds = [_decided(case)]
        state, held = case.state, len(self.prompt)
        self._prefilled = (np.asarray(state.kv)[:held], np.asarray(state.features)[:held])
        if len(output) > 1:
            before = np.asarray(state.kv)[held:], np.asarray(state.features)[held:]
            self.rounds.insert(0, _chain(output[:-1], *before, output[-1]))
        self.root = output[0]
        self.room = held + len(output) + sum(len(round.tokens) for round in self.rounds) + SPARE
        self.cache = torch.full((2, 1, 1, self.room, 1), math.nan, dtype=torch.float64)
        self.lengths = torch.zeros(2, dtype=torch.int64)
        self.ids: Any = None
        self.pending: int | None = None
        self.seed: float | None = None
        self.fed: list[Any] = []
        self.draft_rows: Any = None
        self._shown = state.draft_kv is not None
        self._draft_kv = state.draft_kv if self._shown else np.full(held + len(output) - 1, math.nan)
        self._turn = 0
        drafter.forward = self.layers
        for name, forward in (("lm_head", self.head), ("norm", lambda states: states)):
            if hasattr(drafter, name):
                getattr(drafter, name).forward = forward

    @property
    def round(self) -> Round:
        """What is verified now, or was last."""
        return self.rounds[min(self._turn, len(self.rounds) - 1)]

    def leaves(self) -> Any:
        """The leaf table of this round."""
        return self.torch.tensor(self.round.leaves, dtype=self.torch.int64)

    def prefill(self) -> None:
        """The prompt is in the cache, and its features are handed to the drafter."""
        kv, features = self._prefilled
        self._write(kv)
        self.fed.append(self._tensor(features))

    def verify(self, ids: Any) -> Any:
        """Hidden states [1, R, 1] of the rows that are verified behind `ids`, their KV being in the cache."""
        if self._turn == len(self.rounds):
            self.ids = ids
            raise GoesOn
        self._write(self.round.kv)
        return self._tensor(self.round.features)[None, :, None]

    def tokens(self) -> Any:
        """int64 [1, R]: the tokens of the rows that are verified."""
        return self.torch.tensor([self.round.tokens], dtype=self.torch.int64)

    def answer(self) -> tuple[Any, Any]:
        """The row of the leaf table, and the accepted drafts in it."""
        return self.torch.tensor(self.round.best), self.torch.tensor(self.round.accepted)

    def law(self) -> Any:
        """What the frontier is picked from: the frontier itself, which `picks` hands on."""
        return self.torch.tensor(self.round.frontier)

    def picks(self) -> Standing:
        """torch as `update_inference_inputs` sees it: the largest of a law is the frontier that stands for it."""
        return Standing(self.torch, argmax=lambda law: law)

    def draft(self, hidden: Any, ids: Any, generate: Callable[[], Any]) -> None:
        """Drafting after a round: `generate` is the real one, and called where the round is the case's own."""
        self.fed.append(hidden[0, :, 0])
        self.pending = int(ids[0, -1])
        self._turn += 1
        if self._turn == len(self.rounds):
            rows = self._tensor(np.asarray(self._draft_kv))[None, None, :, None]
            self.drafter.stable_kv = ((rows, rows),)
            generate()
            self.draft_rows = self.drafter.stable_kv[0][0][0, 0, :, 0]

    def layers(self, hidden_states: Any, input_ids: Any, past_key_values: Any = None, **named: Any) -> Any:
        """The drafter's forward: hidden states as they are, and a row of KV for each."""
        if hidden_states.shape[1] != input_ids.shape[1]:
            raise ValueError(f"{hidden_states.shape[1]} features stand beside {input_ids.shape[1]} tokens")
        drafted = named.get("position_ids") is not None
        rows = hidden_states[:, None] * (math.nan if drafted else 1.0)
        if past_key_values is not None:
            rows = self.torch.cat((past_key_values[0][0], rows), dim=2)
        return (hidden_states, ((rows, rows),), *self.more)

    def head(self, states: Any) -> Any:
        """The drafter's head: any logits."""
        if self.seed is None:
            self.seed = float(states.reshape(-1)[0])
        return self.torch.arange(SMALL, dtype=self.torch.float64).repeat(states.shape[0], 1)

    def model(self, tokenizer: Any, drafted: Callable[[], tuple[Any, ...]]) -> SimpleNamespace:
        """What the loop is a method of. drafted: what its `topK_genrate` returns of the round that is verified next."""
        generate = type(self.drafter).topK_genrate

        def draft(hidden: Any, input_ids: Any, **named: Any) -> Any:
            self.draft(hidden, input_ids, lambda: generate(self.drafter, hidden, input_ids=input_ids, **named))
            return drafted()

        layer = SimpleNamespace(topK_genrate=draft, reset_kv=self.drafter.reset_kv, total_tokens=0)
        return SimpleNamespace(
            ea_layer=layer,
            eagle_layer=layer,
            tokenizer=tokenizer,
            base_model=SimpleNamespace(model=SimpleNamespace(), lm_head=self.head),
            past_key_values=None,
            past_key_values_data=[self.cache],
            current_length_data=self.lengths,
        )

    def _write(self, kv: Rows) -> None:
        length = int(self.lengths[0])
        self.cache[..., length : length + len(kv), 0] = self._tensor(kv)
        self.lengths.add_(len(kv))

    def _tensor(self, values: Rows) -> Any:
        return self.torch.tensor(np.array(values, dtype=np.float64))

    def state(self, returned: Any) -> CommittedState:
        """What is left behind; `returned` is None where the loop goes on."""
        ended = returned is not None
        ids: list[int] = (returned if ended else self.ids)[0].tolist()
        held = len(self.prompt)
        kept = self.cache[..., : int(self.lengths[0]), :].mean(dim=(0, 1, 2, 4))  # keys and values are one number
        return CommittedState(
            prompt=np.array(ids[:held], dtype=np.int64),
            output=np.array(ids[held:] + ([] if ended else [self.pending]), dtype=np.int64),
            kv=kept.numpy(),
            features=self.torch.cat(self.fed).numpy(),
            pending=None if ended else self.pending,
            finished=ended,
            seed=None if ended else self.seed,
            freed=NOT_SHOWN,
            finish_reason=NOT_SHOWN,
            draft_kv=self.draft_rows.numpy() if self._shown else NOT_SHOWN,
        )


def rebound(function: Any, **edges: Any) -> Any:
    """The same code, which finds `edges` under these names of its module."""
    inner = inspect.unwrap(function)
    return FunctionType(inner.__code__, {**inner.__globals__, **edges}, inner.__name__, inner.__defaults__)


def run(loop: Loop, decode: Callable[[], Any]) -> CommittedState:
    """The state after `decode`, which runs the loop to its end or until it asks for another round."""
    try:
        with loop.torch.no_grad():
            returned = decode()
    except GoesOn:
        returned = None
    if loop.draft_rows is None:
        raise NotApplicable("by what it had output before, the loop has ended")
    return loop.state(returned)


def stops(case: PublishCase, most: int) -> Sequence[int]:
    """The case's stop tokens; `NotApplicable` where they are more than the loop looks for."""
    found = [int(token) for token in case.limits.stop_tokens]
    if len(found) > most:
        raise NotApplicable(f"the loop looks for {most} stop token{'s'[: most - 1]}")
    return found


def most(case: PublishCase) -> int:
    """The most new tokens, by the case's limit."""
    return sys.maxsize if case.limits.max_new_tokens is None else int(case.limits.max_new_tokens)


def deviations(ends: str, drafts: str, *further: Deviation) -> tuple[Deviation, ...]:
    """What sets these loops apart. ends, drafts: where a round is looked at for an end, and where it drafts."""
    whole = "rounds are published whole and then looked at: what was accepted behind a stop token stays"
    late = "only published ids are looked at, so the loop goes on behind a frontier that is a stop token"
    beyond = "the loop ends once it has published more than max_new_tokens, and drops nothing of the last round"
    return (
        Deviation("PUBLISH-601", whole, link=ends, witness="stop_inside"),
        Deviation("PUBLISH-602", whole, link=ends, witness="stop_inside"),
        Deviation("PUBLISH-605", late, link=ends, witness="stop_frontier"),
        Deviation("PUBLISH-606", beyond, link=ends, witness="limit_inside"),
        Deviation("PUBLISH-607", beyond, link=ends, witness="limit_at_path"),
        Deviation("PUBLISH-608", beyond, link=ends, witness="limit_at_frontier"),
        Deviation("PUBLISH-609", f"{whole}; {beyond}", link=ends, witness="limit_then_stop"),
        Deviation("PUBLISH-610", f"{whole}; {late}", link=ends, witness="stop_at_limit"),
        Deviation(
            "PUBLISH-805",
            "it drafts before it looks for an end: the drafter has a row for the frontier that is dropped",
            link=drafts,
            witness="stop_inside",
        ),
        Deviation("PUBLISH-902", f"members that end: {whole}; {beyond}", link=ends, witness="mixed"),
        Deviation("PUBLISH-1002", beyond, link=ends),
        Deviation("PUBLISH-1006", f"where the bad member is at its limit: {beyond}", link=ends),
        Deviation("PUBLISH-1107", f"requests that end: {whole}; {beyond}", link=ends),
        *further,
    )


def _sequence(case: PublishCase) -> tuple[list[int], list[int]]:
    """Prompt and output; `NotApplicable` where no loop holds such a state between two rounds."""
    state = case.state
    prompt, output = np.asarray(state.prompt).tolist(), np.asarray(state.output).tolist()
    if state.finished:
        raise NotApplicable("the loop of a finished request has ended")
    if state.pending is None or not output:
        raise NotApplicable(
            "the loop samples the first token of the output when it prefills, and a token in each round"
        )
    held = len(prompt) + len(output) - 1
    rows = [state.kv, state.features, *([] if state.draft_kv is None else [state.draft_kv])]
    if not prompt or state.pending != output[-1] or any(len(np.asarray(row)) != held for row in rows):
        raise NotApplicable("a state is what the loop made of a prompt; no round leaves this one")
    return prompt, output


def _decided(case: PublishCase) -> Round:
    """The case's round; `NotApplicable` where its rows and its path are no leaf table."""
    verified, decision = case.verified, case.decision
    nodes = np.asarray(verified.row_node).tolist()
    tokens = np.asarray(verified.row_token).tolist()
    rows = {node: row for row, node in enumerate(nodes) if node != PADDING_ROW}
    if len(rows) != len(nodes) - nodes.count(PADDING_ROW) or ROOT_ROW not in rows or len(tokens) != len(nodes):
        raise NotApplicable("the rows are those of one tree, its root among them, each node once")
    if tokens[rows[ROOT_ROW]] != case.state.pending:
        raise NotApplicable("the loop verifies the token that it sampled, and no other")
    path = [int(node) for node in decision.path]
    if any(node not in rows or node == ROOT_ROW for node in path) or len(set(path)) < len(path):
        raise NotApplicable("a path is of the leaf table, which holds rows of the tree, each of them once in a path")
    if decision.frontier < 0:
        raise NotApplicable("the loop samples a frontier in every round")
    others = [node for node in rows if node != ROOT_ROW and node not in path]
    accepted = [ROOT_ROW, *path, *others[:1]]
    table = [*([ROOT_ROW, node] for node in others), accepted]
    leaves = [[rows[node] for node in row] + [PADDING] * (len(accepted) - len(row)) for row in table]
    kv, features = np.asarray(verified.kv), np.asarray(verified.features)
    return Round(tokens, kv, features, leaves, len(leaves) - 1, len(path), int(decision.frontier))


def _chain(tokens: list[int], kv: Rows, features: Rows, frontier: int) -> Round:
    """The round before: a chain of which everything was accepted."""
    return Round(tokens, kv, features, [list(range(len(tokens)))], 0, len(tokens) - 1, frontier)
