"""Easy cases of the training contracts, one or two an operation: what the smoke step asks of an adapter."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance.noise.cases import made
from conformance.rows.cases import batch, traced
from oracle.types import (
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    GatheredRows,
    HassLossCase,
    LossResult,
    NoiseCase,
    NoisySample,
    RegressionCase,
    RolloutLossCase,
    RolloutRows,
    RolloutRowsCase,
    RowPlan,
    StateGradientCase,
    SupervisionCase,
    TopKCase,
    TrainingCase,
    TrainingResult,
)

TOKENS = batch([[3, 1, 5, 2, 6]])
FLAGS = np.array([True, True, True])
DRAFT = np.array([[0.5, -1.0, 0.25, 2.0], [1.5, 0.0, -0.5, 0.75], [-0.25, 1.0, 0.5, 0.0]])
TARGET = DRAFT[::-1] + 0.25
PREDICTED = DRAFT[:, :2]
HEAD = np.array([[0.5, -1.0], [0.25, 1.0], [-0.5, 0.75]])


def easy(operation: str, declaration: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Cases of `operation` under the declared conventions, and the fields of its answer."""
    said = declaration.conventions
    kind: type | None = {
        "soft_rows": RowPlan,
        "hard_rows": RowPlan,
        "gather_rows": GatheredRows,
        "rollout_rows": RolloutRows,
        "noisy_sample": NoisySample,
        "training_step": TrainingResult,
        **dict.fromkeys(("feature_regression", "soft_cross_entropy", "eagle1_loss"), LossResult),
        **dict.fromkeys(("topk_distillation", "hass_loss", "rollout_loss"), LossResult),
    }.get(operation)
    fields = tuple(field.name for field in dataclasses.fields(kind)) if kind is not None else ()
    if kind is TrainingResult:
        fields = fields[:7]  # the others are shown or not
    decay = float(said.get("step_decay", "0.8"))
    rollout = RolloutLossCase(
        np.stack([DRAFT, DRAFT[::-1]]),
        np.stack([TARGET, TARGET]),
        np.stack([FLAGS, FLAGS]),
        step_weights=(1.0, decay),
        draft_to_target=np.arange(4),
        **{
            name: said[name]
            for name in ("denominator", "restricted_target", "gate", "divergence", "reduction")
            if name in said
        },
        denominator_epsilon=float(said.get("denominator_epsilon", "0")),
    )
    owners = (said["mask_owner"],) if "mask_owner" in said else ("source", "advanced", "label")
    units = np.full((5, 2), 0.25)
    cases: dict[str, list[Any]] = {
        "soft_rows": [TOKENS],
        "hard_rows": [TOKENS],
        "supervision_at_source": [SupervisionCase(TOKENS, TOKENS.supervise, owner) for owner in owners],
        "gather_rows": [traced(TOKENS)],
        "rollout_rows": [RolloutRowsCase(TOKENS, 2), RolloutRowsCase(TOKENS, 1)],
        "feature_regression": [RegressionCase(PREDICTED, PREDICTED + 0.5, FLAGS)],
        "soft_cross_entropy": [DistillCase(DRAFT, TARGET, FLAGS)],
        "eagle1_loss": [Eagle1Case(PREDICTED, PREDICTED + 0.5, HEAD, FLAGS)],
        "topk_distillation": [TopKCase(DRAFT, TARGET, FLAGS, 2)],
        "hass_loss": [HassLossCase(PREDICTED[None], PREDICTED + 0.5, HEAD, FLAGS[None], 2)],
        "rollout_loss": [rollout, dataclasses.replace(rollout, draft_to_target=None)],
        "draft_to_target": [
            DraftMapCase(np.array([0, 1]), np.array([True, False, True, False]), "offset"),
            DraftMapCase(np.array([0, 2]), np.array([True, False, True, False]), "absolute"),
        ],
        "state_gradient": [StateGradientCase(2, name) for name in ("flows", "detached")],
        "training_step": [TrainingCase(TOKENS, 5)],
        "feature_noise": [NoiseCase(units, 5, law) for law in ("paper", "length_scaled")],
        "noisy_sample": [made(5, 2, 3)],
    }
    return cases[operation], fields
