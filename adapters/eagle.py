"""SafeAILab/EAGLE's trainers, from a clone of yours: set EAGLE_CLONE to its folder.

`git clone https://github.com/SafeAILab/EAGLE`, then `EAGLE_CLONE=/path/to/EAGLE`. Nothing is downloaded or copied: the
definitions and statements named below are read from the clone and run as they stand (see `adapters.clones`). Without
the variable every operation raises `AdapterError`.

`adapters.eagle` is the trainer of EAGLE-1 and EAGLE-2, `eagle/train/main.py`:

- rows: its `CustomDataset` and `DataCollatorWithPadding` make the batch, then the statements of its loop from
  `predict = …` to `loss = …` run with `Model` of `eagle/model/cnets1.py`, whose embedding, `fc` and layer are watched.
  A row is reported where attention lets it see itself; its target and its mask are those that `compute_loss` gets. The
  mask of a case goes in unshifted, as the script's data sets hold it.
- losses: the same statements with the case's rows as one sample, and the case's features (or, behind an identity head,
  its logits) as what the drafter predicted. They run in float32; the script itself runs under bfloat16 autocast. β is
  fixed; the weights are settings of the script and follow the case.
- `rollout_visibility`, `rollout_attention`: the same statements, the attention of `cnets1.py` watched
  (`adapters.rollout_attention`). The drafter is not rolled out, so there is one step.
- `draft_logits`: the same statements with a case's weights: see `adapters.eagle_step`.
- noise: its `aug`, with `torch.rand_like` replaced by the case's uniforms for `feature_noise`, and with torch's global
  generator for `noisy_sample`.

`adapters.eagle:eagle3` is the trainer of EAGLE-3: see `adapters.eagle_rollout`. `adapters.eagle:serving` and
`adapters.eagle:half` draft and verify trees: see `adapters.eagle_serving`. `adapters.eagle:release` is the package
eagle-llm, which needs no clone: see `adapters.eagle_release`. `adapters.eagle:engine` and `adapters.eagle:engine1`
decode: see `adapters.eagle_engine`.

The segment of a batch row is a sample: it is cut out, and the collator pads it on the right. Not applicable: several
segments in a batch row, holes, positions other than 0, 1, 2, …, batches without a token, another owner of the mask
than the source, another β, the noise of the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters import clone_visibility, eagle_engine, eagle_release, eagle_rollout, eagle_serving, eagle_step
from adapters.clones import Clone, Namespace
from adapters.interface import Arithmetic, Declaration, Deviation
from oracle.types import (
    DistillCase,
    DrafterCase,
    DraftRollout,
    Eagle1Case,
    Flags,
    GatherCase,
    GatheredRows,
    Ids,
    LossResult,
    NoiseCase,
    NoisySample,
    RegressionCase,
    Rows,
    SampleCase,
    SupervisionCase,
)

eagle3 = eagle_rollout
"""`adapters.eagle:eagle3`: the trainer of EAGLE-3."""
serving = eagle_serving
"""`adapters.eagle:serving`: dynamic trees and their verification."""
release = eagle_release
"""`adapters.eagle:release`: static trees and their verification, in the package eagle-llm."""
engine = eagle_engine.engine
"""`adapters.eagle:engine`: the whole engine with EAGLE-3."""
engine1 = eagle_engine.engine1
"""`adapters.eagle:engine1`: the whole engine with EAGLE-1's drafter and dynamic trees."""
half = eagle_serving.half
"""`adapters.eagle:half`: the same drafting in float16."""
CLONE = Clone("EAGLE_CLONE", "https://github.com/SafeAILab/EAGLE", "eagle/train/main.py")
SCRIPT = shared.Script(CLONE, "eagle/train/main.py", "predict", "loss", ("train_config",))
MODEL = "eagle/model/cnets1.py"

_TREE = "https://github.com/SafeAILab/EAGLE/blob/cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b/eagle"
_CODE = f"{_TREE}/train/main.py"

DECLARATION = Declaration(
    name="SafeAILab/EAGLE",
    version=CLONE.revision(),
    links=(
        _CODE,
        f"{_TREE}/model/cnets1.py",
    ),
    conventions={
        "mask_owner": "source",
        "last_row": "pad",
        "packing": "none",
        "position_base": "0",
        "denominator": "supervised",
        "denominator_epsilon": "1e-05",
        "noise_amplitude": "length_scaled",
        "fusion_order": "embedding_first",
    },
    arithmetic=Arithmetic(dtype="float32"),
    cost=dict.fromkeys(("gather_rows", "supervision_at_source"), 4e-2)
    | dict.fromkeys(("rollout_visibility", "rollout_attention"), 2e-2)
    | dict.fromkeys(("feature_regression", "soft_cross_entropy", "eagle1_loss"), 2e-2)
    | dict.fromkeys(("feature_noise", "noisy_sample", "draft_logits"), 2e-2),
    generators=("torch",),
    deviations=(
        Deviation(
            "LOSSES-303",
            "target_p * out_logp is NaN, 0 · (−inf), where both laws mask a token, and so is the loss",
            witness="masked_on_both_sides",
        ),
        Deviation(
            "LOSSES-901",
            "the mask multiplies: a NaN or an infinity in an unsupervised row makes loss and gradient NaN",
            link=f"{_CODE}#L234-L237",
        ),
        Deviation(
            "LOSSES-902",
            "a batch without a supervised row has the loss 0/1e-05, which is 0, and is trained on",
            link=f"{_CODE}#L234-L237",
        ),
    ),
)


def gather_rows(case: GatherCase) -> GatheredRows:
    """The rows that the drafter is fed, the padded last one of each sample among them."""
    return _gather(case)[0]


def supervision_at_source(case: SupervisionCase) -> Flags:
    """The sources whose rows `compute_loss` weighs with 1."""
    return shared.supervised_sources(_gather, case)


_ATTENTION = clone_visibility.Attention(CLONE, SCRIPT, MODEL, absolute=False, most=1)
rollout_visibility = _ATTENTION.rollout_visibility
rollout_attention = _ATTENTION.rollout_attention


def feature_noise(case: NoiseCase) -> Rows:
    """What `aug` adds when the uniforms are those of the case."""
    return shared.feature_noise(SCRIPT, case)


def noisy_sample(case: SampleCase) -> NoisySample:
    """A sample with the noise of `aug`."""
    return shared.noisy_sample(SCRIPT, case)


def feature_regression(case: RegressionCase) -> LossResult:
    """`vloss`."""
    shared.plain_beta(case.beta)
    names = SCRIPT.namespace()
    run, predicted = _run(names, case.predicted, case.target, case.supervise)
    return shared.answer(run.terms[0][0], "predicted", [predicted], stacked=False)


def soft_cross_entropy(case: DistillCase) -> LossResult:
    """`ploss` behind a head that leaves logits as they are."""
    names = SCRIPT.namespace()
    run, predicted = _run(names, case.draft_logits, case.target_logits, case.supervise)
    return shared.answer(run.terms[0][1], "draft_logits", [predicted], stacked=False)


def eagle1_loss(case: Eagle1Case) -> LossResult:
    """`loss`, with the weights of the case in the script's settings."""
    shared.plain_beta(case.beta)
    names = SCRIPT.namespace()
    names["train_config"] |= {"v_w": case.regression_weight, "p_w": case.classification_weight}
    run, predicted = _run(names, case.predicted, case.target, case.supervise, case.head)
    return shared.answer(run.loss, "predicted", [predicted], stacked=False, parts=run.terms[0])


def draft_logits(case: DrafterCase) -> DraftRollout:
    """`predict` and `out_head` of a prefix's last row: see `adapters.eagle_step`."""
    return eagle_step.trained1(SCRIPT, case)


def _gather(case: GatherCase) -> tuple[GatheredRows, Ids]:
    return shared.gather(CLONE, SCRIPT, MODEL, case)


def _run(
    names: Namespace, predicted: Rows, target: Rows, supervise: Flags, head: Rows | None = None
) -> tuple[shared.Run, Any]:
    torch = names["torch"]
    leaf = torch.tensor(np.array(predicted), dtype=torch.float32)[None].requires_grad_()
    run = SCRIPT.run(
        names,
        model=lambda *_, **__: leaf,
        data=shared.features_batch(names, target, supervise),
        head=shared.frozen_head(names, head),
    )
    return run, leaf
