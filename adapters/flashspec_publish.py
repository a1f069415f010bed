"""flashspec's publication of a round: its loop for one sequence, around a session that holds the target's KV.

The code under test is `SpeculativeEngine.generate` (its batch-1 loop, which cuts at stop tokens and at the limit, and
`_Incremental.commit`), `TargetModel` and `KvSession.start`, `advance`, `crop` and `push_pending`. At their edges stand:
- the model: a row of KV is the case's number for the row that is fed, float64, NaN where another token is fed than
  that of the row; its logits say nothing;
- `greedy_step`: its answer is the case's path length and frontier;
- a lookup drafter, which proposes the case's tokens and says how many there are: behind them stands filler;
- the round before: output that was there already is published by an earlier round of the same loop.

What is converted, and nothing else: `kv` and `pending` are what the session holds, `finished` says that the loop
ended. Where nothing is pending, the sequence is the prompt of a new call, with as many tokens as are left to it. The
session has one layer. Features, draft rows, rows given back and why a request ended are not shown: nobody keeps them.

Not applicable: rows in another order than one chain's, the root first and padding last; a path that is not the rows
behind the root's; a pending token of the prompt (the prompt is prefilled whole); finished and impossible states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np

from adapters.interface import AdapterError, Deviation, NotApplicable
from adapters.kv_tracers import GoesOn, rebound
from oracle.types import NOT_SHOWN, PADDING_ROW, ROOT_ROW, CommittedState, PublishCase, Rows

_CODE = "https://github.com/Mattral/FlashSpec/blob/main/flashspec/engine/speculative.py"
_ABANDONED = "a session is not cut where the round was: it keeps all rows fed, and begins anew if it is used again"
DEVIATIONS = (
    Deviation("PUBLISH-602", _ABANDONED, link=_CODE, witness="stop_inside"),
    Deviation("PUBLISH-606", _ABANDONED, link=_CODE, witness="limit_inside"),
    Deviation("PUBLISH-902", f"members that end inside their path: {_ABANDONED}", link=_CODE),
    Deviation("PUBLISH-1107", f"requests that end inside their path: {_ABANDONED}", link=_CODE),
)
SPARE = 4
"""Tokens that a case without a limit has room for behind its own."""


def publish(case: PublishCase) -> CommittedState:
    """A round of the request."""
    code = _implementation()
    prompt, rounds = _script(case)
    state, limits = case.state, case.limits
    width = max(1, *(len(step.tokens) for step in rounds))
    model = _Model(code, [(prompt, np.asarray(state.kv)[: len(prompt)]), *((s.fed, s.kv) for s in rounds)])
    drafter = _Drafter(code.torch, rounds, width)
    target = code.verifier.TargetModel("", code.torch.device("cpu"), code.torch.float32, model=model)
    engine = code.speculative.SpeculativeEngine(
        _config(code), [drafter], target, arms=[code.arms.ArmSpec(drafter=0, gamma=width)]
    )
    engine._generate_single = MethodType(
        rebound(code.speculative.SpeculativeEngine._generate_single, greedy_step=drafter.step), engine
    )
    before = len(state.prompt) + len(state.output) - len(prompt)
    room = before + width + SPARE
    if limits.max_new_tokens is not None:
        room = int(limits.max_new_tokens) - (len(prompt) - len(state.prompt))
    if room <= before:
        raise NotApplicable("a request at its limit has no further round")
    ids = code.torch.tensor([prompt])
    stop_tokens = [int(token) for token in limits.stop_tokens]
    try:
        result = engine.generate(ids, max_new_tokens=room, eos_token_ids=stop_tokens)
        published = prompt + result.output_ids[0, : result.n_tokens_generated].tolist()
    except GoesOn:
        result, published = None, drafter.published()
    if drafter.turn < len(rounds):
        raise NotApplicable("by what it had output before, the loop has ended")
    held, session = len(state.prompt), target._kv
    return CommittedState(
        prompt=np.array(published[:held], dtype=np.int64),
        output=np.array(published[held:], dtype=np.int64),
        kv=session._past.layers[0].keys[0, 0, :, 0].numpy(),
        features=NOT_SHOWN,
        pending=int(session._pending[0, -1]) if session.pending_length else None,
        finished=result is not None,
        seed=NOT_SHOWN,
        freed=NOT_SHOWN,
        finish_reason=NOT_SHOWN,
        draft_kv=NOT_SHOWN,
    )


@dataclass(frozen=True)
class _Round:
    """fed: the tokens whose rows the model is asked for, `kv` those rows; tokens: the drafts among them."""

    fed: list[int]
    kv: Rows
    tokens: list[int]
    proposed: int
    accepted: int
    frontier: int


class _Model:
    """Rows of KV in the place of a model, one list of them a call."""

    def __init__(self, code: Any, calls: list[tuple[list[int], Rows]]) -> None:
        self._code, self._calls = code, calls
        self.config = SimpleNamespace(vocab_size=2)

    def to(self, _: Any) -> _Model:
        return self

    def eval(self) -> _Model:
        return self

    def forward(self, ids: Any, past_key_values: Any = None, use_cache: bool = True, logits_to_keep: int = 0) -> Any:
        if not self._calls:
            raise GoesOn
        tokens, kv = self._calls.pop(0)
        rows = [
            kv[i] if i < len(tokens) and tokens[i] == token else math.nan for i, token in enumerate(ids[0].tolist())
        ]
        torch = self._code.torch
        new = torch.tensor(rows, dtype=torch.float64)[None, None, :, None]
        cache = self._code.cache() if past_key_values is None else past_key_values
        cache.update(new, new, 0)
        return SimpleNamespace(past_key_values=cache, logits=torch.zeros(1, logits_to_keep or len(rows), 2))

    __call__ = forward


class _Drafter:
    """A lookup drafter that has the rounds' tokens, and the decisions about them."""

    def __init__(self, torch: Any, rounds: list[_Round], width: int) -> None:
        self._torch, self._rounds, self._width = torch, rounds, width
        self.turn = 0
        self._seen: tuple[Any, int] = (None, 0)

    def propose(self, ids: Any, length: Any, width: int) -> tuple[Any, Any]:
        """The tokens of the round that comes next; none where the case says no more."""
        self._seen = ids, int(length)
        following = self._rounds[self.turn :][:1]
        tokens = [token for step in following for token in step.tokens]
        filler = [int(ids[0, 0])] * (width - len(tokens))
        return self._torch.tensor([tokens + filler]), self._torch.tensor([sum(step.proposed for step in following)])

    def step(self, ids: Any, argmax: Any, proposed: Any) -> Any:
        """In the place of `greedy_step`."""
        decided = self._rounds[self.turn]
        self.turn += 1
        return self._torch.tensor([[decided.accepted, decided.frontier]])

    def published(self) -> list[int]:
        """What the loop had published when it asked for the last proposal."""
        ids, length = self._seen
        found: list[int] = ids[0, :length].tolist()
        return found


def _script(case: PublishCase) -> tuple[list[int], list[_Round]]:
    """The prompt of the call, and its rounds."""
    state = case.state
    prompt, output = np.asarray(state.prompt).tolist(), np.asarray(state.output).tolist()
    waiting = state.pending is not None
    if state.finished:
        raise NotApplicable("the loop of a finished request has ended")
    if waiting and not output:
        raise NotApplicable("a prompt is prefilled whole, so none of its tokens is pending")
    kv, held = np.asarray(state.kv), len(prompt) + len(output) - waiting
    if not prompt or {len(kv), len(state.features)} != {held} or (waiting and state.pending != output[-1]):
        raise NotApplicable("a state is what the loop made of a prompt; no round leaves this one")
    found = _decided(case, waiting)
    if not waiting:
        return prompt + output, [found]
    drafted = output[:-1]
    return prompt, [_Round(drafted, kv[len(prompt) :], drafted, len(drafted), len(drafted), output[-1]), found]


def _decided(case: PublishCase, waiting: bool) -> _Round:
    """The case's round; `NotApplicable` where its rows are no chain, or its path not the front of it."""
    nodes = np.asarray(case.verified.row_node).tolist()
    tokens = np.asarray(case.verified.row_token).tolist()
    path = [int(node) for node in case.decision.path]
    drafted = [node for node in nodes if node not in (ROOT_ROW, PADDING_ROW)]
    wanted = [*([ROOT_ROW] if waiting else []), *drafted, *[PADDING_ROW] * nodes.count(PADDING_ROW)]
    if nodes != wanted or len(set(drafted)) < len(drafted) or len(tokens) != len(nodes):
        raise NotApplicable("rows are those of a chain in its order, behind the root's where a token is pending")
    if path != drafted[: len(path)]:
        raise NotApplicable("what is accepted of a chain is its front")
    if waiting and tokens[0] != case.state.pending:
        raise NotApplicable("the session feeds the token that is pending, and no other")
    if case.decision.frontier < 0:
        raise NotApplicable("there is a next token in every round")
    drafts = tokens[int(waiting) :]
    return _Round(tokens, np.asarray(case.verified.kv), drafts, len(drafted), len(path), int(case.decision.frontier))


def _config(code: Any) -> Any:
    config = code.config
    return config.FlashSpecConfig(
        device="cpu", compile=False, sampling=config.SamplingConfig(temperature=0), bandit=config.BanditConfig(n_arms=1)
    )


def _implementation() -> Any:
    try:
        import torch
        from flashspec.engine import arms, speculative, verifier
        from flashspec.utils import config
        from transformers import DynamicCache
    except ImportError as error:
        raise AdapterError(
            f"adapters.flashspec needs `pip install -r adapters/requirements/flashspec.txt` ({error})"
        ) from error
    return SimpleNamespace(
        torch=torch, arms=arms, speculative=speculative, verifier=verifier, config=config, cache=DynamicCache
    )
