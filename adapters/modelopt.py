"""NVIDIA's modelopt (TensorRT Model Optimizer): its EAGLE-3 training on Hugging Face models, on a CPU.

The code under test is what `modelopt.torch.speculative.convert` makes of a Llama, `HFEagleModel`: its forward with the
loop over steps, `_prepare_eagle_inputs`, `_eagle_loss` and `_map_logits_to_draft_vocab`; and the data set and collator
of its offline training.

What is converted, and nothing else:
- each batch row to a sample, dumped, loaded with its mask, and padded at its right end. The trainer packs nothing, so a
  row of several segments is not applicable (in a training step each of them is a sample). Rows are those that the loss
  puts beside a target and that step 0 may attend to. The forward also runs a row behind the last one, of the last
  feature and the first token: it is in no loss, and no row of a loss sees it;
- `supervise` to the token mask: the flag of a row is that of its advanced token, since the mask is read one on;
- positions are given to the forward, as its argument `position_ids`; where they are not, it counts from 0;
- rows are absolute: a node of step s at row r is that of anchor r − s. What step s makes at row 0 (in this version of
  the state of the last row, rolled in) is in no later loss and seen by no row of one, so it is no fill;
- tensors are float32;
- in `rollout_loss` the forward runs its loop, and a stand-in for the draft model returns the case's logits. The loop
  has one target and one mask for all steps, and the case one for each, so between the loop and `_eagle_loss` those of
  the step take the place of the loop's, made of the case's target logits by `_prepare_eagle_inputs`. Weights are powers
  of the `eagle_loss_decay_factor` that a conversion has by default: it is a parameter of the conversion, and others are
  not applicable. A part is what `_eagle_loss` returns;
- `soft_cross_entropy` is `_eagle_loss` of one step;
- `tree_visibility`, `tree_mask`: the mask of `Tree` (`adapters.modelopt_tree`);
- `rollout_visibility`, `rollout_attention`: the forward, its layer's attention watched (`adapters.rollout_attention`);
  `rollout_mask`: see `adapters.modelopt_visibility`, and `adapters.modelopt:one_length` for masks that are not stale;
- `draft_logits`: see `adapters.modelopt_drafter`.

Not applicable: segments that a hole or another segment interrupts, `supervision_at_source` by another owner, gates,
other denominators and divergences, absolute maps. The trainer adds no noise.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import tempfile
from typing import Any

import numpy as np

from adapters import modelopt_drafter, modelopt_engine, modelopt_training, modelopt_visibility, step_weights, tracers
from adapters.backward import twice
from adapters.interface import Arithmetic, Declaration, Deviation, NotApplicable
from adapters.modelopt_drafter import draft_logits as draft_logits
from adapters.modelopt_tree import tree_mask as tree_mask
from adapters.modelopt_tree import tree_visibility as tree_visibility
from adapters.modelopt_visibility import rollout_attention as rollout_attention
from adapters.modelopt_visibility import rollout_mask as rollout_mask
from adapters.modelopt_visibility import rollout_visibility as rollout_visibility
from adapters.samples import Sample, advanced_mask, samples
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
    Rows,
    StateGradientCase,
    SupervisionCase,
    TokenBatch,
    TrainingCase,
    TrainingResult,
)


def _version() -> str:
    try:
        return importlib.metadata.version("nvidia-modelopt")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


_SOURCE = modelopt_engine.SOURCE
DECLARATION = Declaration(
    name="modelopt",
    version=_version(),
    links=(f"{_SOURCE}/plugins/hf_eagle.py", f"{_SOURCE}/eagle/utils.py"),
    conventions={
        "mask_owner": "advanced",
        "last_row": "drop",
        "row_anchor": "absolute",
        "rollout_position": "own",
        "rollout_gradient": "flows",
        "first_row_fill": "none",
        "packing": "none",
        "position_base": "0",
        "denominator": "mask",
        "denominator_epsilon": "1e-05",
        "restricted_target": "renormalised",
        "gate": "none",
        "divergence": "cross_entropy",
        "reduction": "sum",
        "step_decay": "0.9",
        "draft_map": "offset",
    },
    arithmetic=Arithmetic(dtype="float32", via_logits=True, draft_via_logits=True),
    cost={
        "gather_rows": 0.03,
        "supervision_at_source": 0.03,
        "rollout_rows": 0.05,
        "rollout_visibility": 0.01,
        "tree_mask": 1e-3,
        "tree_visibility": 1e-3,
        "rollout_mask": 0.002,
        "rollout_attention": 0.01,
        "soft_cross_entropy": 0.02,
        "rollout_loss": 0.02,
        "draft_to_target": 0.02,
        "state_gradient": 0.05,
        "training_step": 0.8,
        "draft_logits": 0.03,
    },
    promises=("seed",),
    deviations=(
        Deviation(
            "ROWS-701",
            "the forward takes position_ids as they are, increasing or not",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L525",
        ),
        Deviation(
            "LOSSES-303",
            "where both laws mask a token, 0 · (−inf) is NaN, and so is the loss",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L862-L864",
            witness="masked_on_both_sides",
        ),
        Deviation(
            "LOSSES-708",
            "a step without a supervised row has the loss 0/1e-05, which is 0, and is added",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L862-L864",
        ),
        Deviation(
            "LOSSES-711",
            "the softmax of a row whose restricted target logits are all −inf is NaN, and so is the loss of its step",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L528-L531",
        ),
        Deviation(
            "LOSSES-802",
            "whether there is a map is told from the widths: one of the target's width is neither followed nor refused",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L528",
        ),
        Deviation(
            "LOSSES-803",
            "a map is loaded if its length and dtype are right; draft ids that coincide, or are negative, are taken",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L320-L337",
        ),
        Deviation(
            "LOSSES-901",
            "the mask multiplies: a NaN or an infinity in an unsupervised row makes loss and gradient NaN",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L862-L864",
        ),
        Deviation(
            "LOSSES-902",
            "a batch without a supervised row has the loss 0, and is trained on",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L862-L864",
        ),
        Deviation(
            "LOSSES-906",
            "whether there is a map is told from the widths: another order of the whole vocabulary is not followed",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L528",
        ),
        Deviation(
            "LOSSES-1203",
            "a batch without a supervised row has gradients of 0, and AdamW steps on, by its moments and weight decay",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L862-L864",
        ),
        Deviation(
            "LOSSES-1204",
            "and so moves its moments and counts the step",
            link=f"{_SOURCE}/plugins/hf_eagle.py#L862-L864",
        ),
        Deviation(
            "LOSSES-1206",
            "a dump of features does not say what it was made from, and is loaded as it is",
            link=f"{_SOURCE}/eagle/utils.py#L127",
        ),
        *modelopt_visibility.DEVIATIONS,
        *modelopt_drafter.DEVIATIONS,
    ),
)


def gather_rows(case: GatherCase) -> GatheredRows:
    """What step 0 of the loop is fed with; targets are what the base model's head is fed with at the row's target."""
    found = samples(case.batch)
    mask = advanced_mask(case.batch, found)
    rollout = _rolled(found, case.batch, case.batch.tokens, case.features, mask, 1)
    step = rollout.steps[0]
    kept = np.argwhere(rollout.visible & step.counted)
    b, t = kept[:, 0], kept[:, 1]
    hidden = rollout.hidden.reshape(-1, case.features.shape[2])
    return GatheredRows(
        batch=np.array([found[i].batch for i in b], dtype=np.int64),
        feature=step.state[b, t],
        token=step.token[b, t],
        target=hidden[step.target[b, t]],
        supervise=step.supervise[b, t],
        position=step.position[b, t],
    )


def supervision_at_source(case: SupervisionCase) -> Flags:
    """The sources of the rows that the loss of step 0 counts."""
    if case.owner != "advanced":
        raise NotApplicable("a row is supervised by the flag of its advanced token, whatever the trainer is told")
    rows, length = case.token_mask.shape
    codes, features = tracers.codes(rows, length), tracers.features(rows, length, 1)
    rollout = _rolled(samples(case.batch), case.batch, codes, features, case.token_mask, 1)
    step = rollout.steps[0]
    supervised = np.zeros((rows, length), dtype=bool)
    for b, row in np.argwhere(rollout.visible & step.counted & step.supervise):
        supervised[tracers.address(float(step.state[b, row, 0]), rows, length)] = True
    return supervised


def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
    """What each step of the loop is fed with, what it is judged by, and whose state it is, row r named r − s."""
    found = samples(case.batch)
    rows, length = case.batch.tokens.shape
    codes, features = tracers.codes(rows, length), tracers.features(rows, length, 1)
    rollout = _rolled(found, case.batch, codes, features, advanced_mask(case.batch, found), case.steps)
    hidden = rollout.hidden.reshape(-1)
    nodes: list[tuple[int, int, int, int, int, bool, int, int]] = []
    index: dict[tuple[int, ...], int] = {}
    for s, step in enumerate(rollout.steps):
        for b, row in np.argwhere(rollout.visible & step.counted).tolist():
            fed = float(step.state[b, row, 0])
            index[s, b, row] = len(nodes)
            nodes.append(
                (
                    s,
                    found[b].batch,
                    _address(rollout.steps[0].state[b, row - s, 0], rows, length),
                    _address(step.token[b, row], rows, length),
                    _address(hidden[step.target[b, row]], rows, length),
                    bool(step.supervise[b, row]),
                    int(step.position[b, row]),
                    index[modelopt_engine.maker(fed, rollout.visible.shape)] if fed < 0 else -1,
                )
            )
    at, batch, anchor, consumed, target, supervise, position, state_from = zip(*nodes) if nodes else ((),) * 8
    return RolloutRows(
        step=np.array(at, dtype=np.int64),
        batch=np.array(batch, dtype=np.int64),
        anchor=np.array(anchor, dtype=np.int64),
        consumed=np.array(consumed, dtype=np.int64),
        target=np.array(target, dtype=np.int64),
        supervise=np.array(supervise, dtype=bool),
        position=np.array(position, dtype=np.int64),
        state_from=np.array(state_from, dtype=np.int64),
    )


def soft_cross_entropy(case: DistillCase) -> LossResult:
    """`_eagle_loss` of the first step, on one vocabulary."""
    given: list[Any] = [np.asarray(a)[None] for a in (case.draft_logits, case.target_logits, case.supervise)]
    found = rollout_loss(RolloutLossCase(given[0], given[1], given[2], (1.0,), **_settled()))
    return LossResult(found.value, {"draft_logits": found.grad["draft_logits"][0]})


def rollout_loss(case: RolloutLossCase) -> LossResult:
    """The forward's loop on the case's logits."""
    for name, value in _settled().items():
        if getattr(case, name) != value:
            raise NotApplicable(f"{name} is {value}, and nothing else")
    draft, target, supervise = (np.asarray(a) for a in (case.draft_logits, case.target_logits, case.supervise))
    steps, rows, width = draft.shape
    p = modelopt_engine.package()
    torch = p.torch
    model = _mapped(case.draft_to_target, target.shape[2], width, steps)
    step_weights.powers_of(model.eagle_loss_decay_factor, case)
    logits = torch.tensor(draft, dtype=torch.float32, requires_grad=True)
    laws = [_prepared(model, torch.tensor(target[s], dtype=torch.float32)) for s in range(steps)]
    mask = torch.tensor(supervise, dtype=torch.long)
    length = rows + steps  # each step cuts off one more row; the case's stand last, before the row that is never judged
    state = torch.zeros((1, length, modelopt_engine.WIDTH))
    loss = model._eagle_loss
    parts: list[float | None] = []
    calls: list[None] = []

    def drafted(*_: Any, **__: Any) -> tuple[Any, Any, Any, Any]:
        s = len(calls)
        calls.append(None)
        filler = torch.full((length - 1 - rows, width), torch.nan), torch.full((1, width), torch.nan)
        return state, state, torch.cat([filler[0], logits[s], filler[1]])[None], None

    def judged(law: Any, best: Any, given: Any, loss_mask: Any) -> Any:
        s = len(parts)
        found = loss(*laws[s], given[:, -rows:], mask[s][None])
        parts.append(float(found[0].detach()))
        return found

    model._eagle_forward, model._eagle_loss = drafted, judged
    ids = torch.zeros((1, length), dtype=torch.long)
    features = {
        "base_model_hidden_states": state,
        "aux_hidden_states": torch.cat([state] * modelopt_engine.LAYERS, dim=-1),
    }
    value = model(ids, base_model_outputs=features).loss
    first, second = twice(value, [logits])
    again = {"draft_logits": second[0]}
    return LossResult(float(value.detach()), {"draft_logits": first[0]}, tuple(parts), again)


def draft_to_target(case: DraftMapCase) -> Ids:
    """Which target id each draft id takes its logit from, seen by one row of logits for each target id."""
    if case.convention != "offset":
        raise NotApplicable("d2t holds offsets, and nothing else")
    torch = modelopt_engine.package().torch
    d2t = np.asarray(case.d2t)
    ids = d2t + np.arange(len(d2t))
    # there are no marks in this package: where the case has them, they tell the size of the vocabulary
    vocabulary = int(ids.max(initial=0)) + 1 if case.t2d is None else len(case.t2d)
    if vocabulary > 4096:
        raise NotApplicable(f"the map is seen by a row for each target id, and {vocabulary} of them are too many")
    model = _mapped(ids, vocabulary, len(ids), 1)
    law, _ = _prepared(model, 40 * torch.eye(vocabulary))
    return np.array(law[0].argmax(dim=0).tolist(), dtype=np.int64)


def state_gradient(case: StateGradientCase) -> Flags:
    """Which states the loss of each step depends on, by autograd through the forward with its own layer."""
    return modelopt_training.state_gradient(case)


def training_step(case: TrainingCase) -> TrainingResult:
    """A step of Hugging Face's trainer on the converted model, as the package is trained with."""
    return modelopt_training.training_step(case)


class one_length:
    """Training runs that keep to one length each, so that no mask is stale."""

    DECLARATION = dataclasses.replace(
        DECLARATION, name="modelopt (one length)", deviations=modelopt_visibility.OF_ONE_LENGTH
    )
    rollout_visibility = staticmethod(rollout_visibility)
    rollout_mask = staticmethod(modelopt_visibility.mask_of_one_length)
    rollout_attention = staticmethod(rollout_attention)


def _rolled(
    found: list[Sample], batch: TokenBatch, tokens: Ids, features: Rows, mask: Flags, steps: int
) -> modelopt_engine.Rollout:
    """The forward over the documents of a batch."""
    if not found:
        raise NotApplicable("a data set has no samples without tokens")
    if len({sample.batch for sample in found}) < len(found):
        raise NotApplicable("the trainer packs nothing: a row of its batch is one document")
    length = batch.tokens.shape[1]
    positions = np.zeros((len(found), length), dtype=np.int64)
    for i, sample in enumerate(found):
        positions[i, : sample.length] = batch.position[sample.batch, sample.addresses]
    collated = modelopt_engine.collated(found, tokens, features, features, mask, length)
    return modelopt_engine.rolled_out(collated, positions, steps)


def _address(code: float, rows: int, length: int) -> int:
    return tracers.address(float(code), rows, length)[1]


def _settled() -> dict[str, Any]:
    """The fields of a rollout's case that the code fixes."""
    names = ("denominator", "restricted_target", "gate", "divergence", "reduction")
    fixed: dict[str, Any] = {name: DECLARATION.conventions[name] for name in names}
    return fixed | {"denominator_epsilon": float(DECLARATION.conventions["denominator_epsilon"])}


def _mapped(ids: Ids | None, vocabulary: int, width: int, steps: int) -> Any:
    """The converted model with its draft vocabulary loaded, as `load_draft_vocab_cache` does it."""
    torch = modelopt_engine.package().torch
    with torch.random.fork_rng(devices=[]):
        base = modelopt_engine.base_model(vocabulary)
        model = modelopt_engine.converted(base, steps, width).train()
    if ids is not None:
        offsets = torch.tensor(np.asarray(ids, dtype=np.int64)) - torch.arange(width)
        with tempfile.TemporaryDirectory() as folder, modelopt_engine.quiet():
            path = os.path.join(folder, "d2t.pt")
            torch.save(offsets, path)
            model.load_draft_vocab_cache(model, path)
    return model


def _prepared(model: Any, logits: Any) -> tuple[Any, Any]:
    """The target's law on the draft vocabulary [1, R, Vd], and its most probable token, of logits [R, V]."""
    p = modelopt_engine.package()
    state = p.torch.zeros((1, len(logits), modelopt_engine.WIDTH))
    base = p.module.EagleBaseModelOutput(state, p.torch.cat([state] * modelopt_engine.LAYERS, dim=-1), logits[None])
    ids = p.torch.zeros((1, len(logits)), dtype=p.torch.long)
    prepared = model._prepare_eagle_inputs(ids, None, None, None, base)
    return prepared[5], prepared[4]
