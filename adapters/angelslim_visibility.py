"""AngelSlim's rollout, whose attention is watched: `OfflineEagle3Trainer.compute_loss` with its `LlamaAttention`.

Step 0 goes through `scaled_dot_product_attention`, later steps through the attention's own softmax; both are what the
trainer's loop calls. Its mask is additive, for step 0 alone, so there is no mask of a whole rollout to hand out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adapters import angelslim_engine as engine
from adapters import rollout_attention as shared
from oracle.types import Attended, AttentionCase, RolloutCase, Rows, VisibilityGraph


def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
    """Whom the rows of a rollout give weight to."""
    return shared.visibility(TRAINER, case)


def rollout_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
    """What the attention makes of given values; the cases are one padded batch."""
    return shared.attention(TRAINER, cases)


def _attend(given: Sequence[shared.Document], steps: int, value: Rows) -> shared.Seen:
    a = engine.angelslim()
    injected = shared.widened(a.torch, value)
    width = injected.shape[3]
    draft, projection = _drafter(width)
    zeros = [np.zeros((document.length, width), dtype=np.float32) for document in given]
    batch = a.data.DataCollatorWithPadding()(
        [
            engine.record(np.zeros(len(z), dtype=np.int64), np.repeat(z, 3, axis=1), z, np.ones(len(z), dtype=bool))
            for z in zeros
        ]
    )
    kept = batch["attention_mask"].numpy() != 0
    attention = draft.midlayer.self_attn
    with _positions(attention) as positions, shared.probed(attention, injected) as outputs:
        engine.bare_trainer(draft, projection, steps).compute_loss(draft, batch)
    return shared.stacked(outputs, positions, kept, value)


TRAINER = shared.Trainer(_attend, shared.longest)


@functools.lru_cache(maxsize=16)
def _drafter(width: int) -> tuple[Any, Any]:
    """A draft model with one head of a width, and a target's head."""
    torch = engine.angelslim().torch
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        draft = engine.draft_model(2, np.ones(2, dtype=bool), width=width, heads=1)
        return draft, torch.nn.Linear(width, 2, bias=False)


@contextmanager
def _positions(attention: Any) -> Iterator[list[Any]]:
    """The positions that each step turns its queries and keys by."""
    rotate, found = attention.rope_apply_func, []

    def rotated(q: Any, k: Any, cos: Any, sin: Any, position_ids: Any, *others: Any) -> Any:
        found.append(position_ids)
        return rotate(q, k, cos, sin, position_ids, *others)

    attention.rope_apply_func = rotated
    try:
        yield found
    finally:
        attention.rope_apply_func = rotate
