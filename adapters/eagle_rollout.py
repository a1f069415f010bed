"""EAGLE-3's trainer, `adapters.eagle:eagle3`: the drafter of `eagle/traineagle3/cnets.py` and the loop around it.

`Model`, its attention, norms and head are the clone's own, tiny, random and in float32; the target that it would load
is replaced by one that answers with the case's features and logits, and hooks see what each step is fed.

- rows: the collator of `eagle/traineagle3/main.py`, then `Model.forward` with as many steps as the case asks for. A row
  is reported where attention lets it see itself. Its target is what the softmax of the target's logits is given; it is
  supervised where its step's loss has a gradient to its draft logits, which are fixed meanwhile. The position is what
  rotary embeddings are given, and the state that a row is fed is found among the earlier outputs bit by bit. Rows are
  fixed: row t of every step is anchor t. The target's logits are the features, so a target is spelt like a feature.
- `rollout_visibility`, `rollout_attention`: the same forward, the attention of its layer watched.
- `rollout_loss`: `Model.forward` one step at a time, with `dataprepare` handing out the case's rows and the head
  giving the case's draft logits; then the loop's statements from `ploss_weight = …` to `loss = …`.
- `draft_to_target`: the choice of `input_ids` in `Model.topK_genrate` of `eagle/model/cnets.py`; nothing else reads
  d2t. Where a case has no t2d, the vocabulary ends with the largest id that the map reaches.
- `draft_logits`: the same forward with a case's weights: see `adapters.eagle_step`.
- `state_gradient`: `torch.autograd.grad` of every step's loss to every layer output.

Not applicable: what `adapters.eagle` says of samples; draft ids that are not in the order of their target ids, since
the trainer picks them by a boolean mask; conventions and step weights other than those declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters import eagle_step, tracers
from adapters.clones import Namespace
from adapters.eagle_drafter import CLONE, LOOP, collator, drafter
from adapters.eagle_visibility import rollout_attention as rollout_attention
from adapters.eagle_visibility import rollout_visibility as rollout_visibility
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from adapters.samples import Sample
from oracle.types import (
    DrafterCase,
    DraftMapCase,
    DraftRollout,
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
)

INFERENCE = "eagle/model/cnets.py"
DECAY = 0.8

_TREE = "https://github.com/SafeAILab/EAGLE/blob/cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b/eagle"
_CODE = f"{_TREE}/traineagle3/cnets.py"
_MEAN = f"{_CODE}#L854-L855"
_PADDED = "https://github.com/SafeAILab/EAGLE/issues/317"

DECLARATION = Declaration(
    name="SafeAILab/EAGLE, EAGLE-3",
    version=CLONE.revision(),
    links=(
        _CODE,
        f"{_TREE}/traineagle3/main.py",
        f"{_TREE}/model/cnets.py",
    ),
    conventions={
        "mask_owner": "source",
        "last_row": "pad",
        "packing": "none",
        "position_base": "0",
        "row_anchor": "start",
        "rollout_position": "anchor_plus_step",
        "rollout_gradient": "flows",
        "first_row_fill": "none",
        "denominator": "rows",
        "denominator_epsilon": "0",
        "restricted_target": "renormalised",
        "gate": "argmax",
        "divergence": "cross_entropy",
        "reduction": "sum",
        "step_decay": str(DECAY),
        "draft_map": "offset",
    },
    arithmetic=Arithmetic(dtype="float32"),
    cost=dict.fromkeys(("gather_rows", "supervision_at_source", "rollout_rows"), 5e-2)
    | dict.fromkeys(("rollout_visibility", "rollout_attention"), 8e-3)
    | {"rollout_loss": 5e-2, "draft_to_target": 3e-2, "state_gradient": 6e-2, "draft_logits": 3e-2},
    deviations=(
        Deviation(
            "ROWS-310",
            "a flag on the last token is kept, so the padded row trains towards zero logits, an even law",
            link=_PADDED,
        ),
        Deviation("ROWS-609", "and so does a padded row of every later step that the flag is shifted to", link=_PADDED),
        Deviation(
            "LOSSES-303",
            "target_p * out_logp is NaN, 0 · (−inf), where both laws mask a token, and so is the loss",
            link=_MEAN,
        ),
        Deviation("LOSSES-708", "a step that counts no row has the loss 0, and is added", link=_MEAN),
        Deviation(
            "LOSSES-711",
            "the gate multiplies by 0 what a softmax over nothing made NaN",
            link=f"{_CODE}#L837-L855",
        ),
        Deviation(
            "LOSSES-802",
            "inference drops the map where both vocabularies have one size",
            link=f"{_TREE}/model/cnets.py#L751-L754",
        ),
        Deviation(
            "LOSSES-803",
            "a map is added as it is: nothing compares it with t2d or with the vocabulary",
            link=f"{_TREE}/model/cnets.py#L754",
        ),
        Deviation(
            "LOSSES-901",
            "the mask multiplies: a NaN or an infinity in an unsupervised row makes loss and gradient NaN",
            link=_MEAN,
        ),
        Deviation("LOSSES-902", "a batch without a supervised row has the loss 0, and is trained on", link=_MEAN),
        Deviation("LOSSES-1001", "where the gate closes every row, the loss is 0 instead of none", link=_MEAN),
        *eagle_step.TRAINING_DEVIATIONS,
    ),
)


def draft_logits(case: DrafterCase) -> DraftRollout:
    """The rollout of a case's last row: see `adapters.eagle_step`."""
    return eagle_step.trained(case)


def gather_rows(case: GatherCase) -> GatheredRows:
    """The rows of step 0, the padded last one of each sample among them."""
    return _gather(case)[0]


def supervision_at_source(case: SupervisionCase) -> Flags:
    """The sources whose rows reach the loss of step 0."""
    return shared.supervised_sources(_gather, case)


def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
    """Every row of every step, by what it was fed and trained towards."""
    count, length = case.batch.valid.shape
    found = shared.documents(case.batch)
    codes, features = tracers.codes(count, length), tracers.features(count, length, 2)
    rollout = _Rollout(found, codes, features, case.batch.supervise, case.steps)
    nodes: list[tuple[int, int, int, int, int, bool, int, int]] = []
    place: dict[tuple[int, int, int], int] = {}
    for s in range(case.steps):
        supervised = rollout.supervised(s)
        for i, r in rollout.visible[s].nonzero().tolist():
            consumed = tracers.address(rollout.tokens[s][i, r].item(), count, length)[1]
            target = tracers.address(rollout.targets[s][i, r, 0].item(), count, length)[1]
            fed = rollout.fed_by(s, i, r)
            place[s, i, r] = len(nodes)
            flag, position = bool(supervised[i, r]), int(rollout.positions[s].expand_as(supervised)[i, r])
            state_from = -1 if fed is None else place[fed]
            anchor = found[i].start + r
            nodes.append((s, found[i].batch, anchor, consumed, target, flag, position, state_from))
    return shared.rollout_nodes(nodes)


def rollout_loss(case: RolloutLossCase) -> LossResult:
    """Σ 0.8^s of the step losses, each the mean over all rows behind mask and gate."""
    draft, target = np.asarray(case.draft_logits), np.asarray(case.target_logits)
    steps, count, vocabulary = target.shape
    ids = np.arange(vocabulary) if case.draft_to_target is None else np.asarray(case.draft_to_target)
    _same_conventions(case, ids, steps)
    torch = shared.import_torch(CLONE)
    names, model = drafter(vocabulary, 2, draft_vocabulary=len(ids))
    t2d = torch.zeros(vocabulary, dtype=torch.bool)
    t2d[torch.tensor(ids)] = True
    model.register_buffer("t2d", t2d)
    model.length = 1
    leaves = [torch.tensor(draft[s : s + 1], dtype=torch.float32).requires_grad_() for s in range(steps)]
    plosses = []
    for s in range(steps):
        rows = torch.tensor(target[s : s + 1], dtype=torch.float32)
        mask = torch.tensor(np.asarray(case.supervise)[s : s + 1]).long()
        nothing = torch.zeros(1, count, dtype=torch.long)
        model.dataprepare = lambda *_, rows=rows, mask=mask, nothing=nothing: (
            torch.zeros(1, rows.shape[1], 6),
            rows,
            mask[..., None],
            nothing,
        )
        with_logits = model.lm_head.register_forward_hook(lambda *_, leaf=leaves[s]: leaf)
        plosses += model(input_ids=nothing, attention_mask=nothing + 1, loss_mask=mask)[0]
        with_logits.remove()
    names = {"__name__": LOOP, "plosses": plosses}
    CLONE.source(LOOP).between("ploss_weight", "loss")(names)
    return shared.answer(names["loss"], "draft_logits", leaves, stacked=True, parts=plosses)


def state_gradient(case: StateGradientCase) -> Flags:
    """Which layer outputs the loss of each step has a gradient to."""
    if case.gradient != "flows":
        raise NotApplicable("it feeds a state back with its graph")
    torch = shared.import_torch(CLONE)
    length = case.steps + 2
    features = np.random.default_rng(0).normal(size=(1, length, 4))
    whole = [Sample(0, 0, length)]
    rollout = _Rollout(whole, tracers.codes(1, length), features, np.ones((1, length), bool), case.steps, True)
    found = np.zeros((case.steps, case.steps), dtype=bool)
    for s, loss in enumerate(rollout.losses):
        grads = torch.autograd.grad(loss, rollout.states, retain_graph=True, allow_unused=True)
        found[s] = [g is not None and bool(g.any()) for g in grads]
    return found


def draft_to_target(case: DraftMapCase) -> Ids:
    """What inference makes of every draft id."""
    if case.convention != "offset":
        raise NotApplicable("its d2t is an offset")
    torch = shared.import_torch(CLONE)
    d2t = torch.tensor(np.asarray(case.d2t)).long()
    draft = torch.arange(len(d2t))
    reached = int((draft + d2t).max()) + 1 if len(d2t) else 0
    size = reached if case.t2d is None else len(case.t2d)
    names: Namespace = {
        "__name__": INFERENCE,
        "self": SimpleNamespace(
            config=SimpleNamespace(vocab_size=size, draft_vocab_size=len(d2t)),
            d2t=d2t,
        ),
        "topk_index": draft,
        "ss_token": [],
    }
    CLONE.source(INFERENCE).conditional("input_ids", within="topK_genrate")(names)
    found: Ids = names["input_ids"].numpy()
    return found


def _gather(case: GatherCase) -> tuple[GatheredRows, Ids]:
    features = np.asarray(case.features, dtype=np.float64)
    width = features.shape[2]
    found = shared.documents(case.batch)
    rollout = _Rollout(found, np.asarray(case.batch.tokens), features, case.batch.supervise, steps=1)
    seen = rollout.visible[0]
    batch, source = shared.addresses(found, seen)
    rows = GatheredRows(
        batch=batch,
        feature=rollout.features[seen][:, :width].double().numpy(),
        token=rollout.tokens[0][seen].numpy(),
        target=rollout.targets[0][seen][:, :width].double().numpy(),
        supervise=rollout.supervised(0)[seen].numpy(),
        position=rollout.positions[0].expand_as(seen)[seen].numpy(),
    )
    return rows, source


class _Rollout:
    """One forward of the drafter, and what its steps were fed: lists have an entry a step.

    The target answers with the features of each sample, and with zeros where the collator padded it.
    """

    def __init__(
        self,
        found: Sequence[Sample],
        tokens: Ids,
        features: Rows,
        supervise: Flags,
        steps: int,
        own_logits: bool = False,
    ) -> None:
        torch = self._torch = shared.import_torch(CLONE)
        if steps < 1:
            raise NotApplicable("without a step there is no loss")
        width = features.shape[2] + features.shape[2] % 2  # rotary embeddings want an even one
        wide = torch.zeros(len(found), max(sample.length for sample in found), width)
        samples = shared.cut(torch, found, features, tokens, supervise)
        for i, (given, _, _) in enumerate(samples):
            wide[i, : len(given), : features.shape[2]] = given
        self.tokens: list[Any] = []
        self.fed: list[Any] = []
        self.visible: list[Any] = []
        self.states: list[Any] = []
        self.positions: list[Any] = []
        self.targets: list[Any] = []
        self.logits: list[Any] = []

        class Softmax(torch.nn.Softmax):  # type: ignore[name-defined, misc]
            """nn.Softmax, which the trainer applies to the target's logits alone."""

            def forward(inner, rows: Any) -> Any:
                self.targets.append(rows)
                return super().forward(rows)

        names, model = drafter(1 + max(int(ids.max()) for _, ids, _ in samples), width, width, softmax=Softmax)
        rotate = names["apply_rotary_pos_emb"]

        def rotated(q: Any, k: Any, cos: Any, sin: Any, position_ids: Any) -> Any:
            self.positions.append(position_ids)
            return rotate(q, k, cos, sin, position_ids)

        names["apply_rotary_pos_emb"] = rotated
        model.register_buffer("t2d", torch.ones(width, dtype=torch.bool))
        model.length = steps
        model.embed_tokens.register_forward_pre_hook(lambda _, given: self.tokens.append(given[0]))
        model.fc.register_forward_pre_hook(self._see_features)
        model.fc.register_forward_hook(self._see_fused)
        model.midlayer.register_forward_pre_hook(self._see_layer, with_kwargs=True)
        model.midlayer.register_forward_hook(lambda _, __, made: self.states.append(made[0][0]))
        model.lm_head.register_forward_hook(self._see_logits if own_logits else self._set_logits)
        items = [
            {"input_ids": ids[None], "attention_mask": torch.ones_like(ids)[None], "loss_mask": mask[None]}
            for _, ids, mask in samples
        ]
        data = collator()(items)
        model.target_model.answers = SimpleNamespace(hidden_states=[wide] * 3, logits=wide)
        self.losses = model(**data)[0]

    def supervised(self, step: int) -> Any:
        """bool [B, S]: which rows the loss of a step has a gradient to."""
        (found,) = self._torch.autograd.grad(self.losses[step], self.logits[step], retain_graph=True)
        return (found != 0).any(dim=-1)

    def fed_by(self, step: int, i: int, r: int) -> tuple[int, int, int] | None:
        """(step, sample, row) of the output that a row is fed; None for the target's feature."""
        state = self.fed[step][i, r]
        for s in range(step):
            for found in (self.states[s] == state).all(dim=-1).nonzero().tolist():
                return s, found[0], found[1]
        if not (self.fused == state).all(dim=-1).any():
            raise AdapterError(f"row {r} of step {step} is fed neither a feature nor an earlier output")
        return None

    def _see_features(self, _: Any, given: tuple[Any, ...]) -> None:
        self.features = given[0][..., : given[0].shape[-1] // 3]

    def _see_fused(self, _: Any, __: Any, made: Any) -> None:
        self.fused = made

    def _see_layer(self, _: Any, __: Any, named: dict[str, Any]) -> None:
        self.fed.append(named["hidden_states"])
        self.visible.append(named["attention_mask"].diagonal(dim1=-2, dim2=-1)[:, 0] == 0)

    def _see_logits(self, _: Any, __: Any, made: Any) -> None:
        self.logits.append(made)

    def _set_logits(self, _: Any, __: Any, made: Any) -> Any:
        # finite and uneven, whatever a row was fed: a filler's even target has a gradient to them, too
        uneven = self._torch.arange(made.shape[-1], dtype=made.dtype).expand_as(made).clone().requires_grad_()
        self.logits.append(uneven)
        return uneven


def _same_conventions(case: RolloutLossCase, ids: np.ndarray, steps: int) -> None:
    """`NotApplicable` where the case asks for another loss than the trainer's."""
    for name in ("denominator", "restricted_target", "gate", "divergence", "reduction"):
        if getattr(case, name) != DECLARATION.conventions[name]:
            raise NotApplicable(f"its {name} is {DECLARATION.conventions[name]!r}")
    if case.denominator_epsilon != 0:
        raise NotApplicable("it adds nothing to its denominator")
    if case.step_weights is not None and [float(w) for w in case.step_weights] != [DECAY**s for s in range(steps)]:
        raise NotApplicable("its step weights are written into its loop, 0.8**s")
    if np.any(np.diff(ids) <= 0):
        raise NotApplicable("it picks draft tokens by a boolean mask, so their ids are in the target's order")
