"""Visibility by `oracle.fast`, as `adapters.fast` hands it out: arrays become tensors and back, nothing else.

An attention in which every query scores every key alike has zeros as its queries and keys; the cases of a call that
have the same number of steps make one batch, filled up with rows that no node has, which hold NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.errors import BadInput
from oracle.types import Attended, AttentionCase, Flags, RolloutCase, RolloutMaskCase, VisibilityGraph

if TYPE_CHECKING:
    from torch import Tensor

COST: Mapping[str, float] = {"rollout_visibility": 3e-4, "rollout_mask": 4e-4, "rollout_attention": 2e-3}


class Visibility:
    """The operations with values of a dtype, and rows of later steps where an anchor puts them."""

    dtype = "float64"
    row_anchor = "start"

    @staticmethod
    def rollout_visibility(case: RolloutCase) -> VisibilityGraph:
        """The nodes, and their visibility made dense."""
        found = _visibility([case])
        nodes = found.nodes()
        step, anchor, position = (vector.cpu().numpy() for vector in (nodes.step, nodes.anchor, nodes.position))
        return VisibilityGraph(step, anchor, position, found.dense().cpu().numpy())

    @staticmethod
    def rollout_mask(case: RolloutMaskCase) -> Flags:
        """The mask, made dense."""
        mask: Flags = _fast().rollout_mask(_visibility([case.rollout]), case.row_anchor)[0].cpu().numpy()
        return mask

    @classmethod
    def rollout_attention(cls, cases: Sequence[AttentionCase]) -> list[Attended]:
        """All steps of the cases at once."""
        found: dict[int, Attended] = {}
        for steps in dict.fromkeys(int(case.rollout.steps) for case in cases):
            places = [i for i, case in enumerate(cases) if case.rollout.steps == steps]
            found.update(zip(places, cls._attended([cases[i] for i in places])))
        return [found[i] for i in range(len(cases))]

    @classmethod
    def _attended(cls, cases: Sequence[AttentionCase]) -> list[Attended]:
        import torch

        from oracle.fast.attention import rollout_attention

        rollouts = [case.rollout for case in cases]
        visibility = _visibility(rollouts)
        steps, batch, length = visibility.exists.shape
        width = max(np.array(case.value).shape[-1] for case in cases)
        values = torch.full((steps, batch, 1, length, width), torch.nan, dtype=getattr(torch, cls.dtype))
        absolute = cls.row_anchor == "absolute"
        for b, case in enumerate(cases):
            own = _tensor(case.value)
            if own.shape[:-1] != (steps, case.rollout.length):
                raise BadInput("value", (b,), f"has shape {(steps, case.rollout.length, 'd')}", tuple(own.shape))
            for s in range(steps):
                shift = s * absolute
                rows = max(case.rollout.length - shift, 0)
                values[s, b, 0, shift : shift + rows, : own.shape[-1]] = own[s, :rows]
                values[s, b, 0, shift : shift + rows, own.shape[-1] :] = 0
        zeros = torch.zeros_like(values)
        outputs = torch.stack(rollout_attention(zeros, zeros, values, visibility.layout(cls.row_anchor), 1.0))
        nodes, answers = visibility.nodes(), []
        for b, case in enumerate(cases):
            own = nodes.batch == b
            step, anchor = nodes.step[own], nodes.anchor[own]
            output = outputs[step, b, 0, anchor + step * absolute, : np.array(case.value).shape[-1]]
            answers.append(Attended(step.cpu().numpy(), anchor.cpu().numpy(), output.to(torch.float64).cpu().numpy()))
        return answers


class Absolute(Visibility):
    """Rows of later steps at the row of their anchor plus their step."""

    row_anchor = "absolute"


def _visibility(cases: Sequence[RolloutCase]) -> Any:
    """A batch of cases with as many steps each, the shorter ones filled up behind."""
    from oracle.fast.rows import TokenBatch

    length = max(case.length for case in cases)
    valid = _padded([_tensor(case.valid) for case in cases], length)
    segment = _padded([_tensor(case.segment) for case in cases], length)
    places = [np.arange(case.length) if case.position is None else case.position for case in cases]
    position = _padded([_tensor(place) for place in places], length)
    return _fast().rollout_visibility(
        TokenBatch(segment, valid, segment, position, valid), cases[0].steps, validate=True
    )


def _padded(vectors: Sequence[Tensor], length: int) -> Tensor:
    """[B, S], zeros behind; one that is no vector, or is longer, stays what it is."""
    import torch

    if len(vectors) == 1:
        return vectors[0].unsqueeze(0)
    return torch.stack([torch.nn.functional.pad(vector, (0, length - len(vector))) for vector in vectors])


def _tensor(values: object) -> Tensor:
    import torch

    return torch.tensor(np.array(values))


def _fast() -> Any:
    from oracle.fast import visibility

    return visibility
