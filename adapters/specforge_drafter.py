"""SpecForge's EAGLE-3 drafter on given weights: a run's configuration, its warm start and its rollout, in float32.

`AutoDraftModelConfig` reads the configuration, `warm_start_draft_model` the weights, as a checkpoint of SpecForge's own
beside it; names are those of SafeAILab/EAGLE. `OnlineEagle3Model` rolls out over one sample: its tokens are those of
prefix and rollout, and row S − 1 of step k consumes rollout token k with the state that it made one step before. Rows
behind the prefix are fillers, of features 0, that no earlier row sees. There are as many as it takes for the positions:
they index a rotary table as long as the batch row.

What the loss is handed is recorded, and no loss computed; target logits are zeros. Without a map beside the weights the
checkpoint holds the one that a new model has. An EAGLE-3 run lets its checkpoint lack the embedding, which it takes
from the target; there is none here, and the warm start is called by its default, which lets nothing be missing.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from adapters import specforge_engine as engine
from adapters.interface import NotApplicable
from oracle.types import DrafterCase, DraftRollout

ARCHITECTURE = "LlamaForCausalLMEagle3"
CHECKPOINT = "training_state.pt"
MAPS = ("d2t", "t2d")


def draft_logits(case: DrafterCase) -> DraftRollout:
    """Logits and states of the prefix's last row, at each step of `OnlineEagle3Model`'s rollout."""
    return _rolled_out(case, "sdpa")


def flex_logits(case: DrafterCase) -> DraftRollout:
    """The same, of a draft model with `LlamaFlexAttention`."""
    return _rolled_out(case, "flex_attention")


def _rolled_out(case: DrafterCase, attention: str) -> DraftRollout:
    if case.variant != "eagle3":
        raise NotApplicable("its drafter of one Llama layer is EAGLE-3 as released: attention on the normed pair")
    if any(name.endswith(".bias") for name in case.weights):
        raise NotApplicable("its maps have no biases")
    sf = engine.specforge()
    torch = sf.torch
    rows, steps = len(case.tokens), len(case.rollout_tokens) + 1
    length = max(rows + steps - 1, *(int(position) + 1 for position in case.positions))
    if length > engine.MOST_TOKENS:
        raise NotApplicable(f"samples are cut at {engine.MOST_TOKENS} tokens, and positions are theirs")
    draft = _drafter(case, length, attention)
    tokens = torch.zeros((1, length), dtype=torch.int64)
    tokens[0, : rows + steps - 1] = torch.tensor(np.concatenate([case.tokens, case.rollout_tokens]))
    positions = torch.zeros((1, length), dtype=torch.int64)
    positions[0, :rows] = torch.tensor(np.array(case.positions))
    features = torch.tensor(np.array(case.features), dtype=torch.float32)
    fillers = torch.zeros((length - rows, features.shape[1]))
    mask = torch.ones((1, length), dtype=torch.int64)
    states, logits = [], []
    layer = draft.backbone

    def backbone(**arguments: Any) -> Any:
        made = layer(**arguments)
        states.append(made[0, rows - 1])
        return made

    def unjudged(**arguments: Any) -> Any:
        logits.append(arguments["logits"][0, rows - 1])
        return (torch.zeros(()),) * 7

    draft.backbone = backbone
    model = sf.model.OnlineEagle3Model(draft, length=steps, attention_backend=attention)
    model._acc_and_loss = unjudged
    with torch.no_grad():
        model(
            input_ids=tokens,
            attention_mask=mask,
            target=torch.zeros((1, length, draft.vocab_size)),
            loss_mask=mask[..., None],
            hidden_states=torch.cat([features, fillers])[None],
            position_ids=positions,
        )
    return DraftRollout(*(np.stack([row.double().numpy() for row in found]) for found in (logits, states)))


def _drafter(case: DrafterCase, length: int, attention: str) -> Any:
    """The draft model that a run starts with."""
    sf = engine.specforge()
    torch = sf.torch
    auto = importlib.import_module("specforge.modeling.auto")
    loading = importlib.import_module("specforge.training.model_loading")
    # where a weight is missing, the loader says so, whatever the size
    vocabulary, draft_vocabulary = (
        len(case.weights[name]) if name in case.weights else 1 for name in ("embed_tokens.weight", "lm_head.weight")
    )
    written = {
        **{name: value for name, value in case.config.items() if name != "fusion_order"},
        "architectures": [ARCHITECTURE],
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "vocab_size": vocabulary,
        "draft_vocab_size": draft_vocabulary,
        "max_position_embeddings": length,
        "pad_token_id": 0,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        torch.random.fork_rng(devices=[]),
        contextlib.redirect_stdout(io.StringIO()),  # it tells of an attention that is not the default
    ):
        settings = Path(folder) / "config.json"
        settings.write_text(json.dumps(written), encoding="utf-8")
        config = auto.AutoDraftModelConfig.from_file(str(settings))
        draft = auto.AutoDraftModel.from_config(config, attention_backend=attention)
        fresh = {name: value for name, value in draft.state_dict().items() if name in MAPS}
        given = {name: torch.tensor(np.array(values)).float() for name, values in case.weights.items()}
        maps = {name: given[name].to(value.dtype) for name, value in fresh.items() if name in given}
        torch.save({"draft_state_dict": fresh | given | maps, "strategy": "eagle3"}, Path(folder) / CHECKPOINT)
        loading.warm_start_draft_model(draft, folder, draft_config=config, strategy="eagle3")
    return draft
