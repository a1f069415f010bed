"""The fast path of a rollout step's attention: against a dense softmax, forward and backward, and what it stores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from oracle.errors import BadInput
from oracle.fast.attention import rollout_step_attention

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}


def dense(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], documents: Sequence[int]) -> Tensor:
    """The same softmax over [S + T − 1] scores a query, every one of them stored; in float64."""
    share = query.shape[1] // keys[0].shape[1]
    query = query.double()
    keys, values = ([x.double().repeat_interleave(share, 1) for x in xs] for xs in (keys, values))
    rows = query.shape[2]
    document = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents))
    seen = (document[:, None] == document[None]) & torch.ones(rows, rows, dtype=torch.bool).tril()
    scale = 1 / math.sqrt(query.shape[3])
    causal = (query @ keys[0].mT * scale).masked_fill(~seen, -math.inf)
    diagonals = [(query * key).sum(-1, keepdim=True) * scale for key in keys[1:]]
    weights = torch.cat([causal, *diagonals], -1).softmax(-1)
    late = (weights[..., rows + t, None] * value for t, value in enumerate(values[1:]))
    return sum(late, weights[..., :rows] @ values[0])


def drawn(heads: int, groups: int, rows: int, width: int, steps: int, dtype: torch.dtype) -> list[Tensor]:
    """Query, keys and values, each different, that gradients are asked of."""
    generator = torch.Generator().manual_seed(heads * rows + width)
    shapes = [heads, *[groups] * (2 * steps)]
    return [torch.randn(2, h, rows, width, generator=generator).to(dtype).requires_grad_() for h in shapes]


@pytest.mark.parametrize("dtype", UNIT, ids=str)
@pytest.mark.parametrize(
    ("heads", "groups", "width", "steps", "documents"),
    [(6, 2, 5, 4, [10, 0, 20, 7]), (3, 3, 8, 1, [33]), (4, 1, 4, 3, [1, 1, 2]), (2, 2, 16, 2, [600])],
)
def test_values_and_gradients_are_those_of_a_dense_softmax(
    heads: int, groups: int, width: int, steps: int, documents: list[int], dtype: torch.dtype
) -> None:
    tensors = drawn(heads, groups, sum(documents), width, steps, dtype)
    query, keys, values = tensors[0], tensors[1 : steps + 1], tensors[steps + 1 :]
    upstream = torch.randn(query.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    right = dense(query, keys, values, documents)
    expected = torch.autograd.grad(right, tensors, upstream.double())
    found = rollout_step_attention(query, keys, values, documents)
    gradients = torch.autograd.grad(found, tensors, upstream)
    # sums of at most S + T + d terms, each rounded once and no partial sum above the sum of magnitudes; and a softmax
    terms = sum(documents) + steps + width + 16
    for one, other in zip((found.detach(), *gradients), (right.detach(), *expected)):
        assert one.dtype == dtype
        bound = 8 * terms * UNIT[dtype] * max(1.0, float(other.abs().max()))
        assert float((one.double() - other).abs().max()) <= bound


def test_nothing_is_stored_whose_size_grows_with_the_square_of_the_rows() -> None:
    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            for one in made if isinstance(made, (tuple, list)) else (made,):
                if isinstance(one, Tensor):
                    self.size = max(self.size, one.numel())
            return made

    tensors = drawn(2, 2, 1024, 4, 3, torch.float32)
    with Largest() as mode:
        rollout_step_attention(tensors[0], tensors[1:4], tensors[4:]).sum().backward()
    assert 0 < mode.size <= 2 * tensors[0].numel()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda q, k, v: (q[0], k, v, None), "query"),
        (lambda q, k, v: (q, k, v[:1], None), "values"),
        (lambda q, k, v: (q, [k[0], k[1][:, :1]], v, None), "keys[1]"),
        (lambda q, k, v: (q, k, [v[0], v[1].float()], None), "values[1]"),
        (lambda q, k, v: (q, k, v, [3, 3]), "documents"),
        (lambda q, k, v: (q, k, v, [8, -1]), "documents[1]"),
    ],
)
def test_bad_input_is_told(change: Any, told: str) -> None:
    tensors = drawn(4, 2, 7, 3, 2, torch.float64)
    query, keys, values, documents = change(tensors[0], tensors[1:3], tensors[3:])
    with pytest.raises(BadInput) as error:
        rollout_step_attention(query, keys, values, documents)
    assert str(error.value).startswith(told)
