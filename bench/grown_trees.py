"""Trees as EAGLE-2 grows and prunes them, beside target rows that like some of their drafts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oracle.fast.acceptance import Coins, Drafts

TREES, DEPTH, WIDTH, NODES = 4, 7, 10, 60


class Trees(NamedTuple):
    """Trees one by one, their logits [1, N+1, V], and coins."""

    drafts: list[Drafts]
    logits: list[Tensor]
    coins: list[Coins]


def trees(vocabulary: int, nodes: int = NODES) -> Trees:
    """The best nodes of grown trees, and target rows that like some of them."""
    made = Trees([], [], [])
    for seed in range(TREES):
        rng = np.random.default_rng(seed)
        parent, token, logits = _tree(rng, vocabulary, nodes)
        made.drafts.append(Drafts(torch.tensor([token]), torch.tensor([parent])))
        made.logits.append(torch.tensor(logits[None], dtype=torch.float32))
        made.coins.append(Coins(torch.tensor(rng.random((1, nodes))), torch.tensor(rng.random(1))))
    return made


def _tree(rng: np.random.Generator, vocabulary: int, nodes: int) -> tuple[list[int], list[int], np.ndarray]:
    grown: list[tuple[float, int]] = [(1.0, -1)]  # confidence, parent
    expanded = [0]
    for _ in range(DEPTH):
        made = range(len(grown), len(grown) + WIDTH * len(expanded))
        for node in expanded:
            shares = np.sort(rng.dirichlet(np.full(WIDTH, 0.4)))[::-1] * 0.9
            grown.extend((grown[node][0] * float(share), node) for share in shares)
        expanded = sorted(made, key=lambda n: -grown[n][0])[:WIDTH]
    best = sorted(sorted(range(1, len(grown)), key=lambda n: (-grown[n][0], n))[:nodes])
    place = {0: -1, **{node: i for i, node in enumerate(best)}}
    parent = [place[grown[node][1]] for node in best]
    token = np.zeros(nodes, dtype=np.int64)
    logits = rng.normal(size=(nodes + 1, vocabulary)) * 2
    for row in range(nodes + 1):
        below = [i for i, up in enumerate(parent) if up == row - 1]
        token[below] = rng.choice(vocabulary, len(below), replace=False)
        total = np.log(np.exp(logits[row]).sum())
        for i in below:  # the target follows the drafter's confidence
            share = 0.6 if parent[i] < 0 else grown[best[i]][0] / grown[best[parent[i]]][0]
            logits[row, token[i]] = total + np.log(2 * max(share, 1e-4))
    return parent, token.tolist(), logits
