"""A drafter's prefix and rollout through somebody's module: what the adapters of EAGLE-3's descendants share.

A server is called step by step and keeps keys and values; a trainer rolls all rows out in one loop. Both look positions
up in tables that end with the last row, so a prefix that stands further on is padded on the left with rows that the
attention mask hides, as batches are. Everything is float32: norms and softmax of these projects are in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters.interface import NotApplicable
from oracle.types import DrafterCase, DraftRollout

FILLER = 0
"""The token of a hidden row."""


def rolled_out(torch: Any, case: DrafterCase, forward: Callable[..., Any], head: Callable[[Any], Any]) -> DraftRollout:
    """A prefix and its rollout, call by call.

    forward: states [1, n, ·], tokens [1, n] and, by name, attention_mask, position_ids and past_key_values → the
    states of these rows, and what the next call gets as past_key_values. head: a state [1, d] → its logits [1, Vd].
    """
    fillers = hidden_rows(case)
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
            states, past = forward(states, tokens, attention_mask=visible, position_ids=where, past_key_values=past)
            found.append(states[0, -1])
            logits.append(head(states[:, -1])[0])
    return DraftRollout(*(torch.stack(rows).double().numpy() for rows in (logits, found)))


def rolled_out_at_once(
    torch: Any, case: DrafterCase, layer: Any, head: Any, run: Callable[[dict[str, Any]], None]
) -> DraftRollout:
    """A rollout in a trainer's loop, each of whose steps moves the tokens on by one, row by row.

    run: given a batch of one sample by the names of AngelSlim's collator. layer, head: modules whose outputs are read.
    """
    fillers, more = hidden_rows(case), len(case.rollout_tokens) + 1
    features = torch.tensor(np.asarray(case.features), dtype=torch.float32)
    # the loop consumes a row's next token, so the tokens begin one earlier
    tokens = [FILLER] * (fillers + 1) + case.tokens.tolist() + case.rollout_tokens.tolist()
    positions = case.positions.tolist()
    states: list[Any] = []
    logits: list[Any] = []
    hooks = (
        layer.register_forward_hook(lambda _, __, made: states.append(made[0][0])),
        head.register_forward_hook(lambda _, __, made: logits.append(made)),
    )
    run(
        {
            "input_ids": torch.tensor(tokens)[None],
            "hidden_states": torch.nn.functional.pad(features, (0, 0, fillers, more))[None],
            "target_hiddens": torch.zeros(1, len(tokens), int(str(case.config["hidden_size"]))),
            "loss_mask": torch.zeros(1, len(tokens), dtype=torch.long),
            "attention_mask": torch.tensor([0] * fillers + [1] * (len(tokens) - fillers))[None],
            "position_ids": torch.tensor([0] * fillers + positions + [0] * more)[None],
        }
    )
    for hook in hooks:
        hook.remove()
    last = fillers + len(case.tokens) - 1
    return DraftRollout(
        *(torch.stack([step[0, last] for step in steps]).detach().double().numpy() for steps in (logits, states))
    )


def settings(case: DrafterCase) -> Any:
    """The case's configuration with what else Llama's has."""
    vocabulary, width = case.weights["embed_tokens.weight"].shape
    known = {name: value for name, value in case.config.items() if name != "fusion_order"}
    return shared.tiny_config(vocabulary, width, draft_vocab_size=len(case.weights["lm_head.weight"]), **known)


def load(
    torch: Any,
    module: Any,
    case: DrafterCase,
    strict: bool,
    apart: tuple[str, ...] = (),
    missing: Mapping[str, Any] | None = None,
) -> None:
    """Load the case's weights but those of the modules `apart`; `NotApplicable` for a bias that has no place.

    missing: buffers that a case need not have.
    """
    given = {
        name: torch.tensor(np.asarray(values))
        for name, values in {**(missing or {}), **case.weights}.items()
        if name.rpartition(".")[0] not in apart
    }
    if homeless := [name for name in given if name.endswith(".bias") and name not in module.state_dict()]:
        raise NotApplicable(f"it has no {', '.join(homeless)}")
    module.load_state_dict(given, strict=strict)


def hidden_rows(case: DrafterCase) -> int:
    """How many rows stand before the prefix so that there are more rows than its last position."""
    return max(0, int(np.max(case.positions)) + 1 - len(case.tokens))


def maps(case: DrafterCase) -> dict[str, Any]:
    """Maps of the vocabulary for a loss that wants some: the draft's tokens are the target's first."""
    vocabulary, draft = (len(case.weights[f"{name}.weight"]) for name in ("embed_tokens", "lm_head"))
    return {"d2t": np.zeros(draft, dtype=np.int64), "t2d": np.arange(vocabulary) < draft}
