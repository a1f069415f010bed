"""speculators' rollout, whose attention is watched: `Eagle3DraftModel.forward` over a packed sequence.

All documents are collated into one sequence, as in training, each without its first token. Its masks are those of
`create_combined_mask_mod`, extended a step at a time by the forward's loop. A mask of a rollout is what the layer gets
in each step, where a block mask stands for the entries of its full blocks and for those of its other listed blocks that
its function allows. Torch runs `flex_attention` without compiling it here, which looks at the function alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import rollout_attention as shared
from adapters import speculators_engine as engine
from adapters.interface import AdapterError, NotApplicable
from oracle.types import Attended, AttentionCase, Flags, RolloutCase, RolloutMaskCase, Rows, VisibilityGraph

BLOCK = 128
"""Of flex attention's masks: the extension of a mask wants sequences of whole blocks."""


class Attention:
    """The operations over one of the attentions that the draft model can be configured with."""

    def __init__(self, implementation: str) -> None:
        self._implementation = implementation
        self._trainer = shared.Trainer(self._attend, self._length, packs=True, cut=1)

    def rollout_visibility(self, case: RolloutCase) -> VisibilityGraph:
        """Whom the rows of a rollout give weight to."""
        return shared.visibility(self._trainer, case)

    def rollout_attention(self, cases: Sequence[AttentionCase]) -> list[Attended]:
        """What the attention makes of given values; the documents of all cases are one packed sequence."""
        return shared.attention(self._trainer, cases)

    def rollout_mask(self, case: RolloutMaskCase) -> Flags:
        """The masks that the layer gets."""
        if case.row_anchor != "start":
            raise NotApplicable("a row of every step is the anchor that it has at step 0")
        given, steps = shared.documents(self._trainer, [case.rollout]), int(case.rollout.steps)
        rows = self._length(given, steps)
        masks = self._run(given, np.zeros((steps, 1, rows, 1), dtype=np.float32)).masks
        return shared.placed([_dense(mask) for mask in masks], given, rows, int(case.rollout.length))

    def _length(self, given: Sequence[shared.Document], steps: int) -> int:
        needed = sum(document.length for document in given) + steps + 1
        return needed + -needed % BLOCK if self._implementation == "simple_flex_attention" else needed

    def _attend(self, given: Sequence[shared.Document], steps: int, value: Rows) -> shared.Seen:
        run = self._run(given, value)
        return shared.stacked(run.outputs, run.positions, run.documents.numpy() >= 0, value)

    def _run(self, given: Sequence[shared.Document], value: Rows) -> SimpleNamespace:
        torch = engine.package().torch
        injected = shared.widened(torch, value)
        steps, _, length, width = injected.shape
        model = _drafter(width, self._implementation)
        shape = (len(given), max(document.length for document in given))
        ids, features = np.zeros(shape, dtype=np.int64), np.zeros((*shape, width))
        mask = np.ones(shape, dtype=bool)
        batch = engine.collated(shared.as_samples(given), ids, features, features, mask, length, torch.float32)
        found = SimpleNamespace(positions=[], masks=[], documents=batch["document_ids"])
        for i, document in enumerate(given):
            if set(batch["document_ids"][0, document.rows].tolist()) - {i}:
                raise AdapterError(f"document {i} is not at rows {document.rows} of the packed sequence")
        layer = model.layers[0]
        hooks = (
            model.rotary_emb.register_forward_pre_hook(lambda _, fed: found.positions.append(fed[1])),
            layer.register_forward_pre_hook(
                lambda _, fed, named: found.masks.append(named["attention_mask"]), with_kwargs=True
            ),
        )
        try:
            with torch.no_grad(), shared.probed(layer.self_attn, injected) as found.outputs:
                model(**batch, **engine.call_arguments(steps, loss_implementation="eager"))
        finally:
            for hook in hooks:
                hook.remove()
        return found


@functools.lru_cache(maxsize=16)
def _drafter(width: int, attention: str) -> Any:
    torch = engine.package().torch
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return engine.drafter(1, width, 2, attention)


def _dense(mask: Any) -> Flags:
    """A mask [1, 1, Q, K], of any of its kinds, as booleans [Q, K]."""
    torch = engine.package().torch
    if not isinstance(mask, torch.Tensor):
        from torch.nn.attention.flex_attention import create_mask

        # what the extended mask lists tells its size: its shape is that of step 0
        blocks = _listed(mask.kv_num_blocks, mask.kv_indices)
        rows, columns = (count * BLOCK for count in blocks.shape)
        allowed = create_mask(mask.mask_mod, 1, 1, rows, columns, device="cpu")[0, 0].numpy()
        entries = blocks.repeat(BLOCK, axis=0).repeat(BLOCK, axis=1) & allowed
        if mask.full_kv_indices is not None:
            full = _listed(mask.full_kv_num_blocks, mask.full_kv_indices)
            entries = entries | full.repeat(BLOCK, axis=0).repeat(BLOCK, axis=1)
        return np.asarray(entries, dtype=bool)
    shown = mask if mask.dtype == torch.bool else mask == 0
    found: Flags = shown[0, 0].numpy()
    return found


def _listed(counts: Any, indices: Any) -> Flags:
    """[Q blocks, K blocks]: which blocks a row of blocks lists."""
    found = np.zeros(tuple(indices.shape[2:]), dtype=bool)
    for row, (count, listed) in enumerate(zip(counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True)):
        found[row, listed[:count]] = True
    return found


FLEX, EAGER, SDPA = Attention("simple_flex_attention"), Attention("eager"), Attention("sdpa")
