"""SafeAILab/EAGLE's numeric draft step as it serves: `Model` of `eagle/model/cnets.py` and of `cnets1.py` (EAGLE-1).

A case's weights are loaded by their own names as `EaModel` loads a checkpoint, by `load_state_dict` that is not strict;
the head of EAGLE-1 is a linear layer beside the model, as it is the target's. The prefix goes through `Model.forward`,
each rollout token through another one with the keys and values that the call before returned; logits are what the
statement `last_headout = …` of `topK_genrate` makes of the last state. All of it is in float32: norms and softmax are
in any case.

The tables of rotations end with the last row, so a prefix that stands further on is padded on the left with rows that
`attention_mask` hides, as a batch is. Not applicable: the projected pair, a width of heads other than hidden / heads,
EAGLE-1 fused feature first, biases other than that of EAGLE-1's fusion and of `qkv_bias`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters.clones import Clone, Namespace
from adapters.interface import Deviation, NotApplicable
from oracle.types import DrafterCase, DraftRollout

CLONE = Clone("EAGLE_CLONE", "https://github.com/SafeAILab/EAGLE", "eagle/model/cnets.py")
FILES = {"eagle1": "eagle/model/cnets1.py", "eagle3": "eagle/model/cnets.py"}
"""Variant → where its `Model` is."""
FILLER = 0
"""The token of a hidden row."""
_MODEL = "https://github.com/SafeAILab/EAGLE/blob/cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b/eagle/model"
DEVIATIONS = (
    Deviation(
        "DRAFTER-1001",
        "a checkpoint is loaded with strict=False: a missing weight keeps the numbers that the model began with",
        link=f"{_MODEL}/ea_model.py#L76",
    ),
    Deviation(
        "DRAFTER-1002",
        "in EAGLE-3 a feature of the drafter's width is taken for a state that is fed back, and skips the fusion",
        link=f"{_MODEL}/cnets.py#L639-L640",
    ),
)


def draft_logits(case: DrafterCase) -> DraftRollout:
    """The case's prefix and rollout, by the model that serves its variant."""
    applicable(case)
    names = _names(case.variant)
    torch = names["torch"]
    model, head = _model(names, case)
    fillers = max(0, int(np.max(case.positions)) + 1 - len(case.tokens))
    features = torch.tensor(np.asarray(case.features), dtype=torch.float32)
    states = torch.nn.functional.pad(features, (0, 0, fillers, 0))[None]
    tokens = torch.tensor([FILLER] * fillers + case.tokens.tolist())[None]
    where = torch.tensor([0] * fillers + case.positions.tolist())[None]
    visible = torch.tensor([False] * fillers + [True] * len(case.tokens))[None]
    found, logits, past = [], [], None
    with torch.no_grad():
        for token in [None, *case.rollout_tokens.tolist()]:
            if token is not None:
                states, tokens, where = states[:, -1:], torch.tensor([[token]]), where[:, -1:] + 1
                visible = torch.nn.functional.pad(visible, (0, 1), value=True)
            states, past = model(
                states, tokens, attention_mask=visible, position_ids=where, past_key_values=past, use_cache=True
            )
            spoken = {**names, "self": model, "head": head, "last_hidden": states[:, -1]}
            CLONE.source(FILES[case.variant]).between("last_headout", "last_headout", "topK_genrate")(spoken)
            found.append(states[0, -1])
            logits.append(spoken["last_headout"][0])
    return DraftRollout(*(torch.stack(rows).double().numpy() for rows in (logits, found)))


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


def settings(case: DrafterCase) -> Any:
    """The case's configuration with what else Llama's has."""
    known = {name: value for name, value in case.config.items() if name not in ("head_dim", "fusion_order")}
    vocabulary, width = case.weights["embed_tokens.weight"].shape
    return shared.tiny_config(vocabulary, width, draft_vocab_size=len(case.weights["lm_head.weight"]), **known)


def biased(case: DrafterCase, *names: str) -> bool:
    """Whether the case has all of these biases."""
    return all(f"{name}.bias" in case.weights for name in names)


def load(torch: Any, module: Any, case: DrafterCase, strict: bool, apart: tuple[str, ...] = ()) -> None:
    """Load the case's weights but those of the modules `apart`; `NotApplicable` for a bias that has no place."""
    given = {
        name: torch.tensor(np.asarray(values))
        for name, values in case.weights.items()
        if name.rpartition(".")[0] not in apart
    }
    if homeless := [name for name in given if name.endswith(".bias") and name not in module.state_dict()]:
        raise NotApplicable(f"it has no {', '.join(homeless)}")
    module.load_state_dict(given, strict=strict)


def _model(names: Namespace, case: DrafterCase) -> tuple[Any, Any]:
    """The model and, in EAGLE-1, the target's head."""
    torch = names["torch"]
    config = settings(case)
    if case.variant == "eagle1" and biased(case, *(f"layers.0.self_attn.{name}_proj" for name in "qkv")):
        config.qkv_bias = True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = names["Model"](config, bias=biased(case, "fc")).eval()
    if case.variant == "eagle3":
        load(torch, model, case, strict=False)
        return model, None
    if "lm_head.bias" in case.weights:
        raise NotApplicable("the head is the target's, which has no bias")
    load(torch, model, case, strict=False, apart=("lm_head",))
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
