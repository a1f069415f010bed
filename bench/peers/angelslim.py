"""AngelSlim's tree of EAGLE drafts: laid out for verification, and verified."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

PACKAGE = "angelslim"


def tree_layout(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`_finalize_results`, tree by tree, as it has no batch; it makes no sibling links.

    Its lists of scores, tokens and parents, a tensor a layer, are made before the clock runs; what it returns is named
    and stays as it is.
    """
    from adapters.angelslim_engine import angelslim

    drafter = angelslim().drafter.Llama3Eagle3Drafter
    model = drafter.__new__(drafter)
    width, budget = int(inputs["width"]), int(inputs["budget"])
    vars(model).update(total_tokens=budget, top_k=width)
    values, tokens, parents = (torch.from_numpy(inputs[name]) for name in ("log_value", "token", "parent"))
    batch, nodes = parents.shape
    sizes = [width] + [width * width] * ((nodes - width) // (width * width))
    trees = []
    for b in range(batch):
        scores, ids = (list(one[b].split(sizes)) for one in (values, tokens))
        expanded = [one[:: min(width, len(one))] + 1 for one in parents[b].split(sizes)]
        trees.append((scores, ids, torch.zeros(1, dtype=torch.int64), expanded, None))
    names = [[f"{name}{b}" for name in ("token", "paths", "mask", "position")] for b in range(batch)]

    def call() -> dict[str, np.ndarray]:
        found = {}
        for own, tree in zip(names, trees):
            found.update(zip(own, model._finalize_results(*tree)))
        return found

    return call


def tree_acceptance(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`evaluate_posterior`, tree by tree, as it has no batch: greedy, or at temperature 1 where there are coins.

    The logits that it takes are gathered by leaf before the clock runs. The first call, which is compared, spends the
    coins given; those that are timed draw their own.
    """
    from adapters import leaf_posterior
    from adapters.angelslim_serving import _posterior
    from oracle.types import Coins, Decision, VerifyCase

    posterior = _posterior()
    sampled = "accept" in inputs
    processor = posterior.processor() if sampled else None
    trees, drafted = [], list(zip(inputs["parent"], inputs["token"], inputs["logits"]))
    for parent, token, logits in drafted:
        leaves = leaf_posterior.leaf_table(parent.tolist(), sampled)
        candidates = np.array([0, *token, -1])[leaves]
        trees.append((torch.from_numpy(logits[leaves]), torch.from_numpy(candidates), leaves))

    def compared() -> dict[str, np.ndarray]:
        path = np.full(inputs["parent"].shape, -1)
        frontier = np.zeros(len(trees), dtype=np.int64)
        for b, (logits, candidates, leaves) in enumerate(trees):
            coins, case = None, VerifyCase(*drafted[b][:2], drafted[b][2], "point")
            if sampled:
                coins = Coins(inputs["accept"][b], float(inputs["frontier"][b]))
            with leaf_posterior.injected(posterior, case, coins):
                found = posterior.call(logits, candidates, processor)
            decision: Decision = leaf_posterior.decision(leaves, *found)
            path[b, : len(decision.path)], frontier[b] = decision.path, decision.frontier
        return {"path": path, "frontier": frontier}

    def timed() -> dict[str, np.ndarray]:
        for logits, candidates, _ in trees:
            posterior.call(logits, candidates, processor)
        return {}

    turn = iter([compared])
    return lambda: next(turn, timed)()
