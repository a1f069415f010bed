"""modelopt's EAGLE-3 drafter on given weights: converted, loaded, and rolled out by the forward that trains it.

`modelopt.torch.speculative.convert` makes the drafter of a base model without layers, whose embedding is the case's,
by an architecture configuration of the case's settings. The forward then runs its loop on one sample: its rows are
those of prefix and rollout, absolute, so row S − 1 + k of step k consumes rollout token k with the state that the row
before it made one step before. A filler stands before the first token, since the loop consumes a row's next token, and
a row of it behind the last, which no earlier row sees. Positions are the forward's argument. What the loss is handed is
recorded, and none is computed. Everything is float32: norms and rotations are in any case.

What is converted, and nothing else:
- names: `midlayer` is `layers.0`, as the package exports it. Weights are loaded strictly;
- the head is the drafter's where the vocabularies differ; otherwise the package takes that of the base model;
- `attention_bias` and `mlp_bias` give all maps of a kind a bias: those that a case has not are zeros;
- `head_dim` is hidden / heads where a case gives none: the package's own default is 128;
- there are no marks of mapped tokens, `t2d`, and the map that a case has not is that of a new model.

Not applicable: EAGLE-1 (without auxiliary layers the drafter has no fusion, and does not read the token), the projected
pair, biases of fusion and head, a map where the vocabularies are of one size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters import modelopt_engine as engine
from adapters.draft_steps import FILLER
from adapters.interface import Deviation, NotApplicable
from oracle.types import DrafterCase, DraftRollout

BIASED = {
    "attention_bias": tuple(f"layers.0.self_attn.{name}_proj" for name in "qkvo"),
    "mlp_bias": tuple(f"layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")),
}
"""Setting → the maps that it gives a bias."""
_TWICE = (401, 403, 501, 502, 503, 505, 506, 602, 704, 801, 903, 904, 905)
DEVIATIONS = (
    Deviation(
        "DRAFTER-507",
        "rope_theta of a drafter's configuration is not read: rope_scaling, merged in by default, has a base of 10000",
        link=f"{engine.SOURCE}/eagle/default_config.py#L22-L26",
    ),
    *(
        Deviation(
            f"DRAFTER-{number}",
            "the fused feature is normed twice: by input_layernorm, which the layer calls before its attention, and by "
            "hidden_norm",
            link=f"{engine.SOURCE}/plugins/modeling_eagle.py#L76-L80",
            fixtures=("745eb7c19c6d",) if number == 401 else (),
        )
        for number in _TWICE
    ),
)


def draft_logits(case: DrafterCase) -> DraftRollout:
    """States and logits of the rows that the rollout's tokens stand at, at each step of the forward's loop."""
    if case.variant != "eagle3":
        raise NotApplicable("its drafter is EAGLE-3 as released: attention on the normed pair")
    torch = engine.package().torch
    rows, steps = len(case.tokens), len(case.rollout_tokens) + 1
    model = _drafter(case, steps)
    tokens = np.concatenate([[FILLER], case.tokens, case.rollout_tokens]).astype(np.int64)
    features = torch.tensor(np.array(case.features), dtype=torch.float32)
    ahead = int(case.positions[-1]) + 1 + np.arange(steps)
    states: list[Any] = []
    logits: list[Any] = []
    forward = model._eagle_forward

    def rolled(*given: Any) -> Any:
        made = forward(*given)
        row = rows - 1 + len(states)
        states.append(made[1][0, row])
        logits.append(made[2][0, row])
        return made

    model._eagle_forward = rolled
    model._eagle_loss = lambda *_: (torch.zeros(()), torch.zeros(()))
    with torch.no_grad():
        model(
            torch.tensor(tokens)[None],
            position_ids=torch.tensor(np.concatenate([case.positions, ahead]))[None],
            base_model_outputs={
                "base_model_hidden_states": torch.zeros((1, len(tokens), model.config.hidden_size)),
                "aux_hidden_states": torch.nn.functional.pad(features, (0, 0, 0, steps))[None],
            },
        )
    return DraftRollout(*(torch.stack(found).double().numpy() for found in (logits, states)))


def _drafter(case: DrafterCase, steps: int) -> Any:
    """The converted model with the weights of the case."""
    p = engine.package()
    torch = p.torch
    given = {
        name.replace("midlayer.", "layers.0."): torch.tensor(np.array(values)).float()
        for name, values in case.weights.items()
        if name != "t2d"
    }
    settings = {}
    for setting, maps in BIASED.items():
        settings[setting] = any(f"{name}.bias" in given for name in maps)
        if settings[setting]:
            for name in maps:
                if f"{name}.weight" in given:
                    given.setdefault(f"{name}.bias", torch.zeros(len(given[f"{name}.weight"])))
    if any(f"{name}.bias" in given for name in ("fc", "lm_head")):
        raise NotApplicable("its fusion and its head have no biases")
    # where a weight is missing, loading says so, whatever the size
    vocabulary = len(given.get("embed_tokens.weight", given.get("lm_head.weight", [0])))
    draft_vocabulary = len(given.get("lm_head.weight", [0] * vocabulary))
    hidden, heads = (int(str(case.config[name])) for name in ("hidden_size", "num_attention_heads"))
    architecture = {
        "head_dim": hidden // heads,
        **{name: value for name, value in case.config.items() if name not in ("hidden_size", "fusion_order")},
        **settings,
        "draft_vocab_size": draft_vocabulary,
        "eagle_aux_hidden_state_layer_ids": list(range(engine.LAYERS)),
    }
    config = {
        "eagle_offline": True,
        "eagle_ttt_steps": steps,
        "eagle_use_torch_compile": False,
        "eagle_architecture_config": architecture,
    }
    with torch.random.fork_rng(devices=[]), engine.quiet():
        base = engine.base_model(vocabulary, hidden)
        model = p.speculative.convert(base, [("eagle", config)]).train()
    fresh = model.eagle_module.state_dict()
    if "d2t" in given:
        if "d2t" not in fresh:
            raise NotApplicable("where the vocabularies are of one size it has no map")
        given["d2t"] = given["d2t"].to(fresh["d2t"].dtype)
    elif "d2t" in fresh:
        given["d2t"] = fresh["d2t"]
    places = {"embed_tokens": model._base_model_embeddings}
    if "lm_head.weight" not in fresh:
        places["lm_head"] = model._base_model_lm_head
    for name, module in places.items():
        own = [key for key in given if key.rpartition(".")[0] == name]
        module.load_state_dict({key.rpartition(".")[2]: given.pop(key) for key in own}, strict=True)
    model.eagle_module.load_state_dict(given, strict=True)
    return model
