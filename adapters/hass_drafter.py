"""HASS's numeric draft step: it trains as `adapters.hass`, and serves as `adapters.hass:serving`.

A trainer's prefix and rollout go through the statements of its loop.
`Model` of `model/cnets_hass.py` gets the weights strictly, and its head beside it, as it is the target's. The loop runs
over a batch of one sample. Its rows are absolute: row S − 1 + s of step s consumes rollout token s, with the state that
the row before it made one step before. Every step runs over all rows, and those behind a row take a share of its
attention (see `DEVIATIONS`): free of that is the batch's last row alone, with which a prefix at 0, 1, 2, … without a
rollout ends.

The loop gives the drafter no positions: they are given here, as an argument of its forward. They index a rotary table
as long as the batch, so there are as many rows as it takes, fillers behind the last.

Serving is `Model` of `model/cnets.py`, call by call, as EAGLE's is: see `adapters.eagle_step`. Weights are loaded
strictly, as its `EaModel` does it.

Not applicable: EAGLE-3, EAGLE-1 fused feature first, a width of heads other than hidden / heads, biases other than that
of the fusion and `qkv_bias`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters import eagle_step
from adapters.clones import Clone, Namespace
from adapters.interface import Deviation, NotApplicable
from oracle.types import DrafterCase, DraftRollout

_MASK = (
    "https://github.com/HArmonizedSS/HASS/blob/38922e43fec95f0bd2993f33aaa6ee82371741a5/model/cnets_hass.py#L319-L340"
)
DEVIATIONS = tuple(
    Deviation(
        f"DRAFTER-{number}",
        "a mask of zeros and ones multiplies scores before the softmax, so each row behind a row, padding among them, "
        "takes a share of e⁰ there, and what is seen weighs less than 1 together",
        link=_MASK,
    )
    for number in (402, 501, 503, 504, 505, 506, 507, 602, 704, 903, 904, 905)
)


def trained(script: shared.Script, clone: Clone, model: str, case: DrafterCase) -> DraftRollout:
    """`predict` and what the head makes of it, of the rows that prefix and rollout end with."""
    _applicable(case)
    names = script.namespace()
    torch = names["torch"]
    drafter, head = eagle_step.loaded(_names(clone, model), case, strict=True)
    rows, steps = len(case.tokens), len(case.rollout_tokens) + 1
    names["args"].forward_num_total, names["args"].topk = steps, 1
    positions = np.concatenate([case.positions, int(case.positions[-1]) + 1 + np.arange(steps - 1)])
    count = max(len(positions), int(positions.max()) + 1)

    def row(values: Any, dtype: Any) -> Any:
        """A batch of one sample, with fillers behind it."""
        given = np.asarray(values)
        whole = np.zeros((1, count, *given.shape[1:]))
        whole[0, : len(given)] = given
        return torch.tensor(whole, dtype=dtype)

    given = row(positions, torch.long)
    features = row(case.features, torch.float32)
    data = {
        "input_ids": row(np.concatenate([case.tokens, case.rollout_tokens]), torch.long),
        "hidden_states": features,
        "attention_mask": row(np.ones(len(positions)), torch.long),
        "target": torch.zeros_like(features),
        "loss_mask": torch.zeros(1, count, dtype=torch.long),
    }
    spoken: list[Any] = []

    def said(states: Any) -> Any:
        spoken.append(head(states))
        return spoken[-1]

    def predict(*given_rows: Any, **more: Any) -> Any:
        return drafter(*given_rows, position_ids=given, **more)

    run = script.run(names, predict, data, said)
    # the first of all logits are those of the target's features
    return DraftRollout(
        *(
            torch.stack([found[0, rows - 1 + s] for s, found in enumerate(steps_of)]).detach().double().numpy()
            for steps_of in (spoken[1:], run.predicted)
        )
    )


def served(clone: Clone, model: str, case: DrafterCase) -> DraftRollout:
    """States and logits of `Model.forward`, the prefix first and then token by token."""
    _applicable(case)
    return eagle_step.served(clone.source(model), _names(clone, model), case, strict=True)


def _applicable(case: DrafterCase) -> None:
    if case.variant != "eagle1":
        raise NotApplicable("its drafter is that of EAGLE-1")
    eagle_step.applicable(case)


@cache
def _names(clone: Clone, model: str) -> Namespace:
    """The namespace of a file of the clone."""
    torch = shared.import_torch(clone)
    torch.set_num_threads(1)
    names = shared.model_names(torch)
    clone.source(model).define(names)
    return names
