"""The fast paths in torch (`oracle.fast`), on NumPy cases: what crosses the interface becomes tensors and back.

Nothing is converted but that, and nothing is repaired. torch is imported when an operation is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapters import fast_acceptance, fast_losses, fast_publish, fast_rows, fast_training, fast_tree, fast_visibility
from adapters.interface import OPERATIONS, Arithmetic, Declaration

_COST = {
    **{**fast_losses.COST, **fast_acceptance.COST, **fast_tree.COST, **fast_rows.COST, **fast_publish.COST},
    **fast_visibility.COST,
    **fast_training.COST,
}
_CONVENTIONS = {**fast_acceptance.CONVENTIONS}

DECLARATION = Declaration(
    name="fast", version="0.1.0", conventions=_CONVENTIONS, cost=_COST, promises=fast_acceptance.PROMISES
)

feature_regression = fast_losses.Losses.feature_regression
soft_cross_entropy = fast_losses.Losses.soft_cross_entropy
topk_distillation = fast_losses.Losses.topk_distillation
eagle1_loss = fast_losses.Losses.eagle1_loss
hass_loss = fast_losses.Losses.hass_loss
rollout_loss = fast_losses.Losses.rollout_loss
draft_to_target = fast_losses.Losses.draft_to_target
training_step = fast_training.Training.training_step
state_gradient = fast_training.Training.state_gradient

warp = fast_acceptance.Acceptance.warp
verify_greedy = fast_acceptance.Acceptance.verify_greedy
verify_sampled = fast_acceptance.Acceptance.verify_sampled
verify_random = fast_acceptance.Acceptance.verify_random
propose = fast_acceptance.Acceptance.propose

grow_tree = fast_tree.Tree.grow_tree
select_nodes = fast_tree.Tree.select_nodes
flatten_tree = fast_tree.Tree.flatten_tree
draft_tree = fast_tree.Tree.draft_tree
tree_visibility = fast_tree.Tree.tree_visibility
tree_mask = fast_tree.Tree.tree_mask

rollout_visibility = fast_visibility.Visibility.rollout_visibility
rollout_mask = fast_visibility.Visibility.rollout_mask
rollout_attention = fast_visibility.Visibility.rollout_attention

soft_rows = fast_rows.Rows.soft_rows
hard_rows = fast_rows.Rows.hard_rows
supervision_at_source = fast_rows.Rows.supervision_at_source
gather_rows = fast_rows.Rows.gather_rows
rollout_rows = fast_rows.Rows.rollout_rows
feature_noise = fast_rows.Rows.feature_noise
noisy_sample = fast_rows.Rows.noisy_sample

publish = fast_publish.Publish.publish
interrupted_publish = fast_publish.Publish.interrupted_publish


def _of(dtype: str) -> Declaration:
    return Declaration(
        name=f"fast, {dtype}",
        version="0.1.0",
        conventions=_CONVENTIONS,
        arithmetic=Arithmetic(dtype=dtype),
        cost=_COST,
        promises=fast_acceptance.PROMISES,
    )


class _Narrow(fast_losses.Losses, fast_acceptance.Acceptance, fast_tree.Tree, fast_visibility.Visibility):
    """What is computed in a dtype; rows, noise and training have bounds for float32 alone."""


class float32(_Narrow, fast_training.Training, fast_rows.Rows):
    """Tensors of float32."""

    dtype = "float32"
    DECLARATION = _of(dtype)


class bfloat16(_Narrow):
    """Tensors of bfloat16."""

    dtype = "bfloat16"
    DECLARATION = _of(dtype)


class float16(_Narrow):
    """Tensors of float16."""

    dtype = "float16"
    DECLARATION = _of(dtype)


class vectorised(fast_acceptance.Acceptance, fast_tree.Tree):
    """Acceptance and trees by the way that the host stays out of, as on a GPU."""

    vectorised = True
    DECLARATION = Declaration(
        name="fast, vectorised",
        version="0.1.0",
        conventions=_CONVENTIONS,
        cost=_COST,
        promises=fast_acceptance.PROMISES,
    )


class kept(fast_publish.kept):
    """Publication for a drafter that keeps the rows that drafting made."""

    DECLARATION = Declaration(
        name="fast, drafter rows kept", version="0.1.0", conventions={"draft_kv": "kept"}, cost=fast_publish.COST
    )


class absolute(fast_visibility.Absolute):
    """An attention whose rows of later steps stand at their anchor plus their step."""

    DECLARATION = Declaration(
        name="fast, absolute rows", version="0.1.0", conventions={"row_anchor": "absolute"}, cost=fast_visibility.COST
    )


class _Everything(
    fast_training.Training,
    fast_losses.Losses,
    fast_acceptance.Acceptance,
    fast_tree.Tree,
    fast_rows.Rows,
    fast_publish.Publish,
    fast_visibility.Visibility,
):
    vectorised = True


class cuda:
    """All operations on a GPU."""

    DECLARATION = Declaration(
        name="fast, CUDA", version="0.1.0", conventions=_CONVENTIONS, cost=_COST, promises=fast_acceptance.PROMISES
    )


def _on(device: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation, with the tensors that the adapter makes on a device."""

    def placed(*arguments: Any) -> Any:
        import torch

        with torch.device(device):
            return operation(*arguments)

    return placed


for _name in OPERATIONS:
    if hasattr(_Everything, _name):
        setattr(cuda, _name, staticmethod(_on("cuda", getattr(_Everything, _name))))
