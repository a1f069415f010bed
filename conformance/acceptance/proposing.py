"""Asking a proposer for drafts, and the tables that it drafts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.interface import DTYPES
from conformance import compare, draw
from conformance.acceptance import models
from conformance.acceptance.cases import Prefix, TableModel
from conformance.check import Check
from conformance.verdicts import ClauseViolation
from oracle.types import ProposalCase, Proposals

SHAPE = (-1, -1, 0)
"""Two siblings below the root, one child below the first of them."""
KINDS = ("point", "iid", "without_replacement")


def model(proposal: str) -> TableModel:
    """The table whose drafts a run judges."""
    return models.model(models.LAW_SEED, proposal, vocabulary=3, parent=SHAPE)


WIDE = (-1, -1, -1, 0, 1, 4)
"""Three siblings below the root, a child below the second of them, and a third layer."""


def shapes(proposal: str) -> list[TableModel]:
    """The table under several trees, for what needs no law: the fork, a chain, and a wide one over five tokens."""
    return [
        model(proposal),
        models.model(models.LAW_SEED, proposal, vocabulary=3, parent=(-1, 0)),
        models.model(models.LAW_SEED, proposal, vocabulary=5, parent=WIDE),
    ]


def law_shapes(proposal: str) -> list[TableModel]:
    """The trees whose law a run judges: the fork, and a chain for drafters that know no other."""
    return shapes(proposal)[:2]


def tied_model() -> TableModel:
    """A point proposal whose rows have ties, for the first place and behind it."""
    rows = [[2, 3, 3, 1], [4, 1, 4, 4], [1, 1, 1, 1], [0, 2, 2, 5], [3, 3, 3, 0]]
    draft: dict[Prefix, tuple[Fraction, ...]] = {(): _law(rows[0])}
    draft |= {(v,): _law(rows[v + 1]) for v in range(4)}
    return TableModel((-1, -1, 0, 0), "point", draft, draft)


def scarce_model(proposal: str) -> TableModel:
    """Three siblings on a row whose support is two tokens."""
    draft: dict[Prefix, tuple[Fraction, ...]] = {(): _law([1, 0, 3, 0])}
    return TableModel((-1, -1, -1), proposal, draft, draft)


def asked(model: TableModel, trials: int, seed: int, layers: bool = False) -> ProposalCase:
    """The model's drafter as a case; `layers` writes its table as one array a depth."""
    rows = {prefix: tuple(map(float, row)) for prefix, row in model.draft.items()}
    parent = np.array(model.parent, dtype=np.int64)
    if not layers:
        return ProposalCase(rows, parent, model.proposal, trials, seed)
    depths = range(max(len(prefix) for prefix in rows) + 1)
    size = model.vocabulary
    table = [np.array([rows[k] for k in sorted(rows) if len(k) == d]).reshape([size] * (d + 1)) for d in depths]
    return ProposalCase(table, parent, model.proposal, trials, seed)


def propose(check: Check, case: ProposalCase) -> Proposals:
    """The implementation's drafts in int64 and float64; `ClauseViolation` where the form is another."""
    found = read(check.call("propose", copy(case)), case)
    _check_rows(found, case, DTYPES[check.arithmetic.dtype])
    return found


def copy(case: ProposalCase) -> ProposalCase:
    """The same case in containers of its own."""
    table = dict(case.table) if isinstance(case.table, Mapping) else [layer.copy() for layer in case.table]
    return replace(case, table=table, parent=case.parent.copy())


def read(value: Any, case: ProposalCase) -> Proposals:
    """What an implementation returned for `case`, as `Proposals`; `ClauseViolation` where it is none."""
    nodes, size = len(case.parent), len(case.table[()] if not isinstance(case.table, Sequence) else case.table[0])
    try:
        raw_token, raw_rows = value.token, value.draft_probs
    except AttributeError:
        raise ClauseViolation(f"the result is a {type(value).__name__}, not Proposals") from None
    token = _array(raw_token, "token", "iu", (case.trials, nodes))
    rows = _array(raw_rows, "draft_probs", "f", (case.trials, nodes + 1, size))
    if token.size and not (token.min() >= 0 and token.max() < size):
        raise ClauseViolation(f"token holds ids outside of the vocabulary [0, {size}): {sorted(set(token.flat))}")
    return Proposals(token.astype(np.int64), rows.astype(np.float64))


def _check_rows(found: Proposals, case: ProposalCase, unit: float) -> None:
    """The rows that are read are laws, or for a point proposal confidences; else `ClauseViolation`."""
    rows = found.draft_probs[:, [node + 1 for node in parents_of(case)]]
    within = ((rows >= 0) & (rows <= 1 + unit)).all(axis=2)
    if case.proposal != "point":
        within &= np.abs(rows.sum(axis=2) - 1) <= (rows.shape[2] + 2) * unit
    for trial, i in np.argwhere(~within)[:1].tolist():
        raise ClauseViolation(
            f"trial {trial}: the row declared for the children of {draw.node(parents_of(case)[i])} is "
            f"{draw.row(rows[trial, i])}, which is no law"
        )


def _array(value: Any, name: str, kinds: str, shape: tuple[int, ...]) -> np.ndarray:
    found = compare.plain(value, name)
    if found.shape != shape or (found.size and found.dtype.kind not in kinds):
        raise ClauseViolation(f"{name} is {found.dtype} {list(found.shape)}; {{clause}} asks for {list(shape)}")
    return found


def contents(case: ProposalCase) -> tuple[object, ...]:
    """Everything that a case holds, as plain values."""
    rows = case.table.items() if isinstance(case.table, Mapping) else enumerate(case.table)
    return case.parent.tolist(), [(key, np.asarray(row).tolist()) for key, row in rows]


def parents_of(case: ProposalCase) -> list[int]:
    """The nodes that have children, −1 for the root: their rows are read."""
    return sorted(set(case.parent.tolist()))


def _law(weights: Sequence[int]) -> tuple[Fraction, ...]:
    return tuple(Fraction(w, sum(weights)) for w in weights)
