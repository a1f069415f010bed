"""Draft vocabularies: which target id a draft id stands for."""

from __future__ import annotations

import numpy as np

from oracle.errors import BadInput
from oracle.tensors import member, one_of, tensor
from oracle.types import MAP_CONVENTIONS, DraftMapCase, Ids


def draft_to_target(case: DraftMapCase) -> Ids:
    """The absolute target id of each draft id: int64 [Vd] (LOSSES 8xx).

    "offset": i + d2t[i], as released checkpoints hold it (SafeAILab/EAGLE#222); "absolute": d2t[i]. `t2d`, where given,
    marks exactly the mapped ids. Raises `BadInput`.
    """
    member(case, DraftMapCase)
    d2t = tensor(case.d2t, "d2t", "iu", ("Vd",))
    convention = one_of(case.convention, "convention", MAP_CONVENTIONS)
    ids = [int(d) + (i if convention == "offset" else 0) for i, d in enumerate(d2t)]
    if case.t2d is None:
        return distinct(ids, "d2t", None)
    t2d = tensor(case.t2d, "t2d", "b", ("V",))
    found = distinct(ids, "d2t", len(t2d))
    mapped = set(ids)
    for v, marked in enumerate(t2d):
        if bool(marked) != (v in mapped):
            raise BadInput("t2d", (v,), "marks exactly the ids that d2t maps to", bool(marked))
    return found


def distinct(ids: list[int], field: str, vocabulary: int | None) -> Ids:
    """The ids as an array; `BadInput` unless they are distinct and lie in the vocabulary."""
    seen: set[int] = set()
    for i, target in enumerate(ids):
        if not 0 <= target < (2**63 if vocabulary is None else vocabulary):
            raise BadInput(
                field, (i,), f"maps to a target id in [0, {'V' if vocabulary is None else vocabulary})", target
            )
        if target in seen:
            raise BadInput(field, (i,), "two draft ids map to different target ids", target)
        seen.add(target)
    return np.array(ids, dtype=np.int64)
