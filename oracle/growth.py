"""Reading a drafter's table while a tree grows: rows by prefix, draft ids as target ids, widths."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import member, whole
from oracle.types import GrowthCase
from oracle.validation import as_array, law_of
from oracle.vocabulary import draft_to_target

ROW_RULE = "the table has a row for each prefix that is drafted from"


class Drafts:
    """A `GrowthCase`, its structure validated whole, its rows where they are read. Raises `BadInput`."""

    def __init__(self, case: GrowthCase, field: str) -> None:
        member(case, GrowthCase)
        self._field = f"{field}.table"
        self.expand_width = whole(case.expand_width, f"{field}.expand_width", 1)
        self.branch_width = whole(case.branch_width, f"{field}.branch_width", 1)
        self.max_depth = whole(case.max_depth, f"{field}.max_depth", 0)
        self._target = None if case.draft_map is None else draft_to_target(case.draft_map).tolist()
        self._rows: Mapping[tuple[int, ...], object] | None = case.table if isinstance(case.table, Mapping) else None
        self._layers: list[object] = []
        if self._rows is None:
            try:
                self._layers = list(case.table)
            except TypeError:
                rule = "is a sequence of layers, or a mapping from prefixes to rows"
                raise BadInput(self._field, (), rule, type(case.table).__name__) from None
            if len(self._layers) < self.max_depth:
                rule = f"has a layer for each of the {self.max_depth} depths"
                raise BadInput(self._field, (), rule, len(self._layers))
        self._vocabulary: int | None = None if self._target is None else len(self._target)

    def best(self, prefix: tuple[int, ...]) -> list[tuple[int, float]]:
        """Target ids and probabilities of the best `branch_width` children after `prefix`, by (−probability, id)."""
        found, field, index = self._found(prefix)
        if found.ndim != 1 or not len(found):
            raise BadInput(field, index, "is a vector of V real numbers", found.shape)
        if self._vocabulary is None:
            self._vocabulary = len(found)
        row = [float(p) for p in law_of(found, field, index, self._vocabulary, may_omit_mass=True)]
        ids = self._target or range(len(row))
        return sorted(zip(ids, row), key=lambda child: (-child[1], child[0]))[: self.branch_width]

    def _found(self, prefix: tuple[int, ...]) -> tuple[np.ndarray, str, tuple[int, ...]]:
        """The row after `prefix`, with the field and the index that it stands at."""
        if self._rows is not None:
            field = f"{self._field}[{prefix}]"
            if prefix not in self._rows:
                raise BadInput(field, (), ROW_RULE)
            return as_array(self._rows[prefix], field), field, ()
        index = (len(prefix), *prefix)
        layer = as_array(self._layers[len(prefix)], self._field, (len(prefix),))
        if layer.ndim != len(prefix) + 1:
            raise BadInput(self._field, (len(prefix),), "layer l has shape [V] * l + [V]", layer.shape)
        for place, token in enumerate(prefix):
            if not token < layer.shape[place]:
                raise BadInput(self._field, index[: place + 2], ROW_RULE)
        found: np.ndarray = layer[prefix] if prefix else layer
        return found, self._field, index
