"""Rounds and states drawn for a person: places of the sequence and verification rows, with what each of them holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from conformance import draw
from oracle.types import PADDING_ROW, ROOT_ROW, CommittedState, PublishCase

MOST = 20
"""Columns that are drawn; of longer rows the middle is left out."""
NAMES: Mapping[str, str] = {"kv": "KV", "features": "features", "draft_kv": "the drafter's rows"}


@draw.drawer(PublishCase)
def a_round(case: PublishCase) -> str:
    """What was held, the rows of the verification, the decision and where the request ends."""
    state, seen = case.state, case.verified
    sequence = [*state.prompt.tolist(), *state.output.tolist()]
    size = len(sequence)
    waiting = "nothing pending" if state.pending is None else f"token {state.pending} pending"
    lines = [f"{len(state.prompt)} tokens of prompt and {len(state.output)} of output, {waiting}"]
    if state.finished:
        lines.append("the request is finished")
    lines += table(
        {
            "place": list(range(size)),
            "token": sequence,
            "KV": state.kv.tolist(),
            "feature": state.features.tolist(),
            "drafter": [] if state.draft_kv is None else ["", *state.draft_kv.tolist()],
        }
    )
    lines.append("verification rows:")
    lines += table(
        {
            "row": list(range(len(seen.row_node))),
            "node": [shown(node) for node in seen.row_node.tolist()],
            "token": seen.row_token.tolist(),
            "KV": seen.kv.tolist(),
            "feature": seen.features.tolist(),
            "drafter": [] if seen.draft_kv is None else seen.draft_kv.tolist(),
        }
    )
    lines.append(f"decision: {draw.decision(case.decision)}")
    limits = case.limits
    if limits.stop_tokens:
        lines.append(f"stop tokens: {' '.join(map(str, limits.stop_tokens))}")
    if limits.max_new_tokens is not None:
        lines.append(f"the output has at most {limits.max_new_tokens} tokens")
    return "\n".join(lines)


def shown(node: int) -> str:
    return {ROOT_ROW: "root", PADDING_ROW: "·"}.get(node, str(node))


def number(value: Any) -> str:
    """A tracer in full; a missing one is a dot."""
    if isinstance(value, float):
        return "·" if math.isnan(value) else f"{value:.12g}"
    return str(value)


def table(rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """Rows of one column a place, the middle of long ones left out; empty rows are none."""
    most = max((len(cells) for cells in rows.values()), default=0)
    columns: list[int | None] = list(range(most))
    if most > MOST:
        columns = [*range(MOST // 2 - 1), None, *range(most - MOST // 2, most)]

    def cells(values: Sequence[Any]) -> list[str]:
        return ["…" if c is None else number(values[c]) if c < len(values) else "" for c in columns]

    drawn = {name: cells(values) for name, values in rows.items() if len(values)}
    width = max((len(cell) for row in drawn.values() for cell in row), default=1)
    return [f"  {name:<9}" + " ".join(cell.rjust(width) for cell in row).rstrip() for name, row in drawn.items()]


def both(right: CommittedState, found: CommittedState, name: str) -> str:
    """The sequence as it is by the clause, and a field expected and found, place by place."""
    tokens = [*right.prompt.tolist(), *right.output.tolist()]
    label = {"kv": "KV", "features": "feature", "draft_kv": "drafter", "output": "output"}[name]
    ahead = {"draft_kv": 1, "output": len(right.prompt)}.get(name, 0)

    def row(state: CommittedState) -> list[Any]:
        values = getattr(state, name)
        return [""] * ahead + ([] if values is None or isinstance(values, str) else values.tolist())

    most = max(len(tokens), len(row(found)))
    rows = {"place": list(range(most)), "token": tokens, "expected": row(right), "found": row(found)}
    return "\n".join([f"{label}, expected and found:", *table(rows)])


def owner(case: PublishCase, name: str, value: float) -> str:
    """In words: whose `kv`, `features` or `draft_kv` a number is."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    sources = ["features", "draft_kv"] if name == "draft_kv" else [name]
    for source in [*sources, *(other for other in NAMES if other not in sources)]:
        kind = (
            "" if source == sources[-1] else {"kv": "KV of ", "features": "the feature of "}.get(source, "drafted in ")
        )
        if words := _owner(case, source, value):
            return f"{number(float(value))}, {kind}{words}"
    return f"{number(float(value))}, which is nobody's"


def _owner(case: PublishCase, name: str, value: float) -> str:
    state, seen = case.state, case.verified
    rows, held = getattr(seen, name), getattr(state, name)
    for row, node in enumerate(seen.row_node.tolist()):
        if rows is not None and rows[row] == value:
            if node in (ROOT_ROW, PADDING_ROW):
                return "the root's row" if node == ROOT_ROW else f"row {row}, which is padding"
            fate = "accepted" if node in case.decision.path else "rejected"
            return f"the row of node {node} (token {int(seen.row_token[row])}), which was {fate}"
    if held is not None and not isinstance(held, str):
        ahead = 1 if name == "draft_kv" else 0
        for place, one in enumerate(held.tolist()):
            if one == value:
                return f"that of place {place + ahead}"
    return ""


def first_difference(case: PublishCase, right: CommittedState, found: CommittedState, name: str, place: int) -> str:
    """In words: the first place where a field is not what it is by the clause, and the field drawn."""
    wanted, values = getattr(right, name).tolist(), getattr(found, name).tolist()
    there = place < len(values)
    if name == "output":
        words = f"token {place} of the output is {wanted[place] if place < len(wanted) else 'not there'}"
        words += f"; found {values[place]}" if there else "; it is missing"
    else:
        ahead = 1 if name == "draft_kv" else 0
        tokens = [*right.prompt.tolist(), *right.output.tolist()]
        words = f"row {place} of {NAMES[name]}"
        if place < len(wanted):
            words += f" belongs to token {tokens[place + ahead]} of place {place + ahead} and is "
            words += owner(case, name, wanted[place])
            words += f"; found {owner(case, name, values[place])}" if there else "; it is missing"
        else:
            words += f" belongs to no token; found {owner(case, name, values[place])}"
    return f"{words}\n{both(right, found, name)}"
