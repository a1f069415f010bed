"""SafeAILab/EAGLE's numeric draft step: it serves as `adapters.eagle:serving`, and trains as `adapters.eagle:eagle3`.

Serving is `Model` of `eagle/model/cnets.py`, and of `cnets1.py` for EAGLE-1: the prefix goes through `Model.forward`,
each rollout token through another one with the keys and values that the call before returned; logits are what the
statement `last_headout = …` of `topK_genrate` makes of the last state. A checkpoint is loaded by `load_state_dict` that
is not strict, as `EaModel` does it, so a missing weight keeps the numbers that the model began with. In EAGLE-3 a
feature of the drafter's width skips the fusion. The head of EAGLE-1 is a linear layer beside the model, as it is the
target's.

Training is `Model.forward` of `eagle/traineagle3/cnets.py`, the whole rollout in one call: see
`adapters.draft_steps.rolled_out_at_once`. The target answers with the case's features. Weights are loaded strictly, and
maps of the vocabulary that a case has not are made up, since the loss wants some.

The trainer of EAGLE-1, `adapters.eagle`, has the same `Model`: its loop's statements run on a batch of one prefix,
whose rows lie where their positions are; it rolls nothing out.

Not applicable: the projected pair, a width of heads other than hidden / heads, EAGLE-1 fused feature first, biases
other than that of EAGLE-1's fusion and of `qkv_bias`; and EAGLE-1 for the trainer of EAGLE-3.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters import draft_steps, eagle_drafter
from adapters.clones import Clone, Namespace, Source
from adapters.interface import Deviation, NotApplicable
from oracle.types import DrafterCase, DraftRollout

CLONE = Clone("EAGLE_CLONE", "https://github.com/SafeAILab/EAGLE", "eagle/model/cnets.py")
FILES = {"eagle1": "eagle/model/cnets1.py", "eagle3": "eagle/model/cnets.py"}
"""Variant → where its `Model` is."""
_ROTARY = "https://github.com/SafeAILab/EAGLE/blob/cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b/eagle/traineagle3/cnets.py"
TRAINING_DEVIATIONS = (
    Deviation("DRAFTER-507", "rope_theta is not read: the angles are those of 10000", link=f"{_ROTARY}#L207-L209"),
)


def draft_logits(case: DrafterCase) -> DraftRollout:
    """The case's prefix and rollout, by the model that serves its variant."""
    applicable(case)
    return served(CLONE.source(FILES[case.variant]), _names(case.variant), case, strict=False)


def served(source: Source, names: Namespace, case: DrafterCase, strict: bool) -> DraftRollout:
    """A prefix and its rollout by the `Model` of a file. names: those that the file's definitions were run in."""
    model, head = loaded(names, case, strict)

    def forward(states: Any, tokens: Any, **more: Any) -> Any:
        return model(states, tokens, use_cache=True, **more)

    def spoken(state: Any) -> Any:
        given = {**names, "self": model, "head": head, "last_hidden": state}
        source.between("last_headout", "last_headout", "topK_genrate")(given)
        return given["last_headout"]

    return draft_steps.rolled_out(names["torch"], case, forward, spoken)


def trained(case: DrafterCase) -> DraftRollout:
    """The same by the model that EAGLE-3 is trained with."""
    applicable(case)
    if case.variant != "eagle3":
        raise NotApplicable("it trains EAGLE-3")
    torch = shared.import_torch(CLONE)
    torch.set_num_threads(1)
    config = draft_steps.settings(case)
    _, model = eagle_drafter.drafter(0, 0, 0, config=config)
    for name, values in draft_steps.maps(case).items():
        model.register_buffer(name, torch.tensor(values))
    draft_steps.load(torch, model, case, strict=True, missing=draft_steps.maps(case))

    def run(inputs: dict[str, Any]) -> None:
        features, tokens = inputs["hidden_states"], inputs["input_ids"]
        model.target_model.answers = SimpleNamespace(
            hidden_states=features.split(config.hidden_size, dim=-1),
            logits=torch.zeros(*tokens.shape, config.vocab_size),
        )
        model.length = len(case.rollout_tokens) + 1
        model(tokens, inputs["attention_mask"], inputs["position_ids"], loss_mask=inputs["loss_mask"])

    return draft_steps.rolled_out_at_once(torch, case, model.midlayer, model.lm_head, run)


def trained1(script: shared.Script, case: DrafterCase) -> DraftRollout:
    """A prefix by the loop that trains EAGLE-1: a row stands at its number, and the rows between are hidden."""
    applicable(case)
    if case.variant != "eagle1":
        raise NotApplicable("it trains EAGLE-1")
    if len(case.rollout_tokens):
        raise NotApplicable("it trains on the target's features alone, and rolls nothing out")
    if (np.diff(case.positions) <= 0).any():
        raise NotApplicable("a row's position is its number in the batch")
    model, head = loaded(_names(case.variant), case, strict=True)
    names = script.namespace()
    torch = names["torch"]
    count = int(case.positions[-1]) + 1
    tokens = np.full((1, count), draft_steps.FILLER)
    features = np.zeros((1, count, case.features.shape[1]), dtype=np.float32)
    visible = np.zeros((1, count), dtype=np.int64)
    tokens[0, case.positions], features[0, case.positions], visible[0, case.positions] = case.tokens, case.features, 1
    data = {
        "input_ids": torch.tensor(tokens),
        "hidden_states": torch.tensor(features),
        "attention_mask": torch.tensor(visible),
        "target": torch.zeros(1, count, model.fc.out_features),
        "loss_mask": torch.zeros(1, count, dtype=torch.long),
    }
    run = script.run(names, model, data, head)
    found = (names["out_head"], run.predicted[0])
    return DraftRollout(*(one[:, -1].detach().double().numpy() for one in found))


def applicable(case: DrafterCase) -> None:
    """`NotApplicable` for what both models have no notion of."""
    if case.variant not in FILES:
        raise NotApplicable("it attends from the normed pair: it has no projection of it")
    config = case.config
    width = int(str(config["hidden_size"])) // int(str(config["num_attention_heads"]))
    if config.get("head_dim", width) != width:
        raise NotApplicable("its heads are as wide as hidden / heads: head_dim is not read")
    if case.variant == "eagle1" and config.get("fusion_order", "embedding_first") != "embedding_first":
        raise NotApplicable("it fuses embedding first")


def biased(case: DrafterCase, *names: str) -> bool:
    """Whether the case has all of these biases."""
    return all(f"{name}.bias" in case.weights for name in names)


def loaded(names: Namespace, case: DrafterCase, strict: bool) -> tuple[Any, Any]:
    """The model, its weights loaded, and, in EAGLE-1, the target's head."""
    torch = names["torch"]
    config = draft_steps.settings(case)
    if case.variant == "eagle1" and biased(case, *(f"layers.0.self_attn.{name}_proj" for name in "qkv")):
        config.qkv_bias = True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = names["Model"](config, bias=biased(case, "fc")).eval()
    if case.variant == "eagle3":
        draft_steps.load(torch, model, case, strict)
        return model, None
    if "lm_head.bias" in case.weights:
        raise NotApplicable("the head is the target's, which has no bias")
    draft_steps.load(torch, model, case, strict, apart=("lm_head",))
    head = torch.nn.utils.skip_init(torch.nn.Linear, config.hidden_size, config.draft_vocab_size, bias=False)
    head.load_state_dict({"weight": torch.tensor(np.asarray(case.weights["lm_head.weight"]))})
    return model, head


@cache
def _names(variant: str) -> Namespace:
    """The namespace of a variant's file."""
    torch = shared.import_torch(CLONE)
    torch.set_num_threads(1)
    names = shared.model_names(torch)
    CLONE.source(FILES[variant]).define(names)
    return names
