"""Answers of rollouts in the conventions of the golden cases: where positions begin, and rows kept as padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance import compare
from conformance.roads import visibility as road
from conformance.verdicts import ClauseViolation
from conformance.visibility.drawing import Node, named
from oracle.types import Attended, RolloutCase, RolloutMaskCase, VisibilityGraph


def shown(operation: str, found: Any, arguments: Mapping[str, Any], declaration: Declaration) -> Any:
    """What of an answer is compared: of padding, that no node sees it."""
    pads = declaration.conventions.get("last_row") == "pad"
    if operation == "rollout_mask":
        return _mask(found, arguments["case"]) if pads else found
    if operation == "rollout_attention":
        if not pads:
            return found
        cases = [case.rollout for case in arguments["cases"]]
        return [_attended(one, case) for one, case in zip(compare.members(found, len(cases)), cases)]
    base = int(float(declaration.conventions.get("position_base", "0")))
    return _graph(found, arguments["case"] if pads else None, base)


def _graph(found: Any, case: RolloutCase | None, base: int) -> VisibilityGraph:
    parts = {name: getattr(found, name, None) for name in ("step", "anchor", "position", "visible")}
    held = {name: None if part is None else compare.plain(part, name) for name, part in parts.items()}
    if held["position"] is not None and held["position"].dtype.kind in "iu":
        held["position"] = held["position"].astype(np.int64) - base
    if case is not None and held["step"] is not None and held["anchor"] is not None and held["visible"] is not None:
        nodes = _nodes(held["step"], held["anchor"])
        kept = _kept(nodes, case)
        padding = [i for i in range(len(nodes)) if i not in kept]
        visible = held["visible"]
        for query, key in np.argwhere(visible[np.ix_(kept, padding)]).tolist()[:1]:
            raise ClauseViolation(f"{named(nodes[kept[query]])} sees {named(nodes[padding[key]])}, which is no node")
        held["visible"] = visible[np.ix_(kept, kept)]
        held |= {name: part[kept] for name, part in held.items() if name != "visible" and part is not None}
    return VisibilityGraph(**held)  # type: ignore[arg-type]


def _attended(found: Any, case: RolloutCase) -> Attended:
    step, anchor, output = (compare.plain(getattr(found, name, None), name) for name in ("step", "anchor", "output"))
    kept = _kept(_nodes(step, anchor), case)
    return Attended(step[kept], anchor[kept], output[kept])


def _mask(found: Any, case: RolloutMaskCase) -> np.ndarray:
    """The mask with the rows of padding emptied, which see what they like."""
    mask = compare.plain(found, "the mask").copy()
    real = np.zeros(mask.shape[:2], dtype=bool)
    for s, a in road.nodes(case.rollout):
        real[s, a + s * (case.row_anchor == "absolute")] = True
    mask[~real] = False
    return mask


def _nodes(step: np.ndarray, anchor: np.ndarray) -> list[Node]:
    return list(zip(step.tolist(), anchor.tolist()))


def _kept(nodes: Sequence[Node], case: RolloutCase) -> list[int]:
    right = set(road.nodes(case))
    return [i for i, node in enumerate(nodes) if node in right]
