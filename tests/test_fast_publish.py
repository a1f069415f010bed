"""Publication in torch: the oracle's states for ragged batches, rows of any kind, moves that overlap, both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from adapters import fast_publish  # noqa: E402
from oracle import publish as oracle  # noqa: E402
from oracle.errors import BadInput  # noqa: E402
from oracle.fast import moving  # noqa: E402
from oracle.fast import publish as fast  # noqa: E402
from oracle.types import CommittedState, Decision, Limits, PublishCase, Verified  # noqa: E402


@pytest.fixture(params=["cpu", "as on a GPU"])
def device_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through the code."""
    if request.param != "cpu":
        monkeypatch.setattr(moving, "on_cpu", lambda tensor: False)


def drawn(rng: np.random.Generator) -> PublishCase:
    """A request whose rows stand anywhere, with limits and stop tokens that some paths meet."""
    prompt, output = rng.integers(0, 9, rng.integers(1, 5)), rng.integers(0, 9, rng.integers(0, 4))
    sequence = np.concatenate([prompt, output])
    pending = int(sequence[-1]) if rng.random() < 0.7 else None
    held = len(sequence) - (pending is not None)
    nodes = int(rng.integers(0, 7))
    row_node = np.array([*range(nodes), *([-1] if pending is not None else []), *[-2] * int(rng.integers(0, 3))])
    row_node = rng.permutation(row_node).astype(np.int64)
    row_token = rng.integers(0, 9, len(row_node))
    row_token[row_node == -1] = sequence[-1]
    row_token[row_node == -2] = -7  # what padding holds nobody reads
    drafts = rng.random(len(row_node))
    drafts[rng.random(len(row_node)) < 0.3] = np.nan
    path = tuple(int(n) for n in rng.permutation(nodes)[: rng.integers(0, nodes + 1)])
    limit = None if rng.random() < 0.4 else int(len(output) + rng.integers(1, 5))
    return PublishCase(
        CommittedState(
            *(prompt, output, rng.random(held), rng.random(held), pending, False),
            draft_kv=rng.random(len(sequence) - 1) if rng.random() < 0.8 else None,
        ),
        Verified(row_node, row_token, rng.random(len(row_node)), rng.random(len(row_node)), drafts),
        Decision(path, int(rng.integers(0, 9))),
        Limits(tuple(rng.integers(0, 20, rng.integers(0, 3)).tolist()), limit),
    )


def batches(count: int) -> list[list[PublishCase]]:
    rng = np.random.default_rng(0)
    return [[drawn(rng) for _ in range(int(rng.integers(1, 6)))] for _ in range(count)]


def same(found: CommittedState, right: CommittedState) -> None:
    for field in dataclasses.fields(CommittedState):
        one, other = getattr(found, field.name), getattr(right, field.name)
        assert (one is None) == (other is None), field.name
        assert one is None or np.array_equal(np.asarray(one), np.asarray(other)), field.name


@pytest.mark.usefixtures("device_path")
@pytest.mark.parametrize(("adapter", "draft_kv"), [(fast_publish.Publish, "recomputed"), (fast_publish.kept, "kept")])
def test_states_are_the_oracles(adapter: Any, draft_kv: str) -> None:
    for cases in batches(200):
        for found, right in zip(adapter.publish(cases), oracle.publish(cases, draft_kv), strict=True):
            same(found, right)


def request(rows: int, room: int, width: tuple[int, ...] = (), **other: Any) -> tuple[Any, Any, Any]:
    """Two requests that hold 3 and 5 rows, the second of a longer sequence; both accept nodes 4 and 1 of a tree."""
    generator = torch.Generator().manual_seed(0)
    lengths, kinds = torch.tensor([4, 6]), {"kv": torch.int64, "features": torch.bfloat16}
    buffers = {
        name: torch.randint(0, 1000, (2, room, *width), generator=generator).to(kind) for name, kind in kinds.items()
    }
    tokens = torch.arange(2 * room).view(2, room)
    pending = tokens.gather(1, (lengths - 1)[:, None])[:, 0]
    counters = torch.stack([lengths - 1, lengths, pending, lengths * 0, lengths - 1, lengths - 1, lengths * 0])
    state = fast.State(tokens, counters, **buffers)
    node = torch.tensor([[-1, 3, 1, 0, 4, 2], [4, -1, -2, 1, 0, 3]])[:, :rows]
    token = torch.where(node == -1, pending[:, None], 50 + node)
    verified = fast.Verified(node, token, **other)
    path = torch.tensor([[4, 1, -9], [4, 1, 77]])
    return state, verified, fast.Decision(path, torch.tensor([2, 2]), torch.tensor([7, 8]))


@pytest.mark.usefixtures("device_path")
def test_rows_move_within_a_buffer_also_into_places_that_others_leave() -> None:
    state, verified, decision = request(6, 20, (2, 3))
    kv, features, held = state.kv.clone(), state.features.clone(), [3, 5]
    for name in ("prompt", "length", "pending", "reason", "kv_length", "feature_length", "draft_length"):
        assert getattr(state, name).shape == (2,)
    made = fast.publish(state, verified, decision)
    for b, rows in enumerate([[0, 4, 2], [1, 0, 3]]):  # of the second, the root's row and that of node 4 change places
        assert made.round.rows[b].tolist()[:3] == rows
        for before, after in ((kv, state.kv), (features, state.features)):
            assert torch.equal(after[b, : held[b]], before[b, : held[b]])
            for i, row in enumerate(rows):
                assert torch.equal(after[b, held[b] + i], before[b, held[b] + row])
    assert state.tokens[0, 4:7].tolist() == [54, 51, 7] and state.tokens[1, 6:9].tolist() == [54, 51, 8]
    assert state.counters.tolist() == [[3, 5], [7, 9], [7, 8], [0, 0], [6, 8], [6, 8], [3, 3]]
    assert made.seed.tolist() == [5, 7]
    assert made.round.freed.tolist() == [[False, True, False, True, False, True], [False] * 4 + [True, True]]


def test_nothing_waits_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "on_cpu", lambda tensor: False)

    class Recorded(TorchDispatchMode):
        names: set[str]

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(func.__name__.partition(".")[0])
            return func(*args, **(kwargs or {}))

    generator = torch.Generator().manual_seed(1)
    drafts = {"draft_kv": torch.rand(2, 6, generator=generator), "drafted": torch.rand(2, 6, generator=generator) < 0.7}
    state, verified, decision = request(6, 20, **drafts)
    state = dataclasses.replace(state, draft_kv=torch.zeros(2, 20))
    limits = fast.Limits(torch.tensor([[54, -1], [-1, -1]]), torch.tensor([-1, 5]))
    with Recorded() as recorded:
        recorded.names = set()
        made = fast.publish(state, verified, decision, limits, "kept", validate=False)
    assert not recorded.names & {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero"}
    assert made.round.reason.tolist() == [1, 0] and made.round.count.tolist() == [1, 3]
    drafted = verified.drafted.gather(1, made.round.path_rows)
    assert made.redraft[1].tolist() == [*(~drafted[1, :2]).tolist(), True, False]


@pytest.mark.usefixtures("device_path")
def test_what_does_not_fit_is_refused_or_left_out() -> None:
    state, verified, decision = request(3, 8)
    before = [tensor.clone() for tensor in (state.tokens, state.counters, state.kv, state.features)]
    decision = fast.Decision(torch.tensor([[1, 3], [4, 5]]), torch.tensor([2, 1]), decision.frontier)
    with pytest.raises(BadInput, match=r"state.length"):
        fast.publish(*request(3, 7)[:2], decision)
    ended = fast.Limits(torch.tensor([[51], [54]]))  # room for the tokens, and none for the rows where they lie
    with pytest.raises(BadInput, match=r"state.kv\[0\]"):
        fast.publish(*request(6, 7), ended)
    with pytest.raises(BadInput, match=r"decision.path\[1\]\[1\]"):
        fast.publish(state, verified, dataclasses.replace(decision, accepted=torch.tensor([2, 2])))
    assert all(torch.equal(a, b) for a, b in zip(before, (state.tokens, state.counters, state.kv, state.features)))
    state, verified, _ = request(3, 7)
    fast.publish(state, verified, decision, validate=False)
    assert state.tokens[0].tolist() == [0, 1, 2, 3, 51, 53, 7] and state.tokens[1].tolist()[:6] == list(range(7, 13))


# ---- moving rows


@pytest.mark.usefixtures("device_path")
def test_rows_move_at_once() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        slots, count, dim = int(rng.integers(1, 9)), int(rng.integers(0, 9)), int(rng.integers(0, 2))
        count = min(count, slots)
        source, destination = rng.integers(0, slots, count), rng.permutation(slots)[:count]
        moves = rng.random(count) < 0.7
        pool = rng.integers(0, 1000, (slots, 3) if dim == 0 else (3, slots))
        other = rng.integers(0, 1000, pool.shape)
        for origin in (None, other):
            wanted = pool.copy()
            read = (pool if origin is None else origin).take(source[moves], dim)
            wanted[(slice(None),) * dim + (destination[moves],)] = read
            found = torch.tensor(pool)
            moving.move_rows(
                *(found, torch.tensor(np.where(moves, source, -5)), torch.tensor(np.where(moves, destination, 99))),
                origin=None if origin is None else torch.tensor(origin),
                moves=torch.tensor(moves),
                dim=dim,
            )
            assert np.array_equal(found.numpy(), wanted)
            if moves.all():
                found = torch.tensor(pool)
                given = None if origin is None else torch.tensor(origin)
                moving.move_rows(found, torch.tensor(source), torch.tensor(destination), origin=given, dim=dim)
                assert np.array_equal(found.numpy(), wanted)


def ids(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int64)


POOL = torch.arange(8.0).view(4, 2)


@pytest.mark.usefixtures("device_path")
@pytest.mark.parametrize(
    ("call", "field", "index"),
    [
        (lambda pool: moving.move_rows(pool, ids(0, 4), ids(1, 2), validate=True), "source", (1,)),
        (lambda pool: moving.move_rows(pool, ids(0), ids(-1), validate=True), "destination", (0,)),
        (lambda pool: moving.move_rows(pool, ids(0, 1), ids(2, 2), validate=True), "destination", (1,)),
        (lambda pool: moving.move_rows(pool, ids(0, 1), ids(2)), "destination", ()),
        (lambda pool: moving.move_rows(pool, ids(0).int(), ids(2)), "source", ()),
        (lambda pool: moving.move_rows(pool, ids(0), ids(2), moves=ids(1)), "moves", ()),
        (lambda pool: moving.move_rows(pool, ids(0), ids(2), origin=pool[:, :1]), "origin", ()),
        (lambda pool: moving.move_rows(pool, ids(0), ids(2), origin=pool.double()), "origin", ()),
        (lambda pool: moving.move_rows(pool, ids(0), ids(2), dim=2), "dim", ()),
    ],
)
def test_bad_moves_are_named(call: Callable[[Any], None], field: str, index: tuple[int, ...]) -> None:
    pool = POOL.clone()
    with pytest.raises(BadInput) as caught:
        call(pool)
    assert (caught.value.field, caught.value.index) == (field, index)
    assert torch.equal(pool, POOL)


@pytest.mark.usefixtures("device_path")
@pytest.mark.parametrize("dtype", [torch.bool, torch.float8_e5m2, torch.bfloat16, torch.float32, torch.complex64])
def test_rows_of_any_kind_move_bit_by_bit(dtype: Any) -> None:
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (5, 16), dtype=torch.uint8)
    pool = bits.clone().view(dtype)
    moving.move_rows(pool, ids(4, 0, 1), ids(0, 1, 4))
    assert torch.equal(pool.view(torch.uint8), bits[[4, 0, 2, 3, 1]])


def test_several_moves_of_one_row_to_one_place_are_one_move() -> None:
    pool = POOL.clone()
    moving.move_rows(pool, ids(0, 0), ids(3, 3))
    assert pool[3].tolist() == [0, 1]
