"""flashspec's rejection step: chains of drafts verified."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

PACKAGE = "flashspec"


def chain_acceptance(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`rejection_step`, the batch in one call, on log-probabilities: made of the logits first, as in its engine.

    The first call, which is compared, spends the coins given; those that are timed draw their own.
    """
    from adapters import flashspec
    from oracle.types import Coins

    step = flashspec._implementation().rejection.rejection_step
    target, draft, token = (torch.from_numpy(inputs[name]) for name in ("target", "draft", "token"))
    generator = torch.Generator().manual_seed(0)

    def call() -> torch.Tensor:
        found: torch.Tensor = step(token, draft.log_softmax(-1), target.log_softmax(-1), generator=generator)
        return found

    def compared() -> dict[str, np.ndarray]:
        coins = [Coins(accept, float(coin)) for accept, coin in zip(inputs["accept"], inputs["frontier"])]
        with flashspec._injected(torch, coins):
            accepted, frontier = call().numpy().T
        return {"accepted": accepted, "frontier": frontier}

    def timed() -> dict[str, np.ndarray]:
        call()
        return {}

    turn = iter([compared])
    return lambda: next(turn, timed)()
