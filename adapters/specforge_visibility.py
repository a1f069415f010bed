"""SpecForge's rollout, whose attention is watched: `OnlineEagle3Model` with `LlamaAttention` or `LlamaFlexAttention`.

The strategy runs the collator's batch through the real model; only the loss kernel, which sees nothing of attention,
is left out. A mask of its own is what `create_block_mask` makes of `generate_eagle3_mask` in each step of the flex
path; the other path has an additive mask for step 0 and multiplies keys of later steps row by row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adapters import rollout_attention as shared
from adapters import specforge_engine as engine
from adapters.interface import NotApplicable
from oracle.types import Attended, AttentionCase, Flags, RolloutCase, RolloutMaskCase, Rows, VisibilityGraph


def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
    """Whom the rows of a rollout give weight to, in `LlamaAttention`."""
    return shared.visibility(SDPA, case)


def rollout_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
    """What `LlamaAttention` makes of given values; the cases are one padded batch."""
    return shared.attention(SDPA, cases)


def flex_visibility(case: RolloutCase) -> VisibilityGraph:
    """Whom the rows of a rollout give weight to, in `LlamaFlexAttention`."""
    return shared.visibility(FLEX, case)


def flex_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
    """What `LlamaFlexAttention` makes of given values."""
    return shared.attention(FLEX, cases)


def flex_mask(case: RolloutMaskCase) -> Flags:
    """The block masks of a rollout; a second sample pads the batch to the length of the case."""
    if case.row_anchor != "start":
        raise NotApplicable("row n of every step is the anchor at the start of the sample plus n")
    rollout = case.rollout
    (document,) = shared.documents(FLEX, [rollout])
    rows = int(rollout.length) - document.start
    companion = shared.Document(0, 0, rows, np.arange(rows), 1, 0, rows)
    value = np.zeros((rollout.steps, 2, rows, 1))
    with _block_masks() as made:
        _attend([document, companion], int(rollout.steps), value, "flex_attention")
    return shared.placed([_dense(mask)[0, 0] for mask in made], [document], rows, int(rollout.length))


def _attend(given: Sequence[shared.Document], steps: int, value: Rows, backend: str) -> shared.Seen:
    sf = engine.specforge()
    injected = shared.widened(sf.torch, value)
    width = injected.shape[3]
    draft, head = _drafter(width, backend)
    zeros = [np.zeros((document.length, width), dtype=np.float32) for document in given]
    batch = engine.collated(
        [(np.zeros(len(z), dtype=np.int64), np.repeat(z, 3, axis=1), z, np.ones(len(z), dtype=bool)) for z in zeros]
    )
    model = sf.model.OnlineEagle3Model(draft, length=steps, attention_backend=backend)
    model._acc_and_loss = lambda **_: (sf.torch.zeros(()),) * 7
    strategy = sf.strategy.Eagle3TrainStrategy(model, target_head=head)
    with (
        sf.torch.no_grad(),
        engine.positions_of(sf.draft) as positions,
        shared.probed(draft.midlayer.self_attn, injected) as outputs,
    ):
        strategy.forward_loss(batch)
    return shared.stacked(outputs, positions, batch.tensors["attention_mask"].numpy() != 0, value)


SDPA = shared.Trainer(functools.partial(_attend, backend="sdpa"), shared.longest)
FLEX = shared.Trainer(functools.partial(_attend, backend="flex_attention"), shared.longest)


@functools.lru_cache(maxsize=16)
def _drafter(width: int, backend: str) -> tuple[Any, Any]:
    """A draft model with one head of a width, and a target's head."""
    torch = engine.specforge().torch
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        draft = engine.draft_model(2, width=width, heads=1, attention=backend)
        return draft, engine.target_head(torch.nn.Linear(width, 2, bias=False))


@contextmanager
def _block_masks() -> Iterator[list[Any]]:
    """The block mask that each step makes."""
    module = engine.specforge().draft
    names = ("create_block_mask", "compile_friendly_create_block_mask")
    makers = {name: getattr(module, name) for name in names}
    made: list[Any] = []

    def kept(name: str) -> Any:
        def make(*given: Any, **named: Any) -> Any:
            made.append(makers[name](*given, **named))
            return made[-1]

        return make

    for name in names:
        setattr(module, name, kept(name))
    try:
        yield made
    finally:
        for name in names:
            setattr(module, name, makers[name])


def _dense(mask: Any) -> Flags:
    """A block mask as booleans [B, H, Q, K]."""
    from torch.nn.attention.flex_attention import create_mask

    batch, heads, queries, keys = mask.shape
    found: Flags = create_mask(mask.mask_mod, batch, heads, queries, keys, device="cpu").numpy()
    return found
