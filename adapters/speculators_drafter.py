"""speculators' EAGLE-3 drafter on given weights: loaded by the package and rolled out by its forward, in float32.

The forward gets one document: its tokens are those of prefix and rollout, and row S − 1 of step k consumes rollout
token k with the state that it made one step before. Rows behind the prefix are fillers, of features 0, that no earlier
row sees; under flex attention there are as many as whole blocks want.

What is converted, and nothing else:
- names: `midlayer` is `layers.0`, as the package's own converter has it;
- biases of attention and of the feed-forward part come all or none, by a setting each: those that a case has not are
  zeros. Fusion and head have none;
- there is no target to complete the drafter from, and the loader is not asked for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters import speculators_engine as engine
from adapters import speculators_training
from adapters.interface import NotApplicable
from adapters.speculators_visibility import BLOCK
from oracle.types import DrafterCase, DraftRollout

BIASED = {
    "attention_bias": tuple(f"layers.0.self_attn.{name}_proj" for name in "qkvo"),
    "mlp_bias": tuple(f"layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")),
}
"""Setting → the maps that it gives a bias."""


def draft_logits(case: DrafterCase) -> DraftRollout:
    """Logits and states of the prefix's last row, at each step of the forward's loop, with eager attention."""
    return _rolled_out(case, "eager")


def flex_logits(case: DrafterCase) -> DraftRollout:
    """The same with torch's `flex_attention`, the package's default."""
    return _rolled_out(case, "simple_flex_attention")


def sdpa_logits(case: DrafterCase) -> DraftRollout:
    """The same with torch's `scaled_dot_product_attention`."""
    return _rolled_out(case, "sdpa")


def _rolled_out(case: DrafterCase, attention: str) -> DraftRollout:
    if case.variant != "eagle3":
        raise NotApplicable("its drafter of one Llama layer is EAGLE-3 as released: attention on the normed pair")
    torch = engine.package().torch
    rows, steps = len(case.tokens), len(case.rollout_tokens) + 1
    model = _drafter(case, steps, attention)
    length = rows + steps - 1
    length += -length % BLOCK if attention == "simple_flex_attention" else 0
    tokens, positions = torch.zeros((2, 1, length), dtype=torch.int64)
    tokens[0, : rows + steps - 1] = torch.tensor(np.concatenate([case.tokens, case.rollout_tokens]))
    positions[0, :rows] = torch.tensor(np.array(case.positions))
    features = torch.tensor(np.array(case.features), dtype=torch.float32)
    fillers = torch.zeros((length - rows, features.shape[1]))
    states, logits = [], []
    model.layers[-1].register_forward_hook(lambda _, given, made: states.append(made[0, rows - 1]))
    model.lm_head.register_forward_hook(lambda _, given, made: logits.append(made[0, rows - 1]))
    with torch.no_grad():
        model(
            hidden_states=torch.cat([features, fillers])[None],
            input_ids=tokens,
            document_ids=torch.zeros_like(tokens),
            position_ids=positions,
            ttt_steps=steps,
        )
    return DraftRollout(*(np.array([row.tolist() for row in found]) for found in (logits, states)))


def _drafter(case: DrafterCase, steps: int, attention: str) -> Any:
    """The package's model with the weights of the case."""
    p = engine.package()
    torch = p.torch
    weights = {
        name.replace("midlayer.", "layers.0."): torch.tensor(np.array(values)).float()
        for name, values in case.weights.items()
    }
    settings = {}
    for setting, maps in BIASED.items():
        settings[setting] = any(f"{name}.bias" in weights for name in maps)
        if settings[setting]:
            for name in maps:
                if f"{name}.weight" in weights:
                    weights.setdefault(f"{name}.bias", torch.zeros(len(weights[f"{name}.weight"])))
    if any(f"{name}.bias" in weights for name in ("fc", "lm_head")):
        raise NotApplicable("its fusion and its head have no biases")
    # where a weight is missing, the loader is asked, whatever the size
    vocabulary, draft_vocabulary = (
        len(weights[name]) if name in weights else 1 for name in ("embed_tokens.weight", "lm_head.weight")
    )
    layer = p.transformers.LlamaConfig(
        **{name: value for name, value in case.config.items() if name != "fusion_order"},
        **settings,
        vocab_size=vocabulary,
        num_hidden_layers=1,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    layer._attn_implementation = attention
    config = engine.speculator_config(layer, draft_vocabulary, steps, None)
    model = p.core.Eagle3DraftModel
    alone = engine.replaced(model, "load_verifier_weights", lambda _: None)
    with torch.random.fork_rng(devices=[]), alone, speculators_training.quiet():
        return model.from_pretrained(None, config=config, state_dict=weights)
