"""SGLang's move of accepted rows within its pool of keys and values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

PACKAGE = "sglang"


def moved_rows(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, torch.Tensor]]:
    """`move_kv_cache_native` of one layer: what a worker without fused kernels calls."""
    from adapters.sglang_server import code

    move = code().memory.move_kv_cache_native
    keys, values, source, destination = (
        torch.from_numpy(inputs[name]) for name in ("keys", "values", "source", "destination")
    )

    def call() -> dict[str, torch.Tensor]:
        move([keys], [values], destination, source)
        return {"keys": keys, "values": values}

    return call
