"""Coins, warping and proposing in torch, beside numbers by hand and the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oracle import acceptance as oracle
from oracle.errors import BadInput
from oracle.fast import coins as fast_coins
from oracle.fast.acceptance import Drafts, propose, verify_random, warp
from oracle.types import WarpCase


def test_the_hash_is_that_of_splitmix64() -> None:
    """Its first outputs from the state 0, as the generator is published."""
    states = [0, 0x9E3779B97F4A7C15, 2 * 0x9E3779B97F4A7C15 & (1 << 64) - 1]
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [fast_coins._mix(state) for state in states] == published
    words = torch.tensor([fast_coins._signed(state) for state in states])
    assert [word % (1 << 64) for word in fast_coins._mixed(words).tolist()] == published


def test_coins_belong_to_seed_request_position_and_node() -> None:
    requests, positions = torch.tensor([0, 7, 2**63 - 1, -5]), torch.tensor([0, 1, -(2**63), 5])
    for seed in (0, 1, 2**63, 2**64 + 1, np.int64(3)):
        made = fast_coins.coins(seed, requests, 6, positions)
        for b, (request, position) in enumerate(zip(requests.tolist(), positions.tolist())):
            stream = fast_coins.stream_of(seed, request, position)
            assert made.accept[b].tolist() == [fast_coins.coin(stream, node) for node in range(6)]
            assert float(made.frontier[b]) == fast_coins.coin(stream, fast_coins.FRONTIER)
    assert len({fast_coins.stream_of(seed, 0) for seed in (1, 2**64 + 1, 2**128 + 1, 2**64)}) == 4
    everyone = torch.arange(1000)
    made = fast_coins.coins(3, everyone, 20)
    drafted = fast_coins.drafting_coins(3, everyone, 20)
    others = [fast_coins.coins(4, everyone, 20).accept, fast_coins.coins(3, everyone, 20, everyone + 1).accept, drafted]
    for other in others:
        assert not (made.accept == other).any()
    assert len(made.accept.flatten().unique()) == 20_000
    # 20 000 uniforms: mean, spread and neighbours, each within five standard errors
    for uniforms in (made.accept, drafted):
        shifted = uniforms - 0.5
        assert abs(float(shifted.mean())) < 5 / (12 * 20_000) ** 0.5
        assert abs(float((shifted**2).mean()) - 1 / 12) < 5 / (180 * 20_000) ** 0.5
        for left, right in ((shifted[:, 1:], shifted[:, :-1]), (shifted[1:], shifted[:-1])):
            assert abs(float((left * right).mean())) < 5 / 12 / left.numel() ** 0.5


def test_bad_coins_are_named() -> None:
    for seed in (-1, True, 0.5):
        with pytest.raises(BadInput, match="seed"):
            fast_coins.coins(seed, torch.arange(2), 3)  # type: ignore[arg-type]
    for requests in (torch.zeros(2), torch.zeros((2, 2), dtype=torch.int64), [0, 1]):
        with pytest.raises(BadInput, match="requests"):
            fast_coins.coins(1, requests, 3)  # type: ignore[arg-type]
    for positions in (torch.arange(3), torch.arange(2, device="meta")):
        with pytest.raises(BadInput, match="positions"):
            fast_coins.coins(1, torch.arange(2), 3, positions)
    for made in (fast_coins.coins, fast_coins.drafting_coins):
        with pytest.raises(BadInput, match="nodes"):
            made(1, torch.arange(2), -1)


def warp_cases(rng: np.random.Generator) -> dict[str, Any]:
    """Seven rows with ties and masked tokens; parameters that differ from row to row."""
    logits = rng.integers(-6, 7, (7, 30)) / 2.0
    logits[rng.random(logits.shape) < 0.2] = -np.inf
    logits[:, 0] = 0.5
    return {
        "logits": logits,
        "temperature": rng.choice([0.0, 0.5, 1.0, 2.0], 7),
        "top_k": rng.choice([0, 1, 3, 8, 40], 7),
        "top_p": rng.choice([0.35, 0.83, 1.0], 7),
        "min_p": rng.choice([0.0, 0.07, 0.31], 7),
    }


ORDERS = ("temperature,top_k,top_p,min_p", "top_k,temperature,top_p", "min_p,top_p+top_k,temperature", "", "top_p")


@pytest.mark.parametrize("ties", ["exact", "keep"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_warps_as_the_oracle_does(order: str, ties: str, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    for _ in range(12):
        given = warp_cases(rng)
        right = oracle.warp(WarpCase(**given), order, ties)
        tensors = {name: torch.tensor(value) for name, value in given.items()}
        found = warp(tensors.pop("logits").to(dtype), **tensors, filter_order=order, top_k_ties=ties)
        assert found.dtype == dtype
        tolerance = 1e-12 if dtype == torch.float64 else 30 * 2.0**-22
        np.testing.assert_allclose(found.numpy(), right, rtol=tolerance, atol=0)


@pytest.mark.parametrize("k", [1, 2, 5, 9, 30])
def test_a_small_k_is_ranked_without_the_rest(k: int) -> None:
    rng = np.random.default_rng(k)
    logits = rng.integers(-3, 4, (20, 100)).astype(np.float64)
    right = oracle.warp(WarpCase(logits, 0.7, k, 0.9, 0.05))
    found = warp(torch.tensor(logits), 0.7, k, 0.9, 0.05)
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-12, atol=0)


def test_warping_of_one_row_and_of_large_logits() -> None:
    row = torch.tensor([1e308, -1e308, 1e308, -torch.inf], dtype=torch.float64)
    assert warp(row).tolist() == [0.5, 0, 0.5, 0]
    assert warp(row, 0.0).tolist() == [1, 0, 0, 0]
    assert warp(row, 1e-300, 2).tolist() == [0.5, 0, 0.5, 0]
    right = oracle.warp(WarpCase(row.numpy(), 1e308))
    np.testing.assert_allclose(warp(row, 1e308).numpy(), right, rtol=1e-12)
    assert warp(torch.tensor([0.0, 1.0], dtype=torch.bfloat16)).dtype == torch.float32
    for bad in (torch.tensor([[0.0, torch.nan]]), torch.tensor([[0.0, torch.inf]]), torch.full((1, 2), -torch.inf)):
        assert not torch.isfinite(warp(bad, top_p=0.5, validate=False)).any()
        with pytest.raises(BadInput, match=r"logits\[0\]"):
            warp(bad)


@pytest.mark.parametrize("temperature", [7, 1e-50, 1e-320, 1e39, 1e300])
@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("top_k", [0, 2])
def test_temperatures_that_the_dtype_does_not_hold(temperature: float, tensor: bool, top_k: int) -> None:
    """A whole number is one, and what is no zero does not become one."""
    rows = np.array([[2.0, 1.0, 2.0, -np.inf]], dtype=np.float32)
    right = oracle.warp(WarpCase(rows, temperature, top_k))
    given = torch.tensor(temperature, dtype=torch.float64) if tensor else temperature
    np.testing.assert_allclose(warp(torch.tensor(rows), given, top_k).numpy(), right, rtol=1e-6)


def test_warping_stays_where_the_rows_are_whatever_the_default_device() -> None:
    rows = torch.tensor([[2.0, 1.0]])
    with torch.device("meta"):
        assert warp(rows, 0.5, 1, 0.9, 0.1).tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("temperature", {"temperature": -1.0}),
        ("temperature", {"temperature": torch.tensor([1.0, torch.nan])}),
        ("temperature", {"temperature": torch.tensor(True)}),
        ("temperature", {"temperature": torch.tensor(1j)}),
        ("top_k", {"top_k": -1}),
        ("top_k", {"top_k": torch.tensor([1.0, 2.0])}),
        ("top_k", {"top_k": 1.5}),
        ("top_p", {"top_p": 0.0}),
        ("min_p", {"min_p": torch.tensor([0.5, 1.5])}),
        ("min_p", {"min_p": torch.tensor([0.5])}),
        ("filter_order", {"filter_order": "top_k,top_k"}),
        ("top_k_ties", {"top_k_ties": "none"}),
    ],
)
def test_bad_parameters_are_named(field: str, more: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        warp(torch.zeros(2, 3), **more)
    assert caught.value.field == field


PARENT = [-1, -1, 0, 0, 1, 4, -1]


def table(vocabulary: int) -> Callable[[Tensor], Tensor]:
    """Rows that differ with the last token of the way to them."""
    rows = torch.rand(vocabulary + 1, vocabulary, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows /= rows.sum(1, keepdim=True)
    return lambda prefix: rows[prefix[..., -1] if prefix.shape[2] else torch.full(prefix.shape[:2], vocabulary)]


@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
def test_drafts_come_from_the_rows_declared(proposal: str) -> None:
    drafter = table(6)
    made = propose(drafter, PARENT, proposal, 3, 500)
    for member in range(0, 500, 97):
        for node in range(-1, len(PARENT)):
            way: list[int] = []
            up = node
            while up >= 0:
                way.insert(0, up)
                up = PARENT[up]
            row = made.draft_probs[member, node + 1]
            if node not in PARENT:
                assert not row.any()
                continue
            prefix = made.token[member, way].view(1, 1, -1)
            assert torch.equal(row, drafter(prefix)[0, 0])
            children = [i for i, parent in enumerate(PARENT) if parent == node]
            drafted = made.token[member, children].tolist()
            if proposal == "point":
                assert drafted == row.argsort(descending=True)[: len(children)].tolist()
            if proposal != "iid":
                assert len(set(drafted)) == len(drafted)
    again = propose(drafter, PARENT, proposal, 3, 2, requests=torch.tensor([77, 400]))
    assert torch.equal(again.token, made.token[[77, 400]])


@pytest.mark.parametrize("proposal", ["iid", "without_replacement"])
def test_siblings_follow_their_law(proposal: str) -> None:
    """Two siblings, 20 000 trials: every pair within five standard errors of its probability."""
    row = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    made = propose(lambda prefix: row.expand(*prefix.shape[:2], 3), [-1, -1], proposal, 5, 20_000)
    pairs = torch.bincount(made.token[:, 0] * 3 + made.token[:, 1], minlength=9).view(3, 3).double() / 20_000
    for a in range(3):
        for b in range(3):
            second = row[b] if proposal == "iid" else (0 if a == b else row[b] / (1 - row[a]))
            right = float(row[a] * second)
            assert abs(float(pairs[a, b]) - right) <= 5 * (right * (1 - right) / 20_000) ** 0.5


def test_siblings_that_outnumber_the_support_are_refused_or_visible() -> None:
    row = torch.tensor([0.5, 0.0, 0.5])
    for proposal in ("point", "without_replacement"):

        def drafter(prefix: Tensor) -> Tensor:
            return row.expand(*prefix.shape[:2], 3)

        with pytest.raises(BadInput) as caught:
            propose(drafter, [-1, -1, -1], proposal, 0)
        assert (caught.value.field, caught.value.index) == ("parent", (2,))
        made = propose(drafter, [-1, -1, -1], proposal, 0, validate=False)
        assert sorted(made.token[0].tolist()) == [-1, 0, 2]


def test_bad_drafters_and_shapes_are_named() -> None:
    for parent in ([0], [-1, -2], [-0.5], [True], "0"):
        with pytest.raises(BadInput, match=r"parent\[\d\]"):
            propose(table(3), parent, "iid", 0)  # type: ignore[arg-type]
    for more in ({"batch": -1}, {"requests": torch.arange(2)}, {"requests": torch.zeros(1)}):
        with pytest.raises(BadInput, match=next(iter(more))):
            propose(table(3), [-1], "iid", 0, **more)  # type: ignore[arg-type]
    for requests in ([0], torch.zeros(1, dtype=torch.int64, device="meta")):
        with pytest.raises(BadInput, match="requests"):
            propose(table(3), [-1], "iid", 0, requests=requests)  # type: ignore[arg-type]
    drafters: list[Callable[[Tensor], Tensor]] = [
        lambda prefix: torch.ones(1, 3),
        lambda prefix: torch.full((1, 1, 2), 0.5, device="meta"),
        lambda prefix: torch.full((1, 1, 2), 0.5, dtype=torch.float64 if prefix.shape[2] else torch.float32),
        lambda prefix: torch.full((1, 1, 2 + prefix.shape[2]), 0.25),
    ]
    for drafter in drafters:
        with pytest.raises(BadInput, match="drafter"):
            propose(drafter, [-1, 0], "point", 0)
    for row in ([0.5, 0.5, 0.5], [0.25, 0.25, 0.25], [-0.5, 1.0, 0.5], [float("nan"), 0.5, 0.5]):
        with pytest.raises(BadInput) as caught:
            propose(lambda prefix, row=row: torch.tensor([[row]]), [-1], "iid", 0)  # type: ignore[misc]
        assert (caught.value.field, caught.value.index) == ("drafter", (0, 0))
    empty = propose(table(4), [], "iid", 0, 2)
    assert empty.token.shape == (2, 0)
    assert empty.draft_probs.shape == (2, 1, 4)


def test_a_call_in_inference_mode_leaves_nothing_behind_that_a_later_one_trips_over() -> None:
    drafts, rows = Drafts(torch.tensor([[1, 2]])), torch.linspace(-2, 2, 3 * 4103).reshape(1, 3, 4103).sin()

    def call() -> list[int]:
        found = verify_random(drafts, 5, rows, target_logits=True)
        return [*found.accepted.tolist(), *found.frontier.tolist()]

    with torch.inference_mode():
        first = call()
    assert call() == first
    with torch.device("meta"):  # a default device of the caller's
        assert verify_random(drafts, 5, rows[..., 1:], target_logits=True).frontier.is_cpu
