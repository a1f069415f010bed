"""The losses of `oracle.fast` on NumPy cases: arrays become tensors of one dtype, gradients come by autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adapters.backward import twice
from oracle.types import (
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    HassLossCase,
    Ids,
    LossResult,
    RegressionCase,
    RolloutLossCase,
    TopKCase,
)

if TYPE_CHECKING:
    from torch import Tensor

    from oracle.fast.losses import Loss

COST: Mapping[str, float] = {
    **dict.fromkeys(("feature_regression", "soft_cross_entropy", "topk_distillation"), 1e-3),
    **dict.fromkeys(("eagle1_loss", "hass_loss", "rollout_loss"), 2e-3),
}


class Losses:
    """The operations with tensors of a dtype; a loss that counts no row is None, and so is a part."""

    dtype = "float64"

    @classmethod
    def feature_regression(cls, case: RegressionCase) -> LossResult:
        """Smooth-L1 between features."""
        predicted = cls._rows(case.predicted).requires_grad_()
        made = _fast().feature_regression(
            predicted, cls._rows(case.target), _array(case.supervise), case.beta, validate=True
        )
        return _result(made, "predicted", predicted, terms=False)

    @classmethod
    def soft_cross_entropy(cls, case: DistillCase) -> LossResult:
        """Cross-entropy against the target's whole law."""
        draft = cls._rows(case.draft_logits).requires_grad_()
        made = _fast().soft_cross_entropy(draft, cls._rows(case.target_logits), _array(case.supervise), validate=True)
        return _result(made, "draft_logits", draft, terms=False)

    @classmethod
    def topk_distillation(cls, case: TopKCase) -> LossResult:
        """Cross-entropy over the target's most probable tokens."""
        draft = cls._rows(case.draft_logits).requires_grad_()
        made = _fast().topk_distillation(
            draft, cls._rows(case.target_logits), _array(case.supervise), case.k, validate=True
        )
        return _result(made, "draft_logits", draft, terms=False)

    @classmethod
    def eagle1_loss(cls, case: Eagle1Case) -> LossResult:
        """Regression, and cross-entropy through the head."""
        predicted = cls._rows(case.predicted).requires_grad_()
        made = _fast().eagle1_loss(
            *(predicted, cls._rows(case.target), cls._rows(case.head), _array(case.supervise)),
            *(case.beta, case.regression_weight, case.classification_weight),
            validate=True,
        )
        return _result(made, "predicted", predicted)

    @classmethod
    def hass_loss(cls, case: HassLossCase) -> LossResult:
        """Regression, cross-entropy and its top-K term, at every step."""
        predicted = cls._rows(case.predicted).requires_grad_()
        made = _fast().hass_loss(
            *(predicted, cls._rows(case.target), cls._rows(case.head), _array(case.supervise), case.k),
            *(case.beta, case.regression_weight, case.classification_weight, case.topk_weight),
            validate=True,
        )
        return _result(made, "predicted", predicted)

    @classmethod
    def rollout_loss(cls, case: RolloutLossCase) -> LossResult:
        """Cross-entropy on the draft vocabulary, step by step."""
        draft = cls._rows(case.draft_logits).requires_grad_()
        ids = None if case.draft_to_target is None else _array(case.draft_to_target)
        made = _fast().rollout_loss(
            *(draft, cls._rows(case.target_logits), _array(case.supervise), case.step_weights, ids),
            *(case.denominator, case.restricted_target, case.gate, case.divergence, case.reduction),
            case.denominator_epsilon,
        )
        return _result(made, "draft_logits", draft)

    @staticmethod
    def draft_to_target(case: DraftMapCase) -> Ids:
        """The absolute target ids."""
        t2d = None if case.t2d is None else _array(case.t2d)
        found: Ids = _fast().draft_to_target(_array(case.d2t), t2d, case.convention, validate=True).cpu().numpy()
        return found

    @classmethod
    def _rows(cls, values: object) -> Tensor:
        import torch

        # a copy: an array that is shared with torch can be written by it
        return torch.tensor(np.array(values), dtype=getattr(torch, cls.dtype))


def _array(values: object) -> Tensor:
    import torch

    return torch.tensor(np.array(values))


def _fast() -> Any:
    from oracle.fast import losses

    return losses


def _result(made: Loss, name: str, trained: Tensor, terms: bool = True) -> LossResult:
    counted: Sequence[int] = made.counted.tolist()
    parts = [part if count else None for part, count in zip(made.parts.tolist(), counted)]
    first, second = twice(made.value, [trained])
    value = float(made.value.detach()) if any(counted) else None
    return LossResult(value, {name: first[0]}, tuple(parts) if terms else (), {name: second[0]})
