"""speculators' rows of packed documents, and the mask of its draft model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

PACKAGE = "speculators"


def collation(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, object]]:
    """Its collator with `shift_batch`, on samples that are made before the clock runs; its positions start at 1."""
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.data import CollateFn

    lengths = inputs["lengths"].tolist()
    tokens, features, states, mask = (
        torch.from_numpy(inputs[name]).split(lengths) for name in ("tokens", "features", "states", "mask")
    )
    samples = [
        {
            "hidden_states": features[i].clone(),
            "input_ids": tokens[i].clone(),
            "verifier_last_hidden_states": states[i].clone(),
            "loss_mask": mask[i].clone(),
            "lengths": torch.tensor([length]),
            "position_ids": torch.arange(length),
        }
        for i, length in enumerate(lengths)
    ]
    collate = CollateFn(int(inputs["size"]), states[0].shape[1], 3, states[0].dtype, preprocess=shift_batch)
    return lambda: dict(collate(samples))


def block_mask(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, object]]:
    """Its predicate made into blocks by torch, as its draft model does it."""
    from speculators.models.eagle3.attention import create_combined_mask_mod
    from torch.nn.attention.flex_attention import create_block_mask

    document = torch.from_numpy(inputs["document"])
    size = len(document)

    def call() -> dict[str, object]:
        predicate = create_combined_mask_mod(document, size)
        made = create_block_mask(predicate, None, None, size, size, device="cpu")
        return {name: getattr(made, name) for name in ("kv_num_blocks", "kv_indices")} | {
            name: getattr(made, name) for name in ("full_kv_num_blocks", "full_kv_indices")
        }

    return call


def rollout_loss(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`loss_function` of its eager divergence, which takes the target's entropy off: its value is not told."""
    from speculators.losses.eager import kl_div_loss
    from speculators.losses.utils import loss_function

    from bench.whole_logits import rollout

    def loss(draft: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = loss_function(
            draft[None], target[None], mask[None], torch.zeros(1, len(mask)), kl_div_loss
        )
        return made

    call = rollout(inputs, loss)
    return lambda: {"gradient": call()["gradient"]}


def step_attention(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """The attention of its draft model's layer at the last step, by torch's own attention and a dense mask.

    Its default, flex attention, stores all scores where nothing is compiled, and takes longer.
    """
    from speculators.models.attention import create_float_mask
    from speculators.models.eagle3.attention import create_combined_mask_mod, extend_dense_mask_for_draft_tokens

    from adapters import speculators_engine as engine
    from bench.rollout_steps import cached

    rows, _, width = inputs["query"].shape
    document = torch.zeros(rows, dtype=torch.int64)
    mask = create_float_mask(
        create_combined_mask_mod(document, rows), None, None, rows, rows, device="cpu", dtype=torch.float32
    )
    for _ in range(1, len(inputs["keys"])):
        mask = extend_dense_mask_for_draft_tokens(mask, rows)
    return cached(engine.drafter(1, width, 2, "sdpa").layers[0].self_attn, inputs, mask)
