"""The whole loop of speculative decoding over models given as tables: prefill, draft, verify, publish, and again.

A round reads nothing but what the last publication left. A row of KV spells the tokens that it was made from, a
feature likewise; the target continues from what the last row spells, the drafter from what the seed spells. State
that is wrong shows in the tokens that come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracle.acceptance import CaseView, verify_greedy
from oracle.discrete import Row, mass, without
from oracle.errors import BadInput
from oracle.publish import publish
from oracle.tensors import listed
from oracle.tree import draft_tree
from oracle.types import (
    ROOT_ROW,
    CommittedState,
    Decision,
    DraftTreeCase,
    GrowthCase,
    Ids,
    Limits,
    PublishCase,
    Verified,
    VerifyCase,
)
from oracle.validation import integers, parents, proposal_of
from oracle.walks import ROOT, Chance, walk_of

Prefix = tuple[int, ...]
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


def decode(requests: Sequence[LoopRequest], chances: Sequence[Chance]) -> list[list[Round]]:
    """Decode every request to its end, all of them side by side; request i draws from `chances[i]` alone.

    Returns the rounds of each request; what is output stands in the state of the last. A table has to have a law for
    every prefix that is reached. Raises `BadInput`, also where nothing ends a request.
    """
    listed(requests, "requests", LoopRequest)
    if len(chances) != len(requests):
        raise BadInput("chances", (), f"there is one for each of {len(requests)} requests", len(chances))
    members = [_Member(request, f"requests[{i}]", chance) for i, (request, chance) in enumerate(zip(requests, chances))]
    active = members
    while active:
        rounds = [member.round() for member in active]
        states = publish([PublishCase(m.state, r.rows, r.decision, m.limits) for m, r in zip(active, rounds)])
        for member, one, state in zip(active, rounds, states):
            member.state = state
            member.rounds.append(Round(one.case, one.decision, state))
        active = [member for member in active if not member.state.finished]
    return [member.rounds for member in members]


@dataclass(frozen=True)
class _Verification:
    """A round before it is published."""

    case: VerifyCase
    rows: Verified
    decision: Decision


@dataclass(frozen=True)
class _Drafts:
    """A drafted tree: its shape, its tokens, and the row that the children of the root and of each node came from."""

    parent: list[int]
    token: list[int]
    proposal: str
    rows: list[Row] | None


class _Spelling:
    """Prefixes as numbers, so that a row of KV or a feature can spell what it was made from."""

    def __init__(self) -> None:
        self._number: dict[Prefix, int] = {}
        self._prefix: list[Prefix] = []

    def number(self, prefix: Prefix) -> float:
        if prefix not in self._number:
            self._number[prefix] = len(self._prefix)
            self._prefix.append(prefix)
        return float(self._number[prefix])

    def prefix(self, number: float) -> Prefix:
        return self._prefix[int(number)]


class _Member:
    """A request on its way."""

    def __init__(self, request: LoopRequest, field: str, chance: Chance) -> None:
        if not isinstance(request, LoopRequest):
            raise BadInput(field, (), "a request is an oracle.types.LoopRequest", type(request).__name__)
        self.chance = chance
        self.greedy = request.greedy
        self.walk = walk_of(request.scheme)
        self.target = _Model(request.target, f"{field}.target")
        self.draft = _Model(request.draft, f"{field}.draft")
        self.growth = request.drafting if isinstance(request.drafting, Growth) else None
        self.proposal = "point" if self.growth else proposal_of(request.proposal, f"{field}.proposal")
        drafting = np.array(request.drafting or [], dtype=np.int64) if not self.growth else np.array([], dtype=np.int64)
        self.parent = parents(drafting, f"{field}.drafting")
        self.field = field
        self.limits = request.limits
        if not isinstance(self.limits, Limits) or self.limits.max_new_tokens is None:
            raise BadInput(f"{field}.limits", (), "has a limit, or a request has no end", self.limits)
        prompt = tuple(integers(request.prompt, f"{field}.prompt"))
        if not prompt:
            raise BadInput(f"{field}.prompt", (), "has at least one token", 0)
        self.spelling = _Spelling()
        rows = np.array([self.spelling.number(prompt[: i + 1]) for i in range(len(prompt))])
        ids: Ids = np.array(prompt, dtype=np.int64)
        self.state = CommittedState(ids, np.array([], dtype=np.int64), rows, rows, None, False)
        self.rounds: list[Round] = []

    def round(self) -> _Verification:
        """Draft, read the target's rows, decide."""
        state = self.state
        above = self.spelling.prefix(state.kv[-1])  # what the target holds
        root = above if state.pending is None else (*above, state.pending)
        drafts = _Drafts([], [], self.proposal, None)
        if state.pending is not None and state.seed is not None:
            drafts = self._draft((*self.spelling.prefix(state.seed), state.pending))
        prefixes = [root]
        for parent, token in zip(drafts.parent, drafts.token):
            prefixes.append((*prefixes[parent + 1], token))
        case = VerifyCase(
            np.array(drafts.parent, dtype=np.int64),
            np.array(drafts.token, dtype=np.int64),
            np.array([self.target.row(prefix) for prefix in prefixes]),
            drafts.proposal if drafts.rows is not None else "point",
            None if drafts.rows is None else np.array(drafts.rows),
        )
        decision = verify_greedy([case])[0] if self.greedy else self.walk(CaseView(case, self.field), self.chance)
        nodes = list(range(ROOT, len(drafts.parent)))
        if state.pending is None:
            nodes = nodes[1:]
        numbers = np.array([self.spelling.number(prefixes[node + 1]) for node in nodes], dtype=np.float64)
        tokens = np.array([prefixes[node + 1][-1] for node in nodes], dtype=np.int64)
        places = np.array([ROOT_ROW if node == ROOT else node for node in nodes], dtype=np.int64)
        return _Verification(case, Verified(places, tokens, numbers, numbers), decision)

    def _draft(self, root: Prefix) -> _Drafts:
        """A tree below `root`, the tokens that the drafter was told of."""
        if self.growth:
            return self._grow(root, self.growth)
        tokens: list[int] = []
        prefixes = [root]
        left: dict[int, Row] = {}  # parent → what its next child is drawn from
        for i, parent in enumerate(self.parent):
            if parent not in left:
                left[parent] = self.draft.row(prefixes[parent + 1])
            law = left[parent]
            if not mass(law) > 0:
                rule = f"siblings of a {self.proposal!r} proposal stay within the support"
                raise BadInput(f"{self.field}.drafting", (i,), rule)
            tokens.append(law.index(max(law)) if self.proposal == "point" else self.chance.draw(law))
            prefixes.append((*prefixes[parent + 1], tokens[-1]))
            if self.proposal == "point":
                left[parent] = [p * 0 if v == tokens[-1] else p for v, p in enumerate(law)]
            elif self.proposal == "without_replacement":
                left[parent] = without(law, tokens[-1])
        rows = None if self.proposal == "point" else [self.draft.row_or_zeros(prefix) for prefix in prefixes]
        return _Drafts(self.parent, tokens, self.proposal, rows)

    def _grow(self, root: Prefix, growth: Growth) -> _Drafts:
        table = _Below(self.draft, root)
        case = GrowthCase(table, growth.expand_width, growth.branch_width, growth.max_depth)
        (flat,) = draft_tree([DraftTreeCase(case, growth.budget)])
        return _Drafts(flat.parent.tolist(), flat.token.tolist(), "point", None)


class _Model:
    """A table of either form."""

    def __init__(self, laws: NextLaw, field: str) -> None:
        if not isinstance(laws, Mapping) and not callable(laws):
            raise BadInput(field, (), "is a mapping from prefixes to rows, or a function", type(laws).__name__)
        self._laws = laws
        self._field = field
        self._width = 0

    def has(self, prefix: Prefix) -> bool:
        return not isinstance(self._laws, Mapping) or prefix in self._laws

    def row(self, prefix: Prefix) -> Row:
        if not self.has(prefix):
            raise BadInput(self._field, (), f"a table has a row for each prefix that is reached, here {prefix}")
        row = list(self._laws[prefix] if isinstance(self._laws, Mapping) else self._laws(prefix))
        self._width = len(row)
        return row

    def row_or_zeros(self, prefix: Prefix) -> Row:
        """The row of a leaf is never read; a table need not have it."""
        if self.has(prefix):
            return self.row(prefix)
        return [0] * self._width


class _Below(Mapping[Prefix, Sequence[float]]):
    """The rows of a drafter below one prefix, as a growing tree reads them."""

    def __init__(self, model: _Model, root: Prefix) -> None:
        self._model, self._root = model, root

    def __getitem__(self, prefix: Prefix) -> Sequence[float]:
        return [float(p) for p in self._model.row((*self._root, *prefix))]

    def __contains__(self, prefix: object) -> bool:
        return isinstance(prefix, tuple) and self._model.has((*self._root, *prefix))

    def __iter__(self) -> Iterator[Prefix]:
        raise NotImplementedError("its prefixes are without end")

    def __len__(self) -> int:
        return 1
