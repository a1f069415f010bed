"""How a drafted tree is decided, one function a coin scheme; all of them are lossless, their coins differ.

A walk asks a `Chance` whenever a coin is spent. Coins decide it in `verify_sampled`, a generator in
`verify_random`, and `oracle.law` follows every answer with its probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from oracle.discrete import Number, Row, mass, one_hot, residual, without
from oracle.errors import BadInput
from oracle.types import Decision

ROOT = -1


class View(Protocol):
    """What a walk reads of a request, and when: nothing is read before it is needed."""

    proposal: str
    parent_field: str

    def children(self, node: int) -> Sequence[int]: ...
    def token(self, child: int, law: Row | None) -> int: ...
    def tokens(self, node: int) -> Sequence[int]: ...
    def target(self, node: int) -> Row: ...
    def draft(self, node: int) -> Row: ...


class Chance(Protocol):
    """Where the answers come from; each call spends one coin."""

    def accepts(self, node: int, p: Number, q: Number) -> bool:
        """Whether u·q < p with the coin of `node`."""
        ...

    def draw(self, law: Row, node: int | None = None) -> int:
        """An outcome of `law`, with the coin of `node`; None is the frontier's coin."""
        ...


def per_node(view: View, chance: Chance) -> Decision:
    """Test the children in order, each with a coin of its own, against what the earlier ones left.

    Source: Leviathan et al. 2023, algorithm 1; EAGLE-2 §4; EAGLE-1 for siblings without replacement.
    """
    path: list[int] = []
    node = ROOT
    while True:
        p = view.target(node)
        children = view.children(node)
        q = view.draft(node) if children and view.proposal != "point" else None
        accepted = None
        for child in children:
            token = view.token(child, q)
            draft_mass = 1 if q is None else q[token]
            if chance.accepts(child, p[token], draft_mass):
                accepted = child
                break
            p = residual(p, one_hot(token, len(p)) if q is None else q)
            if view.proposal == "without_replacement" and q is not None:
                q = without(q, token)
        if accepted is None:
            return Decision(tuple(path), chance.draw(p))
        path.append(accepted)
        node = accepted


def per_parent(view: View, chance: Chance) -> Decision:
    """One coin a visited parent, cut into the target's masses of its children; the rest is "none of them".

    Given the drafts this is exact whatever they were drawn from. A twin has the mass of its first copy only.
    Source: SGLang's tree sampling with both thresholds at one.
    """
    path: list[int] = []
    node = ROOT
    while True:
        p = view.target(node)
        children = view.children(node)
        left, shares = list(p), []
        for token in view.tokens(node):
            shares.append(left[token])
            left[token] = left[token] * 0
        rest = mass(left)
        if children:
            taken = chance.draw([*shares, rest], children[0])
            if taken < len(children):
                path.append(children[taken])
                node = children[taken]
                continue
            p = [value / rest for value in left] if rest > 0 else p
        return Decision(tuple(path), chance.draw(p))


def sample_and_match(view: View, chance: Chance) -> Decision:
    """Draw the next token from the target; step into the first child that carries it, or publish it.

    The coin is that of the first child, or the frontier's at a leaf. Source: llama.cpp; TensorRT-LLM.
    """
    path: list[int] = []
    node = ROOT
    while True:
        children = view.children(node)
        drawn = chance.draw(view.target(node), children[0] if children else None)
        carriers = [child for child, token in zip(children, view.tokens(node)) if token == drawn]
        if not carriers:
            return Decision(tuple(path), drawn)
        path.append(carriers[0])
        node = carriers[0]


def block(view: View, chance: Chance) -> Decision:
    """Accept the longest prefix of a chain whose last node passes its test, whatever those before it do.

    With w = min(1, w·p/q) along the chain, node i passes with probability w at the end of the chain and
    R / (R + 1 − w) before it, R = Σ (w·p − q)+ at the rows after the node; the frontier comes from
    (w·p − q)+ renormalised. Chains only. Source: Sun et al. 2024, algorithm 2. Raises `BadInput`.
    """
    chain, weights, owed = [], [], []
    node, weight = ROOT, None
    while True:
        children = view.children(node)
        if len(children) > 1:
            raise BadInput(view.parent_field, (children[1],), "block verification decides chains")
        p = view.target(node)
        one = mass(p) * 0 + 1
        weight = one if weight is None else weight
        if not children:
            break
        q = view.draft(node) if view.proposal != "point" else None
        token = view.token(children[0], q)
        q = one_hot(token, len(p)) if q is None else q
        owed.append([max(weight * a - b, a * 0) for a, b in zip(p, q)])
        grown = weight * p[token]
        weight = min(one, grown / q[token]) if q[token] > 0 else (one if grown > 0 else grown)
        node = children[0]
        chain.append(node)
        weights.append(weight)
    for i in reversed(range(len(chain))):
        last = i == len(chain) - 1
        total = one if last else mass(owed[i + 1])
        passes, of = (weights[i], one) if last else (total, total + 1 - weights[i])
        if of == 0:  # the weight is one and the next rows are equal: nothing is lost by accepting
            passes, of = one, one
        if chance.accepts(chain[i], passes, of):
            law = p if last else _renormalised(owed[i + 1], view.target(chain[i]))
            return Decision(tuple(chain[: i + 1]), chance.draw(law))
    return Decision((), chance.draw(_renormalised(owed[0], view.target(ROOT)) if chain else p))


Walk = Callable[[View, Chance], Decision]
WALKS: dict[str, Walk] = {
    "per_node": per_node,
    "per_parent": per_parent,
    "sample_and_match": sample_and_match,
    "block": block,
}
"""Coin scheme → its walk."""


def walk_of(scheme: str) -> Walk:
    """The walk of a coin scheme. Raises `BadInput`."""
    if not isinstance(scheme, str) or scheme not in WALKS:
        raise BadInput("scheme", (), f"a coin scheme is one of {', '.join(WALKS)}", scheme)
    return WALKS[scheme]


def _renormalised(left: Row, otherwise: Row) -> Row:
    total = mass(left)
    return [value / total for value in left] if total > 0 else otherwise
