"""Transformers' assisted generation: chains of drafts verified."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

PACKAGE = "transformers"


def chain_acceptance(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`_speculative_sampling` from the logits of both, chain by chain: it has no batch of requests of their own.

    The first call, which is compared, spends the coins given; those that are timed draw their own.
    """
    from adapters import transformers
    from oracle.types import Coins

    function = transformers._implementation()[1]
    target, draft, token = (torch.from_numpy(inputs[name]) for name in ("target", "draft", "token"))
    batch, drafts = token.shape
    ids = torch.cat([torch.zeros(batch, 1, dtype=torch.int64), token], 1)

    def one(b: int) -> tuple[torch.Tensor, int]:
        # it writes to the logits of the target
        found: tuple[torch.Tensor, int] = function(ids[b : b + 1], draft[b : b + 1], drafts, target[b : b + 1].clone())
        return found

    def compared() -> dict[str, np.ndarray]:
        accepted, frontier = [], []
        for b, coin in enumerate(map(float, inputs["frontier"])):
            with transformers._injected(torch, Coins(inputs["accept"][b], coin)):
                tokens, count = one(b)
            accepted.append(int(count))
            frontier.append(int(tokens[0, -1]))
        return {"accepted": np.array(accepted), "frontier": np.array(frontier)}

    def timed() -> dict[str, np.ndarray]:
        for b in range(batch):
            one(b)
        return {}

    turn = iter([compared])
    return lambda: next(turn, timed)()
