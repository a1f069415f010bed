"""Asking an implementation for rows, and reading its answer: addresses, whatever way it shows them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance import compare
from conformance.check import Check
from conformance.handout import copy
from conformance.roads import rows as road
from conformance.rows.cases import traced
from conformance.verdicts import ClauseViolation, HarnessError
from oracle import rows as oracle
from oracle.types import OWNERS, GatherCase, RolloutRows, RolloutRowsCase, RowPlan, SupervisionCase, TokenBatch

VIA = ("soft_rows", "gather_rows")
"""A plan says which addresses its rows have; a trainer that shows its tensors alone is read by tracers."""
FILLER, POISON = -1, -2
VECTORS = ("batch", "source", "advanced", "target", "label", "supervise", "position")
NODES = ("step", "batch", "anchor", "consumed", "target", "supervise", "position", "state_from")


@dataclass
class Answer:
    """Rows as they were answered: one entry a row; `padding` are the rows that lack a next token or a target."""

    batch: list[int]
    source: list[int]
    advanced: list[int]
    target: list[int]
    supervise: list[bool]
    position: list[int]
    padding: list[tuple[int, int, bool]] = field(default_factory=list)

    @property
    def keys(self) -> list[tuple[int, int]]:
        return list(zip(self.batch, self.source))


def plan(check: Check, operation: str, batch: TokenBatch) -> RowPlan:
    """The implementation's plan, its form judged."""
    found = check.call(operation, copy(batch))
    values = {name: _of_rows(found, name) for name in VECTORS}
    rows = len(values["source"])
    for name, value in values.items():
        if len(value) != rows:
            raise ClauseViolation(f"there are {rows} sources, and {name} has {len(value)} entries")
    visible = compare.plain(getattr(found, "visible", None), "visible")
    if visible.shape != (rows, rows) or (rows and visible.dtype != np.bool_):
        raise ClauseViolation(
            f"visible is {visible.dtype} of shape {visible.shape}; it says of each of {rows} rows, as a boolean, "
            "whether it sees each of them"
        )
    return RowPlan(**values, visible=visible)


def ask(check: Check, via: str, batch: TokenBatch) -> Answer:
    """The rows of a batch, from the plan or from traced tensors."""
    if via == "gather_rows":
        return gathered(check, traced(batch))
    found = plan(check, via, batch)
    return Answer(
        found.batch.tolist(),
        found.source.tolist(),
        found.advanced.tolist(),
        found.target.tolist(),
        found.supervise.tolist(),
        found.position.tolist(),
    )


def tensors(check: Check, case: GatherCase) -> Any:
    """The gathered tensors, their form judged."""
    found = check.call("gather_rows", copy(case))
    width = case.features.shape[2]
    values: dict[str, np.ndarray] = {}
    for name in ("batch", "token", "supervise", "position"):
        values[name] = _of_rows(found, name)
    rows = len(values["batch"])
    for name in ("feature", "target"):
        values[name] = compare.plain(getattr(found, name, None), name)
        if values[name].shape != (rows, width) or values[name].dtype.kind != "f":
            raise ClauseViolation(
                f"{name} is {values[name].dtype} of shape {values[name].shape}; it holds {width} numbers for each of "
                f"{rows} rows"
            )
    for name in ("token", "supervise", "position"):
        if len(values[name]) != rows:
            raise ClauseViolation(f"there are {rows} rows in batch, and {name} has {len(values[name])} entries")
    return type("Tensors", (), values)


def gathered(check: Check, case: GatherCase) -> Answer:
    """The addresses that the gathered tensors spell."""
    found = tensors(check, case)
    of_token = {int(v): (int(b), int(t)) for (b, t), v in np.ndenumerate(case.batch.tokens) if case.batch.valid[b, t]}
    of_feature = {tuple(case.features[b, t]): (b, t) for b, t in np.argwhere(case.batch.valid).tolist()}
    answer = Answer([], [], [], [], [], [])
    for r in range(len(found.batch)):
        b = int(found.batch[r])
        source, target = (_spelt(of_feature, values[r], name) for name, values in _features(found))
        token = int(found.token[r])
        advanced = of_token.get(token, (FILLER, FILLER) if token == 0 else (POISON, POISON))
        for name, (row, address) in (("feature", source), ("token", advanced), ("target", target)):
            if address == POISON or (address >= 0 and row != b):
                where = "an address that holds no token" if address == POISON else f"address {address} of row {row}"
                raise ClauseViolation(f"row {r}, of batch row {b}: its {name} was gathered from {where}")
        if FILLER in (source[1], advanced[1], target[1]):
            answer.padding.append((b, source[1], bool(found.supervise[r])))
            continue
        answer.batch.append(b)
        answer.source.append(source[1])
        answer.advanced.append(advanced[1])
        answer.target.append(target[1])
        answer.supervise.append(bool(found.supervise[r]))
        answer.position.append(int(found.position[r]))
    if answer.padding and check.convention("last_row", "drop") != "pad":
        b, t, _ = answer.padding[0]
        raise ClauseViolation(
            f"batch row {b} has a row at source {t} that lacks a next token or a target; last_row is declared 'drop'"
        )
    return answer


def sources(check: Check, case: SupervisionCase) -> np.ndarray:
    """The mask of sources, its form judged."""
    found = compare.plain(check.call("supervision_at_source", copy(case)), "the answer")
    if found.shape != case.token_mask.shape or found.dtype != np.bool_:
        raise ClauseViolation(
            f"the answer is {found.dtype} of shape {found.shape}; it is a boolean for each address of "
            f"{case.token_mask.shape}"
        )
    return found


def nodes(check: Check, case: RolloutRowsCase) -> tuple[RolloutRows, list[tuple[int, int, int, bool]]]:
    """The nodes of a rollout, their form judged, and beside them those kept as padding."""
    found = check.call("rollout_rows", copy(case))
    values = {name: _of_rows(found, name) for name in NODES}
    for name, value in values.items():
        if len(value) != len(values["step"]):
            raise ClauseViolation(f"there are {len(values['step'])} steps, and {name} has {len(value)} entries")
    padding = (values["consumed"] == FILLER) | (values["target"] == FILLER)
    kept = [
        (int(values["step"][i]), int(values["batch"][i]), int(values["anchor"][i]), bool(values["supervise"][i]))
        for i in np.flatnonzero(padding)
    ]
    if kept and check.convention("last_row", "drop") != "pad":
        step, _, anchor, _ = kept[0]
        raise ClauseViolation(
            f"the node of step {step} at anchor {anchor} lacks a token or a target; last_row is declared 'drop'"
        )
    place = np.cumsum(~padding) - 1
    fed = values["state_from"]
    if np.any((fed >= len(fed)) | (fed < -1)):
        raise ClauseViolation(f"state_from names node {int(fed[(fed >= len(fed)) | (fed < -1)][0])} of {len(fed)}")
    if len(place):
        values["state_from"] = np.where(fed >= 0, np.where(padding[fed], POISON, place[fed]), -1)
    return RolloutRows(**{name: value[~padding] for name, value in values.items()}), kept


def expected(check: Check, batch: TokenBatch, hard: bool = False) -> RowPlan:
    """The right plan, by the second road; the oracle has to agree with it."""
    right = road.plan(batch, hard)
    if not check.is_oracle:
        ours = oracle.hard_rows(batch) if hard else oracle.soft_rows(batch)
        _agree(right, ours, (*VECTORS, "visible"))
    return right


def expected_nodes(check: Check, case: RolloutRowsCase) -> RolloutRows:
    """The right nodes, by the second road, positions by the declared convention."""
    if not check.is_oracle:
        _agree(road.rollout(case.batch, case.steps), oracle.rollout_rows(case), NODES)
    return road.rollout(case.batch, case.steps, check.convention("rollout_position", "anchor_plus_step"))


def expected_sources(check: Check, case: SupervisionCase, ahead: int) -> np.ndarray:
    """The sources that a mask supervises whose flags are those of the token `ahead` of the source."""
    right = road.supervised_sources(case.batch, case.token_mask, ahead)
    ours = dataclasses.replace(case, owner=OWNERS[ahead])
    if not check.is_oracle and not np.array_equal(right, oracle.supervision_at_source(ours)):
        raise HarnessError("the oracle and the second road disagree about supervision_at_source")
    return right


def base(check: Check) -> int:
    """What positions count from, as declared."""
    return int(float(check.convention("position_base", "0")))


def _agree(right: Any, ours: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if not np.array_equal(getattr(right, name), getattr(ours, name)):
            raise HarnessError(f"the oracle and the second road disagree about {name}")


def _features(found: Any) -> tuple[tuple[str, np.ndarray], ...]:
    return (("feature", found.feature), ("target", found.target))


def _spelt(known: dict[tuple[float, ...], tuple[int, int]], entries: np.ndarray, name: str) -> tuple[int, int]:
    if not np.any(entries):
        return FILLER, FILLER
    if np.isnan(entries).any():
        return POISON, POISON
    found = known.get(tuple(float(v) for v in entries))
    if found is None:
        raise ClauseViolation(f"a row's {name} is {entries.tolist()}, which stands at no address of the batch")
    return found


def _of_rows(found: Any, name: str) -> np.ndarray:
    """A vector of the answer: flags in `supervise`, integers elsewhere."""
    return compare.vector(getattr(found, name, None), name, "b" if name == "supervise" else "iu", entry="row")
