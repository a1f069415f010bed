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
