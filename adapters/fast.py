"""The fast paths in torch (`oracle.fast`), on NumPy cases: what crosses the interface becomes tensors and back.

Nothing is converted but that, and nothing is repaired. torch is imported when an operation is first asked for.
"""

from __future__ import annotations

from adapters import fast_losses
from adapters.interface import Arithmetic, Declaration

DECLARATION = Declaration(name="fast", version="0.1.0", cost={**fast_losses.COST})

feature_regression = fast_losses.Losses.feature_regression
soft_cross_entropy = fast_losses.Losses.soft_cross_entropy
topk_distillation = fast_losses.Losses.topk_distillation
eagle1_loss = fast_losses.Losses.eagle1_loss
hass_loss = fast_losses.Losses.hass_loss
rollout_loss = fast_losses.Losses.rollout_loss
draft_to_target = fast_losses.Losses.draft_to_target


class float32(fast_losses.Losses):
    """Tensors of float32."""

    dtype = "float32"
    DECLARATION = Declaration(
        name="fast, float32", version="0.1.0", arithmetic=Arithmetic(dtype="float32"), cost={**fast_losses.COST}
    )


class bfloat16(fast_losses.Losses):
    """Tensors of bfloat16."""

    dtype = "bfloat16"
    DECLARATION = Declaration(
        name="fast, bfloat16", version="0.1.0", arithmetic=Arithmetic(dtype="bfloat16"), cost={**fast_losses.COST}
    )
