"""modelopt's rollout, whose attention is watched: `HFEagleModel.forward` with the attention of a converted Llama.

Batches are those of the offline data set and its collator, padded to one length that a training run keeps, and a model
is kept for each such length: masks of later steps are cached by step alone, and a run with one length never sees it.
`rollout_mask` asks one model for masks of every length: `_prepare_eagle_inputs` for that of step 0, and
`_get_ttt_attention_mask` for the others, cache included. `adapters.modelopt:one_length` has a model for each length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adapters import modelopt_engine as engine
from adapters import rollout_attention as shared
from adapters.interface import Deviation, NotApplicable
from oracle.types import Attended, AttentionCase, Flags, RolloutCase, RolloutMaskCase, Rows, VisibilityGraph

_KEPT = "the mask has rows that no node has, the last one and those before an anchor, which are in no loss"
_STALE = "masks of later steps are cached by step alone: what is made for the first length answers for every other"
_REFUSES_NO_POSITION = Deviation(
    "VISIBILITY-901",
    "the forward takes position_ids as they are, increasing or not",
    link=f"{engine.SOURCE}/plugins/hf_eagle.py#L525",
)
_ROWS = f"{engine.SOURCE}/utils.py#L554-L566"
DEVIATIONS = (
    *(
        Deviation(f"VISIBILITY-{number}", _STALE, link=f"{engine.SOURCE}/plugins/hf_eagle.py#L431-L437")
        for number in (101, 102, 105, 701, 702)
    ),
    Deviation("VISIBILITY-703", f"{_STALE}; and {_KEPT}", link=_ROWS),
    _REFUSES_NO_POSITION,
)
OF_ONE_LENGTH = (Deviation("VISIBILITY-703", _KEPT, link=_ROWS), _REFUSES_NO_POSITION)
PADDED = 32
"""Lengths of training are multiples of it, so few models are converted."""


def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
    """Whom the rows of a rollout give weight to, row r of step s named r − s."""
    return shared.visibility(TRAINER, case)


def rollout_attention(cases: Sequence[AttentionCase]) -> list[Attended]:
    """What the attention makes of given values; the cases are one padded batch."""
    return shared.attention(TRAINER, cases)


def rollout_mask(case: RolloutMaskCase) -> Flags:
    """The masks of a model that has been asked for those of other lengths before."""
    return _masks(case, lambda rows: 0)


def mask_of_one_length(case: RolloutMaskCase) -> Flags:
    """The masks of a model that is asked for no other length."""
    return _masks(case, lambda rows: rows)


def _masks(case: RolloutMaskCase, kept_for: Callable[[int], int]) -> Flags:
    if case.row_anchor != "absolute":
        raise NotApplicable("row r of step s is the node at anchor r − s")
    (document,) = shared.documents(TRAINER, [case.rollout])
    p = engine.package()
    rows = int(case.rollout.length) - document.start
    model = _model(16, kept_for(rows))
    state = p.torch.zeros((1, rows, 16))
    base = p.module.EagleBaseModelOutput(state, p.torch.cat([state] * engine.LAYERS, dim=-1), state[..., :3])
    ids = p.torch.zeros((1, rows), dtype=p.torch.long)
    flags = p.torch.arange(rows)[None] < document.length
    with p.torch.no_grad():
        masks = [model._prepare_eagle_inputs(ids, flags, None, None, base)[2]]
        masks += [model._get_ttt_attention_mask(1, rows, s) for s in range(1, case.rollout.steps)]
    return shared.placed([mask[0, 0].numpy() == 0 for mask in masks], [document], rows, int(case.rollout.length))


def _length(given: Sequence[shared.Document], steps: int) -> int:
    longest = shared.longest(given, steps)
    return longest + -longest % PADDED


def _attend(given: Sequence[shared.Document], steps: int, value: Rows) -> shared.Seen:
    torch = engine.package().torch
    injected = shared.widened(torch, value)
    _, batch, length, width = injected.shape
    model = _model(width, length)
    model.eagle_ttt_steps = steps
    ids, features = np.zeros((batch, length), dtype=np.int64), np.zeros((batch, length, width))
    positions = np.zeros((batch, length), dtype=np.int64)
    for i, document in enumerate(given):
        positions[i, : document.length] = document.position
    mask = np.ones((batch, length), dtype=bool)
    aux = np.repeat(features, engine.LAYERS, axis=2)
    data = engine.collated(shared.as_samples(given), ids, features, aux, mask, length)
    drafter = model.eagle_module
    drafter._maybe_init_rope()
    turned: list[Any] = []
    masks: list[Any] = []
    judged: list[Any] = []
    loss = model._eagle_loss

    def number(_: Any, __: Any, logits: Any) -> Any:
        """The draft logits of each row, the first of them its number."""
        return torch.cat([torch.arange(length).expand(batch, length)[..., None], logits[..., 1:]], dim=-1)

    def recorded(law: Any, best: Any, logits: Any, loss_mask: Any) -> Any:
        judged.append(logits[..., 0].long())
        return loss(law, best, logits, loss_mask)

    hooks = (
        drafter.rotary_emb.register_forward_pre_hook(lambda _, fed: turned.append(fed[1])),
        drafter.lm_head.register_forward_hook(number),
        drafter.layers[0].register_forward_pre_hook(
            lambda _, fed, named: masks.append(named["attention_mask"]), with_kwargs=True
        ),
    )
    model._eagle_loss = recorded
    try:
        with torch.no_grad(), shared.probed(drafter.layers[0].self_attn, injected) as outputs:
            model(**data, position_ids=torch.tensor(positions))
    finally:
        del model._eagle_loss
        for hook in hooks:
            hook.remove()
    visible = (masks[0].diagonal(dim1=-2, dim2=-1)[:, 0] == 0).numpy()
    kept = np.zeros((steps, batch, length), dtype=bool)
    for s, rows in enumerate(judged):
        kept[s][np.arange(batch)[:, None], rows.numpy()] = True
    return shared.stacked(outputs, turned, kept & visible, value)


TRAINER = shared.Trainer(_attend, _length, absolute=True, counted=False)


@functools.lru_cache(maxsize=32)
def _model(width: int, length: int) -> Any:
    """A converted model with one head of a width, and the masks that it has cached; one for each padded length."""
    torch = engine.package().torch
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return engine.converted(engine.base_model(3, width), 1, 2, width=width).train()
