"""AngelSlim's offline EAGLE-3 trainer: its collator, its rollout with the loss in it, its training step and its noise.

The code under test is `angelslim.compressor.speculative.train`; `adapters.angelslim_engine` says what stands in at the
edges and how a wheel that misses modules is imported.

What is converted, and nothing else:
- a batch row that holds tokens is one sample; the others are none. The row's flags are the token mask.
- a sample's features stand for both the auxiliary layers and the last layer of the target.
- rows are those that the collator marks as visible. The last one of a sample has no next token: zeros stand there.
- a row is supervised where the loss has a gradient to its draft logits.
- `rollout_loss` runs the whole loop; its shift hands out the case's next targets and mask, since those of a case need
  not be the earlier ones moved. Draft vocabularies are masks here, so draft ids ascend with target ids.
- `rollout_visibility`, `rollout_attention`: the same rollout with its attention watched (`adapters.rollout_attention`):
  `LlamaAttention` of the draft model.
- `draft_logits` is the same rollout with a case's weights: see `adapters.angelslim_step`.
- `noisy_sample` takes the standard deviation that AngelSlim's documentation shows.

`adapters.angelslim:serving` drafts and verifies trees: see `adapters.angelslim_serving`.

Not applicable: packed rows, holes, positions that are not 0, 1, 2, … (the collator drops position ids), and losses of
other conventions than those declared. Training code has no use for `d2t`, so there is no `draft_to_target`.
"""

from __future__ import annotations

import importlib.metadata

import numpy as np

from adapters import angelslim_engine as engine
from adapters import angelslim_serving, angelslim_step, step_weights
from adapters import angelslim_training as training
from adapters import eagle3_loop as loop
from adapters.angelslim_visibility import rollout_attention as rollout_attention
from adapters.angelslim_visibility import rollout_visibility as rollout_visibility
from adapters.interface import Arithmetic, Declaration, Deviation, NotApplicable
from oracle.types import (
    DrafterCase,
    DraftRollout,
    Flags,
    GatherCase,
    GatheredRows,
    LossResult,
    NoisySample,
    RolloutLossCase,
    RolloutRows,
    RolloutRowsCase,
    SampleCase,
    StateGradientCase,
    SupervisionCase,
    TrainingCase,
    TrainingResult,
)

serving = angelslim_serving
"""`adapters.angelslim:serving`: dynamic trees and their verification."""
DEVIATION = 0.05
"""Of the noise, in the examples of `noise_transforms`."""


def _version() -> str:
    try:
        return importlib.metadata.version("angelslim")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


_LAST = "the mask keeps the flag of the last token, whose row is trained towards the law of a head on zeros"
_NOTHING = "the mean is over all rows, so where none counts the loss is 0, and not None"
_STEP = "a loss of 0 is stepped on: moments decay and move the drafter, and so does weight decay"
_CODE = "https://github.com/Tencent/AngelSlim/blob/v0.5.0/angelslim/compressor/speculative/train"
_MASKED = f"{_CODE}/trainer/offline_eagle3_trainer.py#L87-L90"
_MEAN = f"{_CODE}/trainer/eagle3_trainer.py#L280"
_GATED = f"{_CODE}/trainer/eagle3_trainer.py#L271-L280"
_STEPPED = f"{_CODE}/trainer/eagle3_trainer.py#L155-L165"
_NORMAL = "the noise is normal, and the declared number its standard deviation: it has no interval"
_DEVIATIONS = (
    Deviation("ROWS-310", _LAST, link=_MASKED, witness="flag_on_the_last_token"),
    Deviation("ROWS-609", _LAST, link=_MASKED, witness="flag_on_the_last_token_rolled_out"),
    Deviation(
        "LOSSES-303",
        "target_p * out_logp is NaN, 0 · (−inf), where both laws mask a token, and so is the loss",
        link=_MEAN,
    ),
    Deviation("LOSSES-708", _NOTHING, link=_MEAN),
    Deviation(
        "LOSSES-711",
        "the gate multiplies, too: where no draft token has target mass, 0 times the NaN of its softmax is NaN",
        link=_GATED,
    ),
    Deviation(
        "LOSSES-901",
        "rows are multiplied by the mask, and 0 · NaN is NaN: one bad row anywhere, and the whole loss is lost",
        link=_GATED,
    ),
    Deviation("LOSSES-902", _NOTHING, link=_MEAN),
    Deviation("LOSSES-1001", f"{_NOTHING} (behind a gate that closes every row)", link=_MEAN),
    Deviation("LOSSES-1203", _STEP, link=_STEPPED),
    Deviation("LOSSES-1204", _STEP, link=_STEPPED),
    Deviation(
        "LOSSES-1206",
        "stored samples are tokens, features and a mask: nothing in them says what they were computed from",
        link=f"{_CODE}/data/dataset_builder/offline_dataset_builder.py#L123-L139",
    ),
    *(
        Deviation(f"NOISE-{number}", _NORMAL, link=f"{_CODE}/data/noise_transforms.py#L85")
        for number in (302, 303, 304)
    ),
    *angelslim_step.TRAINING_DEVIATIONS,
)

DECLARATION = Declaration(
    name="angelslim",
    version=_version(),
    links=(f"{_CODE}/trainer/eagle3_trainer.py", f"{_CODE}/models/draft/llama_eagle3.py"),
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
        "noise_amplitude": str(DEVIATION),
    },
    arithmetic=Arithmetic(dtype="float32"),
    cost={
        "gather_rows": 8e-3,
        "supervision_at_source": 8e-3,
        "rollout_rows": 1.3e-2,
        "rollout_visibility": 6e-3,
        "rollout_attention": 6e-3,
        "rollout_loss": 5e-3,
        "state_gradient": 2e-2,
        "training_step": 0.2,
        "noisy_sample": 1.5e-4,
        "draft_logits": 2.5e-2,
    },
    generators=("python", "numpy", "torch"),
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


def rollout_loss(case: RolloutLossCase) -> LossResult:
    """The loss of the loop, and its step losses."""
    loop.conventional(case)
    step_weights.powers_of(float(DECLARATION.conventions["step_decay"]), case)
    value, parts, gradient, again = engine.step_losses(
        np.asarray(case.draft_logits),
        np.asarray(case.target_logits),
        np.asarray(case.supervise),
        loop.draft_mask(case),
    )
    return LossResult(value, {"draft_logits": gradient}, tuple(parts), {"draft_logits": again})


def state_gradient(case: StateGradientCase) -> Flags:
    """Which states the loss of each step has a gradient to."""
    if case.gradient != DECLARATION.conventions["rollout_gradient"]:
        raise NotApplicable("the state is fed back as it is, with its gradient")
    return engine.state_gradients(case.steps)


def training_step(case: TrainingCase) -> TrainingResult:
    """The last step of a short run; what features were cached for is not looked at (nothing of the trainer asks)."""
    return training.training_step(case)


def noisy_sample(case: SampleCase) -> NoisySample:
    """The sample behind `TransformDataset` and `GaussianNoise`."""
    return NoisySample(*engine.noisy(np.asarray(case.features), np.asarray(case.targets), DEVIATION, case.seed))


def draft_logits(case: DrafterCase) -> DraftRollout:
    """The rollout of `compute_loss` with the case's weights: see `adapters.angelslim_step`."""
    return angelslim_step.trained(case)
