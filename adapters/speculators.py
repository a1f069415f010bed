"""vllm-project/speculators: its EAGLE-3 training, from the collator to the optimizer's step, on a CPU.

The code under test is `CollateFn` with `shift_batch`, `Eagle3DraftModel.forward`, `compute_metrics` with the losses it
calls, `DraftVocabMixin`'s draft vocabulary and `Trainer.train_epoch`.

What is converted, and nothing else:
- a batch row to one packed sequence: each of its segments is a document, a sample of the data set, and they are
  collated together, into a sequence longer than they are by one address a step and one more, as in training, where the
  sequence has one fixed length. Invalid addresses are no part of a sample. The collator's padding (documents of id −1)
  is not reported; a node of a document that reads it is, as filler;
- `supervise` to the token mask: the flag of a row is that of its advanced token, since `shift_batch` drops the first;
- the dtype of the collated features: float64, an argument of the collator, so that they come out as they went in;
- the draft model's parts whose numbers do not matter (layer, norms, heads) pass on what they get and record it; the
  loop over steps, its shifts and its masks are the package's;
- `rollout_loss` is what the forward returns where its head makes the case's logits: which loss it is, its weights and
  their sum are the forward's, called as the trainer calls it by its own configuration. Loss and step decay are
  parameters of that; neither is named, so the defaults act, and weights that are not theirs are not applicable. The
  forward has one target and one mask for all steps, and the case one for each, which `compute_metrics` is handed
  instead. The head's rows are cut to the draft vocabulary by the package (`speculators_engine.kept_ids`);
- a part is what `compute_metrics` makes of a step with a decay of 1;
- `rollout_visibility`, `rollout_attention`: the forward over one packed sequence, its layer's attention watched
  (`adapters.rollout_attention`); `rollout_mask` is what that layer gets as its mask in each step;
- `draft_logits`: a drafter of the case's weights, rolled out (`adapters.speculators_drafter`).

Losses and attention are the package's eager ones. `adapters.speculators:fused` has `rollout_loss` with the fused ones,
which it takes by default: Triton kernels, run by Triton's interpreter. `adapters.speculators:flex` has its default
attention, `adapters.speculators:sdpa` the third.
Not applicable: segments that a hole or another segment interrupts, positions that are not counted from 0 in each
document, `supervision_at_source` by another owner, gates, other denominators and divergences. There is no function that
turns d2t into ids, no soft cross-entropy (`ce` is that against the argmax) and no noise in this version.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import Any

import numpy as np

from adapters import (
    speculators_drafter,
    speculators_engine,
    speculators_training,
    speculators_visibility,
    step_weights,
    tracers,
    triton_interpreter,
)
from adapters.backward import twice
from adapters.interface import Arithmetic, Declaration, Deviation, NotApplicable
from adapters.samples import Sample, advanced_mask, counted_from_zero, samples
from adapters.speculators_drafter import draft_logits as draft_logits
from oracle.types import (
    Flags,
    GatherCase,
    GatheredRows,
    Ids,
    LossResult,
    RolloutLossCase,
    RolloutRows,
    RolloutRowsCase,
    Rows,
    StateGradientCase,
    SupervisionCase,
    TrainingCase,
    TrainingResult,
)


def _version() -> str:
    try:
        return importlib.metadata.version("speculators")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


_SOURCE = "https://github.com/vllm-project/speculators/blob/c05b95b303f7d4f21e8d7624e0ffa1c2d9b4d73b/src/speculators"
"""A commit shortly before the release, which changed nothing about what is linked."""
DECLARATION = Declaration(
    name="speculators",
    version=_version(),
    links=(
        f"{_SOURCE}/models/eagle3/core.py",
        f"{_SOURCE}/train/trainer.py",
        f"{_SOURCE}/losses/utils.py",
    ),
    conventions={
        "mask_owner": "advanced",
        "last_row": "pad",
        "row_anchor": "start",
        "rollout_position": "anchor_plus_step",
        "rollout_gradient": "flows",
        "first_row_fill": "none",
        "packing": "segments",
        "position_base": "1",
        "denominator": "mask",
        "denominator_epsilon": "1e-05",
        "restricted_target": "renormalised",
        "gate": "none",
        "divergence": "kl",
        "reduction": "sum",
        "step_decay": "1.0",
    },
    arithmetic=Arithmetic(dtype="float32", via_logits=True, draft_via_logits=True),
    cost={
        "gather_rows": 0.03,
        "supervision_at_source": 0.03,
        "rollout_rows": 0.05,
        "rollout_visibility": 0.01,
        "rollout_mask": 0.01,
        "rollout_attention": 0.01,
        "rollout_loss": 0.005,
        "state_gradient": 0.05,
        "training_step": 0.1,
        "draft_logits": 2e-2,
    },
    promises=("seed",),
    deviations=(
        Deviation(
            "ROWS-603",
            "later steps shift tokens, targets and mask along the packed sequence, over the ends of its documents",
            witness="packed_rolled_out",
            fixtures=("7ef9abe93a17", "616362696ed2"),
        ),
        Deviation(
            "LOSSES-303",
            "where both laws mask a token, torch's kl_div subtracts 0 · (−inf), which is NaN, and so is the loss",
            link=f"{_SOURCE}/losses/eager.py#L26-L28",
        ),
        Deviation(
            "LOSSES-708",
            "a step without a supervised row has the loss 0/1e-05, which is 0, and is added",
            link=f"{_SOURCE}/losses/utils.py#L301",
        ),
        Deviation(
            "LOSSES-711",
            "the softmax of a row whose restricted target logits are all −inf is NaN, and so is the loss of its step",
            link=f"{_SOURCE}/losses/eager.py#L24-L28",
        ),
        Deviation(
            "LOSSES-901",
            "the mask multiplies: a NaN or an infinity in an unsupervised row makes loss and gradient NaN",
            link=f"{_SOURCE}/losses/utils.py#L293",
        ),
        Deviation(
            "LOSSES-902",
            "a batch without a supervised row has the loss 0, and is trained on",
            link=f"{_SOURCE}/losses/utils.py#L301",
        ),
        Deviation(
            "LOSSES-906",
            "the draft vocabulary is what t2d marks, ascending, and of equal width all of it: another order in d2t is "
            "neither followed nor refused",
            link=f"{_SOURCE}/model.py#L97-L102",
        ),
        Deviation(
            "LOSSES-1203",
            "a batch without a supervised row has gradients of 0, and AdamW steps on, by its moments and weight decay",
            link=f"{_SOURCE}/train/trainer.py#L468-L473",
        ),
        Deviation(
            "LOSSES-1204",
            "and so moves its moments and counts the step",
            link=f"{_SOURCE}/train/trainer.py#L468-L473",
        ),
        Deviation(
            "LOSSES-1206",
            "of cached features only the token ids are compared with what is trained on",
            link=f"{_SOURCE}/train/data.py#L286",
        ),
        Deviation(
            "DRAFTER-1001",
            "a weight that is missing is told in a warning of transformers, and left as it was drawn",
            link=f"{_SOURCE}/model.py#L381",
        ),
    ),
)

_SEEN = dict.fromkeys(("rollout_visibility", "rollout_mask", "rollout_attention"), 1e-2) | {"draft_logits": 2e-2}
_OF_DRAFTER = tuple(d for d in DECLARATION.deviations if d.clause == "DRAFTER-1001")
_OF_FUSED = ("LOSSES-708", "LOSSES-711", "LOSSES-901", "LOSSES-902", "LOSSES-906")


def gather_rows(case: GatherCase) -> GatheredRows:
    """What step 0 of the forward is fed with, and the target that its loss is computed towards."""
    found = samples(case.batch)
    counted_from_zero(case.batch, found)
    mask = advanced_mask(case.batch, found)
    batch: list[int] = []
    parts: list[tuple[Rows, Ids, Rows, Flags, Ids]] = []
    for b in range(len(case.batch.tokens)):
        rollout = _rolled(b, found, case.batch.tokens, case.features, mask, 1)
        step, real = rollout.steps[0], rollout.document >= 0
        parts.append((step.state[real], step.token[real], step.target[real], step.supervise[real], step.position[real]))
        batch += [b] * int(real.sum())
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        empty = np.zeros((0, case.features.shape[2]))
        return GatheredRows(none, empty, none, empty, none.astype(bool), none)
    feature, token, target, supervise, position = (np.concatenate(column) for column in zip(*parts))
    return GatheredRows(np.array(batch, dtype=np.int64), feature, token, target, supervise, position)


def supervision_at_source(case: SupervisionCase) -> Flags:
    """The sources of the rows that the loss of step 0 counts."""
    if case.owner != "advanced":
        raise NotApplicable("a row is supervised by the flag of its advanced token, whatever the trainer is told")
    found = samples(case.batch)
    rows, length = case.token_mask.shape
    codes, features = tracers.codes(rows, length), tracers.features(rows, length, 1)
    supervised = np.zeros((rows, length), dtype=bool)
    for b in range(rows):
        rollout = _rolled(b, found, codes, features, case.token_mask, 1)
        step = rollout.steps[0]
        for row in np.flatnonzero((rollout.document >= 0) & step.supervise):
            supervised[tracers.address(float(step.state[row, 0]), rows, length)] = True
    return supervised


def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
    """What each step of the forward's loop is fed with, what it is judged by, and whose state it is."""
    found = samples(case.batch)
    counted_from_zero(case.batch, found)
    rows, length = case.batch.tokens.shape
    codes, features = tracers.codes(rows, length), tracers.features(rows, length, 1)
    mask = advanced_mask(case.batch, found)
    rollouts = [_rolled(b, found, codes, features, mask, case.steps) for b in range(rows)]
    columns: dict[str, list[Any]] = {
        name: [] for name in ("step", "batch", "anchor", "consumed", "target", "supervise", "position", "state_from")
    }
    index: dict[tuple[int, int, int], int] = {}
    for s in range(case.steps):
        for b, rollout in enumerate(rollouts):
            step, width = rollout.steps[s], len(rollout.document)
            for row in np.flatnonzero((rollout.document >= 0) & step.counted):
                fed = float(step.state[row, 0])
                maker = speculators_engine.maker(fed, width) if fed < 0 else None
                anchor = tracers.address(float(rollout.steps[0].state[row, 0]), rows, length)[1]
                index[s, b, int(row)] = len(columns["step"])
                for name, value in (
                    *(("step", s), ("batch", b), ("anchor", anchor)),
                    ("consumed", tracers.address(float(step.token[row]), rows, length)[1]),
                    ("target", tracers.address(float(step.target[row, 0]), rows, length)[1]),
                    ("supervise", bool(step.supervise[row])),
                    ("position", int(step.position[row])),
                    ("state_from", -1 if maker is None else index[maker[0], b, maker[1]]),
                ):
                    columns[name].append(value)
    kinds = {name: bool if name == "supervise" else np.int64 for name in columns}
    return RolloutRows(**{name: np.array(values, dtype=kinds[name]) for name, values in columns.items()})


def rollout_loss(case: RolloutLossCase) -> LossResult:
    """What the forward returns, with the eager implementation of its default loss."""
    return _rollout_loss(case, loss_implementation="eager")


rollout_visibility = speculators_visibility.EAGER.rollout_visibility
rollout_mask = speculators_visibility.EAGER.rollout_mask
rollout_attention = speculators_visibility.EAGER.rollout_attention


class fused:
    """The losses that the package takes by default."""

    DECLARATION = dataclasses.replace(
        DECLARATION,
        name="speculators (fused)",
        deviations=(
            *(d for d in DECLARATION.deviations if d.clause in _OF_FUSED),
            Deviation(
                "LOSSES-303",
                "a token that the target masks costs 0 · (−inf), or 0 · (−inf + inf), which is NaN, and so is the loss",
                link=f"{_SOURCE}/losses/fused.py#L153-L154",
            ),
            Deviation(
                "LOSSES-1001",
                "a target logit of −inf makes the loss NaN: the kernel multiplies p = 0 by log p − log q",
                link=f"{_SOURCE}/losses/fused.py#L153-L154",
            ),
        ),
        cost={"rollout_loss": 0.3},
    )

    @staticmethod
    def rollout_loss(case: RolloutLossCase) -> LossResult:
        """What the forward returns, with its default loss as it is."""
        triton_interpreter.interpret("speculators.losses.fused")
        return _rollout_loss(case)


def _rollout_loss(case: RolloutLossCase, **loss: str) -> LossResult:
    for name in ("denominator", "restricted_target", "gate", "divergence", "reduction"):
        if getattr(case, name) != DECLARATION.conventions[name]:
            raise NotApplicable(f"{name} is {DECLARATION.conventions[name]}, and nothing else")
    if case.denominator_epsilon != float(DECLARATION.conventions["denominator_epsilon"]):
        raise NotApplicable("the denominator's epsilon is 1e-05, and nothing else")
    arguments = speculators_engine.call_arguments(len(case.draft_logits), **loss)
    step_weights.powers_of(arguments["ttt_step_loss_decay"], case)
    torch = speculators_engine.package().torch
    target = np.asarray(case.target_logits)
    kept = speculators_engine.kept_ids(case.draft_to_target, target.shape[2])
    logits = torch.tensor(np.asarray(case.draft_logits), dtype=torch.float32, requires_grad=True)
    targets = torch.tensor(target[:, :, kept], dtype=torch.float32)
    mask = torch.tensor(np.asarray(case.supervise), dtype=torch.bool)
    loss_of_all, parts = speculators_engine.step_losses(logits, targets, mask, arguments)
    first, second = twice(loss_of_all, [logits])
    again = {"draft_logits": second[0]}
    return LossResult(float(loss_of_all.detach()), {"draft_logits": first[0]}, tuple(parts), again)


def state_gradient(case: StateGradientCase) -> Flags:
    """Which states the loss of each step depends on, by autograd through the forward with its own layer."""
    return speculators_training.state_gradient(case)


def training_step(case: TrainingCase) -> TrainingResult:
    """`Trainer.train_epoch` over the warm batches and that of the case."""
    return speculators_training.training_step(case)


def _rolled(
    b: int, found: list[Sample], tokens: Ids, features: Rows, mask: Flags, steps: int
) -> speculators_engine.Rollout:
    """The forward over the documents of batch row b."""
    torch = speculators_engine.package().torch
    own = [sample for sample in found if sample.batch == b]
    batch = speculators_engine.collated(own, tokens, features, features, mask, tokens.shape[1] + steps, torch.float64)
    return speculators_engine.rolled_out(batch, steps)


class flex:
    """Torch's `flex_attention` under a block mask, which the package takes by default."""

    DECLARATION = dataclasses.replace(
        DECLARATION,
        name="speculators (flex)",
        deviations=_OF_DRAFTER,
        cost={"rollout_visibility": 0.05, "rollout_mask": 0.07, "rollout_attention": 0.05, "draft_logits": 0.05},
    )
    rollout_visibility = speculators_visibility.FLEX.rollout_visibility
    rollout_mask = speculators_visibility.FLEX.rollout_mask
    rollout_attention = speculators_visibility.FLEX.rollout_attention
    draft_logits = staticmethod(speculators_drafter.flex_logits)


class sdpa:
    """Torch's `scaled_dot_product_attention`, under a boolean mask."""

    DECLARATION = dataclasses.replace(DECLARATION, name="speculators (sdpa)", deviations=_OF_DRAFTER, cost=_SEEN)
    rollout_visibility = speculators_visibility.SDPA.rollout_visibility
    rollout_mask = speculators_visibility.SDPA.rollout_mask
    rollout_attention = speculators_visibility.SDPA.rollout_attention
    draft_logits = staticmethod(speculators_drafter.sdpa_logits)
