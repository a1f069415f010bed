"""EAGLE-3's rollout, whose attention is watched: `Model.forward` of `eagle/traineagle3/cnets.py`.

The collator of the training script makes the batch, and the target answers with zeros. The attention has an additive
mask for step 0 alone and multiplies keys of later steps row by row, so there is no mask of a rollout to hand out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from adapters import clone_features
from adapters import rollout_attention as shared
from adapters.clones import Namespace
from adapters.eagle_drafter import CLONE, collator, drafter
from oracle.types import Attended, AttentionCase, RolloutCase, Rows, VisibilityGraph


def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
    """Whom the rows of a rollout give weight to."""
    return shared.visibility(TRAINER, case)


def rollout_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
    """What the attention makes of given values; the cases are one padded batch."""
    return shared.attention(TRAINER, cases)


def _attend(given: Sequence[shared.Document], steps: int, value: Rows) -> shared.Seen:
    torch = clone_features.import_torch(CLONE)
    injected = shared.widened(torch, value)
    _, batch, length, width = injected.shape
    names, model = _drafter(width)
    model.length = steps
    rows = torch.zeros(batch, length, width)
    model.target_model.answers = SimpleNamespace(hidden_states=[rows] * 3, logits=rows[..., :2])
    ids = [torch.zeros(1, document.length, dtype=torch.long) for document in given]
    items = [{"input_ids": one, "attention_mask": one + 1, "loss_mask": one + 1} for one in ids]
    data = collator()(items)
    positions: list[Any] = []
    rotate = names["apply_rotary_pos_emb"]

    def rotated(q: Any, k: Any, cos: Any, sin: Any, position_ids: Any) -> Any:
        positions.append(position_ids)
        return rotate(q, k, cos, sin, position_ids)

    names["apply_rotary_pos_emb"] = rotated
    try:
        with torch.no_grad(), shared.probed(model.midlayer.self_attn, injected) as outputs:
            model(**data)
    finally:
        names["apply_rotary_pos_emb"] = rotate
    return shared.stacked(outputs, positions, data["attention_mask"].numpy() != 0, value)


TRAINER = shared.Trainer(_attend, shared.longest)


@functools.lru_cache(maxsize=16)
def _drafter(width: int) -> tuple[Namespace, Any]:
    """The drafter with one head of a width."""
    torch = clone_features.import_torch(CLONE)
    names, model = drafter(2, width, draft_vocabulary=2)
    model.register_buffer("t2d", torch.ones(2, dtype=torch.bool))
    return names, model
