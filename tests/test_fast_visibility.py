"""The fast path of visibility: what the suite does not ask of it: predicates, batches, layouts, no look at numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.visibility import cases
from oracle.errors import BadInput
from oracle.fast.layout import Document
from oracle.fast.rows import TokenBatch
from oracle.fast.visibility import RolloutVisibility, rollout_mask, rollout_visibility
from oracle.types import RolloutCase, RolloutMaskCase
from oracle.visibility import rollout_mask as oracle_mask


def made(*rollouts: RolloutCase, validate: bool | None = None) -> RolloutVisibility:
    """Of rollouts that have the same number of steps, the shorter ones filled up."""
    length = max(case.length for case in rollouts)

    def filled(values: np.ndarray) -> Tensor:
        return torch.nn.functional.pad(torch.from_numpy(values), (0, length - len(values)))

    valid, segment = (torch.stack([filled(getattr(case, name)) for case in rollouts]) for name in ("valid", "segment"))
    position = torch.stack([filled(np.arange(c.length) if c.position is None else c.position) for c in rollouts])
    return rollout_visibility(
        TokenBatch(segment, valid, segment, position, valid), rollouts[0].steps, validate=validate
    )


@pytest.mark.parametrize("anchor", ["start", "absolute"])
@pytest.mark.parametrize("case", [cases.FULL, cases.HOLE, cases.ALL_AT_ONCE, cases.LEFT])
def test_a_predicate_is_a_mask_mod(case: RolloutCase, anchor: str) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    right = torch.from_numpy(oracle_mask(RolloutMaskCase(case, anchor)))
    visibility, rows = made(case), case.steps * case.length
    whole = flex.create_mask(visibility.predicate(anchor), 1, 1, rows, rows, device="cpu")
    assert torch.equal(whole[0, 0].view(right.shape), right)
    for step in range(case.steps):
        mask = flex.create_mask(visibility.predicate(anchor, step), 1, 1, case.length, rows, device="cpu")
        assert torch.equal(mask[0, 0], right[step])


@pytest.mark.parametrize("anchor", ["start", "absolute"])
def test_members_of_a_batch_are_those_of_each_alone(anchor: str) -> None:
    rollouts = [cases.HOLE, cases.PACKED, cases.LEFT]
    length = max(case.length for case in rollouts)
    found = rollout_mask(made(*rollouts), anchor)
    for b, case in enumerate(rollouts):
        right = np.zeros((case.steps, length, case.steps, length), dtype=bool)
        alone = oracle_mask(RolloutMaskCase(case, anchor)).reshape(case.steps, case.length, case.steps, case.length)
        right[:, : case.length, :, : case.length] = alone
        assert np.array_equal(found[b].numpy(), right.reshape(found[b].shape))
    nodes = made(*rollouts).nodes()
    order = list(zip(nodes.step.tolist(), nodes.batch.tolist(), nodes.anchor.tolist()))
    assert order == sorted(set(order))
    dense = made(*rollouts).dense()
    assert not dense[nodes.batch[:, None] != nodes.batch].any()


def test_a_layout_names_documents_and_their_runs() -> None:
    layout = made(cases.PACKED, cases.HOLE).layout()
    first = [Document(slice(0, 1), ((0, 3),)), Document(slice(0, 1), ((4, 4),))]
    assert layout.documents == (*first, Document(slice(1, 2), ((0, 2), (4, 4))))
    parts = list(layout.parts(2))
    assert [part.queries for part in parts] == [((0, 1, 0),), ((4, 2, 0),), ((4, 2, 2),)]
    assert [part.total for part in parts] == [1, 2, 6]
    assert [layout.shift(s) for s in range(3)] == [0, 0, 0]
    assert [made(cases.PACKED).layout("absolute").shift(s) for s in range(3)] == [0, 1, 2]


def test_nothing_waits_for_the_device() -> None:
    class Forbidding(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "masked_select", "_to_copy"):
                raise AssertionError(f"{func} waits")
            return func(*args, **(kwargs or {}))

    with Forbidding():
        visibility = made(cases.ALL_AT_ONCE, cases.ALL_AT_ONCE, validate=False)
        rollout_mask(visibility, "absolute")


def test_bad_input_is_told() -> None:
    visibility, flags, ids = made(cases.FULL), torch.ones(1, 3, dtype=torch.bool), torch.arange(3)[None]
    refused: list[tuple[str, Any]] = [
        ("batch.position", lambda: rollout_visibility(TokenBatch(ids, flags, ids, ids.int(), flags), 2)),
        ("batch.position[0][1]", lambda: rollout_visibility(TokenBatch(ids, flags, 0 * ids, -ids, flags), 2)),
        ("steps", lambda: rollout_visibility(TokenBatch(ids, flags, ids, ids, flags), 0)),
        ("step", lambda: visibility.predicate(step=3)),
        ("row_anchor", lambda: visibility.layout("middle")),
        ("row_anchor", lambda: rollout_mask(visibility, "middle")),
    ]
    for told, call in refused:
        with pytest.raises(BadInput) as error:
            call()
        assert str(error.value).startswith(told)
