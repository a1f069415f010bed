"""Who sees whom in a rollout (HASS, training-time test): a graph is the definition, every mask is read off it.

Node (s, a) is step s at anchor a. The parent of (0, a) is the latest earlier step-0 node of its segment, the parent of
(s, a) is (s − 1, a). A node sees its ancestors and itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np

from oracle.errors import BadInput
from oracle.rows import rollout_rows
from oracle.tensors import listed, member, one_of, tensor, whole
from oracle.types import (
    ROW_ANCHORS,
    Attended,
    AttentionCase,
    Flags,
    Ids,
    RolloutCase,
    RolloutMaskCase,
    RolloutRows,
    RolloutRowsCase,
    TokenBatch,
    VisibilityGraph,
)

Node = tuple[int, int]


def rollout_graph(case: RolloutCase) -> nx.DiGraph:
    """The graph itself: nodes (step, anchor), an edge from each parent to its child. Raises `BadInput`."""
    rows = _rows(case)
    nodes = _nodes(rows)
    graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    latest: dict[int, Node] = {}
    for step, anchor in nodes:
        if step:
            graph.add_edge((step - 1, anchor), (step, anchor))
            continue
        segment = int(case.segment[anchor])
        if segment in latest:
            graph.add_edge(latest[segment], (step, anchor))
        latest[segment] = (step, anchor)
    return graph


def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
    """The nodes of a rollout and who sees whom (VISIBILITY 2xx–4xx). Raises `BadInput`.

    Nodes are those of `rollout_rows`; a node stands at the position of its anchor plus its step. Source: HASS §3.2,
    EAGLE-3 §3.2.
    """
    graph, rows = rollout_graph(case), _rows(case)
    nodes = _nodes(rows)
    place = {node: i for i, node in enumerate(nodes)}
    visible = np.zeros((len(nodes), len(nodes)), dtype=bool)
    for node in nodes:
        for seen in {node, *nx.ancestors(graph, node)}:
            visible[place[node], place[seen]] = True
    return VisibilityGraph(rows.step, rows.anchor, rows.position, visible)


def rollout_mask(case: RolloutMaskCase) -> Flags:
    """The graph as a mask: bool [steps, length, steps · length], step × row × (key step, key row) (VISIBILITY 5xx).

    A node (s, a) has row a of its step's block, or row a + s under the absolute anchor. Rows without a node see
    nothing, and nobody sees them. Raises `BadInput`.
    """
    member(case, RolloutMaskCase)
    absolute = one_of(case.row_anchor, "row_anchor", ROW_ANCHORS) == "absolute"
    graph = rollout_visibility(case.rollout)
    length, steps = int(case.rollout.length), int(case.rollout.steps)
    mask = np.zeros((steps, length, steps, length), dtype=bool)
    nodes = list(zip(graph.step.tolist(), graph.anchor.tolist()))
    for i, (s, a) in enumerate(nodes):
        for j, (t, b) in enumerate(nodes):
            mask[s, a + s * absolute, t, b + t * absolute] = graph.visible[i, j]
    return mask.reshape(steps, length, steps * length)


def rollout_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
    """Each case's outputs: for every node the mean of the values that it sees (VISIBILITY 6xx). Raises `BadInput`."""
    listed(cases, "cases", AttentionCase)
    return [_attention(case, f"cases[{i}]") for i, case in enumerate(cases)]


def _attention(case: AttentionCase, field: str) -> Attended:
    if not isinstance(case, AttentionCase):
        raise BadInput(field, (), "a case is an oracle.types.AttentionCase", type(case).__name__)
    graph = rollout_visibility(case.rollout)
    shape = (int(case.rollout.steps), int(case.rollout.length), "d")
    value = tensor(case.value, f"{field}.value", "f", shape)
    nodes = list(zip(graph.step.tolist(), graph.anchor.tolist()))
    output = np.zeros((len(nodes), value.shape[2]))
    for i in range(len(nodes)):
        seen = [value[node] for j, node in enumerate(nodes) if graph.visible[i, j]]
        for read in seen:
            if not np.isfinite(read).all():
                raise BadInput(f"{field}.value", nodes[i], "a value that is seen is finite", [float(v) for v in read])
        output[i] = sum(seen) / len(seen)
    return Attended(graph.step, graph.anchor, output)


def _rows(case: RolloutCase) -> RolloutRows:
    """The rollout's rows, the case read as a batch of one."""
    member(case, RolloutCase)
    length = whole(case.length, "length", 0)
    whole(case.steps, "steps", 1)
    segment = tensor(case.segment, "segment", "iu", (length,))
    valid = tensor(case.valid, "valid", "b", (length,))
    position: Ids = np.arange(length) if case.position is None else tensor(case.position, "position", "iu", (length,))
    batch = TokenBatch(
        tokens=np.zeros((1, length), dtype=np.int64),
        valid=valid[None],
        segment=segment[None],
        position=position[None],
        supervise=valid[None],
    )
    try:
        return rollout_rows(RolloutRowsCase(batch, case.steps))
    except BadInput as wrong:
        raise BadInput(wrong.field.removeprefix("batch."), wrong.index[1:], wrong.rule, wrong.found) from None


def _nodes(rows: RolloutRows) -> list[Node]:
    return list(zip(rows.step.tolist(), rows.anchor.tolist()))
