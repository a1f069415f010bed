"""SpecForge's EAGLE-3 trainer: its data path, its rollout, its loss kernels and its training step.

The code under test is `specforge.algorithms.eagle3`, `specforge.core.loss`, `specforge.training` and what they call;
`adapters.specforge_engine` says what stands in at the edges. The offline path is run: stored features are normalised,
collated, shifted by the target's head and rolled out. The kernels are Triton's, executed by Triton's interpreter.

What is converted, and nothing else:
- a batch row that holds tokens is one sample; the others are none. The row's flags are the token mask.
- a sample's features stand for both the auxiliary layers and the last layer of the target.
- rows are those that the collator marks as visible. The last one of a sample has no next token: zeros stand there.
- `rollout_loss` runs a rollout of one step for each step of the case, since the loop takes later targets from
  earlier ones, and hands the step losses to the strategy, which weighs them by its default decay: that is a parameter
  of the strategy, and other weights are not applicable. Draft vocabularies are masks here, so draft ids ascend with
  target ids.
- `rollout_visibility`, `rollout_attention`: the same rollout with its attention watched (`adapters.rollout_attention`):
  `LlamaAttention`, a draft model's default. `adapters.specforge:flex` has `LlamaFlexAttention` and its block masks.
- `draft_logits`: a drafter of the case's weights, rolled out (`adapters.specforge_drafter`).
- `draft_to_target` loads the map as a checkpoint and reads the ids that the accuracy metric compares.

Not applicable: packed rows, holes, positions that are not 0, 1, 2, … (position ids that a sample brings are accepted,
and index a rotary table as long as the batch row), and losses of other conventions than those declared.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata

import numpy as np

from adapters import eagle3_loop as loop
from adapters import specforge_drafter as drafter
from adapters import specforge_engine as engine
from adapters import specforge_training as training
from adapters import specforge_visibility as visibility
from adapters.interface import Arithmetic, Declaration, Deviation, NotApplicable
from adapters.specforge_drafter import draft_logits as draft_logits
from adapters.specforge_visibility import rollout_attention as rollout_attention
from adapters.specforge_visibility import rollout_visibility as rollout_visibility
from oracle.types import (
    DistillCase,
    DraftMapCase,
    Flags,
    GatherCase,
    GatheredRows,
    Ids,
    LossResult,
    RolloutLossCase,
    RolloutRows,
    RolloutRowsCase,
    StateGradientCase,
    SupervisionCase,
    TrainingCase,
    TrainingResult,
)


def _version() -> str:
    try:
        return importlib.metadata.version("specforge")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


_NOTHING = "the mean is over all rows, so where none counts the loss is 0, and not None"
_STEP = "a loss of 0 is stepped on: moments decay and move the drafter, and so does weight decay"
_CODE = "https://github.com/sgl-project/SpecForge/blob/a6b6b0230009d15ec2a97a57384e6f53f0f96946/specforge"
"""A commit whose files, those named here, are those of the release."""
_MEAN = f"{_CODE}/core/loss.py#L201"
_STEPPED = f"{_CODE}/training/controller.py#L350-L353"
_DEVIATIONS = (
    Deviation(
        "LOSSES-104",
        "the kernel's backward writes the gradient over the logits that it kept, and a second backward reads it there",
        link=f"{_CODE}/core/loss.py#L157-L170",
    ),
    Deviation(
        "LOSSES-303",
        "the kernel multiplies: a token that target and draft mask costs 0 · −inf, which is NaN",
        link=f"{_CODE}/core/loss.py#L102-L103",
        witness="masked_on_both_sides",
    ),
    Deviation("LOSSES-708", _NOTHING, link=_MEAN),
    Deviation(
        "LOSSES-803",
        "a map is copied from its checkpoint unseen; only the compact teacher compares it with its mask",
        link=f"{_CODE}/modeling/draft/base.py#L203-L205",
    ),
    Deviation("LOSSES-902", _NOTHING, link=_MEAN),
    Deviation("LOSSES-1001", f"{_NOTHING} (behind a gate that closes every row)", link=_MEAN),
    Deviation("LOSSES-1203", _STEP, link=_STEPPED),
    Deviation("LOSSES-1204", _STEP, link=_STEPPED),
    Deviation(
        "LOSSES-1206",
        "stored samples carry the versions of target and tokenizer, and nothing compares them",
        link=f"{_CODE}/runtime/data_plane/feature_dataloader.py#L151-L189",
    ),
)

DECLARATION = Declaration(
    name="specforge",
    version=_version(),
    links=(f"{_CODE}/algorithms/eagle3/model.py", f"{_CODE}/core/loss.py"),
    conventions={
        "mask_owner": "source",
        "last_row": "pad",
        "row_anchor": "start",
        "rollout_position": "anchor_plus_step",
        "rollout_gradient": "flows",
        "position_base": "0",
        "packing": "none",
        "denominator": "rows",
        "denominator_epsilon": "0",
        "restricted_target": "renormalised",
        "gate": "argmax",
        "divergence": "cross_entropy",
        "reduction": "sum",
        "step_decay": "0.8",
        "draft_map": "offset",
    },
    arithmetic=Arithmetic(dtype="float32"),
    cost={
        "gather_rows": 5e-3,
        "supervision_at_source": 5e-3,
        "rollout_rows": 8e-3,
        "rollout_visibility": 8e-3,
        "rollout_attention": 8e-3,
        "soft_cross_entropy": 2e-2,
        "rollout_loss": 5e-2,
        "draft_to_target": 4e-3,
        "state_gradient": 6e-2,
        "training_step": 0.1,
        "draft_logits": 3e-2,
    },
    deviations=_DEVIATIONS,
)


def gather_rows(case: GatherCase) -> GatheredRows:
    """What the draft model is fed at step 0, and the features that its target laws are made from."""
    given = loop.samples(case.batch, case.features, case.batch.supervise)
    return loop.gathered(given, engine.trace(given, 1))


def supervision_at_source(case: SupervisionCase) -> Flags:
    """The sources whose row counts in the loss of step 0."""
    if case.owner != DECLARATION.conventions["mask_owner"]:
        raise NotApplicable("the mask is used where it stands: its flags are those of the source")
    given = loop.traced_samples(case.batch, case.token_mask)
    return loop.sources(given, engine.trace(given, 1), case.batch)


def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
    """The rows of every step of the rollout; row n of a sample is the anchor at its start plus n."""
    given = loop.traced_samples(case.batch, case.batch.supervise)
    return loop.rolled_out(given, engine.trace(given, case.steps), case.batch)


def soft_cross_entropy(case: DistillCase) -> LossResult:
    """The loss kernel alone: `LogSoftmaxLoss`, whose mean is over all rows."""
    value, gradient, again = engine.kernel_loss(
        np.asarray(case.draft_logits), np.asarray(case.target_logits), np.asarray(case.supervise)
    )
    return LossResult(value, {"draft_logits": gradient}, again={"draft_logits": again})


def rollout_loss(case: RolloutLossCase) -> LossResult:
    """The strategy's loss, from the loss kernel's step losses."""
    loop.conventional(case)
    value, parts, gradient, again = engine.step_losses(case, loop.draft_mask(case))
    return LossResult(value, {"draft_logits": gradient}, tuple(parts), {"draft_logits": again})


def draft_to_target(case: DraftMapCase) -> Ids:
    """The target id that each draft id is compared as."""
    if case.convention != DECLARATION.conventions["draft_map"]:
        raise NotApplicable("the map is added to the draft id: it is an offset")
    return engine.compared_ids(np.asarray(case.d2t), None if case.t2d is None else np.asarray(case.t2d))


def state_gradient(case: StateGradientCase) -> Flags:
    """Which states the loss of each step has a gradient to."""
    if case.gradient != DECLARATION.conventions["rollout_gradient"]:
        raise NotApplicable("the state is fed back as it is, with its gradient")
    return engine.state_gradients(case.steps)


def training_step(case: TrainingCase) -> TrainingResult:
    """A step of `TrainerCore`; what features were cached for is not looked at (nothing of the trainer asks)."""
    return training.training_step(case)


class flex:
    """The other attention that a draft model can be built with."""

    DECLARATION = dataclasses.replace(
        DECLARATION,
        name="specforge (flex)",
        deviations=(),
        cost={"rollout_visibility": 6e-2, "rollout_mask": 8e-2, "rollout_attention": 6e-2, "draft_logits": 6e-2},
    )
    rollout_visibility = staticmethod(visibility.flex_visibility)
    rollout_mask = staticmethod(visibility.flex_mask)
    rollout_attention = staticmethod(visibility.flex_attention)
    draft_logits = staticmethod(drafter.flex_logits)
