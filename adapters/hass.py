"""HASS's trainer, from a clone of yours: set HASS_CLONE to its folder.

`git clone https://github.com/HArmonizedSS/HASS`, then `HASS_CLONE=/path/to/HASS`. Nothing is downloaded or copied: the
definitions and statements named below are read from the clone and run as they stand (see `adapters.clones`). Without
the variable every operation raises `AdapterError`.

The trainer is `train/main_hass.py`; its statements from `hidden_states, … = …` to the end of `for forward_idx in …` run
with the steps and the k of the case on its command line.

- rows: its `CustomDataset` and `DataCollatorWithPadding` make the batch, and `Model` of `model/cnets_hass.py` is
  watched. A row is reported where its attention mask lets it see itself (HASS makes that mask and then attends without
  it); target and mask are those that `compute_loss` gets. Rows are absolute: row r of step s is anchor r − s, and the
  rows r < s, whose anchor lies before the sequence, are reported as they are. The state that a row is fed is found
  among features and earlier outputs bit by bit.
- `rollout_visibility`, `rollout_attention`: the same statements, the attention of `cnets_hass.py` watched
  (`adapters.rollout_attention`), with the rows r < s reported as they are.
- losses: the same statements with the case's rows as one sample, and the case's features (or, behind an identity head,
  its logits) as what the drafter predicted at each step. They run in float32; the script itself runs under bfloat16
  autocast. The loss of all steps is their sum, which is what the gradients add up to; the script divides it by their
  number where it logs it. The script has one mask for all steps, so a case with several is not applicable. β is fixed;
  the weights are settings of the script and follow the case.
- noise: its `aug`, with `torch.rand_like` replaced by the case's uniforms for `feature_noise`, and with torch's global
  generator for `noisy_sample`.
- `draft_logits`: the same statements with a case's weights: see `adapters.hass_drafter`, also for
  `adapters.hass:serving`.
- `state_gradient`: `torch.autograd.grad` of every step's loss to every output of the watched drafter.

The segment of a batch row is a sample: it is cut out, and the collator pads it on the right. Not applicable, too:
several segments in a batch row, holes, positions other than 0, 1, 2, …, batches without a token, more steps than
the longest sample's tokens and one, for which the drafter's attention makes a mask of negative size, another owner of
the mask than the source, a k above the vocabulary, which `torch.topk` refuses, another β, the noise of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters import clone_visibility, hass_drafter, tracers
from adapters.clones import Clone, Namespace
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from adapters.samples import Sample
from oracle.types import (
    DistillCase,
    DrafterCase,
    DraftRollout,
    Flags,
    GatherCase,
    GatheredRows,
    HassLossCase,
    Ids,
    LossResult,
    NoiseCase,
    NoisySample,
    RegressionCase,
    RolloutRows,
    RolloutRowsCase,
    Rows,
    SampleCase,
    StateGradientCase,
    SupervisionCase,
    TokenBatch,
    TopKCase,
)

CLONE = Clone("HASS_CLONE", "https://github.com/HArmonizedSS/HASS", "train/main_hass.py")
SETTINGS = ("total_steps", "warm_steps", "train_config")
SCRIPT = shared.Script(CLONE, "train/main_hass.py", "hidden_states", "forward_idx", SETTINGS)
MODEL = "model/cnets_hass.py"

_TREE = "https://github.com/HArmonizedSS/HASS/blob/38922e43fec95f0bd2993f33aaa6ee82371741a5"
_CODE = f"{_TREE}/train/main_hass.py"

DECLARATION = Declaration(
    name="HArmonizedSS/HASS",
    version=CLONE.revision(),
    links=(
        _CODE,
        f"{_TREE}/model/cnets_hass.py",
    ),
    conventions={
        "mask_owner": "source",
        "last_row": "pad",
        "packing": "none",
        "position_base": "0",
        "row_anchor": "absolute",
        "rollout_position": "anchor_plus_step",
        "rollout_gradient": "detached",
        "first_row_fill": "feature",
        "denominator": "supervised",
        "denominator_epsilon": "1e-05",
        "noise_amplitude": "length_scaled",
        "fusion_order": "embedding_first",
    },
    arithmetic=Arithmetic(dtype="float32"),
    cost=dict.fromkeys(("gather_rows", "supervision_at_source", "rollout_rows", "state_gradient"), 6e-2)
    | dict.fromkeys(("rollout_visibility", "rollout_attention"), 2e-2)
    | dict.fromkeys(("feature_regression", "soft_cross_entropy", "topk_distillation", "hass_loss"), 3e-2)
    | dict.fromkeys(("feature_noise", "noisy_sample", "draft_logits"), 3e-2),
    generators=("torch",),
    deviations=(
        Deviation(
            "ROWS-602",
            "row r of step s is the node at anchor r − s; the rows r < s stay, with anchors before the sequence",
            witness="rolled_out",
            fixtures=("2d6b0f544c0d", "db44bb9f729f"),
        ),
        Deviation(
            "ROWS-603",
            "the same rows: row 0 of every step is fed the feature of address 0, and those after it what became of it",
            link=f"{_CODE}#L403-L407",
        ),
        *(
            Deviation(
                f"VISIBILITY-{number}",
                "scores are multiplied by the mask of zeros and ones before a softmax over all columns, so what is "
                "hidden takes its share there, and what is seen weighs less than 1 together",
                link=f"{_TREE}/model/cnets_hass.py#L336-L340",
                fixtures=("befc4776f7ad", "c479f8f83830", "32526e22f604", "197b717f6e69") if number == 803 else (),
            )
            for number in (803, 804)
        ),
        Deviation(
            "LOSSES-303",
            "target_p * out_logp is NaN, 0 · (−inf), where both laws mask a token, and so is the loss",
            link=f"{_CODE}#L246-L255",
            witness="masked_on_both_sides",
        ),
        Deviation(
            "LOSSES-502",
            "torch.topk says nothing about which of equal logits it takes",
            link=f"{_CODE}#L254",
            witness="tied_logits",
        ),
        Deviation(
            "LOSSES-901",
            "the mask multiplies: a NaN or an infinity in an unsupervised row makes loss and gradient NaN",
            link=f"{_CODE}#L248-L255",
        ),
        Deviation(
            "LOSSES-902",
            "a batch without a supervised row has the loss 0/1e-05, which is 0, and is trained on",
            link=f"{_CODE}#L248-L255",
        ),
        *hass_drafter.DEVIATIONS,
    ),
)


def gather_rows(case: GatherCase) -> GatheredRows:
    """The rows that the drafter is fed at step 0, the padded last one of each sample among them."""
    return _gather(case)[0]


def supervision_at_source(case: SupervisionCase) -> Flags:
    """The sources whose rows `compute_loss` weighs with 1."""
    return shared.supervised_sources(_gather, case)


def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
    """Every row of every step, by what it was fed and trained towards."""
    count, length = case.batch.valid.shape
    found = shared.documents(case.batch)
    drafter, run = _rollout(case.batch, found, tracers.features(count, length, 2), case.steps)
    nodes: list[tuple[int, int, int, int, int, bool, int, int]] = []
    place: dict[tuple[int, int, int], int] = {}
    for s, fed in enumerate(drafter.fed):
        for i, r in fed.visible.nonzero().tolist():
            consumed = tracers.address(fed.tokens[i, r].item(), count, length)[1]
            target = tracers.address(run.target[s][i, r, 0].item(), count, length)[1]
            source = _fed_by(drafter.fed, s, i, r)
            place[s, i, r] = len(nodes)
            flag, position = bool(run.mask[s][i, r, 0]), int(fed.positions[i, r])
            state_from = -1 if source is None else place[source]
            anchor = found[i].start + r - s
            nodes.append((s, found[i].batch, anchor, consumed, target, flag, position, state_from))
    return shared.rollout_nodes(nodes)


_ATTENTION = clone_visibility.Attention(CLONE, SCRIPT, MODEL, absolute=True)
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
    run, (predicted,) = _run(SCRIPT.namespace(), [case.predicted], case.target, case.supervise, k=1)
    return shared.answer(run.terms[0][0], "predicted", [predicted], stacked=False)


def soft_cross_entropy(case: DistillCase) -> LossResult:
    """`ploss` behind a head that leaves logits as they are."""
    run, (draft,) = _run(SCRIPT.namespace(), [case.draft_logits], case.target_logits, case.supervise, k=1)
    return shared.answer(run.terms[0][1], "draft_logits", [draft], stacked=False)


def topk_distillation(case: TopKCase) -> LossResult:
    """`topk_loss` behind a head that leaves logits as they are."""
    run, (draft,) = _run(SCRIPT.namespace(), [case.draft_logits], case.target_logits, case.supervise, k=case.k)
    return shared.answer(run.terms[0][2], "draft_logits", [draft], stacked=False)


def hass_loss(case: HassLossCase) -> LossResult:
    """The sum of the losses that are back-propagated, one a step."""
    shared.plain_beta(case.beta)
    masks = np.asarray(case.supervise)
    if len(masks) and np.any(masks != masks[0]):
        raise NotApplicable("it has one mask for all steps")
    names = SCRIPT.namespace()
    weights = {"v_w": case.regression_weight, "p_w": case.classification_weight, "topk_w": case.topk_weight}
    names["train_config"] |= weights
    run, predicted = _run(names, list(case.predicted), case.target, masks[0], case.k, case.head)
    return shared.answer(run.loss, "predicted", predicted, stacked=True, parts=run.total)


def draft_logits(case: DrafterCase) -> DraftRollout:
    """`predict` and `out_head` of prefix and rollout: see `adapters.hass_drafter`."""
    return hass_drafter.trained(SCRIPT, CLONE, MODEL, case)


class serving:
    """`adapters.hass:serving`: the numeric step of the drafter that it serves, EAGLE-1's."""

    DECLARATION = Declaration(
        name="HArmonizedSS/HASS serving",
        version=CLONE.revision(),
        links=(f"{_TREE}/model/cnets.py",),
        conventions={"fusion_order": "embedding_first"},
        arithmetic=Arithmetic(dtype="float32"),
        cost={"draft_logits": 1.5e-2},
    )

    @staticmethod
    def draft_logits(case: DrafterCase) -> DraftRollout:
        """`Model` of `model/cnets.py`: see `adapters.hass_drafter`."""
        return hass_drafter.served(CLONE, "model/cnets.py", case)


def state_gradient(case: StateGradientCase) -> Flags:
    """Which outputs of the drafter the loss of each step has a gradient to."""
    if case.gradient != "detached":
        raise NotApplicable("it detaches a state before it feeds it back")
    torch = shared.import_torch(CLONE)
    length = case.steps + 2
    ones = np.ones((1, length), dtype=bool)
    batch = TokenBatch(np.arange(length)[None], ones, ones.astype(np.int64), np.arange(length)[None], ones)
    drafter, run = _rollout(
        batch, shared.documents(batch), np.random.default_rng(0).normal(size=(1, length, 4)), case.steps
    )
    outputs = [fed.output for fed in drafter.fed]
    found = np.zeros((case.steps, case.steps), dtype=bool)
    for s, loss in enumerate(run.total):
        grads = torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True)
        found[s] = [g is not None and bool(g.any()) for g in grads]
    return found


def _gather(case: GatherCase) -> tuple[GatheredRows, Ids]:
    return shared.gather(CLONE, SCRIPT, MODEL, case)


def _rollout(
    batch: TokenBatch, found: Sequence[Sample], features: Rows, steps: int
) -> tuple[shared.Watched, shared.Run]:
    """A pass of the loop over a batch, with the clone's own drafter; tokens are the codes of their addresses."""
    if steps < 1:
        raise NotApplicable("without a step there is no loss")
    if steps > 1 + max(sample.length for sample in found):
        raise NotApplicable("its attention has no mask for more steps than a sequence has tokens, and one")
    names = SCRIPT.namespace()
    torch = names["torch"]
    names["args"].forward_num_total, names["args"].topk = steps, 1
    codes = tracers.codes(*batch.valid.shape)
    drafter = shared.Watched(CLONE, MODEL, codes.size + 1, features.shape[2])
    data = SCRIPT.batch(names, shared.cut(torch, found, features, codes, batch.supervise))
    return drafter, SCRIPT.run(names, drafter, data, head=lambda rows: rows)


def _fed_by(fed: Sequence[shared.Fed], step: int, i: int, r: int) -> tuple[int, int, int] | None:
    """(step, sample, row) of the output that a row is fed; None for the target's feature."""
    state = fed[step].state
    if state is None:
        return None
    for s in range(step):
        for found in (fed[s].output == state[i, r]).all(dim=-1).nonzero().tolist():
            return s, found[0], found[1]
    if not (fed[0].features == state[i, r]).all(dim=-1).any():
        raise AdapterError(f"row {r} of step {step} is fed neither a feature nor an earlier output")
    return None


def _run(
    names: Namespace, predicted: Sequence[Rows], target: Rows, supervise: Flags, k: int, head: Rows | None = None
) -> tuple[shared.Run, list[Any]]:
    torch = names["torch"]
    if k > np.shape(target if head is None else head)[0 if head is not None else 1]:
        raise NotApplicable("torch.topk takes no k above the vocabulary")
    names["args"].forward_num_total, names["args"].topk = len(predicted), k
    leaves = [torch.tensor(np.array(rows), dtype=torch.float32)[None].requires_grad_() for rows in predicted]
    waiting = iter(leaves)
    run = SCRIPT.run(
        names,
        model=lambda *_, **__: next(waiting),
        data=shared.features_batch(names, target, supervise),
        head=shared.frozen_head(names, head),
    )
    return run, leaves
