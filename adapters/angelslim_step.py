"""AngelSlim's numeric draft step: as it serves (`adapters.angelslim:serving`) and as it trains (`adapters.angelslim`).

Serving is `Llama3Eagle3Drafter.forward`, call by call with the keys and values of the call before, as
`adapters.draft_steps` drives it; logits are what `lm_head` makes in `_get_topk_tokens`. A checkpoint is loaded by
`load_state_dict` that is not strict, as `Eagle3Model.from_pretrained` does it.

Training is `compute_loss` of the offline trainer over `Eagle3LlamaForCausalLM`, the whole rollout in one call: the
prefix's last row is followed, step by step, by the tokens that come after it. States and logits are read where the
layer and the head leave them. Weights are loaded strictly, and maps of the vocabulary that a case has not are made up,
since the loss wants some.

Not applicable: EAGLE-1, the projected pair, biases.
"""

from __future__ import annotations

from typing import Any

from adapters import angelslim_engine as engine
from adapters import draft_steps
from adapters.interface import Deviation, NotApplicable
from oracle.types import DrafterCase, DraftRollout

_CODE = "https://github.com/Tencent/AngelSlim/blob/v0.5.0/angelslim/compressor/speculative"
_EAGLE3 = f"{_CODE}/inference/models/eagle3"
_ROTARY = f"{_CODE}/train/models/draft/llama_eagle3.py#L257-L275"
SERVING_DEVIATIONS = (
    Deviation(
        "DRAFTER-1001",
        "a checkpoint is loaded with strict=False: a missing weight keeps the numbers that the model began with",
        link=f"{_EAGLE3}/eagle3_model.py#L384",
    ),
    Deviation(
        "DRAFTER-1002",
        "a feature of the drafter's width is taken for a state that is fed back, and skips the fusion",
        link=f"{_EAGLE3}/draft/llama3_eagle3.py#L628-L629",
    ),
)
TRAINING_DEVIATIONS = (Deviation("DRAFTER-507", "rope_theta is not read: the angles are those of 10000", link=_ROTARY),)


def served(case: DrafterCase) -> DraftRollout:
    """`Llama3Eagle3Drafter`."""
    applicable(case)
    a = engine.angelslim()
    with a.torch.random.fork_rng(devices=[]):
        a.torch.manual_seed(0)
        model = a.drafter.Llama3Eagle3Drafter(draft_steps.settings(case), top_k=1).eval()
    draft_steps.load(a.torch, model, case, strict=False)
    spoken: list[Any] = []
    model.lm_head.register_forward_hook(lambda _, __, logits: spoken.append(logits))

    def forward(states: Any, tokens: Any, **more: Any) -> Any:
        return model(states, tokens, use_cache=True, **more)[:2]

    def head(state: Any) -> Any:
        model._get_topk_tokens(state)
        return spoken.pop()

    return draft_steps.rolled_out(a.torch, case, forward, head)


def trained(case: DrafterCase) -> DraftRollout:
    """`OfflineEagle3Trainer` with `Eagle3LlamaForCausalLM`."""
    applicable(case)
    a = engine.angelslim()
    with a.torch.random.fork_rng(devices=[]):
        draft = a.draft.Eagle3LlamaForCausalLM(a.transformers.LlamaConfig(**vars(draft_steps.settings(case))))
        projection = a.torch.nn.Linear(draft.hidden_size, draft.vocab_size, bias=False)
    draft_steps.load(a.torch, draft, case, strict=True, missing=draft_steps.maps(case))
    layer, head = draft.midlayer, draft.lm_head

    def run(inputs: dict[str, Any]) -> None:
        trainer = engine.bare_trainer(draft, projection, len(case.rollout_tokens) + 1)
        trainer.compute_loss(draft, inputs)

    return draft_steps.rolled_out_at_once(a.torch, case, layer, head, run)


def applicable(case: DrafterCase) -> None:
    """`NotApplicable` for what both drafters have no notion of."""
    if case.variant != "eagle3":
        raise NotApplicable("its drafter is EAGLE-3 that attends from the normed pair")
