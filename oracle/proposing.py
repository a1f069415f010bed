"""Proposing: drafting a tree from a table of draft laws, in the three ways that verifiers know."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from oracle.discrete import Row, inverse_cdf, mass, without
from oracle.errors import BadInput
from oracle.types import PROPOSALS, DraftTable, ProposalCase, Proposals
from oracle.validation import law_of, parents, seed_of

Prefix = tuple[int, ...]


def propose(case: ProposalCase) -> Proposals:
    """Draft `case.trials` trees, node by node, and say from which row the children of each node came.

    "iid": every child from the row of its parent. "without_replacement": from that row renormalised without
    the tokens of earlier siblings. "point": the children are the most probable tokens in sibling order (lower
    id first), the rows confidences. Rows of leaves hold what the table has there, or zeros where it ends.
    Raises `BadInput`, also where siblings that have to differ outnumber the support. Source: EAGLE-1, static
    tree; EAGLE-2 §4.
    """
    if not isinstance(case, ProposalCase):
        raise BadInput("case", (), "a case is an oracle.types.ProposalCase", type(case).__name__)
    if case.proposal not in PROPOSALS:
        raise BadInput("case.proposal", (), f"a proposal is one of {', '.join(PROPOSALS)}", case.proposal)
    if isinstance(case.trials, bool) or not isinstance(case.trials, (int, np.integer)) or case.trials < 0:
        raise BadInput("case.trials", (), "is a number of trials", case.trials)
    above = parents(case.parent, "case.parent")
    table = _Table(case.table, case.proposal == "point")
    generator = np.random.default_rng(seed_of(case.seed))
    vocabulary = len(table.row(()))
    tokens = np.zeros((case.trials, len(above)), dtype=np.int64)
    rows = np.zeros((case.trials, len(above) + 1, vocabulary))
    for trial in range(case.trials):
        prefixes: list[Prefix] = [()]  # of the root, then of each node
        for i, parent in enumerate(above):
            prefix = prefixes[parent + 1]
            earlier = [int(tokens[trial, j]) for j in range(i) if above[j] == parent]
            coin = generator.random()
            tokens[trial, i] = _draft(table.row(prefix), earlier, case.proposal, coin, i)
            prefixes.append((*prefix, int(tokens[trial, i])))
        for node, prefix in enumerate(prefixes):
            if node - 1 in above or table.has(prefix):
                rows[trial, node] = table.row(prefix)
    return Proposals(tokens, rows)


def _draft(row: Row, earlier: list[int], proposal: str, coin: float, node: int) -> int:
    """The token of a node whose siblings before it drew `earlier`."""
    if proposal == "iid":
        return inverse_cdf(row, coin)
    left = row
    if proposal == "point":
        left = [0.0 if v in earlier else p for v, p in enumerate(row)]
    else:
        for token in earlier:
            left = without(left, token)
    if not mass(left) > 0:
        raise BadInput("case.parent", (node,), f"siblings of a {proposal!r} proposal stay within the support")
    return left.index(max(left)) if proposal == "point" else inverse_cdf(left, coin)


class _Table:
    """A draft table of either form; a row is validated when it is read."""

    def __init__(self, table: DraftTable, may_omit_mass: bool) -> None:
        self._may_omit_mass = may_omit_mass
        self._rows: Mapping[Prefix, object] | None = table if isinstance(table, Mapping) else None
        self._layers = [] if isinstance(table, Mapping) else [np.asarray(layer) for layer in table]
        self._vocabulary = 0
        if self._rows is None:
            if not self._layers:
                raise BadInput("case.table", (), "has a layer for the root")
            self._vocabulary = self._layers[0].shape[0] if self._layers[0].ndim == 1 else 0
            for depth, layer in enumerate(self._layers):
                if not self._vocabulary or layer.shape != (self._vocabulary,) * (depth + 1):
                    raise BadInput("case.table", (depth,), "layer l has shape [V] * l + [V]", layer.shape)

    def has(self, prefix: Prefix) -> bool:
        return len(prefix) < len(self._layers) if self._rows is None else prefix in self._rows

    def row(self, prefix: Prefix) -> Row:
        if not self.has(prefix):
            raise BadInput("case.table", prefix, "has a row for each prefix that is drafted from")
        row = law_of(
            self._layers[len(prefix)][prefix] if self._rows is None else self._rows[prefix],
            "case.table",
            prefix,
            self._vocabulary,
            self._may_omit_mass,
        )
        self._vocabulary = len(row)
        return row
