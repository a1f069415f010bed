"""Rollouts and who sees whom drawn for a person: an address a column, a node a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance import draw
from oracle.types import AttentionCase, Flags, RolloutCase, RolloutMaskCase

Node = tuple[int, int]
MOST = 24
"""Nodes of a graph that is drawn whole; of larger ones the row of one query is."""


@draw.drawer(RolloutCase)
def rollout(value: RolloutCase) -> str:
    """Its addresses; an invalid one shows a dot."""
    given: dict[str, Any] = {"valid": value.valid, "segment": value.segment, "position": value.position}
    lines = [f"length {value.length}, steps {value.steps}"]
    if any(array is not None and np.shape(array) != (value.length,) for array in given.values()):
        shapes = [f"{name} of shape {np.shape(array)}: {np.asarray(array).tolist()}" for name, array in given.items()]
        return "\n".join(lines + shapes)
    position = np.arange(value.length) if value.position is None else value.position

    def shown(values: np.ndarray) -> list[str]:
        return [str(v) if ok else "·" for v, ok in zip(values.tolist(), value.valid)]

    table = [
        ("address", [str(t) for t in range(value.length)]),
        ("segment", shown(value.segment)),
        ("position", shown(position)),
    ]
    width = max((len(cell) for _, cells in table for cell in cells), default=1)
    return "\n".join(lines + [f"  {name:<9}" + " ".join(c.rjust(width) for c in cells) for name, cells in table])


@draw.drawer(RolloutMaskCase)
def mask(value: RolloutMaskCase) -> str:
    return f"{rollout(value.rollout)}\nas a mask, its rows anchored {value.row_anchor!r}"


@draw.drawer(AttentionCase)
def attention(value: AttentionCase) -> str:
    return f"{rollout(value.rollout)}\nvalues of shape {list(np.shape(value.value))}"


def named(node: Node) -> str:
    return f"(step {node[0]}, anchor {node[1]})"


def edge(case: RolloutCase, query: Node, key: Node, seen: bool) -> str:
    """In words: the edge that is missing, or the one that is forbidden and `seen`."""
    (s, a), (t, b) = query, key
    if not seen:
        what = (
            "itself" if query == key else f"its own step {t}" if a == b else f"the earlier {named(key)} of its segment"
        )
        return f"query {named(query)} does not see {what}"
    if t > s:
        what = f"the later step {named(key)}"
    elif case.segment[a] != case.segment[b]:
        what = f"{named(key)} of segment {int(case.segment[b])}, itself of segment {int(case.segment[a])}"
    else:
        what = f"sibling {named(key)}" if t else f"the later {named(key)}"
    return f"query {named(query)} sees {what}"


def graphs(nodes: Sequence[Node], right: Flags, found: Flags, first: Node) -> str:
    """Both matrices, query × key, the cell `first` (row, column) in brackets."""
    one, other = matrix(nodes, right, first), matrix(nodes, found, first)
    return "\n".join(["expected:", *one, "found:", *other])


def matrix(nodes: Sequence[Node], visible: Flags, first: Node) -> list[str]:
    """0/1 rows, labelled step,anchor; of a large graph the row of the query alone, its keys step by step."""
    q, k = first
    cells = [[f"{int(v)}" for v in row] for row in visible.tolist()]
    cells[q][k] = f"[{cells[q][k]}]"
    labels = [f"{s},{a}" for s, a in nodes]
    width = max(3, *map(len, labels))

    def line(label: str, entries: Sequence[str]) -> str:
        # a bracket stands beside its digit, which stays in its column
        padded = (e.rjust(width) if len(e) > 1 else (e + " ").rjust(width) for e in entries)
        return f"  {label:>{width}} " + " ".join(padded).rstrip()

    if len(nodes) <= MOST:
        return [line("", labels), *(line(label, row) for label, row in zip(labels, cells))]
    lines = [f"  the row of {labels[q]} of {len(nodes)}, its keys step by step:"]
    for t in sorted({t for t, _ in nodes}):
        members = [j for j, (step, _) in enumerate(nodes) if step == t]
        lines += [line("", [labels[j] for j in members]), line("", [cells[q][j] for j in members])]
    return lines
