"""What is true of many requests after each step of a history: sequences as decoded one token at a time, rows by number.

The model that is served is a pure function of the sequence, so the output of a request is settled by its prompt, in
whatever rounds it comes. Every row that is handed out has a number of its own, n: its KV is n, its feature n + ½, its
drafter's row −n.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance import draw
from conformance.publish.history import GoBack, History, Join, Keep, Leave, Preempt, Resume, Step, Together, Turn
from oracle.errors import BadInput
from oracle.types import PADDING_ROW, ROOT_ROW, CommittedState, Decision, Limits, PublishCase, Verified

TOKENS = (3, 5, 8, 13, 70_001, 128_009)
"""Few, so that tokens repeat; two of them have more than 16 bits."""


def following(sequence: Sequence[int]) -> int:
    """The model that is served: the token after a sequence."""
    return TOKENS[zlib.crc32(" ".join(map(str, sequence)).encode()) % len(TOKENS)]


def decoded(join: Join, count: int) -> list[int]:
    """Sequential decoding: the first tokens of a request's output, `count` or as many as there are."""
    output: list[int] = []
    while len(output) < count and (join.max_new_tokens is None or len(output) < join.max_new_tokens):
        output.append(following([*join.prompt, *output]))
        if output[-1] in join.stop_tokens:
            break
    return output


@dataclass
class Truth:
    """One request: its tokens, the rows of all but a pending one, and how it ended."""

    join: Join
    output: list[int] = field(default_factory=list)
    kv: list[float] = field(default_factory=list)
    features: list[float] = field(default_factory=list)
    draft_kv: list[float] = field(default_factory=list)
    waits: bool = True
    ended: str | None = None
    freed: tuple[float, ...] = ()
    preempted: bool = False

    @property
    def sequence(self) -> list[int]:
        return [*self.join.prompt, *self.output]

    @property
    def limits(self) -> Limits:
        return Limits(self.join.stop_tokens, self.join.max_new_tokens)

    @property
    def goes_on(self) -> bool:
        """Whether it takes part in rounds."""
        return self.ended is None and not self.preempted

    def state(self) -> CommittedState:
        return CommittedState(
            prompt=np.array(self.join.prompt, dtype=np.int64),
            output=np.array(self.output, dtype=np.int64),
            kv=np.array(self.kv, dtype=np.float64),
            features=np.array(self.features, dtype=np.float64),
            pending=self.sequence[-1] if self.waits else None,
            finished=self.ended is not None,
            seed=self.features[-1] if self.waits and self.features else None,
            freed=self.freed,
            finish_reason=self.ended,
            draft_kv=np.array(self.draft_kv, dtype=np.float64) if self.join.drafter else None,
        )

    def publish(self, case: PublishCase, kept: bool) -> None:
        """What a round leaves: token after token, each with its row, until one ends the request."""
        seen = case.verified
        row = {node: r for r, node in enumerate(seen.row_node.tolist()) if node != PADDING_ROW}
        if self.waits:
            self.kv.append(float(seen.kv[row[ROOT_ROW]]))
            self.features.append(float(seen.features[row[ROOT_ROW]]))
        for node in [*case.decision.path, None]:
            made = self.features[-1]
            drafted = math.nan
            if node is not None and kept and seen.draft_kv is not None:
                drafted = float(seen.draft_kv[row[node]])
            self.draft_kv.append(made if math.isnan(drafted) else drafted)
            self.output.append(case.decision.frontier if node is None else int(seen.row_token[row[node]]))
            self.waits = node is None
            if node is not None:
                self.kv.append(float(seen.kv[row[node]]))
                self.features.append(float(seen.features[row[node]]))
            if self.output[-1] in self.join.stop_tokens:
                self.ended = "stop"
            elif len(self.output) == self.join.max_new_tokens:
                self.ended = "length"
            if self.ended:
                break
        self.freed = tuple(kv for kv in seen.kv[sorted(row.values())].tolist() if kv not in self.kv)


class Model:
    """All requests, taken through the steps of a history."""

    def __init__(self, draft_kv: str = "recomputed") -> None:
        self.kept_drafts = draft_kv == "kept"
        self.requests: dict[int, Truth] = {}
        self.kept: dict[int, list[Truth]] = {}
        self.handed = 0

    def take(self, step: Step) -> list[PublishCase]:
        """Take one step; the rounds that it publishes, as a right implementation gets them. Raises `BadInput`."""
        if isinstance(step, Join):
            self._join(step)
        elif isinstance(step, Together):
            if len({turn.request for turn in step.turns}) < len(step.turns):
                raise BadInput("turns", (), "a request has one turn in a round", [t.request for t in step.turns])
            cases = [self.case(turn) for turn in step.turns]
            for turn, case in zip(step.turns, cases):
                self.requests[turn.request].publish(case, self.kept_drafts)
            return cases
        elif isinstance(step, Keep):
            self.kept.setdefault(step.request, []).append(copy.deepcopy(self._held(step.request)))
        elif isinstance(step, GoBack):
            kept = self.kept.get(step.request, [])
            if not 0 <= step.to < len(kept):
                raise BadInput("to", (), f"is one of the {len(kept)} states that were kept", step.to)
            self.requests[step.request] = copy.deepcopy(kept[step.to])
        elif isinstance(step, Preempt):
            truth = self._held(step.request)
            truth.preempted, truth.freed = True, ()
            truth.kv, truth.features, truth.draft_kv = [], [], []
        elif isinstance(step, Resume):
            truth = self._held(step.request)
            truth.preempted = False
            self._prefill(truth)
        else:
            self._held(step.request)
            del self.requests[step.request]
            self.kept.pop(step.request, None)
        return []

    def case(self, turn: Turn) -> PublishCase:
        """The round of one request: its rows get their numbers, and the model that is served decides."""
        truth = self._held(turn.request)
        if not truth.goes_on:
            raise BadInput("request", (), "takes part in rounds", turn.request)
        if len(turn.token) != len(turn.parent):
            raise BadInput("token", (), f"has one entry for each of {len(turn.parent)} nodes", len(turn.token))
        nodes = [ROOT_ROW] * truth.waits + list(range(len(turn.parent)))
        if sorted(node for node in turn.order if node != PADDING_ROW) != nodes:
            raise BadInput("order", (), "holds each node once, and the root where a token is pending", turn.order)
        sequence = truth.sequence
        numbers = np.array([self.fresh() for _ in turn.order], dtype=np.float64)
        leaves = set(range(len(turn.parent))) - set(turn.parent)
        unread = np.array([node in leaves for node in turn.order], dtype=bool)
        token = {ROOT_ROW: sequence[-1], PADDING_ROW: TOKENS[0], **dict(enumerate(turn.token))}
        return PublishCase(
            state=truth.state(),
            verified=Verified(
                row_node=np.array(turn.order, dtype=np.int64),
                row_token=np.array([token[node] for node in turn.order], dtype=np.int64),
                kv=numbers,
                features=numbers + 0.5,
                draft_kv=np.where(unread, np.nan, -numbers) if truth.join.drafter else None,
            ),
            decision=self.decision(turn),
            limits=truth.limits,
        )

    def decision(self, turn: Turn) -> Decision:
        """As far as the drafts are what sequential decoding gives, and the token after them."""
        sequence, path, at = self.requests[turn.request].sequence, [], ROOT_ROW
        while True:
            token = following(sequence)
            fits = [n for n, above in enumerate(turn.parent) if above == at and turn.token[n] == token]
            if not fits:
                return Decision(tuple(path), token)
            at = fits[0]
            path.append(at)
            sequence.append(token)

    def fresh(self) -> int:
        """The number of one more row that is handed out."""
        self.handed += 1
        return self.handed

    def _held(self, request: int) -> Truth:
        if request not in self.requests:
            raise BadInput("request", (), "is a request that is there", request)
        return self.requests[request]

    def _join(self, step: Join) -> None:
        if step.request in self.requests:
            raise BadInput("request", (), "is not there yet", step.request)
        truth = Truth(step, waits=step.waits)
        if step.shares is not None:
            other = self._held(step.shares)
            common = step.rows <= min(len(other.kv), len(step.prompt) - step.waits)
            if not common or list(step.prompt[: step.rows]) != other.sequence[: step.rows]:
                raise BadInput("rows", (), "are those of tokens that both have", step.rows)
            truth.kv, truth.features = other.kv[: step.rows], other.features[: step.rows]
            truth.draft_kv = other.draft_kv[: max(step.rows - 1, 0)]
        self._prefill(truth)
        self.requests[step.request] = truth

    def _prefill(self, truth: Truth) -> None:
        """New rows for all tokens that have none."""
        size = len(truth.sequence)
        for place in range(len(truth.kv), size):
            number = self.fresh()
            if place > len(truth.draft_kv):
                truth.draft_kv.append(-float(number))
            if place < size - truth.waits:
                truth.kv.append(float(number))
                truth.features.append(number + 0.5)


def validate(history: History) -> None:
    """Raises `BadInput` where a step cannot be taken."""
    model = Model()
    for step in history.steps:
        model.take(step)


@draw.drawer(History)
def drawn(history: History) -> str:
    """The steps, numbered, and what is true after each."""
    model, lines = Model(), []
    for number, step in enumerate(history.steps):
        words = [f"step {number}: {said(step)}"]
        for turn in step.turns if isinstance(step, Together) else ():
            words.append(f"  request {turn.request}: {_turn(model, turn)}")
        model.take(step)
        for turn in step.turns if isinstance(step, Together) else ():
            truth = model.requests[turn.request]
            end = "" if truth.ended is None else f", ended by {truth.ended}"
            words.append(f"  request {turn.request} has now output {_tokens(truth.output)}{end}")
        lines += words
    return "\n".join(lines)


def said(step: Step) -> str:
    """A step in words."""
    if isinstance(step, Join):
        words = f"request {step.request} joins with the prompt {_tokens(step.prompt)}"
        words += ", its last token pending" if step.waits else ", nothing pending"
        if step.shares is not None:
            words += f"; its first {step.rows} rows are those of request {step.shares}"
        if step.stop_tokens:
            words += f"; it stops at {_tokens(step.stop_tokens)}"
        return words + (f"; at most {step.max_new_tokens} tokens" if step.max_new_tokens is not None else "")
    if isinstance(step, Together):
        return f"a round of {', '.join(f'request {turn.request}' for turn in step.turns) or 'nobody'}"
    if isinstance(step, GoBack):
        return f"request {step.request} goes back to the state kept as number {step.to}"
    verbs = {Keep: "is kept as it is", Preempt: "is preempted", Resume: "is prefilled anew", Leave: "leaves"}
    return f"request {step.request} {verbs[type(step)]}"


def _turn(model: Model, turn: Turn) -> str:
    drafts = [f"{n}: token {turn.token[n]} below {draw.node(turn.parent[n])}" for n in range(len(turn.parent))]
    rows = " ".join({ROOT_ROW: "root", PADDING_ROW: "·"}.get(node, str(node)) for node in turn.order)
    drafted = f"drafts {'; '.join(drafts)}" if drafts else "no drafts"
    return f"{drafted}; rows [{rows}]; {draw.decision(model.decision(turn))}"


def _tokens(values: Sequence[int]) -> str:
    return " ".join(map(str, values)) or "nothing"
