"""Cases and decisions drawn for a person: numbers, rows, chains, trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from oracle.types import Coins, Decision, ProposalCase, VerifyCase, WarpCase

SHOWN = 12

Drawer = TypeVar("Drawer", bound=Callable[[Any], str])


def number(value: Any) -> str:
    """Six significant digits; the edge of [0, 1) and other numbers that would round away keep theirs."""
    if isinstance(value, str):
        return value
    as_float = float(value)
    if math.isnan(as_float) or math.isinf(as_float):
        return str(as_float)
    short = f"{as_float:.6g}"
    exact = value if isinstance(value, Fraction) else Fraction(as_float)
    if short in ("0", "1") and exact not in (0, 1):
        return f"1 − {float(1 - exact):.3g}" if short == "1" else f"{as_float:.3g}"
    return short


def row(values: Sequence[Any] | np.ndarray) -> str:
    """A probability row in brackets, the middle of a long one left out."""
    shown = [number(v) for v in (values if len(values) <= SHOWN else [*values[:8], *values[-3:]])]
    if len(values) > SHOWN:
        shown.insert(8, f"… {len(values) - 11} more …")
    return "[" + " ".join(shown) + "]"


def node(index: int) -> str:
    return "root" if index == -1 else f"node {index}"


def decision(found: Decision) -> str:
    path = " → ".join(f"node {n}" for n in found.path) or "nothing accepted"
    return f"{path}, frontier {found.frontier}"


def case(value: VerifyCase, coins: Coins | None = None) -> str:
    """A drafted chain or tree with its rows, one node a line, children indented below their parent."""
    vocabulary = np.asarray(value.target_probs).shape[1]
    nodes = len(value.parent)
    chain = all(int(p) == i - 1 for i, p in enumerate(value.parent))
    shape = f"a {'chain' if chain else 'tree'} of {nodes} draft{'s' if nodes != 1 else ''}"
    kind = {"point": "point proposal: q is one-hot at the token"}.get(
        value.proposal, f"drafts from q, {value.proposal}"
    )
    lines = [f"{shape} over {vocabulary} tokens; {kind}"]
    depth = {-1: 0}
    for i, above in enumerate(value.parent):
        depth[i] = depth.get(int(above), 0) + 1
    order = _preorder([int(p) for p in value.parent])
    for i in order:
        indent = "  " * (depth[i] if not chain else 1)
        coin = "" if coins is None else f"  u = {number(coins.accept[i])}" if i >= 0 else ""
        head = "root" if i == -1 else f"node {i} = token {int(value.token[i])}{coin}"
        laws = [f"target p = {row(value.target_probs[i + 1])}"]
        has_children = any(int(p) == i for p in value.parent)
        if value.proposal != "point" and value.draft_probs is not None and has_children:
            laws.append(f"draft q = {row(value.draft_probs[i + 1])}")
        lines.append(f"{indent}{head}")
        lines.extend(f"{indent}    {'then ' if i >= 0 else ''}{law}" for law in laws)
    if coins is not None:
        lines.append(f"  frontier coin = {number(coins.frontier)}")
    return "\n".join(lines)


_DRAWERS: dict[type, Callable[[Any], str]] = {}


def drawer(kind: type) -> Callable[[Drawer], Drawer]:
    """Function decorator: draws cases of `kind`. Each contract's `cases` imports its drawers."""

    def register(function: Drawer) -> Drawer:
        _DRAWERS[kind] = function
        return function

    return register


def drawn(value: object) -> str:
    """Whatever a check ran on: a case, or anything that knows how to draw itself."""
    if type(value) in _DRAWERS:
        return _DRAWERS[type(value)](value)
    if isinstance(value, VerifyCase):
        return case(value)
    if isinstance(value, WarpCase):
        return logits(value)
    if isinstance(value, ProposalCase):
        return drafting(value)
    draw_itself = getattr(value, "drawn", None)
    return str(draw_itself()) if callable(draw_itself) else repr(value)


def logits(value: WarpCase) -> str:
    """Rows of logits, each with what it is warped with."""
    rows = np.asarray(value.logits)
    rows = rows.reshape(-1, rows.shape[-1])
    lines = [f"{len(rows)} row{'s' if len(rows) != 1 else ''} of logits over {rows.shape[1]} tokens"]
    for r, entries in enumerate(rows):
        given = []
        for name in ("temperature", "top_k", "top_p", "min_p"):
            parameter = np.asarray(getattr(value, name))
            given.append(f"{name} {number(parameter[r] if parameter.ndim else parameter.item())}")
        lines.append(f"  row {r}: {row(entries)}  {', '.join(given)}")
    return "\n".join(lines)


def drafting(value: ProposalCase) -> str:
    """What a drafter is asked for, with the first rows of its table."""
    parent = np.asarray(value.parent).tolist()
    lines = [f"{value.trials} trials of a tree with the parents {parent}, proposal {value.proposal}, seed {value.seed}"]
    if isinstance(value.table, Mapping):
        shown = [(prefix, entries) for prefix, entries in value.table.items() if len(prefix) < 2]
    else:
        shown = [((), value.table[0].tolist())]
        shown += [((v,), entries) for v, entries in enumerate(value.table[1].tolist())] if len(value.table) > 1 else []
    for prefix, entries in shown:
        after = f"after {' '.join(map(str, prefix))}" if prefix else "at the root"
        lines.append(f"  {after}: q = {row(entries)}")
    more = len(shown) < len(value.table) if isinstance(value.table, Mapping) else len(value.table) > 2
    return "\n".join([*lines, "  (longer prefixes are in the case file)"] if more else lines)


def batch(cases: Sequence[VerifyCase], coins: Sequence[Coins] | None) -> str:
    """A batch, member by member."""
    if len(cases) == 1:
        return case(cases[0], coins[0] if coins else None)
    parts = []
    for i, member in enumerate(cases):
        body = case(member, coins[i] if coins else None).replace("\n", "\n  ")
        parts.append(f"member {i}: {body}")
    return "\n".join(parts)


def _preorder(parent: Sequence[int]) -> list[int]:
    order: list[int] = []
    pending = [-1]
    while pending:
        here = pending.pop()
        order.append(here)
        pending.extend(i for i in reversed(range(len(parent))) if parent[i] == here)
    return order
