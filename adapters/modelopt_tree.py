"""modelopt's `Tree`: the attention mask of a draft tree that is given as paths, true = hidden, the root first.

A node's n-th child is named n in the paths. The mask's rows stand layer by layer; they come back in the order of the
case. The constructor puts the mask on a CUDA device; here `torch.cuda.current_device` names the CPU while it runs.
`Tree` has neither positions nor a leaf table, and its rows carry no tokens.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np

from adapters import modelopt_engine
from adapters.grown_shape import layered
from adapters.interface import NotApplicable
from oracle.errors import BadInput
from oracle.types import Flags, Ids, MaskCase
from oracle.validation import parents


def tree_visibility(parent: Ids) -> Flags:
    """What `attention_mask` leaves visible, without the root."""
    return ~_blocked(parent)[1:, 1:]


def tree_mask(cases: Sequence[MaskCase]) -> list[np.ndarray]:
    """`attention_mask`, true = hidden."""
    answers: list[np.ndarray] = []
    for case in cases:
        if case.form != "blocked":
            raise NotApplicable("the mask is true where a row is hidden; it has no other form")
        if case.prefix:
            raise NotApplicable("the mask has no columns of decided tokens")
        answers.append(_blocked(case.parent))
    return answers


def _blocked(parent: Ids) -> Flags:
    torch = modelopt_engine.package().torch
    module = importlib.import_module("modelopt.torch.speculative.utils")
    try:
        above = parents(parent, "parent")
    except BadInput as wrong:
        raise NotApplicable(f"paths cannot say this: {wrong}") from None
    order = layered(above)
    children = [0] * (len(above) + 1)
    paths: dict[int, list[int]] = {-1: []}
    for node in order:
        paths[node] = [*paths[above[node]], children[above[node]]]
        children[above[node]] += 1
    device = torch.cuda.current_device
    torch.cuda.current_device = lambda: "cpu"
    try:
        tree = module.Tree([paths[node] for node in order])
    finally:
        torch.cuda.current_device = device
    place = [0, *(order.index(node) + 1 for node in range(len(order)))]
    mask: Flags = tree.attention_mask.numpy()[np.ix_(place, place)]
    return mask
