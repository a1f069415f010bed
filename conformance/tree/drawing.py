"""Trees drawn for a person: one node a line, children below their parent; matrices as 0/1 rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance import draw
from oracle.types import DraftTreeCase, FlattenCase, GrowthCase, MaskCase, SelectionCase

SHOWN_ROWS = 14


def outline(parent: Sequence[int], labels: Sequence[str], marked: Sequence[int] = ()) -> list[str]:
    """The tree below its root, one node a line; a parent that is no earlier node is said, not followed."""
    lines = ["root"]
    above = [int(p) for p in parent]
    odd = {i for i, p in enumerate(above) if not -1 <= p < i}

    def walk(node: int, indent: str) -> None:
        family = [i for i, p in enumerate(above) if p == node and i not in odd]
        for place, child in enumerate(family):
            last = place == len(family) - 1
            mark = "  ◄" if child in marked else ""
            lines.append(f"{indent}{'└─' if last else '├─'} {labels[child]}{mark}")
            walk(child, indent + ("   " if last else "│  "))

    walk(-1, "")
    return lines + [f"{labels[i]} hangs below {above[i]}" for i in sorted(odd)]


def matrix(values: np.ndarray, rows: Sequence[str], mark: tuple[int, int] | None = None) -> list[str]:
    """0/1 rows; the marked entry in brackets."""
    width = max(map(len, rows), default=0)
    lines = []
    for i, row in enumerate(np.asarray(values).astype(int).tolist()):
        cells = [f"[{v}]" if mark == (i, j) else f" {v} " for j, v in enumerate(row)]
        lines.append(f"  {rows[i].rjust(width)}  {''.join(cells)}".rstrip())
    return lines


def kinship(parent: Sequence[int], row: int, other: int) -> str:
    """What `other` is to `row`; both are rows, and −1 is the root."""
    above = [row]
    while above[-1] != -1:
        above.append(int(parent[above[-1]]))
    if other == row:
        return "itself"
    if other in above:
        return "its parent" if other == above[1] else "its ancestor"
    if row != -1 and parent[other] == parent[row]:
        return "its sibling"
    lower = other
    while lower not in (-1, row):
        lower = int(parent[lower])
    return "which hangs below it" if lower == row else "which is of another branch"


def edge(
    kind: str,
    expected: np.ndarray,
    found: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    kin: Callable[[int, int], str] = lambda i, j: "",
) -> str:
    """The first wrong edge in words, and both matrices with it marked; `kin` says what its ends are to each other."""
    i, j = (int(v) for v in np.argwhere(np.asarray(expected) != np.asarray(found))[0])
    verb, relation = "does not see" if expected[i, j] else "sees", kin(i, j)
    told = f"{rows[i]} {verb} {columns[j]}" + (f", {relation}" if relation else "")
    lines = [f"{kind}: {told}", "expected:", *matrix(expected, rows, (i, j))]
    return "\n".join([*lines, "found:", *matrix(found, rows, (i, j))])


@draw.drawer(GrowthCase)
def growth(value: GrowthCase) -> str:
    widths = f"expand {value.expand_width}, branch {value.branch_width}, depth {value.max_depth}"
    lines = [f"a drafter's table; {widths}"]
    if value.draft_map is not None:
        lines.append(f"  draft ids are target ids by the {value.draft_map.convention} map {list(value.draft_map.d2t)}")
    if isinstance(value.table, Mapping):
        shown: list[tuple[Any, Any]] = list(value.table.items())
    else:
        shown = [(p, layer[p]) for layer in map(np.asarray, value.table) for p in np.ndindex(*layer.shape[:-1])]
    for path, row in shown[:SHOWN_ROWS]:
        after = f"after {' '.join(map(str, path))}" if path else "at the root"
        lines.append(f"  {after}: q = {draw.row(row)}")
    more = len(shown) - SHOWN_ROWS
    return "\n".join([*lines, f"  ({more} more rows are in the case file)"] if more > 0 else lines)


@draw.drawer(SelectionCase)
def selection(value: SelectionCase) -> str:
    return f"budget {value.budget} of\n" + "\n".join(outline(value.tree.parent.tolist(), _labels(value.tree)))


@draw.drawer(FlattenCase)
def flatten(value: FlattenCase) -> str:
    chosen = np.asarray(value.selected).tolist()
    lines = outline(value.tree.parent.tolist(), _labels(value.tree), chosen)
    return "\n".join([f"root at position {value.base}; selected (◄) in the order {chosen}", *lines])


@draw.drawer(DraftTreeCase)
def drafting(value: DraftTreeCase) -> str:
    return f"budget {value.budget}, root at position {value.base}, from {growth(value.growth)}"


@draw.drawer(MaskCase)
def mask(value: MaskCase) -> str:
    parent = np.asarray(value.parent).tolist()
    lines = outline(parent, [f"row {i}" for i in range(len(parent))])
    return "\n".join([f"the {value.form} mask after {value.prefix} decided tokens of", *lines])


def _labels(tree: Any) -> list[str]:
    def shown(values: Any, i: int) -> str:  # the vectors of bad input may be too short
        return draw.number(values[i]) if i < len(values) else "missing"

    return [
        f"node {i} = token {shown(tree.token, i)}, c = {shown(tree.confidence, i)}, value {shown(tree.log_value, i)}"
        for i in range(len(tree.parent))
    ]
