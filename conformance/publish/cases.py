"""What the checks of publication run on: rounds whose rows spell their addresses, and those worth keeping by name.

In a round of request q the KV of place i of the sequence is 1000·q + i, and that of verification row r is
1000·q + 500 + r; its feature is the same plus one half, its drafter's row the same, negative.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.casefile import storable
from conformance.publish import drawing, model
from conformance.publish.history import History
from oracle import publish as oracle
from oracle.types import PADDING_ROW, ROOT_ROW, CommittedState, Decision, Limits, PublishCase, Verified

ROOT, PAD = ROOT_ROW, PADDING_ROW
FIRST_ROW = 500
"""Where the tracers of verification rows start."""


@storable
@dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds of several requests that are published together."""

    rounds: tuple[PublishCase, ...]

    def drawn(self) -> str:
        return "\n".join(f"member {m}:\n{drawing.a_round(case)}" for m, case in enumerate(self.rounds))


def tracers(request: int, places: Sequence[int]) -> np.ndarray:
    """The KV of these places: places of the sequence, or 500 + a verification row."""
    return 1000.0 * request + np.array(places, dtype=np.float64).reshape(-1)


def walk(tree: Sequence[int], end: int) -> tuple[int, ...]:
    """The nodes on the way from the root to `end`; none where that is the root."""
    found: list[int] = []
    while end != ROOT:
        found.append(end)
        end = tree[end]
    return tuple(reversed(found))


def a_round(
    tree: Sequence[int] = (),
    end: int = ROOT,
    *,
    tokens: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
    prompt: Sequence[int] | int = 3,
    output: Sequence[int] | int = 2,
    frontier: int | None = None,
    pending: bool = True,
    stop_tokens: Sequence[int] = (),
    max_new_tokens: int | None = None,
    request: int = 1,
    ids: Sequence[int] | None = None,
    keeps: bool = True,
    unread: Sequence[int] | None = None,
) -> PublishCase:
    """A round of one request, in arrays of its own.

    tree: the parent of each drafted node; end: the last accepted one. tokens: one a node; prompt and output: tokens,
    or how many. order: the nodes in the order of their rows, −1 the root's and −2 padding; by default the root's row
    is first where there is one. pending: whether the last token of the sequence waits for its KV. ids: what the nodes
    are called. keeps: whether a drafter's rows are held. unread: the nodes whose tokens the drafter never consumed,
    by default the leaves.
    """
    first = 100 * request
    prompts = [first + 1 + i % 9 for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
    outputs = [first + 10 + i % 9 for i in range(output)] if isinstance(output, int) else list(output)
    drafted = [first + 20 + i for i in range(len(tree))] if tokens is None else list(tokens)
    sequence = prompts + outputs
    if order is None:
        order = [*([ROOT] if pending else []), *range(len(tree))]
    held = range(len(sequence) - pending)
    named = list(range(len(tree))) if ids is None else list(ids)
    waiting = sequence[-1] if pending else None
    rows = tracers(request, [FIRST_ROW + row for row in range(len(order))])
    consumed = -rows
    leaves = [node for node in range(len(tree)) if node not in tree] if unread is None else unread
    consumed[[row for row, node in enumerate(order) if node in leaves]] = np.nan
    return PublishCase(
        state=CommittedState(
            prompt=np.array(prompts, dtype=np.int64),
            output=np.array(outputs, dtype=np.int64),
            kv=tracers(request, held),
            features=tracers(request, held) + 0.5,
            pending=waiting,
            finished=False,
            seed=float(1000 * request + held[-1] + 0.5) if held and pending else None,
            draft_kv=-tracers(request, range(1, len(sequence))) if keeps else None,
        ),
        verified=Verified(
            row_node=np.array([named[node] if node >= 0 else node for node in order], dtype=np.int64),
            row_token=np.array(
                [drafted[node] if node >= 0 else sequence[-1] if node == ROOT else first for node in order],
                dtype=np.int64,
            ),
            kv=rows,
            features=rows + 0.5,
            draft_kv=consumed if keeps else None,
        ),
        decision=Decision(tuple(named[n] for n in walk(tree, end)), first + 99 if frontier is None else frontier),
        limits=Limits(tuple(stop_tokens), max_new_tokens),
    )


def poisoned(case: PublishCase) -> PublishCase:
    """The round with absurd tokens and NaN in its padding, and a frontier that is none where nobody reads it."""
    seen = case.verified
    bad = seen.row_node == PAD
    wild = np.where(np.arange(len(bad)) % 2, 2**40, -7)
    token = np.where(bad, wild, seen.row_token)
    kv, features = np.where(bad, np.nan, seen.kv), np.where(bad, np.nan, seen.features)
    draft_kv = None if seen.draft_kv is None else np.where(bad, np.nan, seen.draft_kv)
    decision = case.decision
    (after,) = oracle.publish([case])
    if len(after.output) - len(case.state.output) <= len(decision.path):  # it ends inside its path
        decision = Decision(decision.path, -1)
    return dataclasses.replace(case, verified=Verified(seen.row_node, token, kv, features, draft_kv), decision=decision)


def but(case: PublishCase, **changes: Mapping[str, Any]) -> PublishCase:
    """The round with other fields: `state=`, `verified=`, `decision=` and `limits=` name those that change."""
    parts: dict[str, Any] = {
        name: dataclasses.replace(getattr(case, name), **fields) for name, fields in changes.items()
    }
    return dataclasses.replace(case, **parts)


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if isinstance(case, PublishCase):
        oracle.publish([case])
    elif isinstance(case, Rounds):
        oracle.publish(case.rounds)
    elif isinstance(case, History):
        model.validate(case)


# ---- chains: rows in the order of the path, the root's first

CHAIN = (-1, 0, 1, 2)
LONG_CHAIN = tuple(range(-1, 9))
WHOLE = a_round(CHAIN, 3)
"""All drafts accepted."""
PART = a_round(CHAIN, 1, request=2)
ONE = a_round((-1,), 0, request=3, output=1)
FIRST_ROUND = a_round(CHAIN, 2, output=0, request=4)
"""The pending token is the last one of the prompt."""
BIG_IDS = a_round(
    (-1, 0, 1),
    1,
    tokens=[151_643, 70_001, 128_009],
    prompt=[128_000, 65_536, 9],
    output=[2**31 + 5, 131_072],
    frontier=151_645,
    request=5,
)
"""Ids of more than 16 bits, one of more than 31."""
CHAINS = (WHOLE, PART, ONE, FIRST_ROUND, BIG_IDS, a_round(LONG_CHAIN, 7, prompt=12, output=6, request=6))

NO_DRAFTS = a_round(request=2)
NONE_ACCEPTED = a_round(CHAIN, ROOT, request=3)
NOTHING = (NO_DRAFTS, NONE_ACCEPTED, a_round((-1, -1, 0, 0), ROOT, output=0, request=4))
"""Rounds that accept no draft."""

# ---- trees: paths that skip rows

BUSHY = (-1, -1, 0, 0, 1, 1, 3, 5)
SKIPS = a_round(BUSHY, 6)
"""Rows root, 0, 3, 6: siblings stand between them."""
SECOND_CHILD = a_round((-1, -1), 1, request=2)
LATER_SIBLING = a_round((-1, -1, 0, 0), 3, request=3)
"""NVIDIA/TensorRT-LLM#10343: an accepted node behind its rejected sibling."""
LARGE = a_round([max(i - 6, -1) for i in range(60)], 57, prompt=300, output=40, request=7)
"""Sixty nodes in ten layers, the path one of each, behind 340 tokens."""
GAPS = (SKIPS, SECOND_CHILD, LATER_SIBLING, a_round(BUSHY, 7, prompt=1, output=3, request=4), LARGE)

# ---- row maps: permuted rows, padding, other names

PERMUTED = a_round(BUSHY, 6, order=[3, 7, -1, 0, 6, 1, 5, 2, 4])
BACKWARDS = a_round(CHAIN, 3, order=[3, 2, 1, 0, -1], request=2)
"""Every accepted row moves into the place of another."""
PADDED_FRONT = a_round(CHAIN, 2, order=[-2, -2, -1, 0, 1, 2, 3], request=3)
PADDED_MIDDLE = a_round(BUSHY, 7, order=[-1, 0, 1, -2, 2, 3, 4, 5, -2, 6, 7], request=4)
PADDED_END = a_round(CHAIN, 2, order=[-1, 0, 1, 2, 3, -2, -2], request=5)
ROOT_LAST = a_round((-1, -1, 0), 2, order=[1, 2, 0, -2, -1, -2], request=6)
SPARSE = a_round((-1, -1, 0, 0), 3, ids=[4, 9, 17, 70_001], request=7)
"""Nodes of a larger tree, of which these were verified."""
PADDED = (PADDED_FRONT, PADDED_MIDDLE, PADDED_END, ROOT_LAST)
MAPPED = (PERMUTED, BACKWARDS, *PADDED, SPARSE, a_round((), order=[-2, -1, -2], request=8))

# ---- one token at several nodes

COUSINS = a_round((-1, -1, 0, 1), 3, tokens=[121, 122, 125, 125])
"""Token 125 below both children of the root; the second one is accepted."""
AGAIN = a_round(CHAIN, 3, tokens=[230, 231, 230, 230], request=2)
LIKE_THE_PENDING = a_round((-1, -1, 1, 2), 3, tokens=[311, 322, 311, 311], output=[310, 311], request=3)
"""A rejected node and two accepted ones repeat the pending token."""
LIKE_THE_FRONTIER = a_round((-1, -1, 0, 1, 1), 4, tokens=[420, 499, 499, 423, 499], request=4)
TWINS = (COUSINS, AGAIN, LIKE_THE_PENDING, LIKE_THE_FRONTIER)

# ---- no root row

PREFILLED = a_round(CHAIN, 1, pending=False, output=0)
ROOTLESS = a_round(BUSHY, 6, pending=False, order=[2, 0, -2, 3, 1, 6, 7, 4, 5], request=2)
ROOTLESS_REJECTED = a_round(CHAIN, ROOT, pending=False, request=3)
ROOTLESS_EMPTY = a_round((), pending=False, output=0, request=4)
WITHOUT_ROOT = (PREFILLED, ROOTLESS, ROOTLESS_REJECTED, ROOTLESS_EMPTY)

# ---- ends

STOP_INSIDE = a_round(CHAIN, 3, stop_tokens=[121])
"""huggingface/transformers#47912: [a, stop, b, c]."""
STOP_FIRST = a_round(CHAIN, 2, stop_tokens=[999, 220], request=2)
STOP_LAST_ACCEPTED = a_round(CHAIN, 2, stop_tokens=[322], output=0, request=3)
"""The path ends in the stop token: there is no frontier."""
STOP_TWICE = a_round(LONG_CHAIN, 8, stop_tokens=[424, 422], request=4)
STOP_IN_A_TREE = a_round(BUSHY, 6, stop_tokens=[523], request=5, order=[3, 7, -1, 0, 6, 1, 5, 2, 4])
STOPS_INSIDE = (STOP_INSIDE, STOP_FIRST, STOP_LAST_ACCEPTED, STOP_TWICE, STOP_IN_A_TREE)
STOP_FRONTIER = a_round(CHAIN, 1, stop_tokens=[199])
STOPS_AT_FRONTIER = (
    STOP_FRONTIER,
    a_round(stop_tokens=[7, 299], request=2),
    a_round(CHAIN, ROOT, stop_tokens=[399], request=3),
    a_round(BUSHY, 6, stop_tokens=[77], frontier=77, output=0, request=4),
)
LIMIT_INSIDE = a_round(CHAIN, 3, max_new_tokens=4)
"""Two tokens are output: two of the path's four join them."""
LIMIT_OF_ONE = a_round(CHAIN, 2, output=0, max_new_tokens=1, request=2)
LIMIT_IN_A_TREE = a_round(BUSHY, 7, max_new_tokens=6, output=5, request=3, order=[3, 7, -1, 0, 6, 1, 5, 2, 4])
LIMIT_OF_MANY = a_round(LONG_CHAIN, 9, prompt=2, output=20, max_new_tokens=25, request=4)
LIMITS_INSIDE = (LIMIT_INSIDE, LIMIT_OF_ONE, LIMIT_IN_A_TREE, LIMIT_OF_MANY)
LIMIT_AT_PATH = a_round(CHAIN, 2, max_new_tokens=5)
LIMITS_AT_PATH = (
    LIMIT_AT_PATH,
    a_round((-1,), 0, output=0, max_new_tokens=1, request=2),
    a_round(BUSHY, 6, output=4, max_new_tokens=7, request=3),
)
LIMIT_AT_FRONTIER = a_round(CHAIN, 1, max_new_tokens=5)
LIMITS_AT_FRONTIER = (
    LIMIT_AT_FRONTIER,
    a_round(output=0, max_new_tokens=1, request=2),
    a_round(CHAIN, ROOT, output=6, max_new_tokens=7, request=3),
    a_round(BUSHY, 6, output=1, max_new_tokens=5, request=4),
)
NEAR_LIMIT = (a_round(CHAIN, 1, max_new_tokens=6), a_round(output=0, max_new_tokens=2, request=2))
"""There is room for one more token."""
STOP_THEN_LIMIT = a_round(CHAIN, 3, output=0, stop_tokens=[121], max_new_tokens=3)
"""sgl-project/sglang#31599: [a, stop, b, c] with room for three."""
LIMIT_THEN_STOP = a_round(CHAIN, 3, output=1, stop_tokens=[223], max_new_tokens=4, request=2)
BOTH = (
    STOP_THEN_LIMIT,
    LIMIT_THEN_STOP,
    a_round(BUSHY, 6, stop_tokens=[320], max_new_tokens=5, request=3),
    a_round(CHAIN, 3, stop_tokens=[499], max_new_tokens=5, request=4),
    a_round(CHAIN, 0, stop_tokens=[520], max_new_tokens=4, request=5),
)
STOP_AT_LIMIT = (
    a_round(CHAIN, 3, stop_tokens=[121], max_new_tokens=4),
    a_round(CHAIN, 1, stop_tokens=[299], max_new_tokens=5, request=2),
    a_round(CHAIN, 3, stop_tokens=[323], max_new_tokens=6, request=3),
    a_round(stop_tokens=[499], output=0, max_new_tokens=1, request=4),
)
STOP_ELSEWHERE = (
    a_round(BUSHY, 6, stop_tokens=[121, 122, 124]),
    a_round(CHAIN, 1, stop_tokens=[222, 223], request=2),
    a_round(CHAIN, 2, stop_tokens=[301], request=3),
    a_round((-1, -1, 0), 2, stop_tokens=[421], output=0, request=4),
    a_round((-1, -1), ROOT, stop_tokens=[520, 521], request=5),
    a_round(CHAIN, 1, stop_tokens=[600], order=[-1, 0, -2, 1, 2, 3], request=6),
)
"""Stop tokens of the prompt, of rejected nodes and of padding."""
CUT = (*STOPS_INSIDE, *LIMITS_INSIDE, *LIMITS_AT_PATH)
ENDS = (*CUT, *STOPS_AT_FRONTIER, *LIMITS_AT_FRONTIER, *BOTH)

# ---- drafters

ALL_CONSUMED = a_round(CHAIN, 3, unread=(), request=2)
NONE_CONSUMED = a_round(CHAIN, 2, unread=range(4), request=3)
DRAFTERS = (WHOLE, PART, ALL_CONSUMED, NONE_CONSUMED, SKIPS, PERMUTED, COUSINS, FIRST_ROUND, ROOTLESS)
"""Rounds whose drafter consumed all tokens but the leaves, all of them, and none."""

# ---- batches

RAGGED = Rounds((WHOLE, a_round((-1,), 0, request=2), SECOND_CHILD, a_round(LONG_CHAIN, 5, prompt=7, request=4)))
"""Accepted lengths 4, 1, 1, 6."""
MIXED = Rounds(
    (a_round(request=1), STOP_FIRST, a_round(CHAIN, ROOT, request=3), a_round(BUSHY, 6, request=4), LIMIT_IN_A_TREE)
)
ALL_END = Rounds((STOP_INSIDE, a_round(stop_tokens=[299], request=2), LIMIT_OF_MANY))
ALONE = Rounds((PERMUTED,))

WITNESSES: Mapping[str, Any] = {
    "whole": WHOLE,
    "part": PART,
    "no_drafts": NO_DRAFTS,
    "none_accepted": NONE_ACCEPTED,
    "big_ids": BIG_IDS,
    "first_round": FIRST_ROUND,
    "skips": SKIPS,
    "later_sibling": LATER_SIBLING,
    "large": LARGE,
    "permuted": PERMUTED,
    "backwards": BACKWARDS,
    "padded_front": PADDED_FRONT,
    "padded_middle": PADDED_MIDDLE,
    "padded_end": PADDED_END,
    "cousins": COUSINS,
    "like_the_pending": LIKE_THE_PENDING,
    "prefilled": PREFILLED,
    "rootless": ROOTLESS,
    "rootless_rejected": ROOTLESS_REJECTED,
    "stop_inside": STOP_INSIDE,
    "stop_last_accepted": STOP_LAST_ACCEPTED,
    "stop_frontier": STOP_FRONTIER,
    "limit_inside": LIMIT_INSIDE,
    "limit_at_path": LIMIT_AT_PATH,
    "limit_at_frontier": LIMIT_AT_FRONTIER,
    "stop_then_limit": STOP_THEN_LIMIT,
    "limit_then_stop": LIMIT_THEN_STOP,
    "stop_at_limit": STOP_AT_LIMIT[0],
    "stop_elsewhere": STOP_ELSEWHERE[0],
    "all_consumed": ALL_CONSUMED,
    "ragged": RAGGED,
    "mixed": MIXED,
    "all_end": ALL_END,
}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them."""
