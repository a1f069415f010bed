"""SGLang's parts in torch: draft nodes chosen, and accepted rows moved within its pool of keys and values."""

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


def tree_selection(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, torch.Tensor]]:
    """`organize_draft_results`: the best scores of each tree, in the order of their ids, and their tokens.

    Scores, tokens and parents, a tensor a layer, are made before the clock runs.
    """
    from adapters.sglang_engine import engine

    utils = engine().utils
    width, budget = int(inputs["width"]), int(inputs["budget"])
    scores, tokens, parents = (torch.from_numpy(inputs[name]) for name in ("log_value", "token", "parent"))
    sizes = [width] + [width * width] * ((scores.shape[1] - width) // (width * width))
    layers = [list(values.split(sizes, 1)) for values in (scores.exp().unsqueeze(-1), tokens, parents)]

    def call() -> dict[str, torch.Tensor]:
        _, node, token = utils.organize_draft_results(*layers, budget + 1)
        return {"node": node, "token": token}

    return call
