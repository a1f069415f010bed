"""Acceptance in torch decides as the oracle does, on either way, in any dtype, and reads what it has to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from adapters.fast_acceptance import Acceptance
from oracle import acceptance as oracle
from oracle.errors import BadInput
from oracle.fast import acceptance as fast
from oracle.fast import walking
from oracle.fast.acceptance import Coins, Drafts
from oracle.fast.drawing import inverse_cdf
from oracle.types import Coins as GivenCoins
from oracle.types import VerifyCase

PROPOSALS = ("point", "iid", "without_replacement")
WAYS = {"walk": False, "vectorised": True}


class Walked(Acceptance):
    pass


class Vectorised(Acceptance):
    vectorised = True


def law(rng: np.random.Generator, rows: int, vocabulary: int, sparse: bool = False) -> np.ndarray:
    made = rng.random((rows, vocabulary)) ** 3
    if sparse:
        made *= rng.random(made.shape) < 0.5
        made[:, 0] += made.sum(1) == 0
    found: np.ndarray = made / made.sum(1, keepdims=True)
    return found


def drawn(rng: np.random.Generator, proposal: str, vocabulary: int, nodes: int, chain: bool) -> VerifyCase:
    """A tree whose tokens come from its draft rows, as the proposal says."""
    parent = [i - 1 if chain or not i else int(rng.integers(-1, i)) for i in range(nodes)]
    p, q = law(rng, nodes + 1, vocabulary, sparse=rng.random() < 0.3), law(rng, nodes + 1, vocabulary)
    token: list[int] = []
    for i, up in enumerate(parent):
        row = q[up + 1].copy()
        if proposal != "iid":
            row[[token[j] for j in range(i) if parent[j] == up]] = 0
        token.append(int(rng.choice(vocabulary, p=row / row.sum())))
    ids = (np.array(parent, dtype=np.int64), np.array(token, dtype=np.int64))
    return VerifyCase(*ids, p, proposal, None if proposal == "point" else q)


def cases(rng: np.random.Generator, vocabulary: int) -> list[VerifyCase]:
    longest = min(vocabulary - 1, 12)
    return [
        drawn(rng, proposal, vocabulary, int(rng.integers(0, longest)), chain=k == 0)
        for proposal in PROPOSALS
        for k in range(3)
    ]


def spent(rng: np.random.Generator, given: Sequence[VerifyCase]) -> list[GivenCoins]:
    return [GivenCoins(rng.random(len(case.token)), float(rng.random())) for case in given]


@pytest.mark.parametrize("vocabulary", [7, 200, 700, 1024, 1500])
@pytest.mark.parametrize("way", [Walked, Vectorised])
def test_decides_as_the_oracle_does(way: type[Acceptance], vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    for _ in range(6):
        given = cases(rng, vocabulary)
        coins = spent(rng, given)
        assert way.verify_sampled(given, coins) == oracle.verify_sampled(given, coins)
        assert way.verify_greedy(given) == oracle.verify_greedy(given)


def coarse(rng: np.random.Generator, case: VerifyCase) -> VerifyCase:
    """The case with laws of whole 128ths, which every dtype holds."""

    def rounded(rows: np.ndarray) -> np.ndarray:
        return rng.multinomial(128, rows) / 128

    draft = None if case.draft_probs is None else rounded(case.draft_probs)
    if draft is not None:  # what was drafted has mass
        for up, token in zip(case.parent, case.token):
            row = draft[up + 1]
            if not row[token]:
                row[[int(row.argmax()), token]] += np.array([-1, 1]) / 128
    return VerifyCase(case.parent, case.token, rounded(case.target_probs), case.proposal, draft)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
def test_narrow_rows_decide_as_wide_ones_that_hold_the_same(vectorised: bool, dtype: str) -> None:
    way = type("way", (Acceptance,), {"dtype": dtype, "vectorised": vectorised})
    rng = np.random.default_rng(5)
    for _ in range(6):
        given = [coarse(rng, case) for case in cases(rng, 20)]
        coins = spent(rng, given)
        assert way.verify_sampled(given, coins) == oracle.verify_sampled(given, coins)


@pytest.mark.parametrize("parents", [False, True], ids=["chain", "tree"])
@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
def test_logits_decide_as_their_softmax(vectorised: bool, proposal: str, parents: bool) -> None:
    rng = torch.Generator().manual_seed(1)
    target, draft = (torch.randn(40, 5, 300, generator=rng, dtype=torch.float64) * 3 for _ in range(2))
    target[3] += 2000  # beyond the largest exponential
    target[4] -= 2000
    token = torch.stack([torch.randperm(300, generator=rng)[:4] for _ in range(40)])
    drafts = Drafts(token, torch.tensor([-1, -1, 0, 0]).repeat(40, 1) if parents else None)
    coins = fast.coins(3, torch.arange(40), 4)
    by_law = fast.verify_sampled(
        *(drafts, coins, target.softmax(-1), draft.softmax(-1), proposal), vectorised=vectorised
    )
    by_logits = fast.verify_sampled(
        *(drafts, coins, target, draft, proposal), target_logits=True, draft_logits=True, vectorised=vectorised
    )
    for ours, theirs in zip(by_logits, by_law):
        assert torch.equal(ours, theirs)


def test_both_ways_draw_the_same_coins_for_whoever_shares_the_batch() -> None:
    given = cases(np.random.default_rng(2), 30)
    assert Walked.verify_random(given, 9) == Vectorised.verify_random(given, 9)
    rng = torch.Generator().manual_seed(0)
    rows = torch.rand(6, 4, 11, generator=rng, dtype=torch.float64)
    rows /= rows.sum(-1, keepdim=True)
    token = torch.randint(0, 11, (6, 3), generator=rng)
    names = torch.tensor([5, 2**40, 17, 0, 3, 8])
    whole = fast.verify_random(Drafts(token), 4, rows, rows, "iid", requests=names)
    order = torch.tensor([4, 1, 3])
    part = fast.verify_random(Drafts(token[order]), 4, rows[order], rows[order], "iid", requests=names[order])
    assert torch.equal(whole.frontier[order], part.frontier)
    assert torch.equal(whole.accepted[order], part.accepted)


FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique", "_unique2", "item", "equal")


class OnDevice(TorchDispatchMode):
    """Fails where the host would wait for a number; remembers the largest tensor that is made.

    more: forbidden, too; `lift_fresh` is how numbers of the host become a tensor.
    """

    def __init__(self, *more: str) -> None:
        super().__init__()
        self.forbidden = (*FORBIDDEN, *more)
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        assert name not in self.forbidden, name
        if name.startswith("index"):  # a boolean index asks how many it has
            assert not any(t is not None and t.dtype == torch.bool for t in args[1]), name
        found = func(*args, **(kwargs or {}))
        if not name.startswith(("view", "expand", "slice", "select", "unsqueeze", "alias", "reshape", "_unsafe_view")):
            made = found if isinstance(found, (tuple, list)) else [found]
            self.largest = max([self.largest, *(t.numel() for t in made if isinstance(t, Tensor))])
        return found


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("logits", [False, True], ids=["probabilities", "logits"])
def test_the_vectorised_way_asks_the_host_nothing(proposal: str, shape: str, logits: bool) -> None:
    batch, vocabulary = 4, 500
    rows = torch.rand(batch, 6, vocabulary).softmax(-1)
    drafts = Drafts(
        torch.arange(batch * 5).view(batch, 5),
        None if shape == "chain" else torch.tensor([[-1, -1, 0, 0, 2]]).repeat(batch, 1),
        torch.tensor([5, 3, 0, 4]),
    )
    fixed = {"target_logits": logits, "draft_logits": logits, "validate": False, "vectorised": True}
    with OnDevice("lift_fresh") as mode:
        fast.verify_random(drafts, 7, rows, rows, proposal, **fixed)  # type: ignore[arg-type]
        fast.verify_greedy(drafts, rows, validate=False, vectorised=True)
    assert mode.largest <= batch * vocabulary
    with OnDevice("lift_fresh"):
        fast.verify_random(drafts, 7, list(rows), list(rows), proposal, **fixed)  # type: ignore[arg-type]


def test_warping_and_proposing_ask_the_host_nothing() -> None:
    rows = torch.randn(3, 40)
    table = torch.rand(3, 1, 40).softmax(-1)
    given = (torch.tensor([1.0, 0.5, 0.0]), torch.tensor([0, 5, 2]), torch.tensor([1.0, 0.9, 0.5]), torch.rand(3))
    with OnDevice():
        fast.warp(rows, *given, validate=False)
        fast.warp(rows, *given, "min_p,top_k+top_p,temperature", "keep", validate=False)
        for proposal in PROPOSALS:
            drafter: Callable[[Tensor], Tensor] = lambda prefix: table.expand(3, prefix.shape[1], 40)  # noqa: E731
            fast.propose(drafter, [-1, -1, 0, 1, 1, 4], proposal, 3, 3, validate=False)


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
def test_what_is_behind_the_stop_is_not_looked_at(vectorised: bool, proposal: str) -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        case = drawn(rng, proposal, 9, 6, chain=False)
        coin = spent(rng, [case])[0]
        found = oracle.verify_sampled([case], [coin])[0]
        read = {0, *(node + 1 for node in found.path)}
        p = np.array([row if r in read else np.full(9, np.nan) for r, row in enumerate(case.target_probs)])
        q = None
        if case.draft_probs is not None:
            inner = {r for r in read if r - 1 in case.parent}
            q = np.array([row if r in inner else np.full(9, np.nan) for r, row in enumerate(case.draft_probs)])
        way = Vectorised if vectorised else Walked
        assert way.verify_sampled([VerifyCase(case.parent, case.token, p, proposal, q)], [coin]) == [found]


def test_a_walk_makes_no_tensor_beyond_a_row() -> None:
    rows = torch.rand(8, 6, 1000).softmax(-1)
    token = torch.arange(40).view(8, 5)
    with _Largest() as mode:
        fast.verify_random(Drafts(token), 1, rows, rows, "iid")
        fast.verify_random(Drafts(token), 1, rows, rows, "iid", target_logits=True, draft_logits=True)
        fast.verify_greedy(Drafts(token), rows)
    assert mode.largest <= 1000


class _Largest(TorchDispatchMode):
    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and not found._is_view():
            fresh = found.untyped_storage().data_ptr() not in {
                a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)
            }
            self.largest = max(self.largest, found.numel() if fresh else 0)
        return found


@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
def test_a_row_that_is_no_law_is_refused_or_visible(vectorised: bool) -> None:
    rows = torch.full((2, 2, 4), 0.25)
    rows[1, 0, 2] = float("nan")
    drafts = Drafts(torch.zeros(2, 1, dtype=torch.int64))
    coins = Coins(torch.full((2, 1), 0.9), torch.full((2,), 0.5))
    for logits in (False, True):
        with pytest.raises(BadInput, match="target"):
            fast.verify_sampled(drafts, coins, rows, target_logits=logits, vectorised=vectorised)
        found = fast.verify_sampled(drafts, coins, rows, target_logits=logits, vectorised=vectorised, validate=False)
        assert found.frontier[0] >= 0
        assert found.frontier[1] == -1
    with pytest.raises(BadInput, match="target"):
        fast.verify_greedy(drafts, rows, vectorised=vectorised)
    assert fast.verify_greedy(drafts, rows, vectorised=vectorised, validate=False).frontier.tolist() == [0, -1]


@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("proposal", PROPOSALS)
def test_where_rounding_leaves_nothing_the_row_stays(vectorised: bool, proposal: str) -> None:
    row = torch.tensor([[[0.5, 0.5 - 2**-30, 0.0]] * 2], dtype=torch.float64)
    token = torch.tensor([[1]])
    same = torch.tensor([[[0.5, 0.5, 0.0]] * 2], dtype=torch.float64)
    coins = Coins(torch.tensor([[1 - 2**-53]], dtype=torch.float64), torch.tensor([0.75]))
    found = fast.verify_sampled(*(Drafts(token), coins, row, same, proposal), vectorised=vectorised, validate=False)
    assert found.accepted.tolist() == [0]
    assert found.frontier.tolist() == ([0] if proposal == "point" else [1])
    whole = torch.tensor([[[0.0, 1 - 2**-20, 0.0]] * 2], dtype=torch.float64)
    found = fast.verify_sampled(Drafts(token), coins, whole, vectorised=vectorised, validate=False)
    assert found.frontier.tolist() == [1], "the one token that there is was rejected, and nothing else is left"


def bad_inputs() -> Iterator[tuple[str, tuple[int, ...], Callable[[bool], object]]]:
    rows = torch.full((2, 3, 4), 0.25)
    good, coins = Drafts(torch.tensor([[0, 1], [2, 3]])), Coins(torch.zeros(2, 2), torch.zeros(2))

    def verify(drafts: Drafts = good, spent: Coins = coins, **more: Any) -> Callable[[bool], object]:
        given = {"target": rows, "draft": rows, "proposal": "iid", **more}
        return lambda way: fast.verify_sampled(drafts, spent, **given, vectorised=way)  # type: ignore[arg-type]

    yield "drafts.token", (), verify(Drafts(torch.zeros(2, 2)))
    yield "drafts.token", (1, 0), verify(Drafts(torch.tensor([[0, 1], [4, 3]])))
    yield "drafts.token", (0, 1), verify(Drafts(torch.tensor([[0, -1], [4, 3]])))
    yield "drafts.parent", (1, 1), verify(Drafts(good.token, torch.tensor([[-1, 0], [-1, 1]])))
    yield "drafts.parent", (), verify(Drafts(good.token, torch.tensor([-1, 0])))
    yield "drafts.length", (1,), verify(Drafts(good.token, None, torch.tensor([2, 3])))
    twins = Drafts(torch.tensor([[0, 1], [3, 3]]), torch.tensor([[-1, -1], [-1, -1]]))
    for proposal in ("point", "without_replacement"):
        late = Coins(torch.full((2, 2), 0.999), torch.zeros(2))
        likely = torch.tensor([0.0, 0.1, 0.0, 0.9]).expand(2, 3, 4)
        yield "drafts.token", (1, 1), verify(twins, late, draft=likely, proposal=proposal)
    yield "coins.accept", (), verify(spent=Coins(torch.zeros(2, 3), torch.zeros(2)))
    yield "coins.frontier", (), verify(spent=Coins(torch.zeros(2, 2), torch.zeros(2, 1)))
    yield "target", (), verify(target=rows[:, :2])
    yield "target", (), verify(target=rows.long())
    yield "target", (1,), verify(target=[rows[0], rows[1, :, :3]])
    yield "target", (1,), verify(Drafts(good.token, None, torch.tensor([2, 2])), target=[rows[0], rows[1, :2]])
    yield "target", (1,), verify(target=[rows[0], rows[1, :2]])
    yield "draft", (0,), verify(Drafts(good.token, None, torch.tensor([2, 1])), draft=[rows[0, :1], rows[1]])
    yield "draft", (), verify(draft=None)
    yield "draft", (), verify(draft=rows[..., :3])
    yield "proposal", (), verify(proposal="pointed")
    yield "tests", (), verify(tests=-1)
    yield "drafts", (), verify(good.token)  # type: ignore[arg-type]
    yield "drafts.parent", (), verify(Drafts(good.token, [[-1, 0], [-1, 0]]))  # type: ignore[arg-type]
    yield "drafts.length", (), verify(good._replace(length=torch.tensor([2, 2], device="meta")))
    yield "coins", (), verify(spent=tuple(coins))  # type: ignore[arg-type]
    yield "coins.accept", (), verify(spent=coins._replace(accept=coins.accept.bfloat16()))
    yield "coins.frontier", (), verify(spent=coins._replace(frontier=coins.frontier.to("meta")))
    yield "target", (), verify(target=None)
    yield "target", (), verify(target=rows.to("meta"))
    yield "draft", (1,), verify(draft=[rows[0], rows[1].to("meta")])


@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
def test_bad_input_is_named(vectorised: bool) -> None:
    for field, index, call in bad_inputs():
        with pytest.raises(BadInput) as caught:
            call(vectorised)
        assert (caught.value.field, caught.value.index) == (field, index)


def test_rows_and_coins_are_looked_at_where_they_are_read() -> None:
    rows = torch.full((1, 2, 4), 0.25)
    drafts, coins = Drafts(torch.tensor([[0]])), Coins(torch.full((1, 1), 0.5), torch.full((1,), 1.0))
    with pytest.raises(BadInput) as caught:
        fast.verify_sampled(drafts, coins, rows, vectorised=False)
    assert (caught.value.field, caught.value.index) == ("coins.frontier", (0,))
    for wrong, index in (((0.5, 0.5, 0.5, -0.5), (0, 0, 3)), ((0.1, 0.2, 0.3, 0.3), (0, 0))):
        rows[0, 0] = torch.tensor(wrong)
        for dtype in (torch.float32, torch.bfloat16):
            with pytest.raises(BadInput) as caught:
                fast.verify_sampled(drafts, Coins(coins.accept, torch.zeros(1)), rows.to(dtype), vectorised=False)
            assert (caught.value.field, caught.value.index) == ("target", index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_a_row_that_is_passed_only_the_entry_of_its_draft_is_looked_at(dtype: torch.dtype) -> None:
    nan, fine = float("nan"), [0.25] * 4
    drafts, coins = Drafts(torch.tensor([[1]])), Coins(torch.zeros(1, 1), torch.zeros(1))
    for name in ("target", "draft"):
        for row, bad in (
            ([nan, 0.25, -5.0, nan], False),
            ([0.25, nan, 0.25, 0.25], True),
            ([0.0, 9.0, 0.0, 0.0], True),
        ):
            rows = {"target": [fine, fine], "draft": [fine, fine], name: [row, fine]}
            given = {field: torch.tensor([held], dtype=dtype) for field, held in rows.items()}
            if not bad:
                assert fast.verify_sampled(drafts, coins, **given, proposal="iid").accepted.tolist() == [1]
                continue
            with pytest.raises(BadInput) as caught:
                fast.verify_sampled(drafts, coins, **given, proposal="iid")
            assert (caught.value.field, caught.value.index) == (name, (0, 0, 1))


def test_a_coin_finds_the_token_that_the_sum_passes() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 5, 513, 640, 1300):
        row = rng.integers(0, 4, size).astype(np.float64)
        row[rng.integers(size)] += 1
        edges = row.cumsum()
        for coin in (0.0, 0.25, 0.5, float(rng.random()), 1 - 2.0**-53):
            expected = int((edges > coin * edges[-1]).argmax())
            found = inverse_cdf(torch.tensor(row)[None], torch.tensor([coin], dtype=torch.float64))
            assert int(found) == expected
            assert walking.draw(row, walking.edges_of(row), coin) == expected
    assert inverse_cdf(torch.zeros(1, 4), torch.zeros(1)).tolist() == [-1]
